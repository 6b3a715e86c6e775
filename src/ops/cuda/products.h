// Products: matrix products by cuBLASLt.
//
// An algorithm is the library's first suggestion for a shape, its alignments and this GPU: asked for once, never measured,
// so that bits depend on the shape, the library and the kind of GPU alone. bf16 is summed in f32; f32 products use no TF32.
//
// Units    elements; strides are from one row to the next
// Owns     the library's handle and what it made for each shape; the workspace is the caller's
// Threads  one at a time
// Errors   device; run() says false where the library has no algorithm
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <span>
#include <string>

#include "tensor/tensor.h"

namespace slideway {

// A matrix in memory, row-major; turned: its transpose is meant.
struct ProductMatrix {
  const void* data;
  DType type;
  std::int64_t stride;
  bool turned = false;
};

// out [m, n] = alpha · a [m, k] · b [k, n] + bias, or out += alpha · a · b
struct Product {
  std::int64_t m, n, k;
  void* out;
  DType out_type;
  std::int64_t out_stride;
  ProductMatrix a, b;  // of one type
  float alpha = 1;
  bool accumulate = false;
  const void* bias = nullptr;  // [n], of out_type
};

class Products {
 public:
  explicit Products(std::span<std::byte> workspace);
  ~Products();
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;

  bool run(const Product& product, cudaStream_t stream);
  static std::string library();  // "cuBLASLt 13.1.0"

 private:
  struct Library;  // the handle, and what was made for each shape
  std::span<std::byte> workspace_;
  std::unique_ptr<Library> library_;
};

}  // namespace slideway
