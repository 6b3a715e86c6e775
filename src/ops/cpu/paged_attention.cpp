#include "ops/cpu/paged_attention.h"

#include <algorithm>
#include <cstring>

#include "ops/cpu/cpu_ops.h"
#include "ops/cpu/kernels.h"
#include "ops/cpu/paged_tile.h"
#include "ops/cpu/scratch.h"
#include "ops/pieces.h"
#include "ops/shapes.h"

namespace slideway {
namespace {

// Queries that pass a block of keys and values while the L1 cache holds it.
constexpr std::int64_t kQueriesATile = 48;
// Fewer tiles than these are cut by spans of positions too, within 32 MiB of partial results.
constexpr std::int64_t kFewTiles = 32;
constexpr std::int64_t kMostPartials = 1 << 23;  // floats

// The tiles of one call: for every sequence its rows, a few at a time, for every key-value head; a row alone is one tile.
class Tiles {
 public:
  Tiles(Tensor out, Tensor qkv, Heads heads, const PagedKv& kv, float scale)
      : kv_(kv), rows_a_tile_(std::max<std::int64_t>(1, kQueriesATile * heads.key_value / heads.query)) {
    call_.type = qkv.dtype();
    call_.pool = kv.pool;
    call_.page_bytes = kv.page_bytes;
    call_.page_tokens = kv.page_tokens;
    call_.kv_heads = heads.key_value;
    call_.group = heads.query / heads.key_value;
    call_.width = heads.width;
    call_.queries = qkv.data();
    call_.queries_stride = heads.row();
    call_.out = out.data();
    call_.out_stride = std::int64_t(heads.query) * heads.width;
    call_.window = kv.window;
    call_.scale = scale;
    for (std::size_t n = 0; n < kv.lengths.size(); ++n) count_ += tiles(n);
  }

  std::int64_t count() const { return count_; }
  std::int64_t most_queries() const { return std::max(rows_a_tile_, call_.kv_heads) * call_.group; }
  std::int64_t width() const { return call_.width; }

  PagedTile at(std::int64_t index) const {
    std::size_t n = 0;
    for (;; ++n) {
      if (index < tiles(n)) break;
      index -= tiles(n);
    }
    PagedTile tile = call_;
    tile.kv_count = rows(n) == 1 ? call_.kv_heads : 1;
    tile.first_kv = index * tile.kv_count % call_.kv_heads;
    const std::int64_t first = index * tile.kv_count / call_.kv_heads * rows_a_tile_;  // row of the sequence
    tile.pages = kv_.pages.data() + n * std::size_t(kv_.max_pages);
    tile.rows = std::min(rows_a_tile_, rows(n) - first);
    tile.first_position = kv_.lengths[n] - rows(n) + first;
    const std::int64_t row = kv_.starts[n] + first, head = tile.first_kv * call_.group * call_.width;
    const auto bytes = std::int64_t(bytes_of(call_.type));
    tile.queries = static_cast<const std::byte*>(call_.queries) + (row * call_.queries_stride + head) * bytes;
    tile.out = static_cast<std::byte*>(call_.out) + (row * call_.out_stride + head) * bytes;
    return tile;
  }

 private:
  std::int64_t rows(std::size_t n) const { return kv_.starts[n + 1] - kv_.starts[n]; }
  std::int64_t tiles(std::size_t n) const {
    return rows(n) == 1 ? 1 : pieces_of(rows(n), rows_a_tile_) * call_.kv_heads;
  }

