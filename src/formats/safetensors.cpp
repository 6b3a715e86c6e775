#include "formats/safetensors.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>

#include "core/error.h"
#include "formats/json.h"

namespace slideway {
namespace {

constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;  // the reference's own limit
constexpr std::size_t kPieceBytes = 16 << 20;           // source pages held while a tensor is read

struct StoredType {
  const char* name;
  int bytes;
};
constexpr StoredType kTypes[] = {{"F32", 4},     {"BF16", 2}, {"F16", 2},  {"F64", 8},     {"I64", 8},
                                 {"U64", 8},     {"I32", 4},  {"U32", 4},  {"I16", 2},     {"U16", 2},
                                 {"I8", 1},      {"U8", 1},   {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
                                 {"F8_E8M0", 1}, {"C64", 8}};

std::uint64_t take_offset(const SortedJson& value, const std::string& where) {
  if (!value.is_number_unsigned())
    fail(ErrorKind::corrupt, where, ": ", value.dump(), " is not an offset or a size");
  return value.get<std::uint64_t>();
}

// Offsets in the file's own terms: from the end of the header.
SafetensorsEntry take_entry(const std::string& name, const SortedJson& json, const std::string& where) {
  if (!json.is_object() || json.size() != 3 || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets") || !json["dtype"].is_string() || !json["shape"].is_array() ||
      !json["data_offsets"].is_array() || json["data_offsets"].size() != 2)
    fail(ErrorKind::corrupt, where, ": dtype, shape and two data_offsets are expected, found ",
         json.dump().substr(0, 200));
  SafetensorsEntry entry{.name = name, .dtype = json["dtype"].get<std::string>()};
  const std::uint64_t begin = take_offset(json["data_offsets"][0], where),
                      end = take_offset(json["data_offsets"][1], where);
  std::uint64_t elements = 1;
  for (const SortedJson& axis : json["shape"]) {
    const std::uint64_t size = take_offset(axis, where);
    if (size != 0 && elements > std::uint64_t(std::numeric_limits<std::int64_t>::max()) / 16 / size)
      fail(ErrorKind::corrupt, where, ": the shape ", json["shape"].dump().substr(0, 200),
           " is absurdly large");
    entry.shape.push_back(std::int64_t(size));
    elements *= size;
  }
  entry.offset = begin;
  try {
    entry.bytes = elements * safetensors_bytes(entry.dtype);
  } catch (const Error& error) {
    fail(error.kind(), where, ": ", error.what());
  }
  if (begin > end || end - begin != entry.bytes)
    fail(ErrorKind::corrupt, where, ": ", entry.dtype, " ", shape_text(entry.shape), " takes ", entry.bytes,
         " bytes, but data_offsets are [", begin, ", ", end, "]");
  return entry;
}

// The tensors must fill the data section: no gap, no overlap, nothing left.
void check_cover(const std::vector<SafetensorsEntry>& entries, std::uint64_t data_bytes,
                 const std::string& where) {
  std::uint64_t end = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.offset != end)
      fail(ErrorKind::corrupt, where, ": the tensor ", entry.name, " begins at ", entry.offset,
           " of the data section, ", entry.offset < end ? "inside" : "past the end of",
           " the one before it, which ends at ", end);
    if (entry.bytes > data_bytes - end)
      fail(ErrorKind::corrupt, where, ": the tensor ", entry.name, " (", entry.bytes, " bytes from ", end,
           ") passes the end of the data section (", data_bytes, " bytes); the file is cut short");
    end += entry.bytes;
  }
  if (end != data_bytes)
    fail(ErrorKind::corrupt, where, ": ", data_bytes - end, " bytes follow the last tensor, which ends at ",
         end, " of the data section");
}

void widen(const std::string& dtype, const std::byte* from, std::span<float> out) {
  if (dtype == "F32") {
    std::memcpy(out.data(), from, out.size_bytes());
    return;
  }
  const bool half = dtype == "F16";
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint16_t bits;
    std::memcpy(&bits, from + 2 * i, 2);
    out[i] = half ? half_to_float(bits) : to_float(bits);
  }
}

}  // namespace

