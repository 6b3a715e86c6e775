#include "lora/adapter_tensors.h"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "lora/adapter.h"

namespace slideway {
namespace {

constexpr std::size_t kNamesShown = 16;

std::string listed(const std::vector<std::string>& names) {
  std::string out;
  for (std::size_t i = 0; i < std::min(names.size(), kNamesShown); ++i) out += (i ? ", " : "") + names[i];
  if (names.size() > kNamesShown) out += " and " + std::to_string(names.size() - kNamesShown) + " more";
  return out;
}

// Longer endings first where one is another's end.
constexpr std::pair<std::string_view, Piece> kEndings[] = {
    {".lora_A.weight", Piece::a},
    {".lora_B.weight", Piece::b},
    {".lora_embedding_A", Piece::a},
    {".lora_embedding_B", Piece::b},
    {".lora_B.bias", Piece::b_bias},
    {".lora_magnitude_vector", Piece::magnitude},
    {".lora_magnitude_vector.weight", Piece::magnitude},
    {".base_layer.bias", Piece::bias},
    {".base_layer.weight", Piece::base_weight},
    {".token_adapter.trainable_tokens_delta", Piece::tokens},
    {".bias", Piece::bias},
    {".weight", Piece::weight},
};

// A projection and its bias.
constexpr std::pair<Role, Role> kBiases[] = {
    {Role::q_proj, Role::q_bias},       {Role::k_proj, Role::k_bias},       {Role::v_proj, Role::v_bias},
    {Role::o_proj, Role::o_bias},       {Role::gate_proj, Role::gate_bias}, {Role::up_proj, Role::up_bias},
    {Role::down_proj, Role::down_bias},
};

std::optional<Role> bias_of(Role projection) {
  for (const auto& [of, bias] : kBiases)
    if (of == projection) return bias;
  return std::nullopt;
}

// Every module that an adapter may change.
FoundModules places_of(const ModelLayout& layout) {
  FoundModules places;
  for (int l = 0; l < int(layout.layers.size()); ++l) {
    const BlockLayout& layer = layout.layers[std::size_t(l)];
    for (const TensorSpec& spec : layer.tensors)
      if (is_lora_role(spec.role))
        places[module_name(spec)] = {
            .layer = l, .role = spec.role, .weight = &spec, .bias = layer.find(*bias_of(spec.role))};
  }
  const TensorSpec* embed = layout.embed.find(Role::embed_tokens);
  const TensorSpec* head = layout.head.find(Role::lm_head);
  if (embed) places[module_name(*embed)] = {.role = Role::embed_tokens, .weight = embed};
  if (embed || head) places["lm_head"] = {.role = Role::lm_head, .weight = head ? head : embed};
  return places;
}

// "base_model.model.<module>.lora_A.weight"; the prefix may be absent, and the adapter's own name "default" present.
bool parse_name(std::string name, std::string& module, Piece& piece) {
  if (name.starts_with(kPeftPrefix)) name.erase(0, std::string_view(kPeftPrefix).size());
  for (const std::string_view own : {".modules_to_save.default", ".modules_to_save", ".default"})
    if (const auto at = name.find(own); at != std::string::npos) name.erase(at, own.size());
  for (const auto& [ending, kind] : kEndings) {
    if (!name.ends_with(ending)) continue;
    module = name.substr(0, name.size() - ending.size());
    piece = kind;
    return true;
  }
  return false;
}

class Search {
 public:
  Search(const SafetensorsFile& file, const AdapterConfig& config, const ModelLayout& layout)
      : file_(file), config_(config), places_(places_of(layout)) {}

  FoundModules run() {
    match_names();
    for (const auto& [module, found] : modules_) check(module, found);
    check_missing();
    return std::move(modules_);
  }

 private:
  std::string where() const { return file_.path().string(); }

  void match_names() {
    std::vector<std::string> homeless;
    for (const SafetensorsEntry& entry : file_.entries()) {
      std::string module;
      Piece piece;
      const bool parsed = parse_name(entry.name, module, piece);
      const auto place = parsed ? places_.find(module) : places_.end();
      if (place == places_.end() || !fits(place->second, piece)) {
        homeless.push_back(entry.name);
        continue;
      }
      FoundModule& found = modules_.try_emplace(module, place->second).first->second;
      if (found[piece])
        fail(ErrorKind::corrupt, where(), ": ", found[piece]->name, " and ", entry.name,
             " are the same tensor");
      found[piece] = &entry;
    }
    if (!homeless.empty())
      fail(ErrorKind::unsupported, where(),
           ": these tensors fit no linear layer, embedding or head of the model: ", listed(homeless),
           "; expected names such as ", kPeftPrefix, places_.empty() ? "…" : places_.begin()->first,
           ".lora_A.weight (whole weights may replace those of embed_tokens and lm_head alone)");
    if (modules_.empty()) fail(ErrorKind::corrupt, where(), ": no LoRA tensors in the file");
  }

