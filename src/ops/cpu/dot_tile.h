// Dot products over Lanes in one fixed order, a few rows by eight columns at once: what row products, attention scores and
// LoRA's shrink are made of.
//
// Lane i of a product sums x[c] · w[c] over c = i, i + 16, … upwards with fused multiply-adds; sum() joins the lanes. A
// product's lanes rest in memory between two calls, so that long rows can be worked through in cache-sized spans: the order,
// and so the bits, are the same.
#pragma once

#include "ops/cpu/lanes.h"

namespace slideway {
namespace {

constexpr int kTileColumns = 8;
constexpr int kMaxTileRows = 3;  // 24 sums and 4 operands fill the registers

using DotSums = float[kTileColumns][kLanes];  // of one row

// Adds c in [begin, end) to kRows × kColumns products. begin is a multiple of 16; only the last span may end elsewhere.
// The cache lines from `ahead` on, as many as these weights fill, are asked for early, in ascending order: so the processor
// sees one long stream, where w's eight short ones end before they are recognised.
template <int kRows, int kColumns, bool kAhead, class X, class W>
LANES void add_products(DotSums* sums, int column, const X* const* x, const W* const* w, std::int64_t begin,
                        std::int64_t end, [[maybe_unused]] const char* ahead) {
  Lanes sum[kRows][kColumns];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) sum[r][j] = load(sums[r][column + j]);
  }
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
      const Lanes weight = load(w[column + j] + c);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) sum[r][j] = fma(row[r], weight, sum[r][j]);
    }
  }
  if (c < end) {
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) {
      const Lanes weight = load_part(w[column + j] + c, end - c);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) sum[r][j] = fma(load_part(x[r] + c, end - c), weight, sum[r][j]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int j = 0; j < kColumns; ++j) store(sums[r][column + j], sum[r][j]);
  }
}

// The same for kRows × 8 products, in pieces that fit the registers.
template <int kRows, class X, class W>
LANES void add_tile(DotSums* sums, const X* const* x, const W* const* w, std::int64_t begin, std::int64_t end,
                    [[maybe_unused]] const char* ahead) {
  constexpr int kColumns = kWideLanes ? kTileColumns : kRows == 1 ? 4 : 2;
#pragma GCC unroll 1
  for (int column = 0; column < kTileColumns; column += kColumns) {
    if (ahead == nullptr) {
      add_products<kRows, kColumns, false>(sums, column, x, w, begin, end, ahead);
    } else {
      add_products<kRows, kColumns, true>(sums, column, x, w, begin, end, ahead);
      ahead += (end - begin) * kColumns * std::int64_t(sizeof(W));
    }
  }
}

template <class X, class W>
void add_tile(int rows, DotSums* sums, const X* const* x, const W* const* w, std::int64_t begin,
              std::int64_t end, [[maybe_unused]] const char* ahead) {
  switch (rows) {
    case 1:
      return add_tile<1>(sums, x, w, begin, end, ahead);
    case 2:
      return add_tile<2>(sums, x, w, begin, end, ahead);
    default:
      return add_tile<3>(sums, x, w, begin, end, ahead);
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

// How many of the rows that are left go into the next tile: three, or two twice where three would leave one.
LANES int rows_of_tile(std::int64_t left) {
  return left == 4 || left == 2 ? 2 : left >= 3 ? 3 : 1;
}

}  // namespace
}  // namespace slideway
