// Shapes: what every op of ops.h demands of its tensors, checked at the call, the same for every backend.
//
// One function an op, with the op's own parameters. What it lets pass, a kernel may take for granted.
//
// Errors   internal, naming the op, the tensor, what it is and what was expected
#pragma once

#include "ops/ops.h"

namespace slideway::shapes {

void linear(const Tensor& out, const Tensor& x, const Tensor& w, const Tensor& bias);
void linear_backward_input(const Tensor& d_x, const Tensor& d_out, const Tensor& w, bool accumulate);
void linear_backward_weight(const Tensor& d_w, const Tensor& d_bias, const Tensor& d_out, const Tensor& x);

void rms_norm(const Tensor& out, const Tensor& rstd, const Tensor& x, const Tensor& weight);
void rms_norm_backward(const Tensor& d_x, const Tensor& d_weight, const Tensor& d_out, const Tensor& x,
                       const Tensor& weight, const Tensor& rstd);
void add(const Tensor& x, const Tensor& y);
void head_norm(const Tensor& out, const Tensor& rstd, const Tensor& qkv, const Heads& heads,
               const Tensor& q_weight, const Tensor& k_weight);
void head_norm_backward(const Tensor& d_qkv, const Tensor& d_q_weight, const Tensor& d_k_weight,
                        const Tensor& qkv, const Tensor& rstd, const Heads& heads, const Tensor& q_weight,
                        const Tensor& k_weight);
void rope(const Tensor& qkv, const Heads& heads, const Tensor& positions, const Tensor& inv_freq);
void swiglu(const Tensor& out, const Tensor& gate_up);
void swiglu_backward(const Tensor& d_gate_up, const Tensor& d_out, const Tensor& gate_up);

void attention(const Tensor& out, const Tensor& lse, const Tensor& qkv, const Heads& heads,
               const Sequences& sequences);
void attention_backward(const Tensor& d_qkv, const Tensor& d_out, const Tensor& out, const Tensor& lse,
                        const Tensor& qkv, const Heads& heads, const Sequences& sequences);
void write_kv(const PagedKv& kv, const Tensor& qkv, const Heads& heads);
void paged_attention(const Tensor& out, const Tensor& qkv, const Heads& heads, const PagedKv& kv);

void embed(const Tensor& out, const Tensor& table, const Tensor& ids);
void embed_backward(const Tensor& d_table, const Tensor& d_out, const Tensor& ids);
void cross_entropy_tile(const Tensor& max_sum, const Tensor& target_logit, const Tensor& logits,
                        const Tensor& targets, std::int64_t tile_begin);
void cross_entropy_loss(const Tensor& losses, const Tensor& max_sum, const Tensor& target_logit,
                        const Tensor& targets);
void cross_entropy_backward(const Tensor& d_logits, const Tensor& logits, const Tensor& max_sum,
                            const Tensor& targets, std::int64_t tile_begin);

// Part by part: ranks, rows, and the places in v and y that a part names. d_a and d_b in lora_backward alone.
void lora_shrink(const Tensor& v, const Tensor& x, const LoraTarget& lora, const Dropout& dropout);
void lora_expand(const Tensor& y, const Tensor& v, const LoraTarget& lora);
void lora_backward(const Tensor& d_x, const Tensor& d_y, const Tensor& x, const Tensor& v,
                   const LoraTarget& lora, const Dropout& dropout);

void fill_zero(const Tensor& x);
void convert(const Tensor& out, const Tensor& x);
void join(const Tensor& out, const Tensor& hi, const Tensor& lo);
void sum_of_squares(const Tensor& out, const Tensor& x);

}  // namespace slideway::shapes
