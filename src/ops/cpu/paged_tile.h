// PagedTile: attention over pages for a few rows of one sequence and the query heads of one key-value head; or for one row
// and all heads, since a row alone is a read of memory, which goes fastest from one end to the other.
//
// The positions a row sees are cut into spans of 256 at absolute borders. A span gives each query (row r, head j of the
// tile: query r · heads + j) a partial result: the largest score m, l = Σ e^(s−m) and o = Σ e^(s−m) v. Partial results of
// ascending spans are joined into the query's output. Spans may be worked on side by side or one after another: the same
// operations in the same order either way.
//
// Threads  pure functions of their arguments. Functions here are always inlined: kernels of every level call them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace slideway {

struct PagedTile {
  DType type;  // of queries, pages and out
  const std::byte* pool;
  std::size_t page_bytes;
  std::int64_t page_tokens;
  const std::int32_t* pages;            // of the sequence
  std::int64_t kv_heads, group, width;  // K, H / K, E
  std::int64_t first_kv, kv_count;      // the tile's key-value heads: one, or several for one row
  const void* queries;                  // the tile's first head in its first row
  std::int64_t queries_stride;          // numbers from row to row
  void* out;
  std::int64_t out_stride;
  std::int64_t rows, first_position;  // the first row's
  std::int64_t window;                // 0: all
  float scale;

  [[gnu::always_inline]] constexpr std::int64_t heads() const { return group * kv_count; }
  [[gnu::always_inline]] constexpr std::int64_t count() const { return rows * heads(); }
  [[gnu::always_inline]] constexpr std::int64_t first_seen(std::int64_t row) const {
    return window > 0 && first_position + row >= window ? first_position + row - window + 1 : 0;
  }
  [[gnu::always_inline]] constexpr std::int64_t end_seen(std::int64_t row) const {
    return first_position + row + 1;
  }
};

constexpr std::int64_t kSpan = 256;      // positions
constexpr std::int64_t kSpanBlock = 64;  // positions whose scores exist at once

// The spans that any row of the tile sees: [first, end).
[[gnu::always_inline]] constexpr std::int64_t first_span(const PagedTile& tile) {
  return tile.first_seen(0) / kSpan;
}
[[gnu::always_inline]] constexpr std::int64_t end_span(const PagedTile& tile) {
  return (tile.end_seen(tile.rows - 1) - 1) / kSpan + 1;
}

// Floats of one span's partial results: m and l of every query, then every o, padded to 16.
[[gnu::always_inline]] constexpr std::int64_t partial_floats(std::int64_t queries, std::int64_t width) {
  return queries * (2 + (width + 15) / 16 * 16);
}
// Floats of scratch that a span's work needs besides: sixteen sums and a block of scores for every query.
[[gnu::always_inline]] constexpr std::int64_t span_scratch(std::int64_t queries) {
  return queries * (16 + kSpanBlock);
}
// And all spans one after another.
[[gnu::always_inline]] constexpr std::int64_t rows_scratch(std::int64_t queries, std::int64_t width) {
  return 2 * partial_floats(queries, width) + span_scratch(queries);
}

}  // namespace slideway
