#include "lora/adapter_config.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "core/error.h"
#include "core/file.h"
#include "core/log.h"
#include "lora/pattern.h"

namespace slideway {
namespace {

using Json = nlohmann::ordered_json;

// Keys that say how the adapter came about, or nothing that changes what it computes.
const std::set<std::string> kIgnored = {"peft_version",   "auto_mapping",     "inference_mode",
                                        "loftq_config",   "eva_config",       "corda_config",
                                        "lora_ga_config", "megatron_config",  "megatron_core",
                                        "runtime_config", "qalora_group_size"};

// Keys that change what the adapter computes in a way that this program does not; they may be there and say
// nothing.
const std::set<std::string> kRefused = {"layer_replication",  "target_parameters", "alora_invocation_tokens",
                                        "use_qalora",         "use_bdlora",        "arrow_config",
                                        "velora_config",      "monteclora_config", "kasa_config",
                                        "ensure_weight_tying"};

bool says_nothing(const Json& value) {
  if (value.is_boolean()) return !value.get<bool>();
  if (value.is_number()) return value.get<double>() == 0;
  if (value.is_string()) return value.get<std::string>().empty();
  return value.empty();  // null, [] and {}
}

// Reads the fields of one file; every complaint names the file and the field.
class Reader {
 public:
  Reader(const Json& root, std::string where) : root_(root), where_(std::move(where)) {}

  const Json* find(const std::string& key) {
    known_.insert(key);
    const auto found = root_.find(key);
    return found == root_.end() || found->is_null() ? nullptr : &*found;
  }

  [[noreturn]] void wrong(const std::string& key, const std::string& expected, const Json& found) const {
    fail(ErrorKind::corrupt, where_, ": \"", key, "\" should be ", expected, ", found ", found.dump());
  }

  void integer(const std::string& key, std::int64_t& out) {
    if (const Json* value = find(key)) out = as_integer(key, *value);
  }
  void number(const std::string& key, double& out) {
    if (const Json* value = find(key)) out = as_number(key, *value);
  }
  void flag(const std::string& key, bool& out) {
    const Json* value = find(key);
    if (!value) return;
    if (!value->is_boolean()) wrong(key, "true or false", *value);
    out = value->get<bool>();
  }
  void text(const std::string& key, std::string& out) {
    const Json* value = find(key);
    if (!value) return;
    if (!value->is_string()) wrong(key, "a string", *value);
    out = value->get<std::string>();
  }
  // One or a list of them.
  void integers(const std::string& key, std::vector<std::int64_t>& out) {
    const Json* value = find(key);
    if (!value) return;
    if (!value->is_array()) return void(out = {as_integer(key, *value)});
    for (const Json& item : *value) out.push_back(as_integer(key, item));
  }
  void texts(const std::string& key, std::vector<std::string>& out) {
    const Json* value = find(key);
    if (!value) return;
    if (value->is_string()) return void(out = {value->get<std::string>()});
    if (!value->is_array()) wrong(key, "a string or a list of strings", *value);
    for (const Json& item : *value) {
      if (!item.is_string()) wrong(key, "a list of strings", *value);
      out.push_back(item.get<std::string>());
    }
  }
  void modules(const std::string& key, ModuleChoice& out) {
    const Json* value = find(key);
    if (!value || value->empty()) return;
    if (value->is_string()) return void(out = choose_modules(value->get<std::string>()));
    std::vector<std::string> names;
    texts(key, names);
    out = choose_modules(std::move(names));
  }
  template <class Number, class Convert>
  void patterns(const std::string& key, std::vector<std::pair<std::string, Number>>& out, Convert convert) {
    const Json* value = find(key);
    if (!value) return;
    if (!value->is_object()) wrong(key, "an object of pattern and number", *value);
    for (const auto& [pattern, item] : value->items()) {
      check_pattern(pattern, where_ + ": \"" + key + "\"");
      out.emplace_back(pattern, convert(key, item));
    }
  }

