// Tensor: a view of numbers in row-major order without gaps. It never owns them.
//
// Copying a Tensor copies the view. Whoever made the memory (a Buffer, an Arena, a store) must outlive it.
// An empty Tensor (data() == nullptr) stands for "not there": an absent bias, an absent norm.
//
// Threads  a value; the memory behind it has its own rules
// Errors   internal when a view would not fit in what it is taken from
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "core/error.h"
#include "tensor/dtype.h"

namespace slideway {

class Tensor {
 public:
  static constexpr int kMaxRank = 4;

  Tensor() = default;
  Tensor(void* data, DType dtype, std::initializer_list<std::int64_t> shape);
  Tensor(void* data, DType dtype, std::span<const std::int64_t> shape);

  explicit operator bool() const { return data_ != nullptr; }
  DType dtype() const { return dtype_; }
  int rank() const { return rank_; }
  std::int64_t size(int axis) const { return shape_[std::size_t(axis < 0 ? axis + rank_ : axis)]; }
  std::span<const std::int64_t> shape() const { return {shape_.data(), std::size_t(rank_)}; }
  std::int64_t elements() const;
  std::size_t bytes() const { return std::size_t(elements()) * bytes_of(dtype_); }

  void* data() const { return data_; }
  float* f32() const { return as<float>(DType::f32); }
  bf16_t* bf16() const { return as<bf16_t>(DType::bf16); }
  std::int32_t* i32() const { return as<std::int32_t>(DType::i32); }
  double* f64() const { return as<double>(DType::f64); }

  // Rows [begin, end) of the first axis.
  Tensor rows(std::int64_t begin, std::int64_t end) const;
  // The same numbers under another shape of as many elements.
  Tensor reshaped(std::initializer_list<std::int64_t> shape) const;

 private:
  template <class T>
  T* as(DType wanted) const {
    CHECK(dtype_ == wanted, "a ", name_of(dtype_), " tensor was taken for ", name_of(wanted));
    return static_cast<T*>(data_);
  }

  void* data_ = nullptr;
  DType dtype_ = DType::f32;
  int rank_ = 0;
  std::array<std::int64_t, kMaxRank> shape_{};
};

std::string shape_text(std::span<const std::int64_t> shape);  // "[3, 64]"
inline std::string shape_text(const Tensor& tensor) {
  return shape_text(tensor.shape());
}

}  // namespace slideway
