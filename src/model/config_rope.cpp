#include "model/config_rope.h"

#include <algorithm>

#include "core/error.h"

namespace slideway {
namespace {

// Every key that some type of rope knows; a key of another type is carried along unread, as in transformers.
constexpr const char* kKeys[] = {"type",
                                 "rope_type",
                                 "rope_theta",
                                 "factor",
                                 "original_max_position_embeddings",
                                 "low_freq_factor",
                                 "high_freq_factor",
                                 "attention_factor",
                                 "mscale",
                                 "mscale_all_dim",
                                 "beta_fast",
                                 "beta_slow",
                                 "truncate",
                                 "partial_rotary_factor",
                                 "finetuned"};

struct Defaults {
  double theta, max_position_embeddings;
  double original_override;  // of the config's top level, which wins; 0: none
};

double required(const Fields& rope, const char* key) {
  rope.at(key);
  return rope.number_or(key, 0);
}

std::optional<double> optional(const Fields& rope, const char* key) {
  return rope.has(key) ? std::optional(rope.number_or(key, 0)) : std::nullopt;
}

std::string type_of(const Fields& rope) {
  const std::string old_key = rope.text_or("type", ""), new_key = rope.text_or("rope_type", "");
  if (!old_key.empty() && !new_key.empty() && old_key != new_key)
    fail(ErrorKind::corrupt, rope.where(), ": type is \"", old_key, "\", but rope_type is \"", new_key, "\"");
  return !new_key.empty() ? new_key : !old_key.empty() ? old_key : "default";
}

double original_context(const Fields& rope, const Defaults& defaults) {
  if (defaults.original_override > 0) return defaults.original_override;
  return rope.number_or("original_max_position_embeddings", defaults.max_position_embeddings);
}

void read_yarn(const Fields& rope, const Defaults& defaults, RopeParameters& out) {
  if (!rope.json().contains("factor")) rope.at("factor");
  out.factor =
      rope.number_or("factor", defaults.max_position_embeddings / out.original_max_position_embeddings);
  out.attention_factor = optional(rope, "attention_factor");
  out.mscale = optional(rope, "mscale");
  out.mscale_all_dim = optional(rope, "mscale_all_dim");
  if (const double fast = rope.number_or("beta_fast", 0); fast != 0) out.beta_fast = fast;
  if (const double slow = rope.number_or("beta_slow", 0); slow != 0) out.beta_slow = slow;
  out.truncate = rope.boolean_or("truncate", true);
}

RopeParameters read_rope(const Fields& rope, const Defaults& defaults) {
  for (const auto& [key, value] : rope.json().items())
    if (!value.is_null() && std::find(std::begin(kKeys), std::end(kKeys), key) == std::end(kKeys))
      fail(ErrorKind::unsupported, rope.where(), ": ", key, " is ", value.dump().substr(0, 200),
           ", which is not known");
  if (rope.number_or("partial_rotary_factor", 1) != 1)
    fail(ErrorKind::unsupported, rope.where(), ": partial_rotary_factor is ",
         rope.at("partial_rotary_factor").dump(), "; only whole heads are turned");
  RopeParameters out{.type = type_of(rope), .theta = rope.number_or("rope_theta", defaults.theta)};
  if (out.type == "linear") out.factor = required(rope, "factor");
  if (out.type == "llama3" || out.type == "yarn")
    out.original_max_position_embeddings = original_context(rope, defaults);
  if (out.type == "llama3") {
    out.factor = required(rope, "factor");
    out.low_freq_factor = required(rope, "low_freq_factor");
    out.high_freq_factor = required(rope, "high_freq_factor");
  }
  if (out.type == "yarn") read_yarn(rope, defaults, out);
  return out;
}

}  // namespace

std::map<std::string, RopeParameters> read_ropes(const Fields& config, std::int64_t max_position_embeddings) {
  const Defaults defaults{.theta = config.number_or("rope_theta", 10000),
                          .max_position_embeddings = double(max_position_embeddings),
                          .original_override = config.number_or("original_max_position_embeddings", 0)};
  const Json none = Json::object();
  const bool old_spelling = config.has("rope_scaling") && !config.at("rope_scaling").empty();
  const bool new_spelling = config.has("rope_parameters") && !config.at("rope_parameters").empty();
  if (old_spelling && new_spelling && config.at("rope_scaling") != config.at("rope_parameters"))
    fail(ErrorKind::corrupt, config.where(), ": rope_scaling and rope_parameters are both given and differ");
  const char* key = old_spelling ? "rope_scaling" : "rope_parameters";
  const Json& object = old_spelling || new_spelling ? config.at(key) : none;
  const Fields rope(object, config.where() + ": " + key);
  std::map<std::string, RopeParameters> ropes;
  for (const char* type : {"full_attention", "sliding_attention"})
    if (rope.has(type))
      ropes.emplace(type, read_rope(Fields(rope.at(type), rope.where() + "." + type),
                                    {rope.number_or("rope_theta", defaults.theta),
                                     defaults.max_position_embeddings, 0}));
  if (ropes.empty()) return {{"", read_rope(rope, defaults)}};
  for (const auto& [name, value] : object.items())
    if (!ropes.contains(name) && name != "rope_theta" && !value.is_null())
      fail(ErrorKind::unsupported, rope.where(), ": ", name, " is ", value.dump().substr(0, 200),
           ", which is not known");
  return ropes;
}

}  // namespace slideway
