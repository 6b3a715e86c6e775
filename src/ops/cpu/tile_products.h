// TileProducts: matrix products by oneDNN, one at a time on the calling thread. Parallelism is the caller's: it cuts
// a product into tiles whose sizes depend on shapes alone, and a tile's bits depend on its shape alone.
//
// Where all operands are f32, or bf16 on a processor with bf16 products, a tile is one primitive of oneDNN, made at
// the first use of its shape and kept. Everything else is widened to f32 in kWidenTile pieces of the inner dimension.
// Sums are in f32; a bf16 result is rounded once.
//
// Owns     the primitives; scratch belongs to the threads (it grows to the largest tile, then stays)
// Threads  any
// Source   docs/numerics.md, "Products in training"
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tensor/tensor.h"

namespace slideway {

// Element (r, c) lies at data[r · stride + c], or at data[c · stride + r] when transposed.
struct MatrixView {
  void* data;
  DType type;  // f32 or bf16
  std::int64_t rows, columns, stride;
  bool transposed = false;

  // Rows [r, r + m) and columns [c, c + n) of it.
  MatrixView part(std::int64_t r, std::int64_t m, std::int64_t c, std::int64_t n) const;
  MatrixView turned() const { return {data, type, columns, rows, stride, !transposed}; }
};

MatrixView matrix(const Tensor& tensor);  // of rank 2

class TileProducts {
 public:
  TileProducts();
  ~TileProducts();

  // out = a · b (+ out) (+ bias in every row)
  void run(const MatrixView& out /*[m, n]*/, const MatrixView& a /*[m, k]*/, const MatrixView& b /*[k, n]*/,
           bool accumulate, const float* bias /*[n] or null*/) const;

 private:
  struct Cache;
  std::unique_ptr<Cache> cache_;
};

// Whether this processor multiplies bf16 itself (AVX-512 BF16 or AMX) and SLIDEWAY_CPU_LEVEL lets it.
bool has_bf16_products();
// "oneDNN 2.6.3 avx512_core_bf16": for the numeric plan.
std::string product_library();

}  // namespace slideway
