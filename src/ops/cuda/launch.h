// What every launch of a kernel needs on the host: types, cuts, alignment, and what went wrong.
#pragma once

#include <cstdint>

#include "device/cuda/check.h"
#include "ops/pieces.h"
#include "ops/with_type.h"
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

// After a launch: throws what was wrong with it.
inline void check_launch() {
  CUDA_CHECK(cudaGetLastError());
}

}  // namespace slideway
