// The decoder: what a Llama-family model computes, one op a line. Forward and backward of a layer; embedding, final
// norm and head are for the callers (train/head, serve/engine), since they move differently.
//
//   h = rms_norm(x);  x += o(attention(rope(head_norm(qkv(h)))));  h = rms_norm(x);  x += down(swiglu(gate_up(h)))
//
// One body serves training and serving: Rows says whether attention looks at the rows themselves (sequences) or at
// pages (kv). LoRA arrives as plain structs of ops.h.
//
// Letters as in ops/ops.h. "act" is the activation type of the run.
#pragma once

#include "memory/arena.h"
#include "model/config.h"
#include "model/tensor_table.h"
#include "ops/ops.h"

namespace slideway {

// A layer's weights as views into its block.
struct LayerWeights {
  Tensor input_norm;           // [D]
  Tensor qkv, qkv_bias;        // [(H+2K)E, D], [(H+2K)E] or empty
  Tensor q_norm, k_norm;       // [E] or empty
  Tensor o, o_bias;            // [D, H E], [D] or empty
  Tensor post_attention_norm;  // [D]
  Tensor gate_up, gate_up_bias;  // [2F, D], [2F] or empty
  Tensor down, down_bias;      // [D, F], [D] or empty
};
LayerWeights layer_weights(const BlockLayout& layout, void* block, DType type);

// Additions of adapters to a layer's four fused projections.
struct LayerLora {
  LoraTarget qkv, o, gate_up, down;
  Dropout dropout;  // each part has its own key
};

// The rows of one pass through a layer.
struct Rows {
  Tensor positions;               // [T] i32
  Sequences sequences;            // training: who attends to whom
  const PagedKv* kv = nullptr;    // serving: where keys and values are; sequences is then unused
  std::int64_t count() const { return positions.size(0); }
};

// What backward needs of a layer's forward; taken from an arena that outlives the layer's frame. Tensors that cost
// no product to redo (norm outputs, swiglu) are not among them.
struct LayerSaved {
  Tensor x;            // [T, D] act: the layer's input
  Tensor rstd1, rstd2; // [T] f32
  Tensor qkv;          // [T, (H+2K)E] act, after rope
  Tensor qkv_raw;      // [T, (H+2K)E] act, before head_norm; empty without qk_norm
  Tensor head_rstd;    // [T, H+K] f32; empty without qk_norm
  Tensor attention;    // [T, H E] act
  Tensor lse;          // [H, T] f32
  Tensor x_mid;        // [T, D] act: after attention's residual
  Tensor gate_up;      // [T, 2F] act
  Tensor v_qkv, v_o, v_gate_up, v_down;  // [T, ΣR] f32; empty without LoRA
};
LayerSaved take_saved(Arena& arena, const ModelConfig& config, std::int64_t rows, DType act, const LayerLora* lora);

class Decoder {
 public:
  Decoder(const ModelConfig& config, Ops& ops, DType act) : config_(config), ops_(ops), act_(act) {}

  // out = layer(saved.x); everything in saved but x is written. out may be saved.x's memory only if backward will
  // not follow. inv_freq: [E/2] f32 on the device, of this layer's rope.
  void forward(int layer, const LayerWeights& weights, const Rows& rows, Tensor inv_freq, LayerSaved& saved,
               Tensor out /*[T, D] act*/, const LayerLora* lora, Arena& scratch);

  // d_x: gradient of the output on entry, of saved.x on return. Gradients of weights are added into grads (views of
  // f32); an empty grads.qkv means that the base is frozen and only LoRA's gradients are wanted.
  void backward(int layer, const LayerWeights& weights, const LayerWeights& grads, const Rows& rows, Tensor inv_freq,
                const LayerSaved& saved, Tensor d_x /*[T, D] act*/, const LayerLora* lora, Arena& scratch);

  const ModelConfig& config() const { return config_; }
  DType act() const { return act_; }

 private:
  Heads heads() const;
  const ModelConfig& config_;
  Ops& ops_;
  DType act_;
};

}  // namespace slideway
