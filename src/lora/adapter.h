// Adapter: one LoRA adapter in peft's format, loaded for one model.
//
//   y = factor · W x + shift + scale · B (A x)       for every module it adapts
//
// Where nothing but B and A is trained, factor is 1 and shift 0. DoRA's factor is magnitude / ‖W + scale·BA‖, row by row;
// biases, of the base or of B, come in through shift. Both are computed once, here, from the base's own numbers.
//
// A loaded adapter is exact: every tensor of its file has found its place, every A its B, every module that the
// config names its tensors, ranks and shapes agree, and all numbers are finite. Otherwise it does not load.
//
// Units    bytes
// Owns     its tensors
// Threads  const calls from any number of threads
// Errors   not_found, corrupt, unsupported: with the folder, the tensors' names and both shapes
// Source   peft's save_and_load.py; docs/formats.md
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lora/adapter_config.h"
#include "model/weights.h"

namespace slideway {

struct AdapterModule {
  int layer = 0;             // −1: embedding or head
  Role role = Role::q_proj;  // q_proj … down_proj, embed_tokens, lm_head
  std::string name;          // "model.layers.3.self_attn.q_proj"
  Tensor a;  // [R, C] f32 or bf16, as in the file (FP16 is widened); of an embedding turned: [V, R]
  Tensor b;  // [N, R]; with DoRA times factor, f32. a and b empty: only a bias is trained
  Tensor factor, shift;  // [N] f32, or empty: 1 and 0
  float scale = 1;
  std::int64_t rank() const { return b ? b.size(1) : 0; }
};

// What an adapter changes at one end of the model, its token embedding or its head, beside what a module adds.
struct AdapterEnd {
  const AdapterModule* module = nullptr;
  Tensor weight;                     // [V, D] in place of the base's, or empty
  std::vector<std::int32_t> tokens;  // these tokens' rows …
  Tensor rows;                       // … are these, [k, D], or empty
  explicit operator bool() const { return module || weight || rows; }
};

class Adapter {
 public:
  const AdapterConfig& config() const { return config_; }
  std::span<const AdapterModule> modules() const { return modules_; }  // by layer (ends first), then role
  std::span<const AdapterModule> modules_of(int layer) const;
  const AdapterEnd& embedding() const { return embedding_; }
  const AdapterEnd& head() const { return head_; }  // where tied, trained tokens count here too
  std::int64_t max_rank() const;
  // SHA-256, in hex, of all that changes what the adapter computes: names, shapes, scales and the numbers
  // themselves.
  const std::string& digest() const { return digest_; }
  std::uint64_t bytes() const { return bytes_; }
  std::int64_t parameters() const { return parameters_; }  // trained numbers in the file

 private:
  friend class AdapterLoad;
  struct Freed {
    void operator()(std::byte* data) const;
  };
  AdapterConfig config_;
  std::vector<AdapterModule> modules_;
  AdapterEnd embedding_, head_;
  std::vector<std::size_t> first_;  // [L + 1]: where each layer's modules begin
  std::unique_ptr<std::byte[], Freed> memory_;
  std::uint64_t bytes_ = 0;
  std::int64_t parameters_ = 0;
  std::string digest_;
};

// A folder with adapter_config.json and adapter_model.safetensors. base gives the base's tensors as they are served; it is
// asked only where DoRA, biases or copies of the base's weights need it.
Adapter load_adapter(const std::filesystem::path& folder, const ModelLayout& layout,
                     const FetchTensor& base = {});

// "base_model.model.model.layers.3.self_attn.q_proj": peft's prefix before the path of a module.
inline constexpr const char* kPeftPrefix = "base_model.model.";

}  // namespace slideway
