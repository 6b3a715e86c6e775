// RMS norm over rows and over heads. A row is summed in sixteen lanes; a weight's gradient in partial sums of kSumRows rows.
#include <algorithm>
#include <cmath>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/lane_loops.h"
#include "ops/cpu/numeric_plan.h"
#include "ops/pieces.h"
#include "ops/shapes.h"

namespace slideway {
namespace {

constexpr std::int64_t kRowsAPiece = 16;

template <class A, class W>
float norm_row(A* out, const A* x, const W* weight, std::int64_t width, float eps) {
  Lanes squares = zeros();
  for_lanes(width, [&](std::int64_t i, auto part) {
    const Lanes v = load(x + i, part);
    squares = fma(v, v, squares);
  });
  const float rstd = 1.0f / std::sqrt(sum(squares) / float(width) + eps);
  for_lanes(width, [&](std::int64_t i, auto part) {
    store(out + i, load(x + i, part) * same(rstd) * load(weight + i, part), part);
  });
  return rstd;
}

// With n = x · rstd and g = d_out · weight: d_x (+)= rstd · (g − n · mean(g · n)). d_x may be d_out.
template <bool kAdd, class A, class W>
void norm_row_backward(A* d_x, const A* d_out, const A* x, const W* weight, std::int64_t width, float rstd) {
  Lanes products = zeros();
  for_lanes(width, [&](std::int64_t i, auto part) {
    const Lanes n = load(x + i, part) * same(rstd);
    products = fma(load(d_out + i, part) * load(weight + i, part), n, products);
  });
  const float mean = sum(products) / float(width);
  for_lanes(width, [&](std::int64_t i, auto part) {
    const Lanes n = load(x + i, part) * same(rstd);
    const Lanes g = load(d_out + i, part) * load(weight + i, part);
    const Lanes d = same(rstd) * fma(n, same(-mean), g);
    store(d_x + i, kAdd ? load(d_x + i, part) + d : d, part);
  });
}

// d_weight[i] += Σ_rows d_out · x · rstd, over rows that lie stride apart and whose rstds lie rstd_stride apart.
template <class A>
struct WeightSum {
  const A* d_out;
  const A* x;
  const float* rstd;
  std::int64_t rows, stride, rstd_stride;