  static bool fits(const FoundModule& place, Piece piece) {
    const bool end = place.layer < 0;
    switch (piece) {
      case Piece::bias:
        return place.bias;
      case Piece::b_bias:
        return !place.is_embedding();
      case Piece::base_weight:
      case Piece::weight:
      case Piece::tokens:
        return end;
      default:
        return true;
    }
  }

  // As peft chooses: modules saved whole are not adapted, and "all-linear" leaves embedding and head alone.
  bool adapted(const std::string& module, const FoundModule& found) const {
    if (saved_whole(module)) return false;
    if (found.layer < 0 && config_.target_modules.kind == ModuleChoice::Kind::all_linear) return false;
    return selects(config_, module);
  }
  bool saved_whole(const std::string& module) const {
    return std::any_of(config_.modules_to_save.begin(), config_.modules_to_save.end(),
                       [&](const std::string& name) { return is_named(module, name); });
  }

  void check(const std::string& module, const FoundModule& found) const {
    if (found[Piece::a] || found[Piece::b]) check_lora(module, found);
    const bool lora = found[Piece::a];
    need_partner(found, Piece::b_bias, lora, "lora_A and lora_B");
    need_partner(found, Piece::magnitude, lora, "lora_A and lora_B");
    if (const auto* entry = found[Piece::bias]) {
      if (config_.bias == "none" || (config_.bias == "lora_only" && !lora))
        fail(ErrorKind::corrupt, where(), ": ", entry->name,
             " is there, but adapter_config.json says \"bias\": \"", config_.bias, "\"");
      check_tensor(*entry, found.bias->shape, "by the model");
    }
    if (const auto* entry = found[Piece::base_weight]) check_rows(*entry, found);
    if (const auto* entry = found[Piece::weight]) check_rows(*entry, found);
    check_tokens(module, found);
  }

  void check_lora(const std::string& module, const FoundModule& found) const {
    const auto *a = found[Piece::a], *b = found[Piece::b];
    if (!a || !b)
      fail(ErrorKind::corrupt, where(), ": ", (a ? a : b)->name, " has no lora_", a ? "B" : "A",
           " beside it");
    if (!adapted(module, found))
      fail(ErrorKind::corrupt, where(), ": ", a->name,
           " is there, but adapter_config.json does not name its module (target_modules, exclude_modules, "
           "layers_to_transform, modules_to_save)");
    if ((a->name.find("lora_embedding_A") != std::string::npos) != found.is_embedding())
      fail(ErrorKind::corrupt, where(), ": ", a->name, " should be named lora_",
           found.is_embedding() ? "embedding_" : "", "A");
    const std::int64_t rank = rank_of(config_, module);
    const auto& shape = found.weight->shape;
    const std::int64_t inputs = shape[found.is_embedding() ? 0 : 1],
                       outputs = shape[found.is_embedding() ? 1 : 0];
    const char* why = "by the model and the config's rank";
    check_tensor(*a, {rank, inputs}, why);
    check_tensor(*b, {outputs, rank}, why);
    want(found, Piece::magnitude, config_.use_dora, "use_dora", ".lora_magnitude_vector", {outputs});
    want(found, Piece::b_bias, config_.lora_bias, "lora_bias", ".lora_B.bias", {outputs});
    if (config_.lora_bias && !found.bias)
      fail(ErrorKind::unsupported, where(), ": \"lora_bias\" needs a base layer with a bias, which ", module,
           " has not");
  }

  void want(const FoundModule& found, Piece piece, bool wanted, const char* field, const char* name,
            const std::vector<std::int64_t>& shape) const {
    const SafetensorsEntry* entry = found[piece];
    if (entry && !wanted)
      fail(ErrorKind::corrupt, where(), ": ", entry->name,
           " is there, but adapter_config.json does not say \"", field, "\": true");
    if (!entry && wanted)
      fail(ErrorKind::corrupt, where(), ": \"", field, "\" is true, but ", found[Piece::a]->name, " has no ",
           name, " beside it");
    if (entry) check_tensor(*entry, shape, "by the model");
  }

  void need_partner(const FoundModule& found, Piece piece, bool there, const char* partner) const {
    if (found[piece] && !there)
      fail(ErrorKind::corrupt, where(), ": ", found[piece]->name, " has no ", partner, " beside it");
  }

