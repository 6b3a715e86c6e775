// Adapter: one LoRA adapter in peft's format, loaded for one model.
//
//   y = W x + scale · B (A x)       for every module it adapts
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

namespace slideway {

struct AdapterModule {
  int layer = 0;
  Role role = Role::q_proj;  // q_proj … down_proj
  std::string name;          // "model.layers.3.self_attn.q_proj"
  Tensor a;                  // [R, C] f32 or bf16, as in the file (FP16 is widened)
  Tensor b;                  // [N, R]
  float scale = 1;
  std::int64_t rank() const { return a.size(0); }
};

class Adapter {
 public:
  const AdapterConfig& config() const { return config_; }
  std::span<const AdapterModule> modules() const { return modules_; }  // by layer, then role
  std::span<const AdapterModule> modules_of(int layer) const;
  // SHA-256, in hex, of all that changes what the adapter computes: names, shapes, scales and the numbers
  // themselves.
  const std::string& digest() const { return digest_; }
  std::uint64_t bytes() const { return bytes_; }
  std::int64_t parameters() const;

 private:
  friend Adapter load_adapter(const std::filesystem::path&, const ModelLayout&);
  struct Freed {
    void operator()(std::byte* data) const;
  };
  AdapterConfig config_;
  std::vector<AdapterModule> modules_;
  std::vector<std::size_t> first_;  // [L + 1]: where each layer's modules begin
  std::unique_ptr<std::byte[], Freed> memory_;
  std::uint64_t bytes_ = 0;
  std::string digest_;
};

// A folder with adapter_config.json and adapter_model.safetensors.
Adapter load_adapter(const std::filesystem::path& folder, const ModelLayout& layout);

// "base_model.model.model.layers.3.self_attn.q_proj": peft's prefix before the path of a module.
inline constexpr const char* kPeftPrefix = "base_model.model.";

}  // namespace slideway
