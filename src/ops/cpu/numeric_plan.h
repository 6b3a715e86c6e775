// The sizes of tiles and partial sums on the CPU that a result's bits depend on. They are constants, never measured, and
// CpuOps::numeric_plan() writes them into checkpoints. f32 products have none: ops/cpu/dense_tile.h.
#pragma once

#include <cstdint>

namespace slideway {

constexpr std::int64_t kBf16Rows = 256;        // rows of a bf16 product's tile; a power of two
constexpr std::int64_t kBf16Columns = 512;     // and its columns, at most
constexpr std::int64_t kBf16WeightTile = 512;  // rows and columns of a tile of a weight's gradient, at most
constexpr std::int64_t kBf16WeightRows =
    1024;                                 // rows of activations summed at a time into it; a power of two
constexpr std::int64_t kSumRows = 64;     // rows summed at a time into the gradient of a bias or a norm
constexpr std::int64_t kSumColumns = 64;  // columns of such a sum done in one piece (no bits depend on it)
constexpr std::int64_t kSquaresChunk = 65536;  // elements of one partial sum of squares

}  // namespace slideway
