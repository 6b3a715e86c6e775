// Lanes as one AVX-512 register; see lanes.h.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace slideway {
namespace {

#define LANES [[gnu::always_inline]] inline

// clang-format off: a table reads best with a function a line
constexpr int kLanes = 16;
constexpr bool kWideLanes = true;

struct Lanes {
  __m512 all;
};

LANES __mmask16 first(std::int64_t n) { return __mmask16((1u << n) - 1); }
LANES Lanes widened(__m256i halves) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16))};
}

LANES Lanes zeros() { return {_mm512_setzero_ps()}; }
LANES Lanes same(float x) { return {_mm512_set1_ps(x)}; }
LANES Lanes load(const float* p) { return {_mm512_loadu_ps(p)}; }
LANES Lanes load(const std::uint16_t* p) { return widened(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
LANES Lanes load_part(const float* p, std::int64_t n) { return {_mm512_maskz_loadu_ps(first(n), p)}; }
LANES Lanes load_part(const std::uint16_t* p, std::int64_t n) {
  return widened(_mm256_maskz_loadu_epi16(first(n), p));
}

LANES __m256i rounded(Lanes x) {  // to bf16, as to_bf16 of tensor/dtype.h
  const __m512i u = _mm512_castps_si512(x.all), high = _mm512_srli_epi32(u, 16);
  const __m512i even = _mm512_and_si512(high, _mm512_set1_epi32(1));
  const __m512i up =
      _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(even, _mm512_set1_epi32(0x7fff))), 16);
  const __m512i nan = _mm512_or_si512(high, _mm512_set1_epi32(0x40));
  const __mmask16 is_nan = _mm512_cmp_ps_mask(x.all, x.all, _CMP_UNORD_Q);
  return _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(up, is_nan, nan));
}
LANES void store(float* p, Lanes x) { _mm512_storeu_ps(p, x.all); }
LANES void store(std::uint16_t* p, Lanes x) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), rounded(x)); }
LANES void store_part(float* p, Lanes x, std::int64_t n) { _mm512_mask_storeu_ps(p, first(n), x.all); }
LANES void store_part(std::uint16_t* p, Lanes x, std::int64_t n) {
  _mm256_mask_storeu_epi16(p, first(n), rounded(x));
}

LANES Lanes fma(Lanes a, Lanes b, Lanes c) { return {_mm512_fmadd_ps(a.all, b.all, c.all)}; }
LANES Lanes operator+(Lanes a, Lanes b) { return {_mm512_add_ps(a.all, b.all)}; }
LANES Lanes operator-(Lanes a, Lanes b) { return {_mm512_sub_ps(a.all, b.all)}; }
LANES Lanes operator*(Lanes a, Lanes b) { return {_mm512_mul_ps(a.all, b.all)}; }
LANES Lanes operator/(Lanes a, Lanes b) { return {_mm512_div_ps(a.all, b.all)}; }
LANES Lanes square_root(Lanes a) { return {_mm512_sqrt_ps(a.all)}; }
LANES Lanes larger(Lanes a, Lanes b) { return {_mm512_max_ps(a.all, b.all)}; }  // b where either is NaN
LANES Lanes smaller(Lanes a, Lanes b) { return {_mm512_min_ps(a.all, b.all)}; }  // likewise
// x in lanes [begin, end), else other
LANES Lanes between(std::int64_t begin, std::int64_t end, Lanes x, Lanes other) {
  return {_mm512_mask_mov_ps(other.all, __mmask16(first(end) & ~first(begin)), x.all)};
}
LANES Lanes nan_as(Lanes x, float nan) {
  return {_mm512_mask_mov_ps(x.all, _mm512_cmp_ps_mask(x.all, x.all, _CMP_UNORD_Q), _mm512_set1_ps(nan))};
}
LANES Lanes zero_below(Lanes x, float limit, Lanes y) {  // 0 where x < limit, else y
  return {
      _mm512_maskz_mov_ps(__mmask16(~_mm512_cmp_ps_mask(x.all, _mm512_set1_ps(limit), _CMP_LT_OQ)), y.all)};
}
LANES Lanes nearest(Lanes x) { return {_mm512_roundscale_ps(x.all, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
LANES Lanes power_of_two(Lanes n) {  // of whole numbers in [−126, 127]
  const __m512i bits =
      _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n.all), _mm512_set1_epi32(127)), 23);
  return {_mm512_castsi512_ps(bits)};
}
LANES __m256 folded(Lanes x) {  // lane i + lane i + 8
  return _mm256_add_ps(_mm512_castps512_ps256(x.all), _mm512_extractf32x8_ps(x.all, 1));
}
LANES Lanes eight(__m256 x) { return {_mm512_zextps256_ps512(x)}; }  // and eight zeros
LANES __m256 larger_half(Lanes x) {  // the larger of lane i and lane i + 8
  return _mm256_max_ps(_mm512_castps512_ps256(x.all), _mm512_extractf32x8_ps(x.all, 1));
}
LANES __m128 lowest(Lanes x) { return _mm512_castps512_ps128(x.all); }  // lanes 0 to 3
// clang-format on

}  // namespace
}  // namespace slideway
