// Rotary positions. Angles are computed as transformers does: the product of position and inv_freq rounded to f32, then
// cosine and sine of that float, so that logits agree at long positions too.
#include <algorithm>
#include <cmath>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/lane_loops.h"
#include "ops/cpu/rope_table.h"
#include "ops/pieces.h"
#include "ops/shapes.h"

namespace slideway {
namespace {

constexpr std::int64_t kRowsAPiece = 16;

// Turns one head of width 2·half by the angles whose cosines and sines are given.
template <class A>
void turn(A* head, const float* cosines, const float* sines, std::int64_t half, bool backward) {
  for_lanes(half, [&](std::int64_t i, auto part) {
    const Lanes a = load(head + i, part), b = load(head + half + i, part);
    const Lanes c = load(cosines + i, part);
    const Lanes s = backward ? zeros() - load(sines + i, part) : load(sines + i, part);
    store(head + i, a * c - b * s, part);
    store(head + half + i, b * c + a * s, part);
  });
}

}  // namespace

void RopeTable::update(Threads& threads, std::span<const std::int32_t> positions,
                       std::span<const float> inv_freq, float factor) {
  if (std::ranges::equal(positions, positions_) && std::ranges::equal(inv_freq, inv_freq_) &&
      factor == factor_)
    return;
  positions_.assign(positions.begin(), positions.end());
  inv_freq_.assign(inv_freq.begin(), inv_freq.end());
  factor_ = factor;
  const std::int64_t rows = std::int64_t(positions.size()), half = std::int64_t(inv_freq.size());
  turns_.resize(std::size_t(rows * 2 * half));
  for_rows(threads, rows, kRowsAPiece, [&](std::int64_t t) {
    float* const row = turns_.data() + t * 2 * half;
    for (std::int64_t i = 0; i < half; ++i) {
      const float angle = float(positions[std::size_t(t)]) * inv_freq[std::size_t(i)];
      row[i] = std::cos(angle) * factor;
      row[half + i] = std::sin(angle) * factor;
    }
  });
}

void CpuOps::rope(Tensor qkv, Heads heads, Tensor positions, Tensor inv_freq, float attention_factor,
                  bool backward) {
  shapes::rope(qkv, heads, positions, inv_freq);
  stream_.run([=, this] {
    const std::int64_t T = qkv.size(0), half = heads.width / 2;
    rope_table_.update(threads_, {positions.i32(), std::size_t(T)}, {inv_freq.f32(), std::size_t(half)},
                       attention_factor);
    with_type(qkv.dtype(), [&](auto zero) {
      using A = decltype(zero);
      for_rows(threads_, T, kRowsAPiece, [&](std::int64_t t) {
        const float* const cosines = rope_table_.row(t);
        A* const row = numbers<A>(qkv) + t * heads.row();
        for (std::int64_t h = 0; h < heads.query + heads.key_value; ++h) {
          turn(row + h * heads.width, cosines, cosines + half, half, backward);
        }
      });
    });
  });
}

}  // namespace slideway
