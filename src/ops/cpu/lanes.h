// Lanes: sixteen floats that are worked on at once, as one AVX-512 register or as two of AVX2, with the same bits.
//
// A kernel is written once over Lanes and compiled once a level (kernels_avx2.cpp, kernels_avx512.cpp). Everything here and
// in the kernels has internal linkage, and neither may call inline functions of other headers: the linker keeps one copy
// of those, and it could be one with instructions that the machine lacks.
//
// Functions ending in _part touch the first n of the sixteen only; loaded lanes beyond are zero.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace slideway {
namespace {

#define LANES [[gnu::always_inline]] inline

constexpr int kLanes = 16;

#ifdef __AVX512F__

constexpr bool kWideLanes = true;

struct Lanes {
  __m512 all;
};

LANES __mmask16 first(std::int64_t n) {
  return __mmask16((1u << n) - 1);
}
LANES Lanes widened(__m256i halves) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16))};
}

LANES Lanes zeros() {
  return {_mm512_setzero_ps()};
}
LANES Lanes same(float x) {
  return {_mm512_set1_ps(x)};
}
LANES Lanes load(const float* p) {
  return {_mm512_loadu_ps(p)};
}
LANES Lanes load(const std::uint16_t* p) {
  return widened(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
LANES Lanes load_part(const float* p, std::int64_t n) {
  return {_mm512_maskz_loadu_ps(first(n), p)};
}
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
LANES void store(float* p, Lanes x) {
  _mm512_storeu_ps(p, x.all);
}
LANES void store(std::uint16_t* p, Lanes x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), rounded(x));
}
LANES void store_part(float* p, Lanes x, std::int64_t n) {
  _mm512_mask_storeu_ps(p, first(n), x.all);
}
LANES void store_part(std::uint16_t* p, Lanes x, std::int64_t n) {
  _mm256_mask_storeu_epi16(p, first(n), rounded(x));
}

LANES Lanes fma(Lanes a, Lanes b, Lanes c) {
  return {_mm512_fmadd_ps(a.all, b.all, c.all)};
}
LANES Lanes operator+(Lanes a, Lanes b) {
  return {_mm512_add_ps(a.all, b.all)};
}
LANES Lanes operator-(Lanes a, Lanes b) {
  return {_mm512_sub_ps(a.all, b.all)};
}
LANES Lanes operator*(Lanes a, Lanes b) {
  return {_mm512_mul_ps(a.all, b.all)};
}
LANES Lanes operator/(Lanes a, Lanes b) {
  return {_mm512_div_ps(a.all, b.all)};
}
LANES Lanes square_root(Lanes a) {
  return {_mm512_sqrt_ps(a.all)};
}
LANES Lanes larger(Lanes a, Lanes b) {
  return {_mm512_max_ps(a.all, b.all)};
}  // b where either is NaN
LANES Lanes smaller(Lanes a, Lanes b) {
  return {_mm512_min_ps(a.all, b.all)};
}  // b where either is NaN
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
LANES Lanes nearest(Lanes x) {
  return {_mm512_roundscale_ps(x.all, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
LANES Lanes power_of_two(Lanes n) {  // of whole numbers in [−126, 127]
  const __m512i bits =
      _mm512_slli_epi32(_mm512_add_epi32(_mm512_cvtps_epi32(n.all), _mm512_set1_epi32(127)), 23);
  return {_mm512_castsi512_ps(bits)};
}
LANES __m256 folded(Lanes x) {  // lane i + lane i + 8
  return _mm256_add_ps(_mm512_castps512_ps256(x.all), _mm512_extractf32x8_ps(x.all, 1));
}

#else

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

LANES Lanes zeros() {
  return {_mm256_setzero_ps(), _mm256_setzero_ps()};
}
LANES Lanes same(float x) {
  return {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}
LANES Lanes load(const float* p) {
  return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)};
}
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
LANES Lanes operator+(Lanes a, Lanes b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
LANES Lanes operator-(Lanes a, Lanes b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
LANES Lanes operator*(Lanes a, Lanes b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
LANES Lanes operator/(Lanes a, Lanes b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
LANES Lanes square_root(Lanes a) {
  return {_mm256_sqrt_ps(a.low), _mm256_sqrt_ps(a.high)};
}
LANES Lanes larger(Lanes a, Lanes b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
LANES Lanes smaller(Lanes a, Lanes b) {
  return {_mm256_min_ps(a.low, b.low), _mm256_min_ps(a.high, b.high)};
}
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
LANES Lanes power_of_two(Lanes n) {
  return {power_of_two(n.low), power_of_two(n.high)};
}
LANES __m256 folded(Lanes x) {
  return _mm256_add_ps(x.low, x.high);
}

#endif

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
  alignas(64) float lanes[kLanes];
  store(lanes, x);
  float most = lanes[0];
  for (int i = 1; i < kLanes; ++i) most = lanes[i] > most ? lanes[i] : most;
  return most;
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
