// MatrixView: a part of a matrix in memory, as products see it: with a stride, and perhaps turned.
#pragma once

#include <cstdint>

#include "tensor/tensor.h"

namespace slideway {

// Element (r, c) lies at data[r · stride + c], or at data[c · stride + r] when turned.
struct MatrixView {
  void* data;
  DType type;  // f32 or bf16
  std::int64_t rows, columns, stride;
  bool turned = false;
};

// The whole of a tensor of rank 2.
inline MatrixView matrix(const Tensor& tensor) {
  return {tensor.data(), tensor.dtype(), tensor.size(0), tensor.size(1), tensor.size(1)};
}

inline MatrixView turned(const MatrixView& x) {
  return {x.data, x.type, x.columns, x.rows, x.stride, !x.turned};
}

// Rows [r, r + m) and columns [c, c + n).
inline MatrixView part(const MatrixView& x, std::int64_t r, std::int64_t m, std::int64_t c, std::int64_t n) {
  const std::int64_t first = x.turned ? c * x.stride + r : r * x.stride + c;
  return {static_cast<std::byte*>(x.data) + std::size_t(first) * bytes_of(x.type),
          x.type,
          m,
          n,
          x.stride,
          x.turned};
}

}  // namespace slideway
