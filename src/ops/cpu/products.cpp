// Products for training: oneDNN on tiles that depend on shapes alone.
#include <algorithm>
#include <bit>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/lane_loops.h"
#include "ops/cpu/numeric_plan.h"
#include "ops/cpu/pieces.h"
#include "ops/cpu/row_products.h"
#include "ops/cpu/scratch.h"
#include "ops/cpu/tile_products.h"
#include "ops/shapes.h"

namespace slideway {
namespace {

struct Range {
  std::int64_t begin, size;
};

// Rows are cut into whole tiles, then falling powers of two: T may differ from call to call, and so any T is made of a
// few sizes, whose primitives are soon all made.
std::int64_t row_tiles(std::int64_t rows, std::int64_t tile) {
  return rows / tile + std::popcount(std::uint64_t(rows % tile));
}

Range row_tile(std::int64_t rows, std::int64_t tile, std::int64_t index) {
  const std::int64_t whole = rows / tile;
  if (index < whole) return {index * tile, tile};
  Range range{whole * tile, 0};
  std::uint64_t rest = std::uint64_t(rows % tile);
  for (std::int64_t i = whole;; ++i) {
    range.size = std::int64_t(std::bit_floor(rest));
    if (i == index) return range;
    range.begin += range.size;
    rest -= std::uint64_t(range.size);
  }
}

// Columns are cut into as few tiles as the limit allows, all nearly equal and multiples of 64.
std::int64_t column_tile(std::int64_t columns, std::int64_t limit) {
  const std::int64_t tiles = (columns + limit - 1) / limit;
  return std::max<std::int64_t>(64, ((columns + tiles - 1) / tiles + 63) / 64 * 64);
}

Range tile_of(std::int64_t size, std::int64_t tile, std::int64_t index) {
  return {index * tile, std::min(tile, size - index * tile)};
}

const float* widened_bias(const Tensor& bias, Range range) {
  if (!bias) return nullptr;
  if (bias.dtype() == DType::f32) return bias.f32() + range.begin;
  float* const wide = scratch_floats(ScratchSlot::bias, std::size_t(range.size));
  for (std::int64_t i = 0; i < range.size; ++i) wide[i] = to_float(bias.bf16()[range.begin + i]);
  return wide;
}

// d_bias[n] += Σ_t d_out[t,n], in sums of kSumRows rows each.
template <class A>
void sum_rows(float* d_bias, const A* d_out, std::int64_t rows, std::int64_t stride, std::int64_t columns) {
  for_lanes(columns, [&](std::int64_t i, auto part) {
    Lanes total = load(d_bias + i, part);
    for (std::int64_t begin = 0; begin < rows; begin += kSumRows) {
      Lanes sum = zeros();
      for (std::int64_t t = begin; t < std::min(rows, begin + kSumRows); ++t) {
        sum = sum + load(d_out + t * stride + i, part);
      }
      total = total + sum;
    }
    store(d_bias + i, total, part);
  });
}

}  // namespace

void CpuOps::linear(Tensor out, Tensor x, Tensor w, Tensor bias) {
  shapes::linear(out, x, w, bias);
  stream_.run([=, this] {
    if (options_.row_invariant) return row_linear(threads_, out, x, w, bias);
    const std::int64_t T = x.size(0), C = x.size(1), N = w.size(0);
    const std::int64_t width = column_tile(N, kProductColumns), across = pieces_of(N, width);
    threads_.for_each(row_tiles(T, kProductRows) * across, [&](std::int64_t piece) {
      const Range t = row_tile(T, kProductRows, piece / across), n = tile_of(N, width, piece % across);
      products_.run(matrix(out).part(t.begin, t.size, n.begin, n.size), matrix(x).part(t.begin, t.size, 0, C),
                    matrix(w).part(n.begin, n.size, 0, C).turned(), false, widened_bias(bias, n));
    });
  });
}

void CpuOps::linear_backward_input(Tensor d_x, Tensor d_out, Tensor w, bool accumulate) {
  shapes::linear_backward_input(d_x, d_out, w, accumulate);
  stream_.run([=, this] {
    const std::int64_t T = d_out.size(0), N = d_out.size(1), C = w.size(1);
    const std::int64_t width = column_tile(C, kProductColumns), across = pieces_of(C, width);
    threads_.for_each(row_tiles(T, kProductRows) * across, [&](std::int64_t piece) {
      const Range t = row_tile(T, kProductRows, piece / across), c = tile_of(C, width, piece % across);
      products_.run(matrix(d_x).part(t.begin, t.size, c.begin, c.size),
                    matrix(d_out).part(t.begin, t.size, 0, N), matrix(w).part(0, N, c.begin, c.size),
                    accumulate, nullptr);
    });
  });
}

void CpuOps::linear_backward_weight(Tensor d_w, Tensor d_bias, Tensor d_out, Tensor x) {
  shapes::linear_backward_weight(d_w, d_bias, d_out, x);
  stream_.run([=, this] {
    const std::int64_t T = x.size(0), C = x.size(1), N = d_out.size(1);
    const std::int64_t height = column_tile(N, kWeightTile), width = column_tile(C, kWeightTile);
    const std::int64_t across = pieces_of(C, width);
    threads_.for_each(pieces_of(N, height) * across, [&](std::int64_t piece) {
      const Range n = tile_of(N, height, piece / across), c = tile_of(C, width, piece % across);
      for (std::int64_t i = 0; i < row_tiles(T, kWeightRows); ++i) {
        const Range t = row_tile(T, kWeightRows, i);
        products_.run(matrix(d_w).part(n.begin, n.size, c.begin, c.size),
                      matrix(d_out).part(t.begin, t.size, n.begin, n.size).turned(),
                      matrix(x).part(t.begin, t.size, c.begin, c.size), true, nullptr);
      }
    });
    if (!d_bias) return;
    threads_.for_each(pieces_of(N, kSumColumns), [&](std::int64_t piece) {
      const Range n = tile_of(N, kSumColumns, piece);
      with_type(d_out.dtype(), [&](auto zero) {
        using A = decltype(zero);
        sum_rows(d_bias.f32() + n.begin, numbers<A>(d_out) + n.begin, T, N, n.size);
      });
    });
  });
}

}  // namespace slideway
