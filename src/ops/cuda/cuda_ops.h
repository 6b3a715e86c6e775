// CudaOps: every op on one CUDA stream.
//
// A method checks its shapes, then launches; it never waits. Whatever a call reads on the host (starts of sequences, parts
// of LoRA, token indices) travels inside kernel parameters, through HostData. The bodies lie in one file a family, as on
// the CPU. Products of many rows are cuBLASLt's (products.h), attention is cuDNN's where it takes the shape (cudnn.h).
//
// Owns     its workspace, whose parts are sized in workspace.h
// Errors   device; unsupported for heads wider than kWidestHead
// Source   docs/numerics.md, "CUDA"
#pragma once

#include <memory>

#include "ops/cuda/host_data.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/products.h"
#include "ops/cuda/workspace.h"
#include "ops/ops.h"

namespace slideway {

class CudaStream;
class CudnnAttention;

constexpr int kWidestHead = 256;

class CudaOps final : public Ops {
 public:
  CudaOps(Device& device, CudaStream& stream, const OpsOptions& options);
  ~CudaOps() override;

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
  DType preferred_activation() const override { return DType::bf16; }
  std::string numeric_plan() const override;

 private:
  cudaStream_t handle() const { return stream_; }
  void use() const { CUDA_CHECK(cudaSetDevice(device_)); }  // makes this GPU the calling thread's
  float* sums() const { return reinterpret_cast<float*>(workspace_.sums.data()); }  // column_sums.h

  int device_;
  cudaStream_t stream_;
  OpsOptions options_;
  Workspace workspace_;
  HostData host_data_;
  Products products_;
  std::unique_ptr<CudnnAttention> cudnn_;
};

}  // namespace slideway
