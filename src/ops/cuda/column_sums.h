// Sums over rows: out[n] += Σ_t f(t, n), in two stages of a fixed order.
//
// Rows are cut into groups; a first kernel, the op's own, writes each group's sums, over ascending rows, to
// partial [groups, N]; add_groups then adds the groups: lane i of kSumLanes takes groups i, i + kSumLanes, … upwards, and the
// lanes are added upwards. Cuts follow from T and N alone.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/cuda/launch.h"
#include "ops/cuda/workspace.h"

namespace slideway {

constexpr int kSumLanes = 16;
constexpr std::int64_t kSquaresChunk = 65536;  // elements of one partial sum of squares

struct RowGroups {
  std::int64_t rows;   // of a group; the last may have fewer
  std::int64_t count;  // of groups
};

// As many groups of at least `least` rows as fit the room for partial sums.
inline RowGroups row_groups(std::int64_t T, std::int64_t N, std::int64_t least) {
  const std::int64_t most = std::int64_t(kSumsBytes / sizeof(float)) / N;
  CHECK(most > 0, "sums over rows of ", N, " numbers");
  const std::int64_t rows = std::max(least, pieces_of(T, most));
  return {rows, pieces_of(T, rows)};
}

// out[n] += Σ_g partial[g · stride + n]
void add_groups(float* out, const float* partial, std::int64_t groups, std::int64_t stride, std::int64_t N,
                cudaStream_t stream);

}  // namespace slideway