  void check_rows(const SafetensorsEntry& entry, const FoundModule& found) const {
    const auto& expected = found.weight->shape;
    if (entry.shape.size() == 2 && entry.shape[1] == expected[1] && entry.shape[0] != expected[0])
      fail(ErrorKind::unsupported, where(), ": ", entry.name, " is for a vocabulary of ", entry.shape[0],
           " tokens, the model's has ", expected[0], "; a resized vocabulary is not supported");
    check_tensor(entry, expected, "by the model");
  }

  void check_tokens(const std::string& module, const FoundModule& found) const {
    const SafetensorsEntry* entry = found[Piece::tokens];
    if (!entry) return;
    const auto tokens = tokens_of(config_, module);
    if (tokens.empty())
      fail(ErrorKind::corrupt, where(), ": ", entry->name,
           " is there, but \"trainable_token_indices\" does not name its module");
    if (found[Piece::a] || found[Piece::weight])
      fail(ErrorKind::unsupported, where(), ": ", entry->name, " and ",
           (found[Piece::a] ? found[Piece::a] : found[Piece::weight])->name, " change the same rows");
    const std::int64_t vocabulary = found.weight->shape[0];
    std::set<std::int64_t> seen;
    for (const std::int64_t token : tokens)
      if (token < 0 || token >= vocabulary || !seen.insert(token).second)
        fail(ErrorKind::corrupt, where(), ": \"trainable_token_indices\": ", token,
             " is twice there or not in the vocabulary of ", vocabulary);
    check_tensor(*entry, {std::int64_t(tokens.size()), found.weight->shape[1]}, "by the config's tokens");
  }

  void check_tensor(const SafetensorsEntry& entry, const std::vector<std::int64_t>& expected,
                    const char* why) const {
    if (entry.shape != expected)
      fail(ErrorKind::corrupt, where(), ": ", entry.name, " should be ", shape_text(expected), " ", why,
           ", found ", shape_text(entry.shape));
    if (entry.dtype != "F32" && entry.dtype != "BF16" && entry.dtype != "F16")
      fail(ErrorKind::unsupported, where(), ": ", entry.name, " should be F32, BF16 or F16, found ",
           entry.dtype);
  }

  bool lacks(const std::string& module, Piece piece) const {
    const auto found = modules_.find(module);
    return found == modules_.end() || !found->second[piece];
  }

  void check_missing() const {
    const bool chosen = config_.target_modules.kind != ModuleChoice::Kind::none;
    std::vector<std::string> missing;
    for (const auto& [module, place] : places_) {
      const bool lora = chosen && adapted(module, place);
      if (lora && lacks(module, Piece::a)) missing.push_back(module);
      if (place.bias && (config_.bias == "all" || (lora && config_.bias == "lora_only")) &&
          lacks(module, Piece::bias))
        missing.push_back(module + ".bias");
      if (saved_whole(module) && lacks(module, Piece::weight)) missing.push_back(module + ".weight");
      if (!tokens_of(config_, module).empty() && lacks(module, Piece::tokens))
        missing.push_back(module + ".trainable_tokens_delta");
    }
    if (!missing.empty())
      fail(ErrorKind::corrupt, where(),
           ": adapter_config.json names modules that have no tensors here: ", listed(missing));
    check_names();
  }

  // A name that means no module of this kind would else be passed over in silence.
  void check_names() const {
    const auto refuse = [&](const char* field, const std::string& name) {
      for (const char* known : {"embed_tokens", "lm_head"})
        if (is_named(known, name) || is_named("model." + std::string(known), name)) return;
      fail(ErrorKind::unsupported, where(), ": \"", field, "\": \"", name,
           "\" is not supported; embed_tokens and lm_head are");
    };
    for (const std::string& name : config_.modules_to_save) refuse("modules_to_save", name);
    for (const auto& [name, tokens] : config_.trainable_token_indices)
      refuse("trainable_token_indices", name);
  }

  const SafetensorsFile& file_;
  const AdapterConfig& config_;
  FoundModules places_;
  FoundModules modules_;
};

}  // namespace

std::vector<float> widened(const Tensor& tensor) {
  std::vector<float> out(std::size_t(tensor.elements()));
  for (std::size_t i = 0; i < out.size(); ++i)
    out[i] = tensor.dtype() == DType::f32 ? tensor.f32()[i] : to_float(tensor.bf16()[i]);
  return out;
}

std::optional<Role> biased_role(Role bias) {
  for (const auto& [projection, own] : kBiases)
    if (own == bias) return projection;
  return std::nullopt;
}

FoundModules find_modules(const SafetensorsFile& file, const AdapterConfig& config,
                          const ModelLayout& layout) {
  return Search(file, config, layout).run();
}

std::vector<std::int64_t> tokens_of(const AdapterConfig& config, const std::string& module) {
  for (const auto& [name, tokens] : config.trainable_token_indices)
    if (is_named(module, name)) return tokens;
  return {};
}

}  // namespace slideway
