// Dropout by counter: whether an element is kept depends on (seed, key, token, column) alone, so recomputing, cutting into
// micro-batches and resuming drop the same elements.
//
// Element c of the row of a token takes 24 bits of word (c / 16) % 4 of the Philox block with major = token and
// minor = c / 64 · 16 + c % 16 (so that 16 neighbouring columns are 16 neighbouring blocks, one a lane), under a key drawn
// from the seed and the module's key. It is kept iff those bits, as a number in [0, 1), are at least p; then it is multiplied
// by 1 / (1 − p), else by 0.
//
// Source   core/random.h
#pragma once

#include <cmath>
#include <cstdint>

#include "core/random.h"
#include "ops/ops.h"

namespace slideway {

// The stream of one module, ready to be asked.
struct DropoutMask {
  std::uint64_t key = 0;
  std::uint32_t threshold = 0;  // of 2²⁴; 0 keeps everything
  float scale = 1;              // 1 / (1 − p)

  DropoutMask(const Dropout& dropout, std::uint64_t module_key) {
    if (!(dropout.p > 0)) return;
    const PhiloxBlock block = philox(dropout.seed, module_key, 0x64726f70);  // "drop"
    key = std::uint64_t(block[1]) << 32 | block[0];
    threshold = std::uint32_t(std::ceil(double(dropout.p) * 0x1p24));
    scale = float(1 / (1 - double(dropout.p)));
  }
  bool active() const { return threshold > 0; }
  float factor(std::int64_t token, std::int64_t column) const {
    const auto minor = std::uint64_t(column / 64 * 16 + column % 16);
    const std::uint32_t bits = philox(key, std::uint64_t(token), minor)[std::size_t(column / 16 % 4)];
    return bits >> 8 >= threshold ? scale : 0;
  }
};

}  // namespace slideway
