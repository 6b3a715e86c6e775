// What an adapter's file holds, tensor by tensor, and which module of the model each belongs to.
//
// These are the checks that need no numbers: every tensor has its place and its partners, every module that the config
// names has its tensors, and all shapes and types agree.
//
// Errors   corrupt, unsupported: with the file, the tensors' names and both shapes
// Source   peft's save_and_load.py; docs/formats.md
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/safetensors.h"
#include "lora/adapter_config.h"

namespace slideway {

// The kinds of tensors that one module may have in an adapter's file.
enum class Piece {
  a,            // lora_A.weight [R, C], or of an embedding lora_embedding_A [R, V]
  b,            // lora_B.weight [N, R], or lora_embedding_B [D, R]
  b_bias,       // lora_B.bias [N]
  magnitude,    // lora_magnitude_vector [N], or of an embedding [D]
  bias,         // bias, base_layer.bias [N]: in place of the base's
  base_weight,  // base_layer.weight: a copy of the base's
  weight,       // weight [V, D]: in place of the base's
  tokens,       // token_adapter.trainable_tokens_delta [k, D]: rows in place of the base's
};
constexpr std::size_t kPieces = 8;

struct FoundModule {
  int layer = -1;  // −1: the embedding or the head
  Role role = Role::q_proj;
  const TensorSpec* weight = nullptr;  // of the base; where tied, the head's is the embedding's
  const TensorSpec* bias = nullptr;    // of the base; null: it has none
  std::array<const SafetensorsEntry*, kPieces> pieces{};
  const SafetensorsEntry* operator[](Piece piece) const { return pieces[std::size_t(piece)]; }
  const SafetensorsEntry*& operator[](Piece piece) { return pieces[std::size_t(piece)]; }
  bool is_embedding() const { return role == Role::embed_tokens; }
};

// By the module's name, only those that have tensors.
using FoundModules = std::map<std::string, FoundModule>;
FoundModules find_modules(const SafetensorsFile& file, const AdapterConfig& config,
                          const ModelLayout& layout);

// The tokens that have rows of their own in this module; empty: none.
std::vector<std::int64_t> tokens_of(const AdapterConfig& config, const std::string& module);

std::optional<Role> biased_role(Role bias);        // the projection whose bias this is; none: it is no bias
std::vector<float> widened(const Tensor& tensor);  // f32 or bf16, as f32

}  // namespace slideway
