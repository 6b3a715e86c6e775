// Golden: what transformers and peft computed with one tiny model (tests/golden, made by tools/make_goldens.py).
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "formats/safetensors.h"
#include "support/project_path.h"

namespace slideway {

inline const std::vector<std::string> kGoldenFamilies = {"llama", "llama_tied", "qwen2", "qwen3", "mistral"};

// max |found − wanted| / max |wanted|
inline double distance(std::span<const float> found, std::span<const float> wanted) {
  if (found.size() != wanted.size()) return INFINITY;
  double off = 0, most = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!std::isfinite(found[i])) return INFINITY;
    off = std::max(off, std::abs(double(found[i]) - wanted[i]));
    most = std::max(most, std::abs(double(wanted[i])));
  }
  return most > 0 ? off / most : off;
}

class Golden {
 public:
  explicit Golden(const std::string& family)
      : folder_(project_path("tests/golden") / family), file_(folder_ / "golden.safetensors") {}

  const std::filesystem::path& folder() const { return folder_; }
  std::filesystem::path adapter() const { return folder_ / "adapter"; }
  const SafetensorsFile& file() const { return file_; }
  std::vector<float> f32(const std::string& name) const { return numbers<float>(name, "F32"); }
  std::vector<std::int32_t> i32(const std::string& name) const { return numbers<std::int32_t>(name, "I32"); }
  std::vector<std::int32_t> i32(const std::string& name, std::int64_t row) const {
    const std::vector<std::int32_t> all = i32(name);
    const std::int64_t width = file_.find(name)->shape[1];
    return {all.begin() + row * width, all.begin() + (row + 1) * width};
  }

 private:
  template <class T>
  std::vector<T> numbers(const std::string& name, const std::string& dtype) const {
    const SafetensorsEntry* entry = file_.find(name);
    CHECK(entry && entry->dtype == dtype, file_.path().string(), " has no ", name, " of ", dtype);
    std::vector<T> out(std::size_t(entry->elements()));
    std::memcpy(out.data(), file_.bytes(*entry).data(), entry->bytes);
    return out;
  }

  std::filesystem::path folder_;
  SafetensorsFile file_;
};

}  // namespace slideway
