// The sizes of tiles and partial sums on the CPU: what a result's bits depend on beside shapes and the product library.
// They are constants, never measured, and CpuOps::numeric_plan() writes them into checkpoints.
#pragma once

#include <cstdint>

namespace slideway {

constexpr std::int64_t kProductRows = 128;     // rows of a product's tile; a power of two
constexpr std::int64_t kProductColumns = 512;  // and its columns, at most
constexpr std::int64_t kWeightTile = 256;      // rows and columns of a tile of a weight's gradient, at most
constexpr std::int64_t kWeightRows = 1024;     // rows of activations summed at a time into it; a power of two
constexpr std::int64_t kSumRows = 64;          // rows summed at a time into the gradient of a bias or a norm
constexpr std::int64_t kSumColumns = 64;  // columns of such a sum done in one piece (no bits depend on it)
constexpr std::int64_t kSquaresChunk = 65536;  // elements of one partial sum of squares

}  // namespace slideway
