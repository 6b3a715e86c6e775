#include "model/shapes.h"

#include "core/error.h"

namespace slideway {
namespace {

struct Shape {
  const char* name;
  const char* family;
  int layers;
  std::int64_t hidden_size, intermediate_size;
  int heads, key_value_heads, head_dim;
  std::int64_t vocab_size;
  bool tied;
  double theta;
};

constexpr Shape kShapes[] = {
    {"smollm2-135m", "llama", 30, 576, 1536, 9, 3, 64, 49152, true, 1e5},
    {"qwen3-4b", "qwen3", 36, 2560, 9728, 32, 8, 128, 151936, true, 1e6},
    {"qwen3-8b", "qwen3", 36, 4096, 12288, 32, 8, 128, 151936, false, 1e6},
    {"qwen3-14b", "qwen3", 40, 5120, 17408, 40, 8, 128, 151936, false, 1e6},
    {"llama-3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, false, 5e5},
    {"mistral-24b", "mistral", 40, 5120, 32768, 32, 8, 128, 131072, false, 1e8},
    {"llama-3.3-70b", "llama", 80, 8192, 28672, 64, 8, 128, 128256, false, 5e5},
    {"mistral-large-123b", "mistral", 88, 12288, 28672, 96, 8, 128, 32768, false, 1e6},
};

const Shape* find(const std::string& name) {
  for (const Shape& shape : kShapes)
    if (name == shape.name) return &shape;
  return nullptr;
}

}  // namespace

std::string known_shapes() {
  std::string names;
  for (const Shape& shape : kShapes) names += std::string(names.empty() ? "" : ", ") + shape.name;
  return names;
}

bool is_known_shape(const std::string& name) {
  return find(name) != nullptr;
}

ModelConfig config_of_shape(const std::string& name, int layers) {
  const Shape* shape = find(name);
  if (!shape) fail(ErrorKind::not_found, "there is no shape '", name, "'; known are ", known_shapes());
  if (layers > shape->layers)
    fail(ErrorKind::invalid_input, name, " has ", shape->layers, " layers, not ", layers);
  ModelConfig config{.family = shape->family,
                     .vocab_size = shape->vocab_size,
                     .hidden_size = shape->hidden_size,
                     .intermediate_size = shape->intermediate_size,
                     .num_attention_heads = shape->heads,
                     .num_key_value_heads = shape->key_value_heads,
                     .head_dim = shape->head_dim,
                     .tie_word_embeddings = shape->tied,
                     .qk_norm = std::string(shape->family) == "qwen3",
                     .max_position_embeddings = 32768,
                     .torch_dtype = "bfloat16"};
  config.ropes.push_back(make_rope({.theta = shape->theta}, shape->head_dim));
  config.layers.resize(std::size_t(layers > 0 ? layers : shape->layers));
  return config;
}

}  // namespace slideway