  std::int64_t as_integer(const std::string& key, const Json& value) const {
    if (!value.is_number_integer()) wrong(key, "a whole number", value);
    return value.get<std::int64_t>();
  }
  double as_number(const std::string& key, const Json& value) const {
    if (!value.is_number()) wrong(key, "a number", value);
    return value.get<double>();
  }

  void refuse_or_warn_of_the_rest() const {
    std::string unknown;
    for (const auto& [key, value] : root_.items()) {
      if (known_.contains(key) || kIgnored.contains(key) || says_nothing(value)) continue;
      if (kRefused.contains(key) || key.starts_with("use_"))
        fail(ErrorKind::unsupported, where_, ": \"", key, "\": ", value.dump(),
             " changes what the adapter computes and is not supported");
      unknown += (unknown.empty() ? "\"" : ", \"") + key + "\"";
    }
    if (!unknown.empty()) log(LogLevel::warning, where_, ": passed over unknown ", unknown);
  }

 private:
  const Json& root_;
  std::string where_;
  std::set<std::string> known_;
};

// Starting values that also changed the base weights: the adapter belongs to another base than the one it
// names.
void refuse_changed_base(Reader& reader, const std::string& where) {
  const Json* value = reader.find("init_lora_weights");
  if (!value || !value->is_string()) return;
  const auto name = value->get<std::string>();
  for (const char* changed : {"pissa", "olora", "corda", "lora_ga", "loftq"})
    if (name.starts_with(changed))
      fail(ErrorKind::unsupported, where, ": \"init_lora_weights\": \"", name,
           "\" changed the base model's weights in training, so the adapter does not fit the base as "
           "published; save "
           "it again with peft's path_initial_model_for_weight_conversion");
}

void check_kind(Reader& reader, const std::string& where) {
  std::string peft_type, task_type;
  reader.text("peft_type", peft_type);
  reader.text("task_type", task_type);
  if (peft_type != "LORA")
    fail(ErrorKind::unsupported, where, ": \"peft_type\" should be \"LORA\", found \"", peft_type, "\"");
  if (!task_type.empty() && task_type != "CAUSAL_LM")
    fail(ErrorKind::unsupported, where, ": \"task_type\" should be \"CAUSAL_LM\", found \"", task_type, "\"");
}

// [1, 2] means the token embedding; {"embed_tokens": [1, 2]} names the module.
void read_token_indices(Reader& reader, AdapterConfig& config) {
  const std::string key = "trainable_token_indices";
  const Json* value = reader.find(key);
  if (!value || value->empty()) return;
  const auto add = [&](const std::string& module, const Json& list) {
    if (!list.is_array()) reader.wrong(key, "a list of tokens, or an object of module and tokens", *value);
    auto& tokens = config.trainable_token_indices.emplace_back(module, std::vector<std::int64_t>()).second;
    for (const Json& item : list) tokens.push_back(reader.as_integer(key, item));
  };
  if (!value->is_object()) return add("embed_tokens", *value);
  for (const auto& [module, list] : value->items()) add(module, list);
}

void read_extras(Reader& reader, AdapterConfig& config, const std::string& where) {
  reader.flag("use_dora", config.use_dora);
  reader.flag("lora_bias", config.lora_bias);
  reader.text("bias", config.bias);
  reader.texts("modules_to_save", config.modules_to_save);
  read_token_indices(reader, config);
  if (config.bias != "none" && config.bias != "all" && config.bias != "lora_only")
    fail(ErrorKind::unsupported, where, ": \"bias\" should be \"none\", \"all\" or \"lora_only\", found \"",
         config.bias, "\"");
  if (config.use_dora && config.lora_bias)
    fail(ErrorKind::unsupported, where, ": \"lora_bias\" does not go with \"use_dora\"");
}

bool matches(const ModuleChoice& choice, const std::string& module) {
  switch (choice.kind) {
    case ModuleChoice::Kind::none:
      return false;
    case ModuleChoice::Kind::all_linear:
      return true;
    case ModuleChoice::Kind::regex:
      return matches_whole(choice.regex, module);
    case ModuleChoice::Kind::names:
      break;
  }
  return std::any_of(choice.names.begin(), choice.names.end(),
                     [&](const std::string& name) { return is_named(module, name); });
}

// The layer filter of peft: the first number of the path that the pattern allows.
bool in_chosen_layer(const AdapterConfig& config, const std::string& module) {
  if (config.layers_to_transform.empty()) return true;
  std::optional<std::string> number;
  if (config.layers_pattern.empty()) number = named_group(R"(.*?\.[^.]*\.(?P<idx>\d+)\.)", "idx", module);
  for (const std::string& pattern : config.layers_pattern)
    if (!number) number = named_group(R"((?:^|.*?\.))" + pattern + R"(\.(?P<idx>\d+)\.)", "idx", module);
  if (!number) return false;
  const auto& chosen = config.layers_to_transform;
  return std::find(chosen.begin(), chosen.end(), std::stoll(*number)) != chosen.end();
}

template <class Number>
Number first_match(const std::vector<std::pair<std::string, Number>>& patterns, const std::string& module,
                   Number otherwise) {
  for (const auto& [pattern, value] : patterns)
    if (matches_whole("(.*\\.)?(" + pattern + ")", module)) return value;
  return otherwise;
}

Json json_of(const ModuleChoice& choice) {
  switch (choice.kind) {
    case ModuleChoice::Kind::none:
      return nullptr;
    case ModuleChoice::Kind::names:
      return choice.names;
    case ModuleChoice::Kind::regex:
      return choice.regex;
    case ModuleChoice::Kind::all_linear:
      break;
  }
  return "all-linear";
}

template <class Number>
Json json_of(const std::vector<std::pair<std::string, Number>>& patterns) {
  Json out = Json::object();
  for (const auto& [pattern, value] : patterns) out[pattern] = value;
  return out;
}

// peft expects a whole number for alpha and takes any.
Json json_of(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return std::int64_t(value);
  return value;
}

template <class T>
Json list_or_null(const std::vector<T>& list) {
  return list.empty() ? Json(nullptr) : Json(list);
}

Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

}  // namespace

ModuleChoice choose_modules(const std::string& text) {
  std::string lower = text;
  for (char& c : lower) c = char(std::tolower(static_cast<unsigned char>(c)));
  if (lower == "all-linear") return {.kind = ModuleChoice::Kind::all_linear};
  check_pattern(text, "target_modules");
  return {.kind = ModuleChoice::Kind::regex, .regex = text};
}

ModuleChoice choose_modules(std::vector<std::string> names) {
  return {.kind = ModuleChoice::Kind::names, .names = std::move(names)};
}

AdapterConfig parse_adapter_config(const std::string& json, const std::string& where) {
  const Json root = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded() || !root.is_object()) fail(ErrorKind::corrupt, where, ": not a JSON object");
  AdapterConfig config;
  Reader reader(root, where);
  check_kind(reader, where);
  refuse_changed_base(reader, where);
  reader.integer("r", config.r);
  reader.number("lora_alpha", config.lora_alpha);
  reader.flag("use_rslora", config.use_rslora);
  reader.number("lora_dropout", config.lora_dropout);
  const auto rank = [&](const std::string& key, const Json& value) {
    const std::int64_t r = reader.as_integer(key, value);
    if (r < 1) fail(ErrorKind::corrupt, where, ": \"", key, "\": a rank must be at least 1, found ", r);
    return r;
  };
  reader.patterns("rank_pattern", config.rank_pattern, rank);
  reader.patterns("alpha_pattern", config.alpha_pattern,
                  [&](const std::string& key, const Json& value) { return reader.as_number(key, value); });
  reader.modules("target_modules", config.target_modules);
  reader.modules("exclude_modules", config.exclude_modules);
  reader.integers("layers_to_transform", config.layers_to_transform);
  reader.texts("layers_pattern", config.layers_pattern);
  for (const std::string& pattern : config.layers_pattern)
    check_pattern(pattern, where + ": \"layers_pattern\"");
  read_extras(reader, config, where);
  reader.flag("fan_in_fan_out", config.fan_in_fan_out);
  reader.text("base_model_name_or_path", config.base_model_name_or_path);
  reader.text("revision", config.revision);
  if (config.r < 1) fail(ErrorKind::corrupt, where, ": \"r\": a rank must be at least 1, found ", config.r);
  reader.refuse_or_warn_of_the_rest();
  return config;
}

