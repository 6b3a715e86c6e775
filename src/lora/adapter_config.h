// AdapterConfig: adapter_config.json of a LoRA adapter, as peft writes it.
//
// Every field is honoured or the load is refused by name. A key that this program has never heard of is passed
// over in silence when it says nothing (null, false, 0, empty), and else with one warning that names it.
//
// Errors   not_found, corrupt (not JSON, a field of the wrong kind, r < 1), unsupported (names field and value)
// Source   peft's LoraConfig and check_target_module_exists; docs/formats.md
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/tensor_table.h"

namespace slideway {

// Which modules, in peft's grammar of target_modules and exclude_modules. A module is named by its path in
// the model, "model.layers.3.self_attn.q_proj".
struct ModuleChoice {
  enum class Kind { none, names, regex, all_linear } kind = Kind::none;
  std::vector<std::string> names;  // names: the path is one of these, or ends in "." and one of these
  std::string regex;               // regex: it matches the whole path

  bool operator==(const ModuleChoice&) const = default;
};
// "all-linear", or a regular expression that must match the whole path.
ModuleChoice choose_modules(const std::string& text);
ModuleChoice choose_modules(std::vector<std::string> names);

struct AdapterConfig {
  std::int64_t r = 8;
  double lora_alpha = 8;
  bool use_rslora = false;  // scale = alpha / sqrt(r) in place of alpha / r
  double lora_dropout = 0;  // training only
  // A module's own rank and alpha: the first pattern that matches the end of its path.
  std::vector<std::pair<std::string, std::int64_t>> rank_pattern;
  std::vector<std::pair<std::string, double>> alpha_pattern;
  ModuleChoice target_modules, exclude_modules;
  std::vector<std::int64_t> layers_to_transform;  // empty: all
  std::vector<std::string> layers_pattern;        // what stands before the layer's number; empty: anything
  bool use_dora = false;
  std::string bias = "none";                 // whose trained biases the file holds: none, lora_only, all
  bool lora_bias = false;                    // lora_B has biases of its own
  std::vector<std::string> modules_to_save;  // replaced whole
  // Tokens with rows of their own, by module ("embed_tokens").
  std::vector<std::pair<std::string, std::vector<std::int64_t>>> trainable_token_indices;
  bool fan_in_fan_out = false;  // how the base's weight lies in memory there; nothing to do here
  std::string base_model_name_or_path, revision;  // a hint, often a path of another machine
};

// The one file, or a folder that holds it.
AdapterConfig load_adapter_config(const std::filesystem::path& path);
AdapterConfig parse_adapter_config(const std::string& json, const std::string& where);
std::string adapter_config_json(const AdapterConfig& config);

// What the config says of one module. selects: target, exclude and layers taken together; with no
// target_modules at all every linear layer counts as a candidate.
bool selects(const AdapterConfig& config, const std::string& module);
std::int64_t rank_of(const AdapterConfig& config, const std::string& module);
float scale_of(const AdapterConfig& config, const std::string& module);

// Whether peft's modules_to_save or trainable_token_indices mean this module by this name.
bool is_named(const std::string& module, const std::string& name);

// The seven linear projections of a layer; their paths are the tensor names without ".weight".
bool is_lora_role(Role role);
std::string module_name(const TensorSpec& spec);

}  // namespace slideway
