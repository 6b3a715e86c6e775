// Embedding and cross entropy.
#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/lane_loops.h"
#include "ops/cpu/numeric_plan.h"
#include "ops/pieces.h"
#include "ops/shapes.h"

namespace slideway {
namespace {

constexpr std::int64_t kRowsAPiece = 8;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::int64_t row_of(std::int32_t id, const Tensor& table) {
  CHECK(0 <= id && id < table.size(0), "token id ", id, " with a vocabulary of ", table.size(0));
  return id;
}

float largest_of(const float* z, std::int64_t n) {
  Lanes top = same(-kInfinity);
  for_lanes(n, [&](std::int64_t i, auto part) {
    top = larger(top, within(load(z + i, part), part, same(-kInfinity)));
  });
  return largest(top);
}

// Σ_j e^(z[j] − m)
float sum_of_exps(const float* z, std::int64_t n, float m) {
  Lanes sums = zeros();
  for_lanes(n, [&](std::int64_t i, auto part) {
    sums = sums + within(exp_of_negative(load(z + i, part) - same(m)), part, zeros());
  });
  return sum(sums);
}

float exp_of(float x) {
  return x == -kInfinity ? 0.0f : std::exp(x);
}

}  // namespace

void CpuOps::embed(Tensor out, Tensor table, Tensor ids) {
  shapes::embed(out, table, ids);
  stream_.run([=, this] {
    const std::int64_t D = table.size(1);
    with_type(out.dtype(), [&](auto a) {
      with_type(table.dtype(), [&](auto w) {
        using A = decltype(a);
        using W = decltype(w);
        for_rows(threads_, ids.size(0), kRowsAPiece, [&](std::int64_t t) {
          const W* const from = numbers<W>(table) + row_of(ids.i32()[t], table) * D;
          A* const to = numbers<A>(out) + t * D;
          for_lanes(D, [&](std::int64_t i, auto part) { store(to + i, load(from + i, part), part); });
        });
      });
    });
  });
}

void CpuOps::embed_backward(Tensor d_table, Tensor d_out, Tensor ids) {
  shapes::embed_backward(d_table, d_out, ids);
  stream_.run([=, this] {
    const std::int64_t D = d_table.size(1);
    with_type(d_out.dtype(), [&](auto zero) {
      using A = decltype(zero);
      // A piece is some columns of all rows, so that rows of one id are added in ascending t.
      threads_.for_each(pieces_of(D, kSumColumns), [&](std::int64_t piece) {
        const std::int64_t begin = piece * kSumColumns, columns = std::min(kSumColumns, D - begin);
        for (std::int64_t t = 0; t < ids.size(0); ++t) {
          float* const to = d_table.f32() + row_of(ids.i32()[t], d_table) * D + begin;
          const A* const from = numbers<A>(d_out) + t * D + begin;
          for_lanes(columns, [&](std::int64_t i, auto part) {
            store(to + i, load(to + i, part) + load(from + i, part), part);
          });
        }
      });
    });
  });
}

void CpuOps::cross_entropy_tile(Tensor max_sum, Tensor target_logit, Tensor logits, Tensor targets,
                                std::int64_t tile_begin) {
  shapes::cross_entropy_tile(max_sum, target_logit, logits, targets, tile_begin);
  stream_.run([=, this] {
    const std::int64_t width = logits.size(1);
    for_rows(threads_, logits.size(0), kRowsAPiece, [&](std::int64_t t) {
      const std::int32_t target = targets.i32()[t];
      if (target < 0) return;
      const float* const z = logits.f32() + t * width;
      float& m = max_sum.f32()[2 * t];
      float& s = max_sum.f32()[2 * t + 1];
      if (tile_begin == 0) {
        m = -kInfinity;
        s = 0;
      }
      const float top = std::max(m, largest_of(z, width));
      s = s * exp_of(m - top) + sum_of_exps(z, width, top);
      m = top;
      if (tile_begin <= target && target < tile_begin + width) target_logit.f32()[t] = z[target - tile_begin];
    });
  });
}

void CpuOps::cross_entropy_loss(Tensor losses, Tensor max_sum, Tensor target_logit, Tensor targets) {
  shapes::cross_entropy_loss(losses, max_sum, target_logit, targets);
  stream_.run([=] {
    for (std::int64_t t = 0; t < losses.size(0); ++t) {
      const float* const ms = max_sum.f32() + 2 * t;
      losses.f32()[t] = targets.i32()[t] < 0 ? 0.0f : ms[0] + std::log(ms[1]) - target_logit.f32()[t];
    }
  });
}

void CpuOps::cross_entropy_backward(Tensor d_logits, Tensor logits, Tensor max_sum, Tensor targets,
                                    std::int64_t tile_begin, float weight) {
  shapes::cross_entropy_backward(d_logits, logits, max_sum, targets, tile_begin);
  stream_.run([=, this] {
    const std::int64_t width = logits.size(1);
    with_type(d_logits.dtype(), [&](auto zero) {
      using A = decltype(zero);
      for_rows(threads_, logits.size(0), kRowsAPiece, [&](std::int64_t t) {
        A* const d = numbers<A>(d_logits) + t * width;
        const std::int32_t target = targets.i32()[t];
        if (target < 0) {
          std::fill(d, d + width, A(0));
          return;
        }
        const float m = max_sum.f32()[2 * t], factor = weight / max_sum.f32()[2 * t + 1];
        const float* const z = logits.f32() + t * width;
        const std::int64_t place = target - tile_begin;
        const bool here = 0 <= place && place < width;
        const float at_target = here ? z[place] : 0.0f;  // read first: d may be z
        for_lanes(width, [&](std::int64_t i, auto part) {
          store(d + i, same(factor) * exp_of_negative(load(z + i, part) - same(m)), part);
        });
        if (here)
          store(d + place, same(factor) * exp_of_negative(same(at_target) - same(m)) - same(weight), Part{1});
      });
    });
  });
}

}  // namespace slideway
