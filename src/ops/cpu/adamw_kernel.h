// AdamW and the split format over Lanes: the order of adamw_scalar.cpp, sixteen parameters at once.
#pragma once

#include "ops/adamw.h"
#include "ops/cpu/lanes.h"

namespace slideway {
namespace {

constexpr float kNan = __builtin_nanf("");  // 0x7fc00000

#ifdef __AVX512F__

LANES Lanes join(__m256i hi, __m256i lo) {
  const __m512i high = _mm512_slli_epi32(_mm512_cvtepu16_epi32(hi), 16);
  return {_mm512_castsi512_ps(_mm512_add_epi32(high, _mm512_cvtepi16_epi32(lo)))};
}
LANES __m256i high_halves(Lanes x) {
  const __m512i up = _mm512_add_epi32(_mm512_castps_si512(x.all), _mm512_set1_epi32(0x8000));
  return _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16));
}
LANES __m256i low_halves(Lanes x) {
  return _mm512_cvtepi32_epi16(_mm512_castps_si512(x.all));
}

#else

LANES __m256 join(__m128i hi, __m128i lo) {
  const __m256i high = _mm256_slli_epi32(_mm256_cvtepu16_epi32(hi), 16);
  return _mm256_castsi256_ps(_mm256_add_epi32(high, _mm256_cvtepi16_epi32(lo)));
}
LANES Lanes join(__m256i hi, __m256i lo) {
  return {join(_mm256_castsi256_si128(hi), _mm256_castsi256_si128(lo)),
          join(_mm256_extracti128_si256(hi, 1), _mm256_extracti128_si256(lo, 1))};
}
LANES __m256i packed(__m256i a, __m256i b) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
}
LANES __m256i high_halves(Lanes x) {
  const __m256i half = _mm256_set1_epi32(0x8000);
  return packed(_mm256_srli_epi32(_mm256_add_epi32(_mm256_castps_si256(x.low), half), 16),
                _mm256_srli_epi32(_mm256_add_epi32(_mm256_castps_si256(x.high), half), 16));
}
LANES __m256i low_halves(Lanes x) {
  const __m256i mask = _mm256_set1_epi32(0xffff);
  return packed(_mm256_and_si256(_mm256_castps_si256(x.low), mask),
                _mm256_and_si256(_mm256_castps_si256(x.high), mask));
}

#endif

LANES __m256i load16(const void* p) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}
LANES void store16(void* p, __m256i x) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), x);
}

// Splits x, of which every NaN is kNan already: then hi is 0x7fc0 and lo 0 without a case of its own.
LANES void store_split(std::uint16_t* hi, std::int16_t* lo, Lanes x) {
  store16(hi, high_halves(x));
  store16(lo, low_halves(x));
}

void split_lanes(std::uint16_t* hi, std::int16_t* lo, const float* x, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store_split(hi + i, lo + i, nan_as(load(x + i), kNan));
  if (i == n) return;
  std::uint16_t last_hi[kLanes];
  std::int16_t last_lo[kLanes];
  store_split(last_hi, last_lo, nan_as(load_part(x + i, n - i), kNan));
  for (int k = 0; k < n - i; ++k) hi[i + k] = last_hi[k], lo[i + k] = last_lo[k];
}

void join_lanes(float* x, const std::uint16_t* hi, const std::int16_t* lo, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(x + i, join(load16(hi + i), load16(lo + i)));
  if (i == n) return;
  std::uint16_t last_hi[kLanes] = {};
  std::int16_t last_lo[kLanes] = {};
  for (int k = 0; k < n - i; ++k) last_hi[k] = hi[i + k], last_lo[k] = lo[i + k];
  store_part(x + i, join(load16(last_hi), load16(last_lo)), n - i);
}

void widen_lanes(float* x, const std::uint16_t* hi, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(x + i, load(hi + i));
  if (i < n) store_part(x + i, load_part(hi + i, n - i), n - i);
}