AdapterConfig load_adapter_config(const std::filesystem::path& path) {
  const auto file = fs::is_directory(path) ? path / "adapter_config.json" : path;
  if (!fs::exists(file))
    fail(ErrorKind::not_found, path.string(), " is no adapter folder: it has no adapter_config.json");
  return parse_adapter_config(read_text(file), file.string());
}

std::string adapter_config_json(const AdapterConfig& config) {
  Json out;
  out["peft_type"] = "LORA";
  out["task_type"] = "CAUSAL_LM";
  out["base_model_name_or_path"] = text_or_null(config.base_model_name_or_path);
  out["revision"] = text_or_null(config.revision);
  out["inference_mode"] = true;
  out["r"] = config.r;
  out["lora_alpha"] = json_of(config.lora_alpha);
  out["use_rslora"] = config.use_rslora;
  out["lora_dropout"] = config.lora_dropout;
  out["rank_pattern"] = json_of(config.rank_pattern);
  out["alpha_pattern"] = json_of(config.alpha_pattern);
  out["target_modules"] = json_of(config.target_modules);
  out["exclude_modules"] = json_of(config.exclude_modules);
  out["layers_to_transform"] = list_or_null(config.layers_to_transform);
  out["layers_pattern"] = list_or_null(config.layers_pattern);
  out["bias"] = config.bias;
  out["lora_bias"] = config.lora_bias;
  out["fan_in_fan_out"] = config.fan_in_fan_out;
  out["init_lora_weights"] = true;
  out["modules_to_save"] = list_or_null(config.modules_to_save);
  out["trainable_token_indices"] =
      config.trainable_token_indices.empty() ? Json(nullptr) : json_of(config.trainable_token_indices);
  out["use_dora"] = config.use_dora;
  return out.dump(2) + "\n";
}

