// A decoder of two layers, small enough to write its adapters by hand.
#pragma once

#include <string>
#include <vector>

#include "core/file.h"
#include "formats/safetensors.h"
#include "model/tensor_table.h"

namespace slideway {

inline ModelConfig small_config() {
  ModelConfig config;
  config.family = "llama";
  config.vocab_size = 16;
  config.hidden_size = 8;
  config.intermediate_size = 12;
  config.num_attention_heads = 2;
  config.num_key_value_heads = 1;
  config.head_dim = 4;
  config.max_position_embeddings = 64;
  config.ropes = {{.inv_freq = {1.0f, 0.1f}}};
  config.layers.resize(2);
  return config;
}

struct TestTensor {
  std::string name, dtype;
  std::vector<std::int64_t> shape;
  std::vector<float> values;  // empty: 0.25, 0.5, 0.75, …
};

inline void write_adapter(const fs::path& folder, const std::string& config,
                          std::vector<TestTensor> tensors) {
  write_text_atomically(folder / "adapter_config.json", config);
  std::vector<SafetensorsWriter::Declared> declared;
  for (const auto& t : tensors) declared.push_back({t.name, t.dtype, t.shape});
  SafetensorsWriter writer(folder / "adapter_model.safetensors", declared);
  for (auto& t : tensors) {
    std::int64_t n = 1;
    for (const auto size : t.shape) n *= size;
    if (t.values.empty())
      for (std::int64_t i = 0; i < n; ++i) t.values.push_back(0.25f * float(i % 7 + 1));
    for (const float value : t.values) {
      if (t.dtype == "F32") {
        writer.write(std::as_bytes(std::span(&value, 1)));
      } else {
        const std::uint16_t half = t.dtype == "BF16" ? to_bf16(value) : to_half(value);
        writer.write(std::as_bytes(std::span(&half, 1)));
      }
    }
  }
  writer.close();
}

// A and B of one module of small_config() at rank r.
inline std::vector<TestTensor> module_tensors(const std::string& module, std::int64_t n, std::int64_t c,
                                              std::int64_t r, const std::string& dtype = "F32") {
  const std::string name = "base_model.model." + module;
  return {{name + ".lora_A.weight", dtype, {r, c}, {}}, {name + ".lora_B.weight", dtype, {n, r}, {}}};
}

inline std::vector<TestTensor> operator+(std::vector<TestTensor> a, const std::vector<TestTensor>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace slideway
