// config.json, written. The old spelling of rope is what every version of transformers reads; only tables by layer
// type need the new one.
#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "core/error.h"
#include "formats/json.h"
#include "model/config.h"
#include "model/families.h"

namespace slideway {
namespace {

// A float as the shortest decimal that reads back as the same float: 1e-05, not 9.999999747378752e-06.
double shortest(float value) {
  char text[32] = {};
  std::to_chars(text, text + sizeof(text) - 1, value);
  return std::strtod(text, nullptr);
}

// Whole numbers without a fraction, as people write them.
Json number(double value) {
  if (value == double(std::int64_t(value)) && value < 1e15) return std::int64_t(value);
  return value;
}

Json scaling_json(const RopeParameters& p) {
  Json json = {{"rope_type", p.type}};
  if (p.type == "default") return json;
  json["factor"] = p.factor;
  if (p.type == "linear") return json;
  json["original_max_position_embeddings"] = number(p.original_max_position_embeddings);
  if (p.type == "llama3") {
    json["low_freq_factor"] = p.low_freq_factor;
    json["high_freq_factor"] = p.high_freq_factor;
    return json;
  }
  const RopeParameters absent;
  if (p.attention_factor) json["attention_factor"] = *p.attention_factor;
  if (p.mscale) json["mscale"] = *p.mscale;
  if (p.mscale_all_dim) json["mscale_all_dim"] = *p.mscale_all_dim;
  if (p.beta_fast != absent.beta_fast) json["beta_fast"] = p.beta_fast;
  if (p.beta_slow != absent.beta_slow) json["beta_slow"] = p.beta_slow;
  if (!p.truncate) json["truncate"] = false;
  return json;
}

const char* layer_type(const LayerConfig& layer) {
  return layer.sliding_window > 0 ? "sliding_attention" : "full_attention";
}

void write_rope(const ModelConfig& config, Json& json) {
  if (config.ropes.size() == 1) {
    const RopeParameters& rope = config.ropes.front().parameters;
    json["rope_theta"] = rope.theta;
    json["rope_scaling"] = rope.type == "default" ? Json() : scaling_json(rope);
    return;
  }
  Json nested = Json::object();
  for (const LayerConfig& layer : config.layers) {
    const RopeParameters& rope = config.ropes[std::size_t(layer.rope)].parameters;
    nested[layer_type(layer)] = scaling_json(rope);
    nested[layer_type(layer)]["rope_theta"] = rope.theta;
  }
  json["rope_parameters"] = nested;
}

void write_windows(const ModelConfig& config, const Family& family, Json& json) {
  if (family.windows == Windows::never) return;
  int window = 0;
  std::vector<std::string> types;
  for (const LayerConfig& layer : config.layers) {
    window = std::max(window, layer.sliding_window);
    types.push_back(layer_type(layer));
  }
  const bool mixed = std::adjacent_find(types.begin(), types.end(), std::not_equal_to<>()) != types.end();
  json["sliding_window"] = window > 0 ? Json(window) : Json();
  if (family.windows == Windows::upper_layers) json["use_sliding_window"] = window > 0;
  if (family.windows == Windows::upper_layers || mixed) json["layer_types"] = types;
}

}  // namespace

std::string config_json(const ModelConfig& config) {
  const Family* family = find_family(config.family);
  CHECK(family != nullptr, config.family);
  Json json;
  json["architectures"] = {family->architecture};
  if (family->attention_bias == AttentionBias::by_config) json["attention_bias"] = config.qkv_bias;
  if (config.bos_token_id >= 0)
    json["bos_token_id"] = config.bos_token_id;
  else
    json["bos_token_id"] = nullptr;
  if (config.eos_token_ids.size() == 1)
    json["eos_token_id"] = config.eos_token_ids.front();
  else
    json["eos_token_id"] = config.eos_token_ids.empty() ? Json() : Json(config.eos_token_ids);
  json["head_dim"] = config.head_dim;
  json["hidden_act"] = "silu";
  json["hidden_size"] = config.hidden_size;
  json["intermediate_size"] = config.intermediate_size;
  json["max_position_embeddings"] = config.max_position_embeddings;
  if (family->mlp_bias) json["mlp_bias"] = config.mlp_bias;
  json["model_type"] = config.family;
  json["num_attention_heads"] = config.num_attention_heads;
  json["num_hidden_layers"] = config.num_layers();
  json["num_key_value_heads"] = config.num_key_value_heads;
  json["rms_norm_eps"] = shortest(config.rms_norm_eps);
  write_rope(config, json);
  write_windows(config, *family, json);
  json["tie_word_embeddings"] = config.tie_word_embeddings;
  json["torch_dtype"] = config.torch_dtype.empty() ? "bfloat16" : config.torch_dtype;
  json["vocab_size"] = config.vocab_size;
  return json.dump(2) + "\n";
}

}  // namespace slideway
