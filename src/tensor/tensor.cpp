#include "tensor/tensor.h"

#include <algorithm>

namespace slideway {

Tensor::Tensor(void* data, DType dtype, std::initializer_list<std::int64_t> shape)
    : Tensor(data, dtype, std::span<const std::int64_t>(shape.begin(), shape.size())) {}

Tensor::Tensor(void* data, DType dtype, std::span<const std::int64_t> shape)
    : data_(data), dtype_(dtype), rank_(int(shape.size())) {
  CHECK(shape.size() <= kMaxRank, "a tensor has at most ", kMaxRank, " axes, not ", shape_text(shape));
  for (const std::int64_t size : shape) CHECK(size >= 0, "an axis has a negative size: ", shape_text(shape));
  std::copy(shape.begin(), shape.end(), shape_.begin());
}

std::int64_t Tensor::elements() const {
  if (rank_ == 0) return data_ ? 1 : 0;
  std::int64_t product = 1;
  for (const std::int64_t size : shape()) product *= size;
  return product;
}

Tensor Tensor::rows(std::int64_t begin, std::int64_t end) const {
  CHECK(rank_ >= 1 && 0 <= begin && begin <= end && end <= shape_[0], "rows [", begin, ", ", end, ") of ",
        shape_text(*this));
  Tensor part = *this;
  part.shape_[0] = end - begin;
  std::int64_t row = 1;
  for (const std::int64_t size : shape().subspan(1)) row *= size;
  if (data_) part.data_ = static_cast<std::byte*>(data_) + std::size_t(begin * row) * bytes_of(dtype_);
  return part;
}

Tensor Tensor::reshaped(std::initializer_list<std::int64_t> shape) const {
  Tensor other(data_, dtype_, shape);
  CHECK(other.elements() == elements(), shape_text(*this), " cannot be seen as ", shape_text(other));
  return other;
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace slideway
