// The tiles of ops/cpu/dense_tile.h over Lanes: a strip of b is laid out for the inner loop, then all rows of a pass it.
#pragma once

#include "ops/cpu/dense_tile.h"
#include "ops/cpu/lane_loops.h"
#include "ops/cpu/small_product_kernel.h"
#include "ops/cpu/transpose_kernel.h"

namespace slideway {
namespace {

constexpr std::int64_t kStrip = kBlockLanes * kLanes;
static_assert(kStrip <= kDenseStrip);

// Where the inner loop finds element (r, k) of a: at data[r · row + k · column].
struct Panel {
  const float* data;
  std::int64_t row, column;
};

// to[line, :length] = from[line, :length], widened
template <class T>
void copy_lines(float* to, std::int64_t to_stride, const T* from, std::int64_t from_stride,
                std::int64_t lines, std::int64_t length) {
  for (std::int64_t line = 0; line < lines; ++line) {
    for_lanes(length, [&](std::int64_t i, auto part) {
      store(to + line * to_stride + i, load(from + line * from_stride + i, part), part);
    });
  }
}

// Columns [k, k + size) of a, in the order in which they lie in memory. f32 rows are read where they are.
template <class T>
Panel panel_of(const DenseTile& t, std::int64_t k, std::int64_t size, float* to) {
  const T* const a = static_cast<const T*>(t.a.data);
  if (t.a.turned) {
    // A stride that is a multiple of the cache's would put all lines into a few of its sets.
    const std::int64_t stride = dense_panel_stride(t.a.rows);
    copy_lines(to, stride, a + k * t.a.stride, t.a.stride, size, t.a.rows);
    return {to, 1, stride};
  }
  if constexpr (sizeof(T) == sizeof(float)) return {a + k, t.a.stride, 1};
  copy_lines(to, size, a + k, t.a.stride, t.a.rows, size);
  return {to, size, 1};
}

// Rows [k, k + size) and columns [c, c + width) of b as [size, padded], zeros beyond width.
template <class T>
void lay_out_strip(float* to, const DenseTile& t, std::int64_t k, std::int64_t size, std::int64_t c,
                   std::int64_t width, std::int64_t padded) {
  if (t.b.turned) {
    transpose(to, padded, static_cast<const T*>(t.b.data) + c * t.b.stride + k, t.b.stride, width, size);
    for (std::int64_t i = 0; width < padded && i < size; ++i) {
      for (std::int64_t j = width; j < padded; ++j) to[i * padded + j] = 0;
    }
    return;
  }
  const T* const b = static_cast<const T*>(t.b.data) + k * t.b.stride + c;
  for (std::int64_t i = 0; i < size; ++i) {
    for_lanes(width, [&](std::int64_t j, auto part) {
      store(to + i * padded + j, load(b + i * t.b.stride + j, part));
    });
  }
}

template <class A, class B>
void dense_product(const DenseTile& t) {
  const std::int64_t m = t.a.rows, n = t.b.columns, inner = t.a.columns;
  float* const panel_at = t.scratch;
  float* const strip = panel_at + dense_panel_stride(m) * kDenseInner;
  float* const edge = strip + kDenseInner * kDenseStrip;
  for (std::int64_t k = 0; k < inner; k += kDenseInner) {
    const std::int64_t size = inner - k < kDenseInner ? inner - k : kDenseInner;
    const Panel a = panel_of<A>(t, k, size, panel_at);
    for (std::int64_t c = 0; c < n; c += kStrip) {
      const std::int64_t width = n - c < kStrip ? n - c : kStrip,
                         padded = (width + kLanes - 1) / kLanes * kLanes;
      lay_out_strip<B>(strip, t, k, size, c, width, padded);
      SmallProduct product{t.out + c, t.out_stride,         a.data, a.row, a.column, strip, padded, m, padded,
                           size,      t.accumulate || k > 0};
      if (width == padded) {
        small_product(product);
        continue;
      }
      // The last columns, fewer than lanes: in a place that has room for whole lanes.
      if (product.accumulate) copy_lines(edge, padded, t.out + c, t.out_stride, m, width);
      product.out = edge;
      product.out_stride = padded;
      small_product(product);
      copy_lines(t.out + c, t.out_stride, edge, padded, m, width);
    }
  }
}

void dense_tile(const DenseTile& t) {
  if (t.a.type == DType::f32) {
    t.b.type == DType::f32 ? dense_product<float, float>(t) : dense_product<float, std::uint16_t>(t);
  } else {
    t.b.type == DType::f32 ? dense_product<std::uint16_t, float>(t)
                           : dense_product<std::uint16_t, std::uint16_t>(t);
  }
}

}  // namespace
}  // namespace slideway