// Asks early for what division and square root leave no time to look ahead for: a quarter more parameters a second. The
// moments alone need no square root, and are faster without.
LANES void ask_ahead(const void* p, std::int64_t bytes) {
  _mm_prefetch(reinterpret_cast<const char*>(reinterpret_cast<std::uintptr_t>(p) + std::uintptr_t(bytes)),
               _MM_HINT_T0);
}
template <class Grad>
LANES void ask_ahead(const AdamwRange& range, const Grad* grad, std::int64_t i) {
  constexpr std::int64_t kAhead = 1024;  // parameters
  ask_ahead(range.hi + i, 2 * kAhead);
  ask_ahead(range.lo + i, 2 * kAhead);
  ask_ahead(range.m + i, 4 * kAhead);
  ask_ahead(range.v + i, 4 * kAhead);
  ask_ahead(grad + i, kAhead * std::int64_t(sizeof(Grad)));
}

// Sixteen parameters whose state is m, v and weights at hi, lo.
template <AdamwPiece kPiece, class Grad>
LANES void adamw_lanes_at(std::uint16_t* hi, std::int16_t* lo, float* m, float* v, const Grad* grad,
                          const AdamwStep& step) {
  const Lanes g = same(step.clip) * load(grad);
  const Lanes new_m = nan_as(fma(same(step.beta1), load(m), same(step.one_minus_beta1) * g), kNan);
  const Lanes new_v = nan_as(fma(same(step.beta2), load(v), same(step.one_minus_beta2) * g * g), kNan);
  if constexpr (kPiece != AdamwPiece::weights) {
    store(m, new_m);
    store(v, new_v);
  }
  if constexpr (kPiece != AdamwPiece::moments) {
    const Lanes w = join(load16(hi), load16(lo));
    const Lanes d = fma(square_root(new_v), same(step.inverse_sqrt_bc2), same(step.epsilon));
    const Lanes decayed = fma(same(-step.decay), w, w);
    store_split(hi, lo, nan_as(fma(same(-step.step_size), new_m / d, decayed), kNan));
  }
}

template <AdamwPiece kPiece, class Grad>
void adamw_lanes(const AdamwRange& range, const AdamwStep& step) {
  const auto* const grad = static_cast<const Grad*>(range.grad);
  std::int64_t i = 0;
  for (; i + kLanes <= range.n; i += kLanes) {
    if constexpr (kPiece != AdamwPiece::moments) ask_ahead(range, grad, i);
    adamw_lanes_at<kPiece>(range.hi + i, range.lo + i, range.m + i, range.v + i, grad + i, step);
  }
  if (i == range.n) return;
  // The last few are updated in a copy, padded with zeros.
  std::uint16_t hi[kLanes] = {};
  std::int16_t lo[kLanes] = {};
  float m[kLanes] = {}, v[kLanes] = {};
  Grad g[kLanes] = {};
  const int rest = int(range.n - i);
  for (int k = 0; k < rest; ++k) {
    hi[k] = range.hi[i + k], lo[k] = range.lo[i + k], m[k] = range.m[i + k], v[k] = range.v[i + k],
    g[k] = grad[i + k];
  }
  adamw_lanes_at<kPiece>(hi, lo, m, v, g, step);
  for (int k = 0; k < rest; ++k) {
    range.hi[i + k] = hi[k], range.lo[i + k] = lo[k], range.m[i + k] = m[k], range.v[i + k] = v[k];
  }
}

template <class Grad>
void adamw_lanes(const AdamwRange& range, const AdamwStep& step, AdamwPiece piece) {
  switch (piece) {
    case AdamwPiece::whole:
      return adamw_lanes<AdamwPiece::whole, Grad>(range, step);
    case AdamwPiece::weights:
      return adamw_lanes<AdamwPiece::weights, Grad>(range, step);
    case AdamwPiece::moments:
      return adamw_lanes<AdamwPiece::moments, Grad>(range, step);
  }
}

void adamw_kernel(const AdamwRange& range, const AdamwStep& step, AdamwPiece piece) {
  if (range.grad_type == DType::f32) {
    adamw_lanes<float>(range, step, piece);
  } else {
    adamw_lanes<std::uint16_t>(range, step, piece);
  }
}

}  // namespace
}  // namespace slideway
