// ModelConfig: what a Llama-family model is, as data, read from config.json or GGUF metadata.
//
// A family is a row of a table (model/families.h): which config keys it knows, whether its projections have biases,
// whether heads are normed. A config field that would change the mathematics and is not understood is refused by name.
//
// Errors   not_found, corrupt, unsupported (names the field and its value), all with the file
// Source   transformers' configuration classes; docs/formats.md
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "model/rope.h"

namespace slideway {

class GgufFile;

// What may differ between layers.
struct LayerConfig {
  int sliding_window = 0;  // 0: full attention
  int rope = 0;            // index into ModelConfig::ropes
};

struct ModelConfig {
  std::string family;                  // "llama", "mistral", "qwen2", "qwen3"
  std::int64_t vocab_size = 0;         // V
  std::int64_t hidden_size = 0;        // D
  std::int64_t intermediate_size = 0;  // F
  int num_attention_heads = 0;         // H
  int num_key_value_heads = 0;         // K
  int head_dim = 0;                    // E
  float rms_norm_eps = 1e-5f;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;  // q, k, v projections have biases
  bool o_bias = false;    // the attention output projection too (Llama's attention_bias)
  bool mlp_bias = false;
  bool qk_norm = false;
  std::int64_t max_position_embeddings = 0;
  std::vector<RopeConfig> ropes;
  std::vector<LayerConfig> layers;  // [L]
  int bos_token_id = -1;            // −1: none
  std::vector<int> eos_token_ids;   // union of config.json and generation_config.json
  std::string torch_dtype;          // "bfloat16", …: the type that saved weights get

  int num_layers() const { return int(layers.size()); }
  float attention_scale() const;  // 1 / sqrt(E)
};

// A folder with config.json (and generation_config.json where there is one).
ModelConfig load_config(const std::filesystem::path& folder);
ModelConfig load_config(const GgufFile& gguf);
// config.json's text for a model that came from elsewhere (GGUF), readable by transformers of old and of new.
std::string config_json(const ModelConfig& config);

}  // namespace slideway
