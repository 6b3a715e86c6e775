// Bf16Products: products of bf16 matrices by oneDNN where the processor multiplies bf16 itself, one at a time on the
// calling thread. Parallelism is the caller's: it cuts a product into tiles whose sizes depend on shapes alone, and a
// tile's bits depend on its shape alone.
//
// A tile is one primitive of oneDNN, made at the first use of its shape and kept.
//
// Owns     the primitives; scratch belongs to the threads
// Threads  any
// Source   docs/numerics.md, "Products in training"
#pragma once

#include <memory>
#include <string>

#include "ops/cpu/matrix_view.h"

namespace slideway {

class Bf16Products {
 public:
  Bf16Products();
  ~Bf16Products();

  // out = a · b (+ out) (+ bias in every row), summed in f32, rounded once where out is bf16
  void run(const MatrixView& out /*[m, n] f32 or bf16*/, const MatrixView& a /*[m, k] bf16*/,
           const MatrixView& b /*[k, n] bf16*/, bool accumulate, const float* bias /*[n] or null*/) const;

 private:
  struct Cache;
  std::unique_ptr<Cache> cache_;
};

// Whether this processor multiplies bf16 itself (AVX-512 BF16, or AMX) and SLIDEWAY_CPU_LEVEL lets it.
bool has_bf16_products();
// "oneDNN 2.6.3 avx512_core_bf16": for the numeric plan.
std::string bf16_product_library();

}  // namespace slideway
