#include "tensor/dtype.h"

#include <immintrin.h>

#include "core/error.h"

namespace slideway {

std::size_t bytes_of(DType type) {
  switch (type) {
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::bf16:
    case DType::f16:
    case DType::i16:
      return 2;
    case DType::f64:
    case DType::i64:
      return 8;
    case DType::u8:
      return 1;
  }
  fail(ErrorKind::internal, "bytes_of: no such type: ", int(type));
}

std::string_view name_of(DType type) {
  switch (type) {
    case DType::f32:
      return "f32";
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::f64:
      return "f64";
    case DType::i16:
      return "i16";
    case DType::i32:
      return "i32";
    case DType::i64:
      return "i64";
    case DType::u8:
      return "u8";
  }
  fail(ErrorKind::internal, "name_of: no such type: ", int(type));
}

float half_to_float(std::uint16_t bits) {
  return _cvtsh_ss(bits);
}

std::uint16_t to_half(float x) {
  return _cvtss_sh(x, _MM_FROUND_TO_NEAREST_INT);
}

}  // namespace slideway
