#include "model/tensor_table.h"

namespace slideway {
namespace {

// Appends tensors to a block; follow() leaves no gap before the next one.
class BlockBuilder {
 public:
  BlockBuilder(std::string name, std::string prefix, std::string gguf_prefix)
      : prefix_(std::move(prefix)), gguf_prefix_(std::move(gguf_prefix)) {
    block_.name = std::move(name);
  }

  BlockBuilder& add(Role role, const char* name, const char* gguf_name, std::vector<std::int64_t> shape) {
    end_ = (end_ + kTensorAlign - 1) / kTensorAlign * kTensorAlign;
    return follow(role, name, gguf_name, std::move(shape));
  }

  BlockBuilder& follow(Role role, const char* name, const char* gguf_name, std::vector<std::int64_t> shape) {
    TensorSpec spec{.role = role,
                    .name = prefix_ + name,
                    .gguf_name = gguf_prefix_ + gguf_name,
                    .shape = std::move(shape),
                    .offset = end_};
    spec.decays = spec.shape.size() > 1;  // what has one axis is a norm or a bias
    end_ += spec.elements();
    block_.tensors.push_back(std::move(spec));
    return *this;
  }

  BlockLayout finish() {
    block_.elements = (end_ + kTensorAlign - 1) / kTensorAlign * kTensorAlign;
    return std::move(block_);
  }

 private:
  BlockLayout block_;
  std::string prefix_, gguf_prefix_;
  std::int64_t end_ = 0;
};

BlockLayout layer_block(const ModelConfig& c, int layer) {
  const std::string number = std::to_string(layer);
  BlockBuilder block("layers." + number, "model.layers." + number + ".", "blk." + number + ".");
  const std::int64_t D = c.hidden_size, F = c.intermediate_size, E = c.head_dim;
  const std::int64_t q = c.num_attention_heads * E, kv = c.num_key_value_heads * E;
  block.add(Role::input_norm, "input_layernorm.weight", "attn_norm.weight", {D})
      .add(Role::q_proj, "self_attn.q_proj.weight", "attn_q.weight", {q, D})
      .follow(Role::k_proj, "self_attn.k_proj.weight", "attn_k.weight", {kv, D})
      .follow(Role::v_proj, "self_attn.v_proj.weight", "attn_v.weight", {kv, D});
  if (c.qkv_bias)
    block.add(Role::q_bias, "self_attn.q_proj.bias", "attn_q.bias", {q})
        .follow(Role::k_bias, "self_attn.k_proj.bias", "attn_k.bias", {kv})
        .follow(Role::v_bias, "self_attn.v_proj.bias", "attn_v.bias", {kv});
  if (c.qk_norm)
    block.add(Role::q_norm, "self_attn.q_norm.weight", "attn_q_norm.weight", {E})
        .add(Role::k_norm, "self_attn.k_norm.weight", "attn_k_norm.weight", {E});
  block.add(Role::o_proj, "self_attn.o_proj.weight", "attn_output.weight", {D, q});
  if (c.o_bias) block.add(Role::o_bias, "self_attn.o_proj.bias", "attn_output.bias", {D});
  block.add(Role::post_attention_norm, "post_attention_layernorm.weight", "ffn_norm.weight", {D})
      .add(Role::gate_proj, "mlp.gate_proj.weight", "ffn_gate.weight", {F, D})
      .follow(Role::up_proj, "mlp.up_proj.weight", "ffn_up.weight", {F, D});
  if (c.mlp_bias)
    block.add(Role::gate_bias, "mlp.gate_proj.bias", "ffn_gate.bias", {F})
        .follow(Role::up_bias, "mlp.up_proj.bias", "ffn_up.bias", {F});
  block.add(Role::down_proj, "mlp.down_proj.weight", "ffn_down.weight", {D, F});
  if (c.mlp_bias) block.add(Role::down_bias, "mlp.down_proj.bias", "ffn_down.bias", {D});
  return block.finish();
}

}  // namespace

std::int64_t TensorSpec::elements() const {
  std::int64_t product = 1;
  for (auto size : shape) product *= size;
  return product;
}

const TensorSpec* BlockLayout::find(Role role) const {
  for (const TensorSpec& spec : tensors)
    if (spec.role == role) return &spec;
  return nullptr;
}

std::vector<const BlockLayout*> ModelLayout::blocks() const {
  std::vector<const BlockLayout*> all{&embed};
  for (const BlockLayout& layer : layers) all.push_back(&layer);
  all.push_back(&norm);
  if (head.elements > 0) all.push_back(&head);
  return all;
}

std::int64_t ModelLayout::parameters() const {
  std::int64_t sum = 0;
  for (const BlockLayout* block : blocks())
    for (const TensorSpec& spec : block->tensors) sum += spec.elements();
  return sum;
}

ModelLayout make_layout(const ModelConfig& c) {
  const std::vector<std::int64_t> matrix{c.vocab_size, c.hidden_size};
  ModelLayout layout;
  layout.embed = BlockBuilder("embed_tokens", "model.", "")
                     .add(Role::embed_tokens, "embed_tokens.weight", "token_embd.weight", matrix)
                     .finish();
  for (int i = 0; i < c.num_layers(); ++i) layout.layers.push_back(layer_block(c, i));
  layout.norm = BlockBuilder("norm", "model.", "")
                    .add(Role::final_norm, "norm.weight", "output_norm.weight", {c.hidden_size})
                    .finish();
  layout.head.name = "lm_head";
  if (!c.tie_word_embeddings)
    layout.head = BlockBuilder("lm_head", "", "")
                      .add(Role::lm_head, "lm_head.weight", "output.weight", matrix)
                      .finish();
  return layout;
}

Tensor view(const TensorSpec& spec, void* block, DType type) {
  return {static_cast<std::byte*>(block) + std::size_t(spec.offset) * bytes_of(type), type, spec.shape};
}

}  // namespace slideway
