#include "model/decoder.h"

namespace slideway {
namespace {
const LayerLora kNoLora;
}  // namespace

void Decoder::forward(int layer, const LayerWeights& weights, const Rows& rows, Tensor inv_freq,
                      const LayerSaved& saved, Tensor out, const LayerLora* lora, Arena& scratch) {
  attend(layer, weights, rows, inv_freq, saved, lora ? *lora : kNoLora, scratch);
  mlp(weights, saved, out, lora ? *lora : kNoLora, scratch);
}

void Decoder::backward(int layer, const LayerWeights& weights, const LayerWeights& grads, const Rows& rows,
                       Tensor inv_freq, const LayerSaved& saved, Tensor d_x, const LayerLora* lora,
                       Arena& scratch) {
  mlp_backward(weights, grads, saved, d_x, lora ? *lora : kNoLora, scratch);
  attend_backward(layer, weights, grads, rows, inv_freq, saved, d_x, lora ? *lora : kNoLora, scratch);
}

void Decoder::attend(int layer, const LayerWeights& w, const Rows& rows, Tensor inv_freq,
                     const LayerSaved& saved, const LayerLora& lora, Arena& scratch) {
  const Arena::Frame frame(scratch);
  const AttentionForward s(scratch, config_, rows.count(), act_);
  const float eps = config_.rms_norm_eps, scale = config_.attention_scale();
  ops_.rms_norm(s.h, s.rstd, saved.x, w.input_norm, eps);
  project(saved.qkv, saved.v_qkv, s.h, w.qkv, w.qkv_bias, lora.qkv, lora.dropout);
  if (w.q_norm) ops_.head_norm(s.head.qkv, s.head.rstd, saved.qkv, heads(), w.q_norm, w.k_norm, eps);
  const Tensor qkv = w.q_norm ? s.head.qkv : saved.qkv;
  rope(layer, qkv, rows, inv_freq, false);
  if (rows.kv) {
    PagedKv kv = *rows.kv;
    kv.window = layer_config(layer).sliding_window;
    ops_.write_kv(kv, qkv, heads());
    ops_.paged_attention(saved.attention, qkv, heads(), kv, scale);
  } else {
    ops_.attention(saved.attention, saved.lse, qkv, heads(), sequences(layer, rows), scale);
  }
  project(saved.x_mid, saved.v_o, saved.attention, w.o, w.o_bias, lora.o, lora.dropout);
  ops_.add(saved.x_mid, saved.x);
}

void Decoder::mlp(const LayerWeights& w, const LayerSaved& saved, Tensor out, const LayerLora& lora,
                  Arena& scratch) {
  const Arena::Frame frame(scratch);
  const MlpForward s(scratch, config_, saved.x.size(0), act_);
  ops_.rms_norm(s.h, s.rstd, saved.x_mid, w.post_attention_norm, config_.rms_norm_eps);
  project(saved.gate_up, saved.v_gate_up, s.h, w.gate_up, w.gate_up_bias, lora.gate_up, lora.dropout);
  if (!out && !lora.down) return;
  ops_.swiglu(s.swiglu, saved.gate_up);
  if (!out) return ops_.lora_shrink(saved.v_down, s.swiglu, lora.down, lora.dropout);
  project(out, saved.v_down, s.swiglu, w.down, w.down_bias, lora.down, lora.dropout);
  ops_.add(out, saved.x_mid);
}

void Decoder::mlp_backward(const LayerWeights& w, const LayerWeights& grads, const LayerSaved& saved,
                           Tensor d_x, const LayerLora& lora, Arena& scratch) {
  const Arena::Frame frame(scratch);
  const MlpBackward s(scratch, config_, saved.x.size(0), act_);
  if (grads.down || lora.down) ops_.swiglu(s.swiglu, saved.gate_up);
  project_backward(s.d_swiglu, grads.down, grads.down_bias, d_x, s.swiglu, saved.v_down, w.down, lora.down,
                   lora.dropout);
  ops_.swiglu_backward(s.d_gate_up, s.d_swiglu, saved.gate_up);
  ops_.rms_norm(s.h, s.rstd, saved.x_mid, w.post_attention_norm, config_.rms_norm_eps);
  project_backward(s.d_h, grads.gate_up, grads.gate_up_bias, s.d_gate_up, s.h, saved.v_gate_up, w.gate_up,
                   lora.gate_up, lora.dropout);
  ops_.rms_norm_backward(d_x, grads.post_attention_norm, s.d_h, saved.x_mid, w.post_attention_norm, s.rstd);
}

void Decoder::attend_backward(int layer, const LayerWeights& w, const LayerWeights& grads, const Rows& rows,
                              Tensor inv_freq, const LayerSaved& saved, Tensor d_x, const LayerLora& lora,
                              Arena& scratch) {
  const Arena::Frame frame(scratch);
  const AttentionBackward s(scratch, config_, rows.count(), act_);
  const float eps = config_.rms_norm_eps, scale = config_.attention_scale();
  project_backward(s.d_attention, grads.o, grads.o_bias, d_x, saved.attention, saved.v_o, w.o, lora.o,
                   lora.dropout);
  if (w.q_norm) {
    ops_.head_norm(s.head.qkv, s.head.rstd, saved.qkv, heads(), w.q_norm, w.k_norm, eps);
    rope(layer, s.head.qkv, rows, inv_freq, false);
  }
  ops_.attention_backward(s.d_qkv, s.d_attention, saved.attention, saved.lse,
                          w.q_norm ? s.head.qkv : saved.qkv, heads(), sequences(layer, rows), scale);
  rope(layer, s.d_qkv, rows, inv_freq, true);
  if (w.q_norm)
    ops_.head_norm_backward(s.d_qkv, grads.q_norm, grads.k_norm, saved.qkv, s.head.rstd, heads(), w.q_norm,
                            w.k_norm);
  ops_.rms_norm(s.h, s.rstd, saved.x, w.input_norm, eps);
  project_backward(s.d_h, grads.qkv, grads.qkv_bias, s.d_qkv, s.h, saved.v_qkv, w.qkv, lora.qkv,
                   lora.dropout);
  ops_.rms_norm_backward(d_x, grads.input_norm, s.d_h, saved.x, w.input_norm, s.rstd);
}

void Decoder::project(Tensor y, Tensor v, Tensor x, Tensor w, Tensor bias, const LoraTarget& lora,
                      const Dropout& dropout) {
  ops_.linear(y, x, w, bias);
  if (!lora) return;
  ops_.lora_shrink(v, x, lora, dropout);
  ops_.lora_expand(y, v, lora);
}

void Decoder::project_backward(Tensor d_x, Tensor d_w, Tensor d_bias, Tensor d_y, Tensor x, Tensor v,
                               Tensor w, const LoraTarget& lora, const Dropout& dropout) {
  if (d_w) ops_.linear_backward_weight(d_w, d_bias, d_y, x);
  ops_.linear_backward_input(d_x, d_y, w, false);
  if (lora) ops_.lora_backward(d_x, d_y, x, v, lora, dropout);
}

void Decoder::rope(int layer, Tensor qkv, const Rows& rows, Tensor inv_freq, bool backward) {
  const RopeConfig& rope = config_.ropes[std::size_t(layer_config(layer).rope)];
  ops_.rope(qkv, heads(), rows.positions, inv_freq, rope.attention_factor, backward);
}

Sequences Decoder::sequences(int layer, const Rows& rows) const {
  return {.starts = rows.sequences.starts, .window = layer_config(layer).sliding_window};
}

}  // namespace slideway
