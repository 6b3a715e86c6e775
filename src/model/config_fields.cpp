#include "model/config_fields.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <sstream>
#include <unordered_set>

#include "core/error.h"
#include "core/log.h"

namespace slideway {
namespace {

// A field of other architectures, with the values at which it changes nothing. null, false, [] and {} never do.
struct Neutral {
  const char* key;
  const char* values;  // a JSON array
};

constexpr Neutral kNeutral[] = {
    {"hidden_act", R"(["silu", "swish"])"},
    {"hidden_activation", R"(["silu", "swish"])"},
    {"partial_rotary_factor", "[1]"},
    {"rotary_pct", "[1]"},
    {"rope_percent", "[1]"},
    {"rotary_dim", "[]"},
    {"rope_interleaved", "[]"},
    {"rope_local_base_freq", "[]"},
    {"no_rope_layers", "[]"},
    {"no_rope_layer_interval", "[0]"},
    {"use_mrope", "[]"},
    {"position_embedding_type", R"(["rope", "rotary"])"},
    {"alibi", "[]"},
    {"use_alibi", "[]"},
    {"logit_scale", "[1]"},
    {"logits_scaling", "[1]"},
    {"lm_head_multiplier", "[1]"},
    {"embedding_multiplier", "[1]"},
    {"embedding_scale", "[1]"},
    {"scale_embedding", "[]"},
    {"scale_emb", "[1]"},
    {"scale_depth", "[]"},
    {"dim_model_base", "[]"},
    {"residual_multiplier", "[1]"},
    {"residual_scale", "[1]"},
    {"attention_multiplier", "[]"},
    {"attention_scale", "[]"},
    {"query_pre_attn_scalar", "[]"},
    {"attn_logit_softcapping", "[0]"},
    {"final_logit_softcapping", "[0]"},
    {"attn_temperature_tuning", "[0]"},
    {"attention_chunk_size", "[0]"},
    {"attention_sinks", "[0]"},
    {"clip_qkv", "[]"},
    {"use_qk_norm", "[]"},
    {"qk_layernorm", "[]"},
    {"parallel_attn", "[]"},
    {"use_parallel_residual", "[]"},
    {"cross_layer_attention", "[]"},
    {"num_kv_shared_layers", "[0]"},
    {"num_experts", "[0]"},
    {"num_local_experts", "[0]"},
    {"n_routed_experts", "[0]"},
    {"n_shared_experts", "[0]"},
    {"num_experts_per_tok", "[0]"},
    {"moe_intermediate_size", "[0]"},
    {"num_nextn_predict_layers", "[0]"},
    {"quantization_config", "[]"},
    {"quantization", "[]"},
    {"compression_config", "[]"},
    {"pruned_heads", "[]"},
    {"per_layer_config", "[]"},
    {"is_encoder_decoder", "[]"},
    {"add_cross_attention", "[]"},
    {"text_config", "[]"},
    {"vision_config", "[]"},
    {"audio_config", "[]"},
};

// Fields that are read elsewhere in this room, and then those that say nothing about the computation.
constexpr const char* kKnown = R"(
  model_type architectures vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads
  num_key_value_heads head_dim max_position_embeddings rms_norm_eps tie_word_embeddings rope_theta rope_scaling
  rope_parameters original_max_position_embeddings attention_bias mlp_bias sliding_window use_sliding_window
  max_window_layers layer_types bos_token_id eos_token_id torch_dtype dtype

