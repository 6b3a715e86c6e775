// LoraLayout: the trained matrices of a new adapter, as one flat block a layer.
//
//   AdapterConfig config{.r = 8, .lora_alpha = 16, .target_modules = choose_modules("all-linear")};
//   LoraLayout lora = make_lora_layout(files.layout(), config);
//   init_lora_block(lora.layers[l], seed, values);              // A Kaiming-uniform, B zero
//   bind_lora(parts, files.layout().layers[l], lora.layers[l], values, DType::f32, gradients, rows);
//   decoder.forward(l, …, &parts.lora(dropout), …);
//   save_adapter(folder, lora, fetch);
//
// Blocks may differ in size between layers (layers_to_transform, rank_pattern); one without modules has 0 elements.
//
// Units    elements
// Errors   invalid_input: a choice of modules that matches nothing, or that no linear layer of a decoder is named by
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "lora/lora_batch.h"

namespace slideway {

struct LoraModule {
  int layer = 0;
  Role role = Role::q_proj;
  std::string name;          // "model.layers.3.self_attn.q_proj"
  std::int64_t outputs = 0;  // N
  std::int64_t inputs = 0;   // C
  std::int64_t rank = 0;     // R
  float scale = 1;
  std::int64_t a_offset = 0,
               b_offset = 0;      // of A [R, C] and B [N, R] in the layer's block; multiples of kTensorAlign
  std::uint64_t dropout_key = 0;  // differs between any two modules of the model
};

struct LoraBlock {
  std::vector<LoraModule> modules;
  std::int64_t elements = 0;  // with gaps, which are zero and stay zero
};

struct LoraLayout {
  AdapterConfig config;
  std::vector<LoraBlock> layers;    // [L]
  std::int64_t parameters() const;  // without gaps
};

LoraLayout make_lora_layout(const ModelLayout& layout, const AdapterConfig& config);

// Values to start from, as peft's: A uniform in ±1/sqrt(C) (Kaiming-uniform with a = sqrt 5), B and gaps
// zero. An element depends on (seed, its module, its place) alone.
void init_lora_block(const LoraBlock& block, std::uint64_t seed, std::span<float> values);

// parts = the layer's modules over all of rows [0, rows), as views into values (f32 or bf16) and gradients
// (f32; null where none are wanted).
void bind_lora(LayerParts& parts, const BlockLayout& layer, const LoraBlock& block, void* values, DType type,
               float* gradients, std::int64_t rows);

// The values of a layer's block, as f32.
using FetchLora = std::function<void(int layer, std::span<float> values)>;

// Writes adapter_config.json and adapter_model.safetensors (F32) into a folder that exists, then opens the file
// again: a trained tensor that is absent, empty or changed is an internal error.
void write_adapter(const std::filesystem::path& folder, const LoraLayout& layout, const FetchLora& fetch);
// The same as a folder that appears whole or not at all.
void save_adapter(const std::filesystem::path& folder, const LoraLayout& layout, const FetchLora& fetch);

}  // namespace slideway
