// Dot products over Lanes in one fixed order, a few rows by eight columns at once: what row products, attention scores and
// LoRA's shrink are made of.
//
// Lane i of a product sums x[c] · w[c] over c = i, i + 16, … upwards with fused multiply-adds, from 0; sum() joins the
// lanes. A product's lanes may rest in memory between two calls, so that long rows can be worked through in cache-sized
// spans: the order, and so the bits, are the same.
#pragma once

#include "ops/cpu/lanes.h"

namespace slideway {
namespace {

constexpr int kTileColumns = 8;
constexpr int kMaxTileRows = 3;  // 24 sums and 4 operands fill the registers

using DotSums = float[kTileColumns][kLanes];  // of one row

// How many of the rows that are left go into the next tile: three, or two twice where three would leave one.
LANES int rows_of_tile(std::int64_t left) {
  return left == 4 || left == 2 ? 2 : left >= 3 ? 3 : 1;
}

// Calls body with the number of rows as a constant.
template <int kCount>
struct TileRows {
  static constexpr int kRows = kCount;
};
template <class Body>
LANES void with_tile_rows(int rows, const Body& body) {
  rows == 1 ? body(TileRows<1>{}) : rows == 2 ? body(TileRows<2>{}) : body(TileRows<3>{});
}

// How many of the eight columns are worked on at once: what fits the registers beside kRows rows. One row reads as fast as
// memory gives, and two columns, nearly one stream, are what memory gives fastest.
template <int kRows>
constexpr int kColumnsAtOnce = kWideLanes && kRows > 1 ? kTileColumns : 2;

// Adds c in [begin, end) to kRows × kColumns products. begin is a multiple of 16; only the last span may end elsewhere.
// The cache lines from `ahead` on, as many as these weights fill, are asked for early, in ascending order: so the processor
// sees one long stream, where w's eight short ones end before they are recognised.
template <bool kAhead, int kRows, int kColumns, class X, class W>
LANES void add_products(Lanes (&sums)[kRows][kColumns], const X* const* x, const W* const* w,
                        std::int64_t begin, std::int64_t end, [[maybe_unused]] const char* ahead) {
  std::int64_t c = begin;
  for (; c + kLanes <= end; c += kLanes) {
    if constexpr (kAhead) {
      constexpr int kBytesAStep = kColumns * kLanes * int(sizeof(W));
#pragma GCC unroll 8
      for (int line = 0; line < kBytesAStep; line += 64) _mm_prefetch(ahead + line, _MM_HINT_T0);
      ahead += kBytesAStep;
    }
    Lanes row[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) row[r] = load(x[r] + c);
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      const Lanes weight = load(w[j] + c);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) sums[r][j] = fma(row[r], weight, sums[r][j]);
    }
  }
  if (c == end) return;
#pragma GCC unroll 8
  for (int j = 0; j < kColumns; ++j) {
    const Lanes weight = load_part(w[j] + c, end - c);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) sums[r][j] = fma(load_part(x[r] + c, end - c), weight, sums[r][j]);
  }
}

// Adds c in [begin, end) to the kRows × 8 products whose lanes rest in sums.
template <bool kAhead, int kRows, class X, class W>
LANES void add_to_tile(DotSums* sums, const X* const* x, const W* const* w, std::int64_t begin,
                       std::int64_t end, const char* ahead) {
  constexpr int kColumns = kColumnsAtOnce<kRows>;
#pragma GCC unroll 1
  for (int column = 0; column < kTileColumns; column += kColumns) {
    Lanes part[kRows][kColumns];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j) part[r][j] = load(sums[r][column + j]);
    }
    add_products<kAhead>(part, x, w + column, begin, end, ahead);
    if (kAhead) ahead += (end - begin) * kColumns * std::int64_t(sizeof(W));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j) store(sums[r][column + j], part[r][j]);
    }
  }
}

LANES void clear(DotSums* sums, int rows) {
  for (int r = 0; r < rows; ++r) {
    for (int j = 0; j < kTileColumns; ++j) store(sums[r][j], zeros());
  }
}

// The eight finished products of a row.
LANES __m256 finished(const DotSums& sums) {
  __m256 s[kTileColumns];
#pragma GCC unroll 8
  for (int j = 0; j < kTileColumns; ++j) s[j] = folded(load(sums[j]));
  return sums_of_eight(s);
}

// All of kRows × 8 products of length n at once.
template <bool kAhead, int kRows, class X, class W>
LANES void tile_products(__m256 (&out)[kRows], const X* const* x, const W* const* w, std::int64_t n,
                         const char* ahead) {
  constexpr int kColumns = kColumnsAtOnce<kRows>;
  __m256 halves[kRows][kTileColumns];
#pragma GCC unroll 8
  for (int column = 0; column < kTileColumns; column += kColumns) {
    Lanes part[kRows][kColumns];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j) part[r][j] = zeros();
    }
    add_products<kAhead>(part, x, w + column, 0, n, ahead);
    if (kAhead) ahead += n * kColumns * std::int64_t(sizeof(W));
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (int j = 0; j < kColumns; ++j) halves[r][column + j] = folded(part[r][j]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) out[r] = sums_of_eight(halves[r]);
}

}  // namespace
}  // namespace slideway
