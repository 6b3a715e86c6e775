// Lane loops: elementwise work on a row of any length.
//
//   for_lanes(n, [&](std::int64_t i, auto part) { store(out + i, load(x + i, part) * load(y + i, part), part); });
//
// The body sees sixteen elements a time, and at the end the rest. As in ops/cpu/lanes.h everything has internal linkage.
#pragma once

#include "ops/cpu/lanes.h"
#include "ops/with_type.h"
#include "tensor/tensor.h"

namespace slideway {
namespace {

// How much of sixteen is there.
struct Whole {};
struct Part {
  std::int64_t count;  // 1 … 15
};

template <class T>
LANES Lanes load(const T* p, Whole) {
  return load(p);
}
template <class T>
LANES Lanes load(const T* p, Part part) {
  return load_part(p, part.count);
}
template <class T>
LANES void store(T* p, Lanes x, Whole) {
  store(p, x);
}
template <class T>
LANES void store(T* p, Lanes x, Part part) {
  store_part(p, x, part.count);
}
// x where there is an element, other beyond
LANES Lanes within(Lanes x, Whole, Lanes /*other*/) {
  return x;
}
LANES Lanes within(Lanes x, Part part, Lanes other) {
  return between(0, part.count, x, other);
}

template <class Body>
LANES void for_lanes(std::int64_t n, const Body& body) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) body(i, Whole{});
  if (i < n) body(i, Part{n - i});
}

// The numbers of a tensor that is f32 or bf16.
template <class T>
T* numbers(const Tensor& tensor) {
  if constexpr (sizeof(T) == sizeof(float)) {
    return tensor.f32();
  } else {
    return tensor.bf16();
  }
}

}  // namespace
}  // namespace slideway
