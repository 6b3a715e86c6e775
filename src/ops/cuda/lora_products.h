// LoraProducts: LoRA's additions by the library's products, as training asks for them: bf16 activations, and every part
// over all rows.
//
// f32 numbers (A, B, v, d_v) enter as two bf16 halves, hi + lo, of sixteen bits together: hi·hi + hi·lo + lo·hi, in one
// product over three times the rank. So results are nearly f32's while x and d_y are read once each. Sums over x's columns
// and over rows are cuBLASLt's; what is added to y and d_x, over ranks, is a kernel of our own, which rounds once.
// Dropped-out inputs are made 64 MiB at a time; the factor 1/(1−p) multiplies sums.
//
// Owns     nothing; the workspace is CudaOps'
// Source   docs/numerics.md, "CUDA"
#pragma once

#include <cuda_runtime_api.h>

#include <span>

#include "ops/cuda/products.h"
#include "ops/ops.h"

namespace slideway {

class LoraProducts {
 public:
  LoraProducts(Products& products, std::span<std::byte> workspace, cudaStream_t stream)
      : products_(products), workspace_(workspace), stream_(stream) {}

  // Whether shapes are such; decided by shapes and the workspace's size alone. y: what parts add to, or its gradient.
  bool take(const Tensor& x, const Tensor& y, const Tensor& v, const LoraTarget& lora) const;

  // As the ops; tokens lie on the device, null where nothing is dropped.
  void shrink(Tensor v, Tensor x, const LoraTarget& lora, const Dropout& dropout, const std::int64_t* tokens);
  void expand(Tensor y, Tensor v, const LoraTarget& lora);
  // v holds d_v on return.
  void backward(Tensor d_x, Tensor d_y, Tensor x, Tensor v, const LoraTarget& lora, const Dropout& dropout,
                const std::int64_t* tokens);

 private:
  struct Room;  // the workspace, cut up for one target
  void d_b_and_d_v(const Room& room, Tensor d_y, Tensor v, const LoraTarget& lora);
  void d_a(const Room& room, Tensor x, const LoraTarget& lora, const Dropout& dropout,
           const std::int64_t* tokens);
  void run(const Product& product);

  Products& products_;
  std::span<std::byte> workspace_;
  cudaStream_t stream_;
};

}  // namespace slideway
