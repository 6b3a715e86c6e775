// ModelConfig from GGUF metadata. The tensors that a file holds say what its keys leave out: biases, head norms, a
// head of its own, and Llama 3.1's frequency factors.
#include <algorithm>
#include <cmath>
#include <unordered_set>

#include "core/error.h"
#include "formats/gguf.h"
#include "model/config.h"
#include "model/config_checks.h"
#include "model/families.h"
#include "tensor/tensor.h"

namespace slideway {
namespace {

// Keys below the architecture's name that are read here or say nothing about the computation.
const std::unordered_set<std::string> kKnown = {
    "vocab_size",
    "context_length",
    "embedding_length",
    "block_count",
    "feed_forward_length",
    "tensor_data_layout",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.value_length",
    "attention.layer_norm_rms_epsilon",
    "attention.sliding_window",
    "attention.causal",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.type",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.finetuned",
    "rope.scaling.attn_factor",
    "rope.scaling.yarn_ext_factor",
    "rope.scaling.yarn_attn_factor",
    "rope.scaling.yarn_beta_fast",
    "rope.scaling.yarn_beta_slow",
    "rope.scale_linear",
};

bool says_nothing(const GgufValue& value) {
  return std::visit(
      [](const auto& v) {
        if constexpr (requires { v.empty(); })
          return v.empty();
        else
          return v == 0;
      },
      value);
}

// The keys of one architecture, by their names below it.
class Keys {
 public:
  Keys(const GgufFile& gguf, std::string architecture)
      : gguf_(gguf), prefix_(std::move(architecture) + ".") {}

  std::string full(const std::string& key) const { return prefix_ + key; }
  bool has(const std::string& key) const { return gguf_.find(full(key)) != nullptr; }
  std::int64_t integer(const std::string& key) const { return gguf_.integer(full(key)); }
  double number(const std::string& key) const { return gguf_.number(full(key)); }
  std::int64_t integer_or(const std::string& key, std::int64_t fallback) const {
    return has(key) ? integer(key) : fallback;
  }
  double number_or(const std::string& key, double fallback) const {
    return has(key) ? number(key) : fallback;
  }

  // A number, or an array of one number a layer, which must all be the same.
  std::int64_t uniform(const std::string& key) const {
    const GgufValue* value = gguf_.find(full(key));
    const auto* list = value ? std::get_if<std::vector<std::int64_t>>(value) : nullptr;
    if (!list) return integer(key);
    if (list->empty() ||
        std::count(list->begin(), list->end(), list->front()) != std::ptrdiff_t(list->size()))
      fail(ErrorKind::unsupported, where(), ": ", full(key), " differs between layers");
    return list->front();
  }

  void refuse_unknown() const {
    for (const auto& [key, value] : gguf_.metadata())
      if (key.starts_with(prefix_) && !kKnown.contains(key.substr(prefix_.size())) && !says_nothing(value))
        fail(ErrorKind::unsupported, where(), ": the metadata key ", key,
             " is not known; it may change what the model computes");
  }

  [[noreturn]] void refuse(const std::string& key, const char* why) const {
    fail(ErrorKind::unsupported, where(), ": ", full(key), " is ", number(key), ": ", why);
  }

  std::string where() const { return gguf_.path().string(); }
  const GgufFile& gguf() const { return gguf_; }

