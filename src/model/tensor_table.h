// The tensor table: every tensor of a Llama-family model, as rows.
//
// Loading, saving, flat blocks, weight decay, LoRA targets and tests all read this one table. A model is cut into
// blocks, each one flat piece of memory that moves as a whole: the embedding, each decoder layer, the final norm, and
// the head (absent where it is tied to the embedding).
//
// Within a layer q, k, v lie one after another without a gap, so do gate and up, and so do their biases: one product
// serves them. Every other tensor begins on a multiple of kTensorAlign elements; the gaps are zero and stay zero.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/config.h"
#include "tensor/tensor.h"

namespace slideway {

constexpr std::int64_t kTensorAlign = 64;  // elements

enum class Role {
  embed_tokens,
  input_norm,
  q_proj,
  k_proj,
  v_proj,
  q_bias,
  k_bias,
  v_bias,
  q_norm,
  k_norm,
  o_proj,
  o_bias,
  post_attention_norm,
  gate_proj,
  up_proj,
  gate_bias,
  up_bias,
  down_proj,
  down_bias,
  final_norm,
  lm_head,
};

struct TensorSpec {
  Role role;
  std::string name;                 // Hugging Face name, such as "model.layers.3.self_attn.q_proj.weight"
  std::string gguf_name;            // such as "blk.3.attn_q.weight"
  std::vector<std::int64_t> shape;  // as stored: [N, C] for projections
  std::int64_t offset = 0;          // elements from the start of its block
  bool decays = false;              // false for norms and biases
  std::int64_t elements() const;
};

struct BlockLayout {
  std::string name;                 // "embed_tokens", "layers.3", "norm", "lm_head"
  std::vector<TensorSpec> tensors;  // ascending offsets
  std::int64_t elements = 0;        // with gaps; a multiple of kTensorAlign

  const TensorSpec* find(Role role) const;  // null when this model has none
};

struct ModelLayout {
  BlockLayout embed;
  std::vector<BlockLayout> layers;  // [L], all of equal size and offsets
  BlockLayout norm;                 // the final norm
  BlockLayout head;                 // empty (0 elements) where tied

  // Blocks in forward order: embed, layers…, norm, head (left out where tied).
  std::vector<const BlockLayout*> blocks() const;
  std::int64_t parameters() const;  // without gaps
};

ModelLayout make_layout(const ModelConfig& config);

// The tensor as a view into its block's memory.
Tensor view(const TensorSpec& spec, void* block, DType type);

}  // namespace slideway