std::uint64_t safetensors_bytes(const std::string& dtype) {
  for (const StoredType& type : kTypes)
    if (type.name == dtype) return std::uint64_t(type.bytes);
  fail(ErrorKind::unsupported, "the type ", dtype.substr(0, 40), " is not known");
}

std::int64_t SafetensorsEntry::elements() const {
  std::int64_t product = 1;
  for (auto size : shape) product *= size;
  return product;
}

SafetensorsFile::SafetensorsFile(const std::filesystem::path& path) : file_(path) {
  const std::string where = path.string();
  const auto bytes = file_.bytes();
  std::uint64_t header_bytes = 0;
  if (bytes.size() < 8) fail(ErrorKind::corrupt, where, ": ", bytes.size(), " bytes are no safetensors file");
  std::memcpy(&header_bytes, bytes.data(), 8);
  if (header_bytes > kMaxHeaderBytes || header_bytes > bytes.size() - 8)
    fail(ErrorKind::corrupt, where, ": the header is said to take ", header_bytes, " bytes; the file has ",
         bytes.size(), " (at most ", kMaxHeaderBytes,
         " are allowed); it is cut short or no safetensors file");
  const SortedJson header = parse_sorted_json(
      {reinterpret_cast<const char*>(bytes.data()) + 8, std::size_t(header_bytes)}, where + ": header");
  if (!header.is_object()) fail(ErrorKind::corrupt, where, ": the header is not a JSON object");
  for (const auto& [name, json] : header.items()) {
    if (name != "__metadata__") {
      entries_.push_back(take_entry(name, json, where + ": the tensor " + name));
      continue;
    }
    if (!json.is_object()) fail(ErrorKind::corrupt, where, ": __metadata__ is not an object");
    for (const auto& [key, value] : json.items()) {
      if (!value.is_string()) fail(ErrorKind::corrupt, where, ": __metadata__.", key, " is not a string");
      metadata_[key] = value.get<std::string>();
    }
  }
  // Tensors without elements share their offset with the next one; they come first.
  std::sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
    return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
  });
  check_cover(entries_, bytes.size() - 8 - header_bytes, where);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    entries_[i].offset += 8 + header_bytes;
    index_.emplace(entries_[i].name, i);
  }
  file_.drop(0, std::size_t(8 + header_bytes));
}

const SafetensorsEntry* SafetensorsFile::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

std::span<const std::byte> SafetensorsFile::bytes(const SafetensorsEntry& entry) const {
  return file_.bytes().subspan(std::size_t(entry.offset), std::size_t(entry.bytes));
}

void SafetensorsFile::drop(const SafetensorsEntry& entry) const {
  file_.drop(std::size_t(entry.offset), std::size_t(entry.bytes));
}

void SafetensorsFile::read_f32(const SafetensorsEntry& entry, std::span<float> out) const {
  CHECK(std::int64_t(out.size()) == entry.elements(), entry.name);
  if (entry.dtype != "F32" && entry.dtype != "BF16" && entry.dtype != "F16")
    fail(ErrorKind::unsupported, path().string(), ": the tensor ", entry.name, " is stored as ", entry.dtype,
         "; F32, BF16 and F16 are read");
  const std::size_t width = entry.dtype == "F32" ? 4 : 2, piece = kPieceBytes / width;
  for (std::size_t begin = 0; begin < out.size(); begin += piece) {
    const std::size_t count = std::min(piece, out.size() - begin);
    widen(entry.dtype, bytes(entry).data() + begin * width, out.subspan(begin, count));
    file_.drop(std::size_t(entry.offset) + begin * width, count * width);
  }
}

}  // namespace slideway
