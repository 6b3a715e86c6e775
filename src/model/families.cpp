#include "model/families.h"

namespace slideway {
namespace {

constexpr Family kFamilies[] = {
    // Llama 2, 3, 3.1, 3.2, 3.3; SmolLM2
    {"llama",
     "LlamaForCausalLM",
     "llama",
     AttentionBias::by_config,
     true,
     false,
     Windows::never,
     true,
     {.max_position_embeddings = 2048, .bos_token_id = 1, .eos_token_id = 2}},
    {"mistral",
     "MistralForCausalLM",
     "llama",
     AttentionBias::never,
     false,
     false,
     Windows::every_layer,
     true,
     {.num_key_value_heads = 8, .max_position_embeddings = 131072, .bos_token_id = 1, .eos_token_id = 2}},
    // Qwen2, Qwen2.5
    {"qwen2",
     "Qwen2ForCausalLM",
     "qwen2",
     AttentionBias::qkv,
     false,
     false,
     Windows::upper_layers,
     false,
     {.num_key_value_heads = 32, .max_position_embeddings = 32768}},
    {"qwen3",
     "Qwen3ForCausalLM",
     "qwen3",
     AttentionBias::by_config,
     false,
     true,
     Windows::upper_layers,
     false,
     {.num_key_value_heads = 32, .head_dim = 128, .max_position_embeddings = 32768}},
};

}  // namespace

std::span<const Family> families() {
  return kFamilies;
}

const Family* find_family(const std::string& name) {
  for (const Family& family : kFamilies)
    if (family.name == name) return &family;
  return nullptr;
}

const Family* find_gguf_family(const std::string& architecture) {
  for (const Family& family : kFamilies)
    if (family.gguf_architecture == architecture) return &family;
  return nullptr;
}

}  // namespace slideway
