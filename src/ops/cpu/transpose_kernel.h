// Transposing over eight by eight numbers in registers.
#pragma once

#include "ops/cpu/lanes.h"

namespace slideway {
namespace {

LANES __m256 eight_of(const float* p) {
  return _mm256_loadu_ps(p);
}
LANES __m256 eight_of(const std::uint16_t* p) {
  const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}
LANES float one_of(const float* p) {
  return *p;
}
LANES float one_of(const std::uint16_t* p) {
  return _mm256_cvtss_f32(_mm256_castsi256_ps(_mm256_set1_epi32(int(std::uint32_t(*p) << 16))));
}

// to[c, r] = from[r, c] for eight rows and eight columns
template <class T>
LANES void transpose_eight(float* to, std::int64_t to_stride, const T* from, std::int64_t from_stride) {
  __m256 r[8], s[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = eight_of(from + i * from_stride);
#pragma GCC unroll 4
  for (int i = 0; i < 8; i += 2) {
    s[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
    s[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 8; i += 4) {
    r[i] = _mm256_shuffle_ps(s[i], s[i + 2], 0x44);
    r[i + 1] = _mm256_shuffle_ps(s[i], s[i + 2], 0xee);
    r[i + 2] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0x44);
    r[i + 3] = _mm256_shuffle_ps(s[i + 1], s[i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * to_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * to_stride, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

// to[c, r] = from[r, c], widened to f32
template <class T>
void transpose(float* to, std::int64_t to_stride, const T* from, std::int64_t from_stride, std::int64_t rows,
               std::int64_t columns) {
  const std::int64_t whole_rows = rows / 8 * 8, whole_columns = columns / 8 * 8;
  for (std::int64_t c = 0; c < whole_columns; c += 8) {
    for (std::int64_t r = 0; r < whole_rows; r += 8) {
      transpose_eight(to + c * to_stride + r, to_stride, from + r * from_stride + c, from_stride);
    }
  }
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = r < whole_rows ? whole_columns : 0; c < columns; ++c) {
      to[c * to_stride + r] = one_of(from + r * from_stride + c);
    }
  }
}

}  // namespace
}  // namespace slideway
