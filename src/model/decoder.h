// The decoder: what a Llama-family model computes, one op a line. Forward and backward of a layer; embedding,
// final norm and head are for the callers (train/head, serve/engine), since they move differently.
//
//   h = rms_norm(x);  x += o(attention(rope(head_norm(qkv(h)))));  h = rms_norm(x);  x +=
//   down(swiglu(gate_up(h)))
//
// One body serves training and serving: Rows says whether attention looks at the rows themselves (sequences)
// or at pages (kv). LoRA arrives as plain structs of ops.h. The same input gives the same bits whenever it is
// computed, so that what is not kept can be redone.
//
// Owns     nothing; config and ops must outlive it
// Threads  one at a time, as its Ops
#pragma once

#include "model/layer.h"

namespace slideway {

// The rows of one pass through a layer. Each layer sets its own sliding window.
struct Rows {
  Tensor positions;             // [T] i32
  Sequences sequences;          // training: who attends to whom
  const PagedKv* kv = nullptr;  // serving: where keys and values are; sequences is then unused
  std::int64_t count() const { return positions.size(0); }
};

class Decoder {
 public:
  Decoder(const ModelConfig& config, Ops& ops, DType act) : config_(config), ops_(ops), act_(act) {}

  // out = layer(saved.x); everything in saved but x is written. out may be saved.x's memory only if backward will
  // not follow; empty: only saved is wanted, and the down projection, of which backward needs nothing, is left out.
  // inv_freq: [E/2] f32 on the device, of this layer's rope.
  void forward(int layer, const LayerWeights& weights, const Rows& rows, Tensor inv_freq,
               const LayerSaved& saved, Tensor out /*[T, D] act*/, const LayerLora* lora, Arena& scratch);

  // d_x: gradient of the output on entry, of saved.x on return. Gradients of weights are added into grads
  // (views of f32); all of grads empty: the base is frozen and only LoRA's gradients are wanted.
  void backward(int layer, const LayerWeights& weights, const LayerWeights& grads, const Rows& rows,
                Tensor inv_freq, const LayerSaved& saved, Tensor d_x /*[T, D] act*/, const LayerLora* lora,
                Arena& scratch);

  const ModelConfig& config() const { return config_; }
  DType act() const { return act_; }

 private:
  // x_mid = x + o(attention(rope(head_norm(qkv(rms_norm(x))))))
  void attend(int layer, const LayerWeights& w, const Rows& rows, Tensor inv_freq, const LayerSaved& saved,
              const LayerLora& lora, Arena& scratch);
  void attend_backward(int layer, const LayerWeights& w, const LayerWeights& grads, const Rows& rows,
                       Tensor inv_freq, const LayerSaved& saved, Tensor d_x, const LayerLora& lora,
                       Arena& scratch);
  // out = x_mid + down(swiglu(gate_up(rms_norm(x_mid))))
  void mlp(const LayerWeights& w, const LayerSaved& saved, Tensor out, const LayerLora& lora, Arena& scratch);
  void mlp_backward(const LayerWeights& w, const LayerWeights& grads, const LayerSaved& saved, Tensor d_x,
                    const LayerLora& lora, Arena& scratch);

  // y = x wᵀ + bias, and what adapters add; v is what their backward needs.
  void project(Tensor y, Tensor v, Tensor x, Tensor w, Tensor bias, const LoraTarget& lora,
               const Dropout& dropout);
  void project_backward(Tensor d_x, Tensor d_w, Tensor d_bias, Tensor d_y, Tensor x, Tensor v, Tensor w,
                        const LoraTarget& lora, const Dropout& dropout);
  void rope(int layer, Tensor qkv, const Rows& rows, Tensor inv_freq, bool backward);

  const LayerConfig& layer_config(int layer) const { return config_.layers[std::size_t(layer)]; }
  Sequences sequences(int layer, const Rows& rows) const;
  Heads heads() const { return {config_.num_attention_heads, config_.num_key_value_heads, config_.head_dim}; }

  const ModelConfig& config_;
  Ops& ops_;
  DType act_;
};

}  // namespace slideway
