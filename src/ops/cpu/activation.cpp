// SwiGLU. With s = 1 / (1 + e^−g): silu(g) = g · s, and silu'(g) = s · (1 + g · (1 − s)).
#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/lane_loops.h"
#include "ops/pieces.h"
#include "ops/shapes.h"

namespace slideway {
namespace {

constexpr std::int64_t kRowsAPiece = 8;

LANES Lanes sigmoid(Lanes g) {
  return same(1.0f) / (same(1.0f) + exp_bounded(zeros() - g));
}

template <class A>
void swiglu_row(A* out, const A* gate, const A* up, std::int64_t width) {
  for_lanes(width, [&](std::int64_t i, auto part) {
    const Lanes g = load(gate + i, part);
    store(out + i, g * sigmoid(g) * load(up + i, part), part);
  });
}

template <class A>
void swiglu_row_backward(A* d_gate, A* d_up, const A* d_out, const A* gate, const A* up, std::int64_t width) {
  for_lanes(width, [&](std::int64_t i, auto part) {
    const Lanes g = load(gate + i, part), u = load(up + i, part), d = load(d_out + i, part);
    const Lanes s = sigmoid(g);
    store(d_gate + i, d * u * (s * fma(g, same(1.0f) - s, same(1.0f))), part);
    store(d_up + i, d * (g * s), part);
  });
}

}  // namespace

void CpuOps::swiglu(Tensor out, Tensor gate_up) {
  shapes::swiglu(out, gate_up);
  stream_.run([=, this] {
    const std::int64_t F = out.size(1);
    with_type(out.dtype(), [&](auto zero) {
      using A = decltype(zero);
      for_rows(threads_, out.size(0), kRowsAPiece, [&](std::int64_t t) {
        const A* const gate = numbers<A>(gate_up) + t * 2 * F;
        swiglu_row(numbers<A>(out) + t * F, gate, gate + F, F);
      });
    });
  });
}

void CpuOps::swiglu_backward(Tensor d_gate_up, Tensor d_out, Tensor gate_up) {
  shapes::swiglu_backward(d_gate_up, d_out, gate_up);
  stream_.run([=, this] {
    const std::int64_t F = d_out.size(1);
    with_type(d_out.dtype(), [&](auto zero) {
      using A = decltype(zero);
      for_rows(threads_, d_out.size(0), kRowsAPiece, [&](std::int64_t t) {
        const A* const gate = numbers<A>(gate_up) + t * 2 * F;
        A* const d_gate = numbers<A>(d_gate_up) + t * 2 * F;
        swiglu_row_backward(d_gate, d_gate + F, numbers<A>(d_out) + t * F, gate, gate + F, F);
      });
    });
  });
}

}  // namespace slideway
