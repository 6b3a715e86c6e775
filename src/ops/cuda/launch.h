// What every launch of a kernel needs on the host: types, cuts, alignment, and what went wrong.
#pragma once

#include <cstdint>

#include "device/cuda/check.h"
#include "tensor/tensor.h"

namespace slideway {

// Whether rows of n numbers from these addresses on may be read eight at a time.
template <class... P>
bool aligned8(std::int64_t n, const P*... p) {
  return n % 8 == 0 && ((reinterpret_cast<std::uintptr_t>(p) % 16 == 0) && ...);
}

template <class T>
T* numbers(const Tensor& tensor) {
  return static_cast<T*>(tensor.data());
}

// Calls body with a float or a bf16_t, whichever the type is.
template <class Body>
void with_type(DType type, const Body& body) {
  if (type == DType::f32) {
    body(float{});
  } else {
    body(bf16_t{});
  }
}
template <class Body>
void with_types(DType first, DType second, const Body& body) {
  with_type(first, [&](auto a) { with_type(second, [&](auto b) { body(a, b); }); });
}

inline std::int64_t pieces_of(std::int64_t n, std::int64_t size) {
  return (n + size - 1) / size;
}

// After a launch: throws what was wrong with it.
inline void check_launch() {
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace slideway