bool is_named(const std::string& module, const std::string& name) {
  return module == name || module.ends_with("." + name);
}

bool selects(const AdapterConfig& config, const std::string& module) {
  if (matches(config.exclude_modules, module)) return false;
  const ModuleChoice& target = config.target_modules;
  if (target.kind == ModuleChoice::Kind::none) return true;
  if (!matches(target, module)) return false;
  if (target.kind == ModuleChoice::Kind::regex) return true;  // peft filters layers for lists of names alone
  const bool named_whole = std::find(target.names.begin(), target.names.end(), module) != target.names.end();
  return named_whole || in_chosen_layer(config, module);
}

std::int64_t rank_of(const AdapterConfig& config, const std::string& module) {
  return first_match(config.rank_pattern, module, config.r);
}

float scale_of(const AdapterConfig& config, const std::string& module) {
  const double alpha = first_match(config.alpha_pattern, module, config.lora_alpha);
  const auto rank = double(rank_of(config, module));
  return float(alpha / (config.use_rslora ? std::sqrt(rank) : rank));
}

bool is_lora_role(Role role) {
  switch (role) {
    case Role::q_proj:
    case Role::k_proj:
    case Role::v_proj:
    case Role::o_proj:
    case Role::gate_proj:
    case Role::up_proj:
    case Role::down_proj:
      return true;
    default:
      return false;
  }
}

std::string module_name(const TensorSpec& spec) {
  constexpr std::string_view kSuffix = ".weight";
  CHECK(spec.name.ends_with(kSuffix), spec.name);
  return spec.name.substr(0, spec.name.size() - kSuffix.size());
}

}  // namespace slideway
