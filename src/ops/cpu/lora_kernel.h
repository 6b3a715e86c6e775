// What LoRA's sums need besides products: dropout's factors, and adding a small f32 patch to a larger matrix.
#pragma once

#include "ops/cpu/kernels.h"
#include "ops/cpu/lane_loops.h"

namespace slideway {
namespace {

// Eight words at a time on AVX2, sixteen on AVX-512.
#ifdef __AVX512F__

using Words = __m512i;
LANES Words all_words(std::uint32_t x) {
  return _mm512_set1_epi32(int(x));
}
LANES Words counting_words(std::uint32_t first) {
  return _mm512_add_epi32(all_words(first),
                          _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}
LANES Words exclusive_or(Words a, Words b) {
  return _mm512_xor_si512(a, b);
}
// The 64-bit products of all words with one factor, as high and low words.
LANES void multiply(Words x, std::uint32_t factor, Words& high, Words& low) {
  const Words even = _mm512_mul_epu32(x, all_words(factor));
  const Words odd = _mm512_mul_epu32(_mm512_srli_epi64(x, 32), all_words(factor));
  high = _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xaaaa, odd);
  low = _mm512_mask_mov_epi32(even, 0xaaaa, _mm512_slli_epi64(odd, 32));
}
LANES void store_kept(float* to, Words bits, std::uint32_t threshold, float scale) {
  const __mmask16 keeps = _mm512_cmpge_epu32_mask(_mm512_srli_epi32(bits, 8), all_words(threshold));
  _mm512_storeu_ps(to, _mm512_maskz_mov_ps(keeps, _mm512_set1_ps(scale)));
}

#else

using Words = __m256i;
LANES Words all_words(std::uint32_t x) {
  return _mm256_set1_epi32(int(x));
}
LANES Words counting_words(std::uint32_t first) {
  return _mm256_add_epi32(all_words(first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
LANES Words exclusive_or(Words a, Words b) {
  return _mm256_xor_si256(a, b);
}
LANES void multiply(Words x, std::uint32_t factor, Words& high, Words& low) {
  const Words even = _mm256_mul_epu32(x, all_words(factor));
  const Words odd = _mm256_mul_epu32(_mm256_srli_epi64(x, 32), all_words(factor));
  high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
  low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}
LANES void store_kept(float* to, Words bits, std::uint32_t threshold, float scale) {
  const Words drops =
      _mm256_cmpgt_epi32(all_words(threshold), _mm256_srli_epi32(bits, 8));  // both below 2²⁴ + 1
  _mm256_storeu_ps(to, _mm256_andnot_ps(_mm256_castsi256_ps(drops), _mm256_set1_ps(scale)));
}

#endif

constexpr int kWords = int(sizeof(Words) / 4);

// Philox4x32-10 (core/random.h) for as many neighbouring counters as there are words.
LANES void philox_blocks(Words (&block)[4], std::uint64_t key, std::uint64_t major,
                         std::uint32_t first_minor) {
  block[0] = counting_words(first_minor);
  block[1] = all_words(0);
  block[2] = all_words(std::uint32_t(major));
  block[3] = all_words(std::uint32_t(major >> 32));
  auto k0 = std::uint32_t(key), k1 = std::uint32_t(key >> 32);
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    Words high0, low0, high1, low1;
    multiply(block[0], 0xD2511F53u, high0, low0);
    multiply(block[2], 0xCD9E8D57u, high1, low1);
    block[0] = exclusive_or(exclusive_or(high1, block[1]), all_words(k0));
    block[2] = exclusive_or(exclusive_or(high0, block[3]), all_words(k1));
    block[1] = low1;
    block[3] = low0;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
}

void dropout_factors(const DropoutFactors& d) {
  for (std::int64_t t = 0; t < d.rows; ++t) {
    for (std::int64_t c = 0; c < d.columns; c += 64) {
      for (int i = 0; i < kLanes; i += kWords) {
        Words block[4];
        philox_blocks(block, d.key, std::uint64_t(d.tokens[t]),
                      std::uint32_t((d.first_column + c) / 64 * kLanes + i));
        float* const out = d.out + t * d.out_stride + c + i;
#pragma GCC unroll 4
        for (int w = 0; w < 4; ++w) store_kept(out + w * kLanes, block[w], d.threshold, d.scale);
      }
    }
  }
}

template <class T>
void scale_patch_of(const Patch& x, float* factors, std::int64_t stride) {
  for (std::int64_t r = 0; r < x.rows; ++r) {
    const T* const from = static_cast<const T*>(x.data) + r * x.stride;
    float* const to = factors + r * stride;
    for_lanes(x.columns, [&](std::int64_t c, auto part) {
      store(to + c, load(from + c, part) * load(to + c, part), part);
    });
  }
}

template <class T>
void add_patch_of(const Patch& to, const float* from, const float* factors, std::int64_t stride,
                  float scale) {
  for (std::int64_t r = 0; r < to.rows; ++r) {
    T* const line = static_cast<T*>(to.data) + r * to.stride;
    for_lanes(to.columns, [&](std::int64_t c, auto part) {
      Lanes value = load(from + r * stride + c, part);
      if (factors) value = value * load(factors + r * stride + c, part);
      store(line + c, fma(same(scale), value, load(line + c, part)), part);
    });
  }
}

void scale_patch(const Patch& x, float* factors, std::int64_t stride) {
  x.type == DType::f32 ? scale_patch_of<float>(x, factors, stride)
                       : scale_patch_of<std::uint16_t>(x, factors, stride);
}

void add_patch(const Patch& to, const float* from, const float* factors, std::int64_t stride, float scale) {
  to.type == DType::f32 ? add_patch_of<float>(to, from, factors, stride, scale)
                        : add_patch_of<std::uint16_t>(to, from, factors, stride, scale);
}

}  // namespace
}  // namespace slideway
