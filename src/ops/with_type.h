// with_type: from a tensor's type, known when the program runs, to a kernel's, known when it is compiled.
//
//   with_type(x.dtype(), [&](auto zero) { using A = decltype(zero); kernel<A>(…); });
#pragma once

#include "tensor/dtype.h"

namespace slideway {

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

}  // namespace slideway
