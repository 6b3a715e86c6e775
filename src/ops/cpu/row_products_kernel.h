// Row products over Lanes: outputs [begin, end) of all rows.
#pragma once

#include "ops/cpu/dot_tile.h"
#include "ops/cpu/kernels.h"

namespace slideway {
namespace {

constexpr int kRowsAChunk = 48;              // their lanes rest on the stack
constexpr std::int64_t kInputsASpan = 1024;  // eight outputs' weights stay in the L1 cache while rows pass

LANES Lanes load_part(const void* p, DType type, std::int64_t at, std::int64_t n) {
  return type == DType::f32 ? load_part(static_cast<const float*>(p) + at, n)
                            : load_part(static_cast<const std::uint16_t*>(p) + at, n);
}
LANES void store_part(void* p, DType type, std::int64_t at, Lanes x, std::int64_t n) {
  if (type == DType::f32) {
    store_part(static_cast<float*>(p) + at, x, n);
  } else {
    store_part(static_cast<std::uint16_t*>(p) + at, x, n);
  }
}

// Eight outputs, of which the first `columns` exist, of up to kRowsAChunk rows.
template <class X, class W>
void eight_outputs(const RowProducts& p, std::int64_t first_row, int rows, std::int64_t n,
                   std::int64_t columns) {
  alignas(64) DotSums sums[kRowsAChunk];
  const W* weights[kTileColumns];  // the last one again where there are fewer
  for (int j = 0; j < kTileColumns; ++j) {
    weights[j] = static_cast<const W*>(p.w) + (n + (j < columns ? j : columns - 1)) * p.inputs;
  }
  const char* const next = reinterpret_cast<const char*>(weights[0] + kTileColumns * p.inputs);
  clear(sums, rows);
  const std::int64_t span = rows <= kMaxTileRows ? p.inputs : kInputsASpan;
  for (std::int64_t c = 0; c < p.inputs; c += span) {
    const std::int64_t end = c + span < p.inputs ? c + span : p.inputs;
    for (int r = 0, tile; r < rows; r += tile) {
      tile = rows_of_tile(rows - r);
      const X* inputs[kMaxTileRows];
      for (int i = 0; i < tile; ++i)
        inputs[i] = static_cast<const X*>(p.x) + (first_row + r + i) * p.x_stride;
      with_tile_rows(tile, [&](auto shape) {
        constexpr int kRows = decltype(shape)::kRows;
        if (r == 0) {
          add_to_tile<true, kRows>(sums, inputs, weights, c, end, next + c * kTileColumns * int(sizeof(W)));
        } else {
          add_to_tile<false, kRows>(sums + r, inputs, weights, c, end, nullptr);
        }
      });
    }
  }
  const Lanes bias = p.bias ? load_part(p.bias, p.bias_type, n, columns) : zeros();
  for (int r = 0; r < rows; ++r) {
    const Lanes out = eight(finished(sums[r]));
    store_part(p.out, p.out_type, (first_row + r) * p.out_stride + n, p.bias ? out + bias : out, columns);
  }
}

template <class X, class W>
void row_products(const RowProducts& p, std::int64_t begin, std::int64_t end) {
  for (std::int64_t row = 0; row < p.rows; row += kRowsAChunk) {
    const int rows = int(p.rows - row < kRowsAChunk ? p.rows - row : kRowsAChunk);
    for (std::int64_t n = begin; n < end; n += kTileColumns) {
      eight_outputs<X, W>(p, row, rows, n, end - n < kTileColumns ? end - n : kTileColumns);
    }
  }
}

void row_products_kernel(const RowProducts& p, std::int64_t begin, std::int64_t end) {
  if (p.x_type == DType::f32) {
    p.w_type == DType::f32 ? row_products<float, float>(p, begin, end)
                           : row_products<float, std::uint16_t>(p, begin, end);
  } else {
    p.w_type == DType::f32 ? row_products<std::uint16_t, float>(p, begin, end)
                           : row_products<std::uint16_t, std::uint16_t>(p, begin, end);
  }
}

}  // namespace
}  // namespace slideway