  template <class Extent>
  LANES Lanes of(std::int64_t i, Extent part) const {
    Lanes total = zeros();
    for (std::int64_t begin = 0; begin < rows; begin += kSumRows) {
      Lanes sum = zeros();
      for (std::int64_t t = begin; t < std::min(rows, begin + kSumRows); ++t) {
        const Lanes n = load(x + t * stride + i, part) * same(rstd[t * rstd_stride]);
        sum = fma(load(d_out + t * stride + i, part), n, sum);
      }
      total = total + sum;
    }
    return total;
  }
};

}  // namespace

void CpuOps::rms_norm(Tensor out, Tensor rstd, Tensor x, Tensor weight, float eps) {
  shapes::rms_norm(out, rstd, x, weight);
  stream_.run([=, this] {
    const std::int64_t T = x.size(0), D = x.size(1);
    with_types(x.dtype(), weight.dtype(), [&](auto a, auto w) {
      using A = decltype(a);
      using W = decltype(w);
      for_rows(threads_, T, kRowsAPiece, [&](std::int64_t t) {
        rstd.f32()[t] = norm_row(numbers<A>(out) + t * D, numbers<A>(x) + t * D, numbers<W>(weight), D, eps);
      });
    });
  });
}

void CpuOps::rms_norm_backward(Tensor d_x, Tensor d_weight, Tensor d_out, Tensor x, Tensor weight,
                               Tensor rstd) {
  shapes::rms_norm_backward(d_x, d_weight, d_out, x, weight, rstd);
  stream_.run([=, this] {
    const std::int64_t T = x.size(0), D = x.size(1);
    with_types(x.dtype(), weight.dtype(), [&](auto a, auto w) {
      using A = decltype(a);
      using W = decltype(w);
      for_rows(threads_, T, kRowsAPiece, [&](std::int64_t t) {
        norm_row_backward<true>(numbers<A>(d_x) + t * D, numbers<A>(d_out) + t * D, numbers<A>(x) + t * D,
                                numbers<W>(weight), D, rstd.f32()[t]);
      });
      if (!d_weight) return;
      const WeightSum<A> sums{numbers<A>(d_out), numbers<A>(x), rstd.f32(), T, D, 1};
      threads_.for_each(pieces_of(D, kSumColumns), [&](std::int64_t piece) {
        const std::int64_t begin = piece * kSumColumns;
        for_lanes(std::min(kSumColumns, D - begin), [&](std::int64_t i, auto part) {
          float* const to = d_weight.f32() + begin + i;
          store(to, load(to, part) + sums.of(begin + i, part), part);
        });
      });
    });
  });
}

void CpuOps::head_norm(Tensor out, Tensor rstd, Tensor qkv, Heads heads, Tensor q_weight, Tensor k_weight,
                       float eps) {
  shapes::head_norm(out, rstd, qkv, heads, q_weight, k_weight);
  stream_.run([=, this] {
    const std::int64_t E = heads.width, normed = heads.query + heads.key_value;
    with_types(qkv.dtype(), q_weight.dtype(), [&](auto a, auto w) {
      using A = decltype(a);
      using W = decltype(w);
      for_rows(threads_, qkv.size(0), kRowsAPiece, [&](std::int64_t t) {
        const A* const from = numbers<A>(qkv) + t * heads.row();
        A* const to = numbers<A>(out) + t * heads.row();
        for (std::int64_t h = 0; h < normed; ++h) {
          const W* const weight = numbers<W>(h < heads.query ? q_weight : k_weight);
          rstd.f32()[t * normed + h] = norm_row(to + h * E, from + h * E, weight, E, eps);
        }
        if (to != from) std::copy(from + normed * E, from + heads.row(), to + normed * E);
      });
    });
  });
}

void CpuOps::head_norm_backward(Tensor d_qkv, Tensor d_q_weight, Tensor d_k_weight, Tensor qkv, Tensor rstd,
                                Heads heads, Tensor q_weight, Tensor k_weight) {
  shapes::head_norm_backward(d_qkv, d_q_weight, d_k_weight, qkv, rstd, heads, q_weight, k_weight);
  stream_.run([=, this] {
    const std::int64_t T = qkv.size(0), E = heads.width, normed = heads.query + heads.key_value;
    with_types(qkv.dtype(), q_weight.dtype(), [&](auto a, auto w) {
      using A = decltype(a);
      using W = decltype(w);
      // The weights' gradients first: d_qkv is still the gradient of the normed heads.
      const auto add_heads = [&](Tensor d_weight, std::int64_t first, std::int64_t last) {
        if (!d_weight) return;
        threads_.for_each(pieces_of(E, kLanes), [&](std::int64_t piece) {
          const std::int64_t begin = piece * kLanes;
          for_lanes(std::min<std::int64_t>(kLanes, E - begin), [&](std::int64_t, auto part) {
            float* const to = d_weight.f32() + begin;
            Lanes total = load(to, part);
            for (std::int64_t h = first; h < last; ++h) {
              const WeightSum<A> sums{
                  numbers<A>(d_qkv) + h * E, numbers<A>(qkv) + h * E, rstd.f32() + h, T, heads.row(), normed};
              total = total + sums.of(begin, part);
            }
            store(to, total, part);
          });
        });
      };
      add_heads(d_q_weight, 0, heads.query);
      add_heads(d_k_weight, heads.query, normed);
      for_rows(threads_, T, kRowsAPiece, [&](std::int64_t t) {
        A* const d = numbers<A>(d_qkv) + t * heads.row();
        const A* const x = numbers<A>(qkv) + t * heads.row();
        for (std::int64_t h = 0; h < normed; ++h) {
          const W* const weight = numbers<W>(h < heads.query ? q_weight : k_weight);
          norm_row_backward<false>(d + h * E, d + h * E, x + h * E, weight, E, rstd.f32()[t * normed + h]);
        }
      });
    });
  });
}

}  // namespace slideway
