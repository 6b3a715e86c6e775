// DType: the number formats of tensors, and exact conversions between them and float.
//
// Source   bfloat16: the upper half of an IEEE binary32. float16: IEEE binary16.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace slideway {

enum class DType : std::uint8_t { f32, bf16, f16, f64, i16, i32, i64, u8 };

std::size_t bytes_of(DType type);
std::string_view name_of(DType type);  // "f32", "bf16", …

using bf16_t = std::uint16_t;  // the bits of a bfloat16

inline float to_float(bf16_t bits) {
  return std::bit_cast<float>(std::uint32_t(bits) << 16);
}

// Round to nearest, ties to even, as every other bfloat16 producer does; NaN stays NaN.
inline bf16_t to_bf16(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return bf16_t((u >> 16) | 0x40);
  return bf16_t((u + 0x7fffu + ((u >> 16) & 1)) >> 16);
}

float half_to_float(std::uint16_t bits);
std::uint16_t to_half(float x);  // round to nearest, ties to even

// The split master: an FP32 number as a BF16 high half (what the device computes with) and a signed 16-bit
// remainder. u = bits of x; hi = (u + 0x8000) >> 16, lo = u − (hi << 16), so that u = (hi << 16) + lo exactly.
// Ties go away from zero: only then do 65,536 members fall to each high half. NaN: hi = 0x7fc0, lo = 0.
struct Split {
  bf16_t hi;
  std::int16_t lo;
};

inline Split split(float x) {
  const auto u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {0x7fc0, 0};
  const auto hi = std::uint32_t(u + 0x8000u) >> 16;
  return {bf16_t(hi), std::int16_t(std::uint16_t(u - (hi << 16)))};
}

inline float join(bf16_t hi, std::int16_t lo) {
  return std::bit_cast<float>((std::uint32_t(hi) << 16) + std::uint32_t(std::int32_t(lo)));
}

}  // namespace slideway
