// A model folder as a GGUF file, in the way of llama.cpp's conversion: names, metadata, permuted rows.
#pragma once

#include <cmath>

#include "model/families.h"
#include "model/weights.h"
#include "support/gguf_bytes.h"

namespace slideway {

// Row i + half · E/2 of a head goes to row 2i + half.
inline std::vector<float> interleave_halves(const std::vector<float>& values, std::int64_t head,
                                            std::int64_t width) {
  std::vector<float> out(values.size());
  for (std::int64_t row = 0; row < std::int64_t(values.size()) / width; ++row) {
    const std::int64_t h = row / head, half = row % head / (head / 2), i = row % (head / 2);
    for (std::int64_t c = 0; c < width; ++c)
      out[std::size_t((h * head + 2 * i + half) * width + c)] = values[std::size_t(row * width + c)];
  }
  return out;
}

inline void add_metadata(GgufBytes& gguf, const ModelConfig& config) {
  const std::string family = find_family(config.family)->gguf_architecture;
  const auto key = [&](const char* name) { return family + "." + name; };
  gguf.text("general.architecture", family).text("general.name", "tiny");
  gguf.u32(key("block_count"), std::uint32_t(config.num_layers()));
  gguf.u32(key("context_length"), std::uint32_t(config.max_position_embeddings));
  gguf.u32(key("embedding_length"), std::uint32_t(config.hidden_size));
  gguf.u32(key("feed_forward_length"), std::uint32_t(config.intermediate_size));
  gguf.u32(key("attention.head_count"), std::uint32_t(config.num_attention_heads));
  gguf.u32(key("attention.head_count_kv"), std::uint32_t(config.num_key_value_heads));
  gguf.u32(key("attention.key_length"), std::uint32_t(config.head_dim));
  gguf.u32(key("attention.value_length"), std::uint32_t(config.head_dim));
  gguf.f32(key("attention.layer_norm_rms_epsilon"), config.rms_norm_eps);
  gguf.f32(key("rope.freq_base"), float(config.ropes[0].parameters.theta));
  gguf.u32("tokenizer.ggml.bos_token_id", 1).u32("tokenizer.ggml.eos_token_id", 2);
}

inline void add_tensors(GgufBytes& gguf, const WeightFiles& model) {
  const ModelConfig& config = model.config();
  const bool permutes = find_family(config.family)->gguf_permutes;
  for (const BlockLayout* block : model.layout().blocks())
    for (const TensorSpec& spec : block->tensors) {
      std::vector<float> values(std::size_t(spec.elements()));
      model.read(spec, values);
      const bool turned = spec.gguf_name.find(".attn_q.") != std::string::npos ||
                          spec.gguf_name.find(".attn_k.") != std::string::npos;
      if (permutes && turned)
        values = interleave_halves(values, config.head_dim, spec.shape.size() == 1 ? 1 : spec.shape[1]);
      gguf.floats(spec.gguf_name, {spec.shape.begin(), spec.shape.end()}, values);
    }
}

// The divisors that conversion writes for Llama 3.1's rope.
inline std::vector<float> rope_divisors(const ModelConfig& config) {
  RopeParameters plain = config.ropes[0].parameters;
  plain.type = "default";
  const RopeConfig unscaled = make_rope(plain, config.head_dim);
  std::vector<float> divisors;
  for (std::size_t i = 0; i < unscaled.inv_freq.size(); ++i)
    divisors.push_back(unscaled.inv_freq[i] / config.ropes[0].inv_freq[i]);
  return divisors;
}

inline GgufBytes as_gguf(const WeightFiles& model) {
  GgufBytes gguf;
  add_metadata(gguf, model.config());
  add_tensors(gguf, model);
  if (model.config().ropes[0].parameters.type == "llama3")
    gguf.floats("rope_freqs.weight", {std::uint64_t(model.config().head_dim / 2)},
                rope_divisors(model.config()));
  return gguf;
}

}  // namespace slideway