 private:
  const GgufFile& gguf_;
  std::string prefix_;
};

void read_sizes(const Keys& keys, ModelConfig& out) {
  const GgufTensor* embedding = keys.gguf().find_tensor("token_embd.weight");
  if (!embedding || embedding->shape.size() != 2)
    fail(ErrorKind::not_found, keys.where(), ": there is no matrix token_embd.weight");
  out.vocab_size = embedding->shape[0];
  if (keys.integer_or("vocab_size", out.vocab_size) != out.vocab_size)
    fail(ErrorKind::corrupt, keys.where(), ": ", keys.full("vocab_size"), " is ", keys.integer("vocab_size"),
         ", but token_embd.weight is ", shape_text(embedding->shape));
  out.hidden_size = keys.integer("embedding_length");
  out.intermediate_size = keys.uniform("feed_forward_length");
  out.num_attention_heads =
      checked_count(keys.where(), "attention.head_count", keys.uniform("attention.head_count"));
  out.num_key_value_heads = out.num_attention_heads;
  if (keys.has("attention.head_count_kv"))
    out.num_key_value_heads =
        checked_count(keys.where(), "attention.head_count_kv", keys.uniform("attention.head_count_kv"));
  const std::int64_t derived = out.hidden_size / out.num_attention_heads;
  out.head_dim =
      checked_count(keys.where(), "attention.key_length", keys.integer_or("attention.key_length", derived));
  out.max_position_embeddings = keys.integer("context_length");
  out.rms_norm_eps = float(keys.number("attention.layer_norm_rms_epsilon"));
  if (keys.integer_or("attention.value_length", out.head_dim) != out.head_dim)
    keys.refuse("attention.value_length", "values must be as wide as keys");
  if (keys.integer_or("rope.dimension_count", out.head_dim) != out.head_dim)
    keys.refuse("rope.dimension_count", "only whole heads are turned");
  if (const GgufValue* causal = keys.gguf().find(keys.full("attention.causal"));
      causal && *causal != GgufValue(true))
    fail(ErrorKind::unsupported, keys.where(), ": ", keys.full("attention.causal"), " is not true");
}

void read_presence(const GgufFile& gguf, const Family& family, ModelConfig& out) {
  const auto there = [&](const char* name) { return gguf.find_tensor(name) != nullptr; };
  out.tie_word_embeddings = !there("output.weight");
  out.qkv_bias = family.attention_bias == AttentionBias::qkv || there("blk.0.attn_q.bias");
  out.o_bias = there("blk.0.attn_output.bias");
  out.mlp_bias = there("blk.0.ffn_gate.bias");
  out.qk_norm = family.qk_norm;
}

RopeParameters read_scaling(const Keys& keys) {
  RopeParameters out{.theta = keys.number_or("rope.freq_base", 10000)};
  out.factor = keys.number_or("rope.scaling.factor", keys.number_or("rope.scale_linear", 1));
  out.type = keys.has("rope.scaling.type") ? keys.gguf().text(keys.full("rope.scaling.type")) : "linear";
  if (out.type == "none" || (out.type == "linear" && (out.factor == 1 || out.factor == 0)))
    out.type = "default";
  if (out.type == "default") out.factor = 1;
  if (out.type != "yarn") return out;
  out.original_max_position_embeddings =
      keys.number_or("rope.scaling.original_context_length", keys.number("context_length"));
  out.beta_fast = keys.number_or("rope.scaling.yarn_beta_fast", out.beta_fast);
  out.beta_slow = keys.number_or("rope.scaling.yarn_beta_slow", out.beta_slow);
  if (keys.number_or("rope.scaling.yarn_ext_factor", 1) != 1)
    keys.refuse("rope.scaling.yarn_ext_factor", "only full extrapolation is known");
  const double factor =
      keys.number_or("rope.scaling.attn_factor", keys.number_or("rope.scaling.yarn_attn_factor", 1));
  if (factor != 1) out.attention_factor = factor * (0.1 * std::log(std::max(out.factor, 1.0)) + 1);
  return out;
}

// Llama 3.1's scaling comes as divisors of the frequencies. Their parameters are found again, so that the model can
// be written in its own spelling; the divisors of a rope that is none of these are refused.
RopeParameters recognise_llama3(const Keys& keys, const RopeParameters& unscaled, const GgufTensor& divisors,
                                int head_dim) {
  const std::string where = keys.where() + ": rope_freqs.weight";
  if (unscaled.type != "default")
    fail(ErrorKind::unsupported, where, " comes together with rope scaling of type ", unscaled.type);
  if (divisors.elements() != head_dim / 2)
    fail(ErrorKind::corrupt, where, " has ", divisors.elements(), " numbers; half the head size, ",
         head_dim / 2, ", is expected");
  std::vector<float> values(std::size_t(head_dim / 2));
  keys.gguf().read_rows(divisors, 0, values);
  const RopeConfig plain = make_rope_of(where, unscaled, head_dim);
  RopeParameters candidate = unscaled;
  candidate.type = "llama3";
  candidate.factor = *std::max_element(values.begin(), values.end());
  for (const double context : {8192.0, 4096.0, 16384.0, 32768.0, 2048.0, 65536.0, 131072.0}) {
    candidate.original_max_position_embeddings = context;
    const RopeConfig scaled = make_rope_of(where, candidate, head_dim);
    const auto agrees = [&](std::size_t i) {
      const double wanted = double(plain.inv_freq[i]) / double(values[i]);
      return std::abs(scaled.inv_freq[i] - wanted) <= 1e-5 * wanted;
    };
    std::size_t i = 0;
    while (i < values.size() && agrees(i)) ++i;
    if (i == values.size()) return candidate;
  }
  fail(ErrorKind::unsupported, where,
       ": these divisors are not those of Llama 3.1's scaling (low_freq_factor 1, ",
       "high_freq_factor 4, some power of two as original_max_position_embeddings)");
}

void read_tokens(const GgufFile& gguf, ModelConfig& out) {
  const auto id = [&](const char* key) -> int {
    if (!gguf.find(key)) return -1;
    const std::int64_t value = gguf.integer(key);
    return value >= 0 && value < out.vocab_size ? int(value) : -1;
  };
  out.bos_token_id = id("tokenizer.ggml.bos_token_id");
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"})
    if (const int eos = id(key); eos >= 0 && std::find(out.eos_token_ids.begin(), out.eos_token_ids.end(),
                                                       eos) == out.eos_token_ids.end())
      out.eos_token_ids.push_back(eos);
}

// What saved weights are stored as: the embedding's type where it is a plain one, else bfloat16.
std::string plain_type(const GgufFile& gguf) {
  const std::string type = gguf_type_name(gguf.find_tensor("token_embd.weight")->type);
  return type == "F32" ? "float32" : type == "F16" ? "float16" : "bfloat16";
}

}  // namespace

ModelConfig load_config(const GgufFile& gguf) {
  const std::string where = gguf.path().string(), architecture = gguf.text("general.architecture");
  const Family* family = find_gguf_family(architecture);
  if (!family) {
    std::string known;
    for (const Family& row : families())
      if (known.find(row.gguf_architecture) == known.npos)
        known += std::string(known.empty() ? "" : ", ") + row.gguf_architecture;
    fail(ErrorKind::unsupported, where, ": general.architecture is \"", architecture, "\"; known are ",
         known);
  }
  const Keys keys(gguf, architecture);
  keys.refuse_unknown();
  ModelConfig out;
  const auto window = keys.integer_or("attention.sliding_window", 0);
  if (window != 0) {  // GGUF has no family of its own for Mistral
    if (family->windows == Windows::upper_layers)
      keys.refuse("attention.sliding_window", "which layers slide is not said");
    family = find_family("mistral");
  }
  out.family = family->name;
  read_sizes(keys, out);
  read_presence(gguf, *family, out);
  check_sizes(where, out);
  RopeParameters rope = read_scaling(keys);
  if (const GgufTensor* divisors = gguf.find_tensor("rope_freqs.weight"))
    rope = recognise_llama3(keys, rope, *divisors, out.head_dim);
  out.ropes.push_back(make_rope_of(where, rope, out.head_dim));
  const LayerConfig layer{.sliding_window =
                              window == 0 ? 0 : checked_count(where, "attention.sliding_window", window)};
  out.layers.assign(std::size_t(checked_layers(where, keys.integer("block_count"))), layer);
  read_tokens(gguf, out);
  out.torch_dtype = plain_type(gguf);
  return out;
}

}  // namespace slideway
