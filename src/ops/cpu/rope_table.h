// RopeTable: the cosines and sines of a call to rope, kept for the next call: all layers of a pass turn by the same angles.
//
// Threads  one at a time
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/threads.h"

namespace slideway {

class RopeTable {
 public:
  // Makes the table of these positions and frequencies, unless it holds it already.
  void update(Threads& threads, std::span<const std::int32_t> positions, std::span<const float> inv_freq,
              float factor);

  // Row t: cosines [E/2], then sines [E/2], both times the attention factor.
  const float* row(std::int64_t t) const { return turns_.data() + t * 2 * std::int64_t(inv_freq_.size()); }

 private:
  std::vector<std::int32_t> positions_;
  std::vector<float> inv_freq_;
  float factor_ = 0;
  std::vector<float> turns_;  // [T, E]
};

}  // namespace slideway
