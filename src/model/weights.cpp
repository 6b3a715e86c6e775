#include "model/weights.h"

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "core/file.h"
#include "model/weight_sources.h"

namespace slideway {
namespace {

bool is_infinite_or_nan(float x) {
  return (std::bit_cast<std::uint32_t>(x) & 0x7f800000u) == 0x7f800000u;
}

std::vector<fs::path> gguf_files(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".gguf") found.push_back(entry.path());
  return found;
}

}  // namespace

std::unique_ptr<WeightFiles> WeightFiles::open(const std::filesystem::path& path) {
  if (!fs::exists(path))
    fail(ErrorKind::not_found, path.string(),
         ": there is no such file or folder; a Hugging Face folder or a .gguf ", "file is expected");
  if (!fs::is_directory(path)) {
    if (path.extension() == ".gguf") return open_gguf(path);
    fail(ErrorKind::unsupported, path.string(), ": a Hugging Face folder or a .gguf file is expected");
  }
  if (fs::exists(path / "config.json")) return open_hf_folder(path);
  const std::vector<fs::path> ggufs = gguf_files(path);
  if (ggufs.size() == 1) return open_gguf(ggufs.front());
  fail(ErrorKind::not_found, path.string(), ": there is no config.json, and ", ggufs.size(),
       " .gguf files; name the file meant");
}

void WeightFiles::check_finite(const TensorSpec& spec, std::span<const float> values,
                               const std::string& file) {
  bool bad = false;
  for (const float x : values) bad |= is_infinite_or_nan(x);
  if (!bad) return;
  const auto at = std::find_if(values.begin(), values.end(), is_infinite_or_nan) - values.begin();
  const std::int64_t row = spec.shape.back();
  const std::string index = spec.shape.size() == 1
                                ? std::to_string(at)
                                : std::to_string(at / row) + ", " + std::to_string(at % row);
  fail(ErrorKind::corrupt, file, ": the tensor ", spec.name, " ", shape_text(spec.shape), " holds ",
       values[std::size_t(at)], " at [", index, "]");
}

void read_block(const WeightFiles& files, const BlockLayout& block, std::span<float> out) {
  CHECK(std::int64_t(out.size()) == block.elements, block.name);
  std::int64_t end = 0;
  for (const TensorSpec& spec : block.tensors) {
    std::fill(out.begin() + end, out.begin() + spec.offset, 0.0f);
    end = spec.offset + spec.elements();
    files.read(spec, out.subspan(std::size_t(spec.offset), std::size_t(spec.elements())));
  }
  std::fill(out.begin() + end, out.end(), 0.0f);
}

}  // namespace slideway