  const PagedKv& kv_;
  PagedTile call_{};
  std::int64_t rows_a_tile_, count_ = 0;
};

void by_rows(Threads& threads, const Tiles& tiles, const Kernels& level) {
  const auto floats = std::size_t(rows_scratch(tiles.most_queries(), tiles.width()));
  threads.for_each(tiles.count(), [&](std::int64_t i) {
    level.paged_rows(tiles.at(i), scratch_floats(ScratchSlot::paged, floats));
  });
}

// Each tile's spans are pieces of their own; their partial results lie in the calling thread's scratch.
void by_spans(Threads& threads, const Tiles& tiles, const Kernels& level, std::int64_t partials) {
  struct Place {
    PagedTile tile;
    std::int64_t first_piece;
    float* partials;
  } places[kFewTiles];
  float* next = scratch_floats(ScratchSlot::paged_partials, std::size_t(partials));
  std::int64_t pieces = 0;
  for (std::int64_t i = 0; i < tiles.count(); ++i) {
    const PagedTile tile = tiles.at(i);
    places[i] = {tile, pieces, next};
    pieces += end_span(tile) - first_span(tile);
    next += (end_span(tile) - first_span(tile)) * partial_floats(tile.count(), tile.width);
  }
  threads.for_each(pieces, [&](std::int64_t piece) {
    const Place* place = places;
    while (place + 1 < places + tiles.count() && place[1].first_piece <= piece) ++place;
    const std::int64_t span = piece - place->first_piece;
    float* const scratch = scratch_floats(ScratchSlot::paged, std::size_t(span_scratch(place->tile.count())));
    level.paged_span(place->tile, first_span(place->tile) + span,
                     place->partials + span * partial_floats(place->tile.count(), place->tile.width),
                     scratch);
  });
  for (std::int64_t i = 0; i < tiles.count(); ++i) level.paged_join(places[i].tile, places[i].partials);
}

}  // namespace

void write_kv(Threads& threads, const PagedKv& kv, Tensor qkv, Heads heads) {
  const std::size_t head_bytes = std::size_t(heads.width) * bytes_of(qkv.dtype());
  const std::size_t bytes =
      head_bytes * std::size_t(heads.key_value);  // of a token's keys, and of its values
  const std::size_t row_bytes = std::size_t(heads.row()) * bytes_of(qkv.dtype());
  const auto copy_row = [&](std::size_t n, std::int64_t t) {
    const std::int64_t position = kv.lengths[n] - (kv.starts[n + 1] - t);
    const std::int32_t page =
        kv.pages[n * std::size_t(kv.max_pages) + std::size_t(position / kv.page_tokens)];
    std::byte* const to =
        kv.pool + std::size_t(page) * kv.page_bytes + std::size_t(position % kv.page_tokens) * bytes;
    const std::byte* const keys = static_cast<const std::byte*>(qkv.data()) + std::size_t(t) * row_bytes +
                                  std::size_t(heads.query) * head_bytes;
    std::memcpy(to, keys, bytes);
    std::memcpy(to + std::size_t(kv.page_tokens) * bytes, keys + bytes, bytes);
  };
  const auto copy_rows = [&](std::int64_t begin, std::int64_t end) {
    for (std::size_t n = 0; n < kv.lengths.size(); ++n) {
      const std::int64_t last = std::min<std::int64_t>(end, kv.starts[n + 1]);
      for (std::int64_t t = std::max<std::int64_t>(begin, kv.starts[n]); t < last; ++t) copy_row(n, t);
    }
  };
  constexpr std::int64_t kRowsAPiece = 128;
  const std::int64_t rows = qkv.size(0);
  threads.for_each(pieces_of(rows, kRowsAPiece), [&](std::int64_t piece) {
    copy_rows(piece * kRowsAPiece, std::min(rows, (piece + 1) * kRowsAPiece));
  });
}

void paged_attention(Threads& threads, Tensor out, Tensor qkv, Heads heads, const PagedKv& kv, float scale,
                     CpuLevel level) {
  const Tiles tiles(out, qkv, heads, kv, scale);
  std::int64_t spans = 0, partials = 0;
  for (std::int64_t i = 0; i < tiles.count() && tiles.count() < kFewTiles; ++i) {
    const PagedTile tile = tiles.at(i);
    spans += end_span(tile) - first_span(tile);
    partials += (end_span(tile) - first_span(tile)) * partial_floats(tile.count(), tile.width);
  }
  if (spans > tiles.count() && partials <= kMostPartials) {
    by_spans(threads, tiles, kernels(level), partials);
  } else {
    by_rows(threads, tiles, kernels(level));
  }
}

void CpuOps::write_kv(const PagedKv& kv, Tensor qkv, Heads heads) {
  shapes::write_kv(kv, qkv, heads);
  stream_.run([=, this] { slideway::write_kv(threads_, kv, qkv, heads); });
}

void CpuOps::paged_attention(Tensor out, Tensor qkv, Heads heads, const PagedKv& kv, float scale) {
  shapes::paged_attention(out, qkv, heads, kv);
  stream_.run([=, this] { slideway::paged_attention(threads_, out, qkv, heads, kv, scale); });
}

}  // namespace slideway
