// Pieces: how loops over rows are cut for the thread pool. No bits depend on the cut: rows do not see each other.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/threads.h"

namespace slideway {

inline std::int64_t pieces_of(std::int64_t n, std::int64_t size) {
  return (n + size - 1) / size;
}

// Calls row(t) for every row, rows_a_piece of them on one thread.
template <class Row>
void for_rows(Threads& threads, std::int64_t rows, std::int64_t rows_a_piece, const Row& row) {
  threads.for_each(pieces_of(rows, rows_a_piece), [&](std::int64_t piece) {
    const std::int64_t end = std::min(rows, (piece + 1) * rows_a_piece);
    for (std::int64_t t = piece * rows_a_piece; t < end; ++t) row(t);
  });
}

}  // namespace slideway
