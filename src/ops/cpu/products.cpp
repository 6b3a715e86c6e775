// Products for training. f32 products, and those of mixed types, are ours (ops/cpu/dense_tile.h): their bits depend on
// nothing but the numbers, so the cut into tiles is free. bf16 products are oneDNN's where the processor has them, on
// tiles that depend on shapes alone.
#include <algorithm>
#include <bit>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/lane_loops.h"
#include "ops/cpu/numeric_plan.h"
#include "ops/cpu/row_products.h"
#include "ops/cpu/scratch.h"
#include "ops/pieces.h"
#include "ops/shapes.h"

namespace slideway {
namespace {

struct Range {
  std::int64_t begin, size;
};

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

// --- f32 -----------------------------------------------------------------------------------------------------------

// Rows of a tile: as many as 512, since a strip of b is laid out once a tile, but no so many that threads lack pieces.
std::int64_t dense_rows(std::int64_t m, std::int64_t n, int threads) {
  std::int64_t rows = 512;
  while (rows > 64 && pieces_of(m, rows) * pieces_of(n, 2 * kDenseStrip) < 4 * threads) rows /= 2;
  return rows;
}

// What the sums of a tile begin with: the old numbers or the bias. False: nothing, they begin at 0.
bool begin_sums(float* sums, std::int64_t stride, const MatrixView& out, bool accumulate, const float* bias) {
  const bool widens = accumulate && out.type == DType::bf16;
  if (!bias && !widens) return accumulate;
  for (std::int64_t r = 0; r < out.rows; ++r) {
    const bf16_t* const old = static_cast<const bf16_t*>(out.data) + r * out.stride;
    for_lanes(out.columns, [&](std::int64_t i, auto part) {
      store(sums + r * stride + i, bias ? load(bias + i, part) : load(old + i, part), part);
    });
  }
  return true;
}

void dense_piece(const MatrixView& out, const MatrixView& a, const MatrixView& b, bool accumulate,
                 const float* bias) {
  const bool direct = out.type == DType::f32;
  const std::int64_t stride = direct ? out.stride : out.columns;
  float* const sums = direct ? static_cast<float*>(out.data)
                             : scratch_floats(ScratchSlot::sums, std::size_t(out.rows * out.columns));
  const bool continues = begin_sums(sums, stride, out, accumulate, bias);
  float* const scratch = scratch_floats(ScratchSlot::product, std::size_t(dense_scratch(out.rows)));
  kernels(best_cpu_level()).dense({sums, stride, a, b, continues, scratch});
  if (direct) return;
  for (std::int64_t r = 0; r < out.rows; ++r) {
    bf16_t* const row = static_cast<bf16_t*>(out.data) + r * out.stride;
    for_lanes(out.columns,
              [&](std::int64_t i, auto part) { store(row + i, load(sums + r * stride + i, part), part); });
  }
}

void dense(Threads& threads, const MatrixView& out, const MatrixView& a, const MatrixView& b, bool accumulate,
           const Tensor& bias) {
  const std::int64_t rows = dense_rows(out.rows, out.columns, threads.count()), columns = 2 * kDenseStrip;
  const std::int64_t across = pieces_of(out.columns, columns);
  threads.for_each(pieces_of(out.rows, rows) * across, [&](std::int64_t piece) {
    const Range m = tile_of(out.rows, rows, piece / across),
                n = tile_of(out.columns, columns, piece % across);
    dense_piece(part(out, m.begin, m.size, n.begin, n.size), part(a, m.begin, m.size, 0, a.columns),
                part(b, 0, b.rows, n.begin, n.size), accumulate, widened_bias(bias, n));
  });
}

// --- bf16 by oneDNN ------------------------------------------------------------------------------------------------

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
  const std::int64_t tiles = pieces_of(columns, limit);
  return std::max<std::int64_t>(64, (pieces_of(columns, tiles) + 63) / 64 * 64);
}

void bf16_product(Threads& threads, const Bf16Products& products, const MatrixView& out, const MatrixView& a,
                  const MatrixView& b, bool accumulate, const Tensor& bias) {
  const std::int64_t width = column_tile(out.columns, kBf16Columns), across = pieces_of(out.columns, width);
  threads.for_each(row_tiles(out.rows, kBf16Rows) * across, [&](std::int64_t piece) {
    const Range m = row_tile(out.rows, kBf16Rows, piece / across),
                n = tile_of(out.columns, width, piece % across);
    products.run(part(out, m.begin, m.size, n.begin, n.size), part(a, m.begin, m.size, 0, a.columns),
                 part(b, 0, b.rows, n.begin, n.size), accumulate, widened_bias(bias, n));
  });
}

void bf16_weight_gradient(Threads& threads, const Bf16Products& products, const MatrixView& d_w,
                          const MatrixView& d_out, const MatrixView& x) {
  const std::int64_t T = x.rows, height = column_tile(d_w.rows, kBf16WeightTile);
  const std::int64_t width = column_tile(d_w.columns, kBf16WeightTile),
                     across = pieces_of(d_w.columns, width);
  threads.for_each(pieces_of(d_w.rows, height) * across, [&](std::int64_t piece) {
    const Range n = tile_of(d_w.rows, height, piece / across),
                c = tile_of(d_w.columns, width, piece % across);
    for (std::int64_t i = 0; i < row_tiles(T, kBf16WeightRows); ++i) {
      const Range t = row_tile(T, kBf16WeightRows, i);
      products.run(part(d_w, n.begin, n.size, c.begin, c.size),
                   turned(part(d_out, t.begin, t.size, n.begin, n.size)),
                   part(x, t.begin, t.size, c.begin, c.size), true, nullptr);
    }
  });
}

bool by_library(const Tensor& a, const Tensor& b) {
  return a.dtype() == DType::bf16 && b.dtype() == DType::bf16 && has_bf16_products();
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
    const MatrixView weights = turned(matrix(w));
    if (options_.row_invariant) {
      row_linear(threads_, out, x, w, bias);
    } else if (by_library(x, w)) {
      bf16_product(threads_, bf16_products_, matrix(out), matrix(x), weights, false, bias);
    } else {
      dense(threads_, matrix(out), matrix(x), weights, false, bias);
    }
  });
}

void CpuOps::linear_backward_input(Tensor d_x, Tensor d_out, Tensor w, bool accumulate) {
  shapes::linear_backward_input(d_x, d_out, w, accumulate);
  stream_.run([=, this] {
    if (by_library(d_out, w)) {
      bf16_product(threads_, bf16_products_, matrix(d_x), matrix(d_out), matrix(w), accumulate, {});
    } else {
      dense(threads_, matrix(d_x), matrix(d_out), matrix(w), accumulate, {});
    }
  });
}

void CpuOps::linear_backward_weight(Tensor d_w, Tensor d_bias, Tensor d_out, Tensor x) {
  shapes::linear_backward_weight(d_w, d_bias, d_out, x);
  stream_.run([=, this] {
    if (by_library(d_out, x)) {
      bf16_weight_gradient(threads_, bf16_products_, matrix(d_w), matrix(d_out), matrix(x));
    } else {
      dense(threads_, matrix(d_w), turned(matrix(d_out)), matrix(x), true, {});
    }
    if (!d_bias) return;
    const std::int64_t T = x.size(0), N = d_out.size(1);
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
