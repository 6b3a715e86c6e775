// CpuOps: every op on host memory. The oracle of the other backends, and the product where there is no GPU.
//
// A method checks its shapes, then issues one closure onto the stream. The bodies lie in one file a family:
// products.cpp (for many rows), row_products.cpp (row-invariant), norm.cpp, rope.cpp, activation.cpp,
// attention.cpp, paged_attention.cpp, vocabulary.cpp, lora.cpp, block.cpp.
#pragma once

#include <vector>

#include "core/threads.h"
#include "ops/cpu/bf16_products.h"
#include "ops/cpu/rope_table.h"
#include "ops/ops.h"

namespace slideway {

class CpuOps final : public Ops {
 public:
  CpuOps(Worker& stream, Threads& threads, const OpsOptions& options);

  void linear(Tensor out, Tensor x, Tensor w, Tensor bias) override;
  void linear_backward_input(Tensor d_x, Tensor d_out, Tensor w, bool accumulate) override;
  void linear_backward_weight(Tensor d_w, Tensor d_bias, Tensor d_out, Tensor x) override;
  void rms_norm(Tensor out, Tensor rstd, Tensor x, Tensor weight, float eps) override;
  void rms_norm_backward(Tensor d_x, Tensor d_weight, Tensor d_out, Tensor x, Tensor weight,
                         Tensor rstd) override;
  void add(Tensor x, Tensor y) override;
  void head_norm(Tensor out, Tensor rstd, Tensor qkv, Heads heads, Tensor q_weight, Tensor k_weight,
                 float eps) override;
  void head_norm_backward(Tensor d_qkv, Tensor d_q_weight, Tensor d_k_weight, Tensor qkv, Tensor rstd,
                          Heads heads, Tensor q_weight, Tensor k_weight) override;
  void rope(Tensor qkv, Heads heads, Tensor positions, Tensor inv_freq, float attention_factor,
            bool backward) override;
  void swiglu(Tensor out, Tensor gate_up) override;
  void swiglu_backward(Tensor d_gate_up, Tensor d_out, Tensor gate_up) override;
  void attention(Tensor out, Tensor lse, Tensor qkv, Heads heads, const Sequences& sequences,
                 float scale) override;
  void attention_backward(Tensor d_qkv, Tensor d_out, Tensor out, Tensor lse, Tensor qkv, Heads heads,
                          const Sequences& sequences, float scale) override;
  void write_kv(const PagedKv& kv, Tensor qkv, Heads heads) override;
  void paged_attention(Tensor out, Tensor qkv, Heads heads, const PagedKv& kv, float scale) override;
  void embed(Tensor out, Tensor table, Tensor ids) override;
  void embed_backward(Tensor d_table, Tensor d_out, Tensor ids) override;
  void cross_entropy_tile(Tensor max_sum, Tensor target_logit, Tensor logits, Tensor targets,
                          std::int64_t tile_begin) override;
  void cross_entropy_loss(Tensor losses, Tensor max_sum, Tensor target_logit, Tensor targets) override;
  void cross_entropy_backward(Tensor d_logits, Tensor logits, Tensor max_sum, Tensor targets,
                              std::int64_t tile_begin, float weight) override;
  void lora_shrink(Tensor v, Tensor x, const LoraTarget& lora, const Dropout& dropout) override;
  void lora_expand(Tensor y, Tensor v, const LoraTarget& lora) override;
  void lora_backward(Tensor d_x, Tensor d_y, Tensor x, Tensor v, const LoraTarget& lora,
                     const Dropout& dropout) override;
  void fill_zero(Tensor x) override;
  void convert(Tensor out, Tensor x) override;
  void join(Tensor out, Tensor hi, Tensor lo) override;
  void sum_of_squares(Tensor out, Tensor x) override;
  void adamw(const AdamwRange& range, const AdamwStep& step, AdamwPiece piece) override;
  DType preferred_activation() const override;
  std::string numeric_plan() const override;

 private:
  Worker& stream_;
  Threads& threads_;
  OpsOptions options_;
  Bf16Products bf16_products_;
  RopeTable rope_table_;
  std::vector<double> chunk_sums_;  // of sum_of_squares
};

}  // namespace slideway
