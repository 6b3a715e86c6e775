#include "core/error.h"
#include "formats/json.h"
#include "formats/safetensors.h"

namespace slideway {
namespace {

std::uint64_t bytes_of_declared(const SafetensorsWriter::Declared& tensor) {
  const SafetensorsEntry entry{.name = tensor.name, .dtype = tensor.dtype, .shape = tensor.shape};
  return std::uint64_t(entry.elements()) * safetensors_bytes(tensor.dtype);
}

// The header with its length before it, padded so that the data begin on a multiple of 8.
std::string header_of(const std::vector<SafetensorsWriter::Declared>& tensors,
                      const std::map<std::string, std::string>& metadata) {
  std::string text = "{";
  if (!metadata.empty()) text += "\"__metadata__\":" + Json(metadata).dump() + ",";
  std::uint64_t at = 0;
  for (const auto& tensor : tensors) {
    const std::uint64_t end = at + bytes_of_declared(tensor);
    const Json entry = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {at, end}}};
    text += Json(tensor.name).dump() + ":" + entry.dump() + ",";
    at = end;
  }
  if (text.back() == ',') text.pop_back();
  text += "}";
  text.append((8 - text.size() % 8) % 8, ' ');
  std::string length(8, '\0');
  for (int i = 0; i < 8; ++i) length[std::size_t(i)] = char(text.size() >> (8 * i) & 255);
  return length + text;
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(const std::filesystem::path& path, std::vector<Declared> tensors,
                                     const std::map<std::string, std::string>& metadata)
    : file_(File::create(path)) {
  for (const Declared& tensor : tensors) expected_ += bytes_of_declared(tensor);
  file_.write(std::string_view(header_of(tensors, metadata)));
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  CHECK(bytes.size() <= expected_ - written_, "more bytes than were declared for ", file_.path().string());
  file_.write(bytes);
  written_ += bytes.size();
}

void SafetensorsWriter::close() {
  CHECK(written_ == expected_, file_.path().string(), ": ", written_, " bytes of ", expected_, " came");
  file_.sync();
  file_.close();
}

}  // namespace slideway
