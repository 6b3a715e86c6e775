#include "model/config.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/file.h"
#include "model/config_checks.h"
#include "model/config_fields.h"
#include "model/config_rope.h"

namespace slideway {
namespace {

const Family& family_of(const Fields& config) {
  const std::string name = config.text_or("model_type", "");
  if (const Family* family = find_family(name)) return *family;
  std::string known;
  for (const Family& family : families()) known += std::string(known.empty() ? "" : ", ") + family.name;
  fail(ErrorKind::unsupported, config.where(), ": model_type is \"", name, "\"; known are ", known);
}

void append_token_ids(const Fields& fields, const char* key, std::vector<int>& ids) {
  if (!fields.has(key)) return;
  const Json& value = fields.at(key);
  for (const Json& id : value.is_array() ? value : Json::array({value})) {
    if (!id.is_number_integer() || id.get<std::int64_t>() > kMaxVocabulary)
      fields.wrong(key, "a token id or a list of them");
    const int number = int(std::max<std::int64_t>(id.get<std::int64_t>(), -1));
    if (number >= 0 && std::find(ids.begin(), ids.end(), number) == ids.end()) ids.push_back(number);
  }
}

void read_tokens(const Fields& config, const Family& family, const fs::path& folder, ModelConfig& out) {
  std::vector<int> bos;
  append_token_ids(config, "bos_token_id", bos);
  out.bos_token_id = !bos.empty()                             ? bos.front()
                     : config.json().contains("bos_token_id") ? -1
                                                              : family.absent.bos_token_id;
  append_token_ids(config, "eos_token_id", out.eos_token_ids);
  if (!config.json().contains("eos_token_id") && family.absent.eos_token_id >= 0)
    out.eos_token_ids.push_back(family.absent.eos_token_id);
  const fs::path generation = folder / "generation_config.json";
  if (!fs::exists(generation)) return;
  const Json json = load_json(generation);
  append_token_ids(Fields(json, generation.string()), "eos_token_id", out.eos_token_ids);
}

void read_sizes(const Fields& config, const Family& family, ModelConfig& out) {
  const std::string& where = config.where();
  out.vocab_size = config.integer("vocab_size");
  out.hidden_size = config.integer("hidden_size");
  out.intermediate_size = config.integer("intermediate_size");
  out.num_attention_heads =
      checked_count(where, "num_attention_heads", config.integer("num_attention_heads"));
  // null means: derived; absent means: the family's default.
  const auto absent = [&](const char* key, int of_family, std::int64_t derived) {
    return of_family > 0 && !config.json().contains(key) ? of_family : derived;
  };
  const auto kv = absent("num_key_value_heads", family.absent.num_key_value_heads, out.num_attention_heads);
  out.num_key_value_heads =
      checked_count(where, "num_key_value_heads", config.integer_or("num_key_value_heads", kv));
  const auto head = absent("head_dim", family.absent.head_dim, out.hidden_size / out.num_attention_heads);
  if (!config.has("head_dim") && head == out.hidden_size / out.num_attention_heads &&
      out.hidden_size % out.num_attention_heads != 0)
    fail(ErrorKind::corrupt, where, ": hidden_size ", out.hidden_size,
         " is not a multiple of num_attention_heads ", out.num_attention_heads,
         ", and head_dim is not given");
  out.head_dim = checked_count(where, "head_dim", config.integer_or("head_dim", head));
  out.max_position_embeddings =
      config.integer_or("max_position_embeddings", family.absent.max_position_embeddings);
  out.rms_norm_eps = float(config.number_or("rms_norm_eps", 1e-6));
}

void read_biases(const Fields& config, const Family& family, ModelConfig& out) {
  const bool by_config =
      family.attention_bias == AttentionBias::by_config && config.boolean_or("attention_bias", false);
  out.qkv_bias = by_config || family.attention_bias == AttentionBias::qkv;
  out.o_bias = by_config;
  out.mlp_bias = family.mlp_bias && config.boolean_or("mlp_bias", false);
  out.qk_norm = family.qk_norm;
}

// The window of the layers that slide; 0: no layer may.
int window_of(const Fields& config, const Family& family) {
  if (family.windows == Windows::never) return 0;
  if (family.windows == Windows::upper_layers && !config.boolean_or("use_sliding_window", false)) return 0;
  constexpr int kAbsent = 4096;  // of every family that slides
  if (config.json().contains("sliding_window") && !config.has("sliding_window")) return 0;
  return checked_count(config.where(), "sliding_window", config.integer_or("sliding_window", kAbsent));
}

// The type of each layer, as layer_types spells it.
std::vector<std::string> layer_types(const Fields& config, const Family& family, int layers, int window) {
  std::vector<std::string> types(std::size_t(layers), "full_attention");
  if (!config.has("layer_types")) {
    const auto first =
        family.windows == Windows::upper_layers ? config.integer_or("max_window_layers", 28) : 0;
    for (int i = 0; i < layers; ++i)
      if (window > 0 && i >= first) types[std::size_t(i)] = "sliding_attention";
    return types;
  }
  const Json& given = config.at("layer_types");
  if (!given.is_array() || given.size() != types.size())
    fail(ErrorKind::corrupt, config.where(), ": layer_types must list ", layers,
         " layers (num_hidden_layers)");
  for (std::size_t i = 0; i < types.size(); ++i) {
    if (given[i] != "full_attention" && given[i] != "sliding_attention")
      fail(ErrorKind::unsupported, config.where(), ": layer_types[", i, "] is ", given[i].dump(),
           "; full_attention and sliding_attention are known");
    types[i] = given[i].get<std::string>();
    if (types[i] == "sliding_attention" && window == 0)
      fail(ErrorKind::corrupt, config.where(), ": layer_types[", i,
           "] is sliding_attention, but there is no window: ",
           "sliding_window is null or use_sliding_window is not true");
  }
  return types;
}

void read_layers(const Fields& config, const Family& family, ModelConfig& out) {
  const int layers = checked_layers(config.where(), config.integer("num_hidden_layers"));
  const int window = window_of(config, family);
  const std::vector<std::string> types = layer_types(config, family, layers, window);
  const auto ropes = read_ropes(config, out.max_position_embeddings);
  std::vector<std::string> kinds;
  for (const std::string& type : types) {
    const bool nested = !ropes.contains("");
    const std::string& kind = nested ? type : std::string();
    auto known = std::find(kinds.begin(), kinds.end(), kind);
    if (known == kinds.end()) {
      const auto found = ropes.find(kind);
      if (found == ropes.end())
        fail(ErrorKind::corrupt, config.where(), ": rope_parameters has no entry for ", kind,
             ", which a layer is");
      out.ropes.push_back(make_rope_of(config.where(), found->second, out.head_dim));
      known = kinds.insert(kinds.end(), kind);
    }
    out.layers.push_back(
        {.sliding_window = type == "sliding_attention" ? window : 0, .rope = int(known - kinds.begin())});
  }
}

}  // namespace

float ModelConfig::attention_scale() const {
  return 1.0f / std::sqrt(float(head_dim));
}

ModelConfig load_config(const std::filesystem::path& folder) {
  const fs::path path = folder / "config.json";
  const Json json = load_json(path);
  const Fields config(json, path.string());
  const Family& family = family_of(config);
  check_fields(config, family);
  ModelConfig out;
  out.family = family.name;
  read_sizes(config, family, out);
  read_biases(config, family, out);
  out.tie_word_embeddings = config.boolean_or("tie_word_embeddings", false);
  out.torch_dtype = config.text_or("dtype", config.text_or("torch_dtype", ""));
  check_sizes(config.where(), out);
  read_layers(config, family, out);
  read_tokens(config, family, folder, out);
  return out;
}

}  // namespace slideway
