// WeightFiles: the tensors of a model on disk, whatever the format, by their Hugging Face names.
//
// Opening reads headers only and checks every tensor of the layout: present, shape, type. Reading converts to f32
// (exact from BF16 and FP16, dequantised from GGUF types), one tensor at a time, and lets the source pages go, so that
// loading needs the model's size once. GGUF's permuted q and k rows (Llama family) come back in Hugging Face order.
//
// Threads  read may run on several threads
// Errors   not_found (tensor and file), corrupt (truncated, wrong shape, NaN or Inf: tensor and index), unsupported
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/tensor_table.h"

namespace slideway {

class WeightFiles {
 public:
  // A Hugging Face folder, a .gguf file, or a folder that holds exactly one .gguf file and no config.json.
  static std::unique_ptr<WeightFiles> open(const std::filesystem::path& path);
  virtual ~WeightFiles() = default;

  const ModelConfig& config() const { return config_; }
  const ModelLayout& layout() const { return layout_; }
  const std::filesystem::path& path() const { return path_; }
  virtual bool is_gguf() const = 0;

  // out: spec.elements() numbers
  virtual void read(const TensorSpec& spec, std::span<float> out) const = 0;
  // Stored type of a tensor for people: "BF16", "Q4_1", …
  virtual std::string stored_type(const TensorSpec& spec) const = 0;
  // Files to be carried along into an output folder unread: tokenizer, configs, templates, licences.
  virtual std::vector<std::filesystem::path> other_files() const = 0;

 protected:
  // corrupt, with the tensor, its index and the file, if a value is NaN or infinite
  static void check_finite(const TensorSpec& spec, std::span<const float> values, const std::string& file);

  ModelConfig config_;
  ModelLayout layout_;
  std::filesystem::path path_;
};

// Reads a whole block as f32; the gaps become zero. out: block.elements numbers.
void read_block(const WeightFiles& files, const BlockLayout& block, std::span<float> out);

// Writes a Hugging Face folder: config.json (the source's own, with the new type; made from GGUF metadata where need
// be), the source's other files, safetensors sharded with an index. Tensors come one at a time from fetch (f32) and
// are stored as type: bf16 and f16 rounded to nearest even. The folder appears whole or not at all.
//
// Errors   io, invalid_input (a number too large for f16: tensor, number)
struct NamedText {
  std::string name, text;
};
struct SaveOptions {
  DType type = DType::bf16;  // bf16, f16 or f32
  std::uint64_t shard_bytes = 5'000'000'000;
  // Files to add, such as the tokenizer's for a GGUF source; they win over the source's files of the same name.
  std::vector<NamedText> extra_files;
};
using FetchTensor = std::function<void(const TensorSpec& spec, std::span<float> out)>;
void save_model(const std::filesystem::path& folder, const WeightFiles& source, const FetchTensor& fetch,
                const SaveOptions& options);

}  // namespace slideway
