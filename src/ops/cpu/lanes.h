// Lanes: sixteen floats that are worked on at once, as one AVX-512 register or as two of AVX2, with the same bits.
//
// A kernel is written once over Lanes and compiled once a level (kernels_avx2.cpp, kernels_avx512.cpp). Everything here and
// in the kernels has internal linkage, and neither may call inline functions of other headers: the linker keeps one copy
// of those, and it could be one with instructions that the machine lacks.
//
// Functions ending in _part touch the first n of the sixteen only; loaded lanes beyond are zero.
#pragma once

#ifdef __AVX512F__
#include "ops/cpu/lanes_avx512.h"
#else
#include "ops/cpu/lanes_avx2.h"
#endif

namespace slideway {
namespace {

// e^x for x in [−87.3, 88], to 2 units in the last place; the value at the nearer end beyond; NaN stays NaN.
// x = n ln 2 + r, e^r = 1 + r + r² P(r) with P fitted to |r| ≤ ln 2 / 2 (relative error 3e-9 before rounding).
LANES Lanes exp_bounded(Lanes x) {
  const Lanes bounded = smaller(same(88.0f), larger(same(-87.3f), x));
  const Lanes n = nearest(bounded * same(0x1.715476p+0f));
  const Lanes r = fma(n, same(-0x1.7f7d1cp-20f), fma(n, same(-0x1.62e4p-1f), bounded));
  Lanes p = fma(r, same(0x1.6a23cep-10f), same(0x1.123a2p-7f));
  p = fma(r, p, same(0x1.5558f2p-5f));
  p = fma(r, p, same(0x1.555492p-3f));
  p = fma(r, p, same(0x1.fffffcp-2f));
  return (fma(r * r, p, r) + same(1)) * power_of_two(n);
}
// e^x for x ≤ 0; 0 below −87.3, where it would be denormal.
LANES Lanes exp_of_negative(Lanes x) {
  return zero_below(x, -87.3f, exp_bounded(x));
}
LANES float exp_of_negative(float x) {
  return _mm_cvtss_f32(lowest(exp_of_negative(same(x))));
}

// The sum of eight lanes: i with i + 4, + 2, + 1.
LANES float sum8(__m256 x) {
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}
// The sum of all lanes as a tree: lane i with i + 8, then + 4, + 2, + 1.
LANES float sum(Lanes x) {
  return sum8(folded(x));
}

LANES float largest(Lanes x) {
  const __m256 eight = larger_half(x);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

// Eight such sums at once, in order.
LANES __m256 sums_of_eight(const __m256 s[8]) {
  __m256 four[4], two[2];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    four[i] = _mm256_add_ps(_mm256_permute2f128_ps(s[2 * i], s[2 * i + 1], 0x20),
                            _mm256_permute2f128_ps(s[2 * i], s[2 * i + 1], 0x31));
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    two[i] = _mm256_add_ps(_mm256_shuffle_ps(four[2 * i], four[2 * i + 1], 0x44),
                           _mm256_shuffle_ps(four[2 * i], four[2 * i + 1], 0xee));
  }
  const __m256 one =
      _mm256_add_ps(_mm256_shuffle_ps(two[0], two[1], 0x88), _mm256_shuffle_ps(two[0], two[1], 0xdd));
  return _mm256_permutevar8x32_ps(one, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));  // 0 2 4 6 1 3 5 7
}

}  // namespace
}  // namespace slideway
