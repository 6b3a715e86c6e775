// Lanes as two AVX2 registers; see lanes.h, and lanes_avx512.h for what the functions are.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace slideway {
namespace {

#define LANES [[gnu::always_inline]] inline

// clang-format off: a table reads best with a function a line
constexpr int kLanes = 16;
constexpr bool kWideLanes = false;

struct Lanes {
  __m256 low, high;
};

// The mask of the first n of eight lanes; n may be below 0 or above 8.
LANES __m256i first(std::int64_t n) {
  return _mm256_cmpgt_epi32(_mm256_set1_epi32(int(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
LANES __m256 widened(__m128i halves) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

LANES Lanes zeros() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
LANES Lanes same(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
LANES Lanes load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
LANES Lanes load(const std::uint16_t* p) {
  const auto* const at = reinterpret_cast<const __m128i*>(p);
  return {widened(_mm_loadu_si128(at)), widened(_mm_loadu_si128(at + 1))};
}
LANES Lanes load_part(const float* p, std::int64_t n) {
  return {_mm256_maskload_ps(p, first(n)), _mm256_maskload_ps(p + 8, first(n - 8))};
}
LANES Lanes load_part(const std::uint16_t* p, std::int64_t n) {
  alignas(32) std::uint16_t whole[kLanes] = {};
  for (std::int64_t i = 0; i < n; ++i) whole[i] = p[i];
  return load(whole);
}

LANES __m256i rounded(__m256 x) {  // to bf16 in the low half of each lane, as to_bf16 of tensor/dtype.h
  const __m256i u = _mm256_castps_si256(x), high = _mm256_srli_epi32(u, 16);
  const __m256i even = _mm256_and_si256(high, _mm256_set1_epi32(1));
  const __m256i up =
      _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(even, _mm256_set1_epi32(0x7fff))), 16);
  const __m256i nan = _mm256_or_si256(high, _mm256_set1_epi32(0x40));
  return _mm256_blendv_epi8(up, nan, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
}
LANES void store(float* p, Lanes x) {
  _mm256_storeu_ps(p, x.low);
  _mm256_storeu_ps(p + 8, x.high);
}
LANES void store(std::uint16_t* p, Lanes x) {
  const __m256i packed = _mm256_packus_epi32(rounded(x.low), rounded(x.high));  // quarters 0 2 1 3
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xd8));
}
LANES void store_part(float* p, Lanes x, std::int64_t n) {
  _mm256_maskstore_ps(p, first(n), x.low);
  _mm256_maskstore_ps(p + 8, first(n - 8), x.high);
}
LANES void store_part(std::uint16_t* p, Lanes x, std::int64_t n) {
  alignas(32) std::uint16_t whole[kLanes];
  store(whole, x);
  for (std::int64_t i = 0; i < n; ++i) p[i] = whole[i];
}

LANES Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
LANES Lanes operator+(Lanes a, Lanes b) { return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)}; }
LANES Lanes operator-(Lanes a, Lanes b) { return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)}; }
LANES Lanes operator*(Lanes a, Lanes b) { return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)}; }
LANES Lanes operator/(Lanes a, Lanes b) { return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)}; }
LANES Lanes square_root(Lanes a) { return {_mm256_sqrt_ps(a.low), _mm256_sqrt_ps(a.high)}; }
LANES Lanes larger(Lanes a, Lanes b) { return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)}; }
LANES Lanes smaller(Lanes a, Lanes b) { return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)}; }
LANES Lanes between(std::int64_t begin, std::int64_t end, Lanes x, Lanes other) {
  const __m256i low = _mm256_andnot_si256(first(begin), first(end));
  const __m256i high = _mm256_andnot_si256(first(begin - 8), first(end - 8));
  return {_mm256_blendv_ps(other.low, x.low, _mm256_castsi256_ps(low)),
          _mm256_blendv_ps(other.high, x.high, _mm256_castsi256_ps(high))};
}
LANES Lanes nan_as(Lanes x, float nan) {
  const __m256 value = _mm256_set1_ps(nan);
  return {_mm256_blendv_ps(x.low, value, _mm256_cmp_ps(x.low, x.low, _CMP_UNORD_Q)),
          _mm256_blendv_ps(x.high, value, _mm256_cmp_ps(x.high, x.high, _CMP_UNORD_Q))};
}
LANES Lanes zero_below(Lanes x, float limit, Lanes y) {
  const __m256 bound = _mm256_set1_ps(limit);
  return {_mm256_andnot_ps(_mm256_cmp_ps(x.low, bound, _CMP_LT_OQ), y.low),
          _mm256_andnot_ps(_mm256_cmp_ps(x.high, bound, _CMP_LT_OQ), y.high)};
}
LANES Lanes nearest(Lanes x) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.low, kMode), _mm256_round_ps(x.high, kMode)};
}
LANES __m256 power_of_two(__m256 n) {
  return _mm256_castsi256_ps(
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23));
}
LANES Lanes power_of_two(Lanes n) { return {power_of_two(n.low), power_of_two(n.high)}; }
LANES __m256 folded(Lanes x) { return _mm256_add_ps(x.low, x.high); }
LANES Lanes eight(__m256 x) { return {x, _mm256_setzero_ps()}; }
LANES __m256 larger_half(Lanes x) { return _mm256_max_ps(x.low, x.high); }
LANES __m128 lowest(Lanes x) { return _mm256_castps256_ps128(x.low); }
// clang-format on

}  // namespace
}  // namespace slideway
