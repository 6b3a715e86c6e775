// The families: what differs between the models this program knows, a row each. Adding one that is Llama-like in its
// computation means adding a row here, and its golden test.
//
// Source   transformers' configuration classes; llama.cpp's conversion (GGUF names, permuted rows)
#pragma once

#include <span>
#include <string>

namespace slideway {

enum class AttentionBias {
  never,
  qkv,        // always on q, k and v, never on o
  by_config,  // attention_bias: on q, k, v and o
};

enum class Windows {
  never,
  every_layer,   // sliding_window alone decides; layer_types may exempt layers
  upper_layers,  // use_sliding_window, from layer max_window_layers on; layer_types overrides
};

// The values that transformers assumes for keys that a config.json leaves out.
struct AbsentKeys {
  int num_key_value_heads = 0;  // 0: as many as num_attention_heads
  int head_dim = 0;             // 0: hidden_size / num_attention_heads
  std::int64_t max_position_embeddings = 0;
  int bos_token_id = -1, eos_token_id = -1;  // −1: none
};

struct Family {
  const char* name;               // model_type
  const char* architecture;       // of architectures
  const char* gguf_architecture;  // general.architecture
  AttentionBias attention_bias;
  bool mlp_bias;  // the key mlp_bias is known
  bool qk_norm;   // heads of q and k are normed before rope
  Windows windows;
  bool gguf_permutes;  // GGUF interleaves the two halves of each head of q and k
  AbsentKeys absent;
};

std::span<const Family> families();
const Family* find_family(const std::string& name);               // null when unknown
const Family* find_gguf_family(const std::string& architecture);  // the first row with it; null when unknown

}  // namespace slideway
