// A tiny model folder: config.json with the fields a test changes, and weights that tell where they come from.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/file.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "model/tensor_table.h"
#include "support/gguf_bytes.h"

namespace slideway {

// Two Llama layers; changes is a JSON object whose fields replace or join these.
inline Json tiny_config(const std::string& changes = "{}") {
  Json config = parse_json(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 16, "hidden_size": 8,
    "intermediate_size": 12, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
    "max_position_embeddings": 64, "rms_norm_eps": 1e-5, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"
  })",
                           "tiny");
  const Json wanted = parse_json(changes, "changes");
  for (const auto& [key, value] : wanted.items()) config[key] = value;
  if (wanted.contains("model_type") && !wanted.contains("architectures")) config.erase("architectures");
  return config;
}

inline void write_config(const fs::path& folder, const Json& config) {
  fs::create_directories(folder);
  write_file(folder / "config.json", config.dump(2));
}

// A number that differs between tensors and within one, and survives BF16 and FP16.
inline float tiny_value(const TensorSpec& spec, std::int64_t i) {
  return float(std::int64_t(std::hash<std::string>()(spec.name) % 61) - 30 + i % 17) / 32;
}

inline std::vector<float> tiny_values(const TensorSpec& spec) {
  std::vector<float> values(std::size_t(spec.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = tiny_value(spec, std::int64_t(i));
  return values;
}

inline std::vector<const TensorSpec*> all_tensors(const ModelLayout& layout) {
  std::vector<const TensorSpec*> specs;
  for (const BlockLayout* block : layout.blocks())
    for (const TensorSpec& spec : block->tensors) specs.push_back(&spec);
  return specs;
}

struct NamedValues {
  std::string name;
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

inline NamedValues tiny_tensor(const TensorSpec& spec) {
  return {spec.name, spec.shape, tiny_values(spec)};
}

inline void write_shard(const fs::path& path, const std::vector<NamedValues>& tensors,
                        DType type = DType::f32) {
  std::vector<SafetensorsWriter::Declared> declared;
  const char* name = type == DType::f32 ? "F32" : type == DType::bf16 ? "BF16" : "F16";
  for (const NamedValues& tensor : tensors) declared.push_back({tensor.name, name, tensor.shape});
  SafetensorsWriter writer(path, declared);
  for (const NamedValues& tensor : tensors)
    for (const float x : tensor.values) {
      const std::uint16_t half = type == DType::bf16 ? to_bf16(x) : to_half(x);
      writer.write(type == DType::f32 ? std::as_bytes(std::span(&x, 1)) : std::as_bytes(std::span(&half, 1)));
    }
  writer.close();
}

// config.json and model.safetensors with every tensor of the layout, after change has had its way with them.
inline void write_tiny_model(const fs::path& folder, const Json& config, DType type = DType::f32,
                             const std::function<void(std::vector<NamedValues>&)>& change = {}) {
  write_config(folder, config);
  const ModelLayout layout = make_layout(load_config(folder));
  std::vector<NamedValues> tensors;
  for (const TensorSpec* spec : all_tensors(layout)) tensors.push_back(tiny_tensor(*spec));
  if (change) change(tensors);
  write_shard(folder / "model.safetensors", tensors, type);
}

}  // namespace slideway