  _name_or_path _model_name_or_path name_or_path _commit_hash _attn_implementation _attn_implementation_autoset
  attn_implementation _from_model_config transformers_version transformers.js_config model_name auto_map
  pad_token_id unk_token_id sep_token_id decoder_start_token_id tokenizer_class prefix
  use_cache return_dict output_attentions output_hidden_states chunk_size_feed_forward gradient_checkpointing
  torchscript use_bfloat16 keep_fp32 tf_legacy_loss is_decoder is_llama_config pretraining_tp initializer_range
  id2label label2id num_labels problem_type finetuning_task task_specific_params cross_attention_hidden_size
  attention_dropout attn_pdrop embd_pdrop resid_pdrop hidden_dropout neftune_noise_alpha
  do_sample temperature top_p top_k max_length min_length repetition_penalty model_max_length max_sequence_length
  unsloth_fixed unsloth_version
)";

std::unordered_set<std::string> known_fields() {
  std::istringstream words(kKnown);
  std::unordered_set<std::string> known{std::istream_iterator<std::string>(words), {}};
  for (const Neutral& field : kNeutral) known.insert(field.key);
  return known;
}

bool says_nothing(const Json& value) {
  return value.is_null() || value == false || (value.is_structured() && value.empty());
}

[[noreturn]] void refuse(const Fields& config, const Family& family, const std::string& key) {
  fail(ErrorKind::unsupported, config.where(), ": ", key, " is ", config.json()[key].dump().substr(0, 200),
       ", which changes what a ", family.name, " model computes in a way that this program does not know");
}

void require(const Fields& config, const Family& family, const char* key, const Json& neutral) {
  if (!config.has(key)) return;
  const Json& value = config.at(key);
  if (neutral.empty() ? !says_nothing(value)
                      : std::find(neutral.begin(), neutral.end(), value) == neutral.end())
    refuse(config, family, key);
}

// Fields that some families know and others only carry along.
void check_family_fields(const Fields& config, const Family& family) {
  if (family.attention_bias == AttentionBias::never) require(config, family, "attention_bias", Json::array());
  if (family.attention_bias == AttentionBias::qkv)
    require(config, family, "attention_bias", Json::array({true}));
  if (!family.mlp_bias) require(config, family, "mlp_bias", Json::array());
  const bool windows_off = config.has("use_sliding_window") && config.at("use_sliding_window") == false;
  if (family.windows == Windows::never && !windows_off)
    require(config, family, "sliding_window", Json::array());
  if (family.windows == Windows::never && config.has("layer_types"))
    for (const Json& type : config.at("layer_types"))
      if (type != "full_attention") refuse(config, family, "layer_types");
  // A Mistral model slides by sliding_window alone; a flag that says otherwise contradicts it.
  if (family.windows == Windows::every_layer && windows_off)
    require(config, family, "sliding_window", Json::array());
}

void check_architecture(const Fields& config, const Family& family) {
  if (config.has("auto_map"))
    for (const char* key : {"AutoModelForCausalLM", "AutoModel"})
      if (config.at("auto_map").contains(key))
        fail(ErrorKind::unsupported, config.where(), ": auto_map names the model's own code (",
             config.at("auto_map")[key].dump(), "), which this program does not run");
  if (!config.has("architectures") || config.at("architectures").empty()) return;
  for (const Json& name : config.at("architectures"))
    if (name == family.architecture ||
        (name == "MinistralForCausalLM" && family.windows == Windows::every_layer))
      return;
  fail(ErrorKind::unsupported, config.where(), ": architectures is ", config.at("architectures").dump(),
       "; of the family ", family.name, " only ", family.architecture, " is known");
}

}  // namespace

Fields::Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object_.is_object()) fail(ErrorKind::corrupt, where_, ": a JSON object is expected");
}

bool Fields::has(const char* key) const {
  const auto found = object_.find(key);
  return found != object_.end() && !found->is_null();
}

const Json& Fields::at(const char* key) const {
  if (!has(key)) fail(ErrorKind::corrupt, where_, ": the field ", key, " is missing");
  return *object_.find(key);
}

void Fields::wrong(const char* key, const char* expected) const {
  fail(ErrorKind::corrupt, where_, ": ", key, " is ", at(key).dump().substr(0, 200), "; ", expected,
       " is expected");
}

std::int64_t Fields::integer(const char* key) const {
  const Json& value = at(key);
  if (!value.is_number_integer()) wrong(key, "an integer");
  if (value.is_number_unsigned() &&
      value.get<std::uint64_t>() > std::uint64_t(std::numeric_limits<std::int64_t>::max()))
    wrong(key, "an integer of 64 bits");
  return value.get<std::int64_t>();
}

std::int64_t Fields::integer_or(const char* key, std::int64_t fallback) const {
  return has(key) ? integer(key) : fallback;
}

double Fields::number_or(const char* key, double fallback) const {
  if (!has(key)) return fallback;
  if (!at(key).is_number()) wrong(key, "a number");
  return at(key).get<double>();
}

bool Fields::boolean_or(const char* key, bool fallback) const {
  if (!has(key)) return fallback;
  if (!at(key).is_boolean()) wrong(key, "true or false");
  return at(key).get<bool>();
}

std::string Fields::text_or(const char* key, const std::string& fallback) const {
  if (!has(key)) return fallback;
  if (!at(key).is_string()) wrong(key, "a string");
  return at(key).get<std::string>();
}

void check_fields(const Fields& config, const Family& family) {
  check_architecture(config, family);
  check_family_fields(config, family);
  for (const Neutral& field : kNeutral)
    if (config.has(field.key) && !says_nothing(config.at(field.key)))
      require(config, family, field.key, Json::parse(field.values));
  if (config.number_or("attention_dropout", 0) != 0)
    log(LogLevel::warning, config.where(), ": attention_dropout is not applied");
  const std::unordered_set<std::string> known = known_fields();
  std::string unknown;
  for (const auto& [key, value] : config.json().items())
    if (!known.contains(key) && !says_nothing(value)) unknown += (unknown.empty() ? "" : ", ") + key;
  if (!unknown.empty())
    log(LogLevel::warning, config.where(),
        ": unknown fields, taken to say nothing about the computation: ", unknown);
}

}  // namespace slideway
