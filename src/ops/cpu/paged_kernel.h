// The tiles of ops/cpu/paged_tile.h over Lanes.
#pragma once

#include "ops/cpu/dot_tile.h"
#include "ops/cpu/lane_loops.h"
#include "ops/cpu/paged_tile.h"

namespace slideway {
namespace {

constexpr float kNothingSeen = -__builtin_inff();

// One span's partial results of all queries of a tile.
struct Partial {
  float *m, *l, *o;
  std::int64_t stride;  // from o to o

  Partial(float* memory, const PagedTile& t)
      : m(memory), l(m + t.count()), o(l + t.count()), stride((t.width + kLanes - 1) / kLanes * kLanes) {}
};

struct Range {
  std::int64_t begin, end;
  bool empty() const { return begin >= end; }
};
LANES Range common(Range a, Range b) {
  return {a.begin > b.begin ? a.begin : b.begin, a.end < b.end ? a.end : b.end};
}

// The positions of a block, as offsets into it, that a row sees.
LANES Range seen(const PagedTile& t, std::int64_t row, std::int64_t block) {
  return common({t.first_seen(row) - block, t.end_seen(row) - block}, {0, kSpanBlock});
}
LANES Range seen_by_any(const PagedTile& t, std::int64_t block) {
  return common({t.first_seen(0) - block, t.end_seen(t.rows - 1) - block}, {0, kSpanBlock});
}

// Where a block's keys and values of the tile's first key-value head lie. What no row sees stands for the first that one
// does, since scores are made eight at a time.
template <class A>
struct BlockOfPages {
  const A *keys[kSpanBlock], *values[kSpanBlock];

  void set(const PagedTile& t, std::int64_t block, Range range) {
    const std::int64_t step = t.kv_heads * t.width, to_values = t.page_tokens * step;
    std::int64_t page = (block + range.begin) / t.page_tokens, token = (block + range.begin) % t.page_tokens;
    for (std::int64_t i = range.begin; i < range.end; ++page, token = 0) {
      const std::byte* const at = t.pool + std::size_t(t.pages[page]) * t.page_bytes;
      const A* key = reinterpret_cast<const A*>(at) + token * step + t.first_kv * t.width;
      const std::int64_t end = common({i, i + t.page_tokens - token}, range).end;
      for (; i < end; ++i, key += step) keys[i] = key, values[i] = key + to_values;
    }
    for (std::int64_t i = 0; i < kSpanBlock; ++i) {
      if (i < range.begin || i >= range.end) keys[i] = keys[range.begin], values[i] = values[range.begin];
    }
  }
};

// One step of the running softmax: scores become e^(score − m) with the new maximum m, zero outside the range; returns the
// factor for what was summed before.
LANES float softmax_block(float* scores, Range range, float& m, float* l_lanes) {
  constexpr int kParts = kSpanBlock / kLanes;
  Lanes s[kParts], most = same(m);
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) {
    const Range part = common({range.begin - i * kLanes, range.end - i * kLanes}, {0, kLanes});
    s[i] = part.empty() ? same(kNothingSeen)
                        : between(part.begin, part.end, load(scores + i * kLanes), same(kNothingSeen));
    most = larger(most, s[i]);
  }
  const float before = m;
  m = largest(most);
  const float shrink = exp_of_negative(before - m);
  Lanes l = load(l_lanes) * same(shrink);
#pragma GCC unroll 4
  for (int i = 0; i < kParts; ++i) {
    const Lanes weight = exp_of_negative(s[i] - same(m));
    store(scores + i * kLanes, weight);
    l = l + weight;
  }
  store(l_lanes, l);
  return shrink;
}

LANES void ask_for(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0);
}

// o[r][at : at + kCount · 16] += Σ_i weights[r][i] values[i], i ascending through the range.
template <bool kAhead, int kRows, int kCount, class A, class Amount>
LANES void add_values_at(float* const* o, const float* const* weights, const A* const* values, Range range,
                         std::int64_t at, Amount amount, const A* ahead, std::int64_t step) {
  Lanes sums[kRows][kCount];
#pragma GCC unroll 3
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kCount; ++c) sums[r][c] = load(o[r] + at + c * kLanes);
  }
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    Lanes value[kCount];
#pragma GCC unroll 4
    for (int c = 0; c < kCount; ++c) value[c] = load(values[i] + at + c * kLanes, amount);
    if constexpr (kAhead) {
#pragma GCC unroll 4
      for (int c = 0; c < kCount; ++c) ask_for(ahead + i * step + at + c * kLanes);
    }
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) {
      const Lanes weight = same(weights[r][i]);
#pragma GCC unroll 4
      for (int c = 0; c < kCount; ++c) sums[r][c] = fma(weight, value[c], sums[r][c]);
    }
  }
#pragma GCC unroll 3
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kCount; ++c) store(o[r] + at + c * kLanes, sums[r][c]);
  }
}

template <bool kAhead, int kRows, class A>
void add_values(float* const* o, const float* const* weights, const A* const* values, Range range,
                std::int64_t width, const A* ahead) {
  if (range.empty()) return;
  constexpr int kCount = kWideLanes ? 4 : 2;
  std::int64_t e = 0;
  for (; e + kCount * kLanes <= width; e += kCount * kLanes) {
    add_values_at<kAhead, kRows, kCount>(o, weights, values, range, e, Whole{}, ahead, width);
  }
  for (; e + kLanes <= width; e += kLanes)
    add_values_at<kAhead, kRows, 1>(o, weights, values, range, e, Whole{}, ahead, width);
  if (e < width) add_values_at<kAhead, kRows, 1>(o, weights, values, range, e, Part{width - e}, ahead, width);
}

// One span of one tile: block after block, first all scores of a block, then its softmax, then its values.
template <class A>
class SpanOfTile {
 public:
  SpanOfTile(const PagedTile& tile, float* partial, float* scratch)
      : t_(tile), partial_(partial, tile), l_lanes_(scratch), scores_(scratch + tile.count() * kLanes) {}

  void run(std::int64_t span) {
    for (std::int64_t q = 0; q < t_.count(); ++q) {
      partial_.m[q] = kNothingSeen;
      store(l_lanes_ + q * kLanes, zeros());
      for (std::int64_t e = 0; e < partial_.stride; e += kLanes) store(o_of(q) + e, zeros());
    }
    for (std::int64_t i = 0; i < kSpan / kSpanBlock; ++i) {
      const std::int64_t block = span * kSpan + i * kSpanBlock;
      const Range any = seen_by_any(t_, block), after = seen_by_any(t_, block + kSpanBlock);
      if (any.empty()) continue;
      if (!next_is_set_) pages_[i % 2].set(t_, block, any);
      next_is_set_ = !after.empty();
      if (next_is_set_) pages_[(i + 1) % 2].set(t_, block + kSpanBlock, after);
      const BlockOfPages<A>&now = pages_[i % 2], &next = pages_[next_is_set_ ? (i + 1) % 2 : i % 2];
      scores_of_block(now, block, any);
      for (std::int64_t q = 0; q < t_.count(); ++q) softmax_of(q, seen(t_, q / t_.heads(), block));
      values_of_block(now, next, block, any);
    }
    for (std::int64_t q = 0; q < t_.count(); ++q) partial_.l[q] = sum(load(l_lanes_ + q * kLanes));
  }

 private:
  static constexpr std::int64_t kGroup = 8, kAhead = 16;  // positions

  float* o_of(std::int64_t q) { return partial_.o + q * partial_.stride; }
  float* scores_of(std::int64_t q) { return scores_ + q * kSpanBlock; }

  // Calls body(first query, shape) for tiles of the queries of the tile's kv-th key-value head.
  template <class Body>
  LANES void for_queries(std::int64_t kv, const Body& body) {
    const std::int64_t count = t_.rows * t_.group;
    for (std::int64_t i = 0, tile; i < count; i += tile) {
      tile = rows_of_tile(count - i);
      with_tile_rows(int(tile), [&](auto shape) { body(kv * count + i, shape); });
    }
  }

  // While a tile of one row works, the vectors of `positions` positions sixteen ahead are asked for: an even share by
  // each key-value head's first queries, as fast as they read, in ascending order. Null: nothing is asked for.
  const A* share_of(const A* ahead, std::int64_t positions, std::int64_t kv, std::int64_t q) const {
    return t_.kv_count == t_.kv_heads && q == kv * t_.group ? ahead + kv * positions * t_.width : nullptr;
  }

  void scores_of_block(const BlockOfPages<A>& pages, std::int64_t block, Range any) {
    for (std::int64_t i = any.begin / kGroup * kGroup; i < any.end; i += kGroup) {
      const A* const ahead =
          i + kAhead < kSpanBlock ? pages.keys[i + kAhead] : pages.values[i + kAhead - kSpanBlock];
      for (std::int64_t kv = 0; kv < t_.kv_count; ++kv) {
        const A* keys[kGroup];
        for (int k = 0; k < kGroup; ++k) keys[k] = pages.keys[i + k] + kv * t_.width;
        for_queries(kv, [&](std::int64_t q, auto shape) {
          scores_at<decltype(shape)::kRows>(keys, block, q, i, share_of(ahead, kGroup, kv, q));
        });
      }
    }
  }

  // Scores of kRows queries with eight keys, positions block + i and on.
  template <int kRows>
  void scores_at(const A* const* keys, std::int64_t block, std::int64_t q, std::int64_t i, const A* ahead) {
    const std::int64_t first = seen(t_, q / t_.heads(), block).begin;
    const std::int64_t end = seen(t_, (q + kRows - 1) / t_.heads(), block).end;
    if (i + kGroup <= first || i >= end) return;
    const A* queries[kRows];
    for (int r = 0; r < kRows; ++r) {
      const std::int64_t row = (q + r) / t_.heads(), head = (q + r) % t_.heads();
      queries[r] = static_cast<const A*>(t_.queries) + row * t_.queries_stride + head * t_.width;
    }
    __m256 products[kRows];
    if (ahead) {
      tile_products<true>(products, queries, keys, t_.width, reinterpret_cast<const char*>(ahead));
    } else {
      tile_products<false>(products, queries, keys, t_.width, nullptr);
    }
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) {
      _mm256_storeu_ps(scores_of(q + r) + i, _mm256_mul_ps(products[r], _mm256_set1_ps(t_.scale)));
    }
  }

  void softmax_of(std::int64_t q, Range own) {
    if (own.empty()) return;
    const float shrink = softmax_block(scores_of(q), own, partial_.m[q], l_lanes_ + q * kLanes);
    if (shrink == 1) return;
    for (std::int64_t e = 0; e < partial_.stride; e += kLanes)
      store(o_of(q) + e, load(o_of(q) + e) * same(shrink));
  }

  void values_of_block(const BlockOfPages<A>& pages, const BlockOfPages<A>& next, std::int64_t block,
                       Range any) {
    for (std::int64_t i = any.begin / kAhead * kAhead; i < any.end; i += kAhead) {
      const A* const ahead = i + kAhead < kSpanBlock ? pages.values[i + kAhead] : next.keys[0];
      for (std::int64_t kv = 0; kv < t_.kv_count; ++kv) {
        const A* values[kAhead];
        for (int k = 0; k < kAhead; ++k) values[k] = pages.values[i + k] + kv * t_.width;
        for_queries(kv, [&](std::int64_t q, auto shape) {
          values_at<decltype(shape)::kRows>(values, block, q, i, share_of(ahead, kAhead, kv, q));
        });
      }
    }
  }

  // Values of sixteen positions, block + i and on, for kRows queries: together where all see, alone before and after, so
  // that each query's chain runs upwards through its own positions only.
  template <int kRows>
  void values_at(const A* const* values, std::int64_t block, std::int64_t q, std::int64_t i, const A* ahead) {
    float* o[kRows];
    const float* weights[kRows];
    Range own[kRows], all = {0, kAhead};
    for (int r = 0; r < kRows; ++r) {
      o[r] = o_of(q + r);
      weights[r] = scores_of(q + r) + i;
      const Range in_block = seen(t_, (q + r) / t_.heads(), block);
      own[r] = common({in_block.begin - i, in_block.end - i}, {0, kAhead});
      all = common(all, own[r]);
    }
    if (all.empty()) all = {kAhead, kAhead};
    const auto alone = [&](int r, Range part) {
      add_values<false, 1>(o + r, weights + r, values, common(own[r], part), t_.width, values[0]);
    };
    for (int r = 0; r < kRows && all.begin > 0; ++r) alone(r, {0, all.begin});
    if (ahead) {
      add_values<true, kRows>(o, weights, values, all, t_.width, ahead);
    } else {
      add_values<false, kRows>(o, weights, values, all, t_.width, ahead);
    }
    for (int r = 0; r < kRows && all.end < kAhead; ++r) alone(r, {all.end, kAhead});
  }

  const PagedTile& t_;
  Partial partial_;
  float *l_lanes_, *scores_;  // [queries, 16], [queries, 64]
  BlockOfPages<A> pages_[2];  // this block's and the next one's
  bool next_is_set_ = false;
};

// into: the partial results of all spans before this one; from: those of this one.
void join_partial(const PagedTile& t, std::int64_t span, float* into, float* from) {
  Partial a(into, t), b(from, t);
  for (std::int64_t q = 0; q < t.count(); ++q) {
    const std::int64_t row = q / t.heads(), first = t.first_seen(row) / kSpan;
    if (span < first || t.end_seen(row) <= span * kSpan) continue;
    float was = 0, is = 1;  // what each side is worth under the new maximum
    if (span > first) {
      const float m = b.m[q] > a.m[q] ? b.m[q] : a.m[q];
      was = exp_of_negative(a.m[q] - m);
      is = exp_of_negative(b.m[q] - m);
      a.l[q] = a.l[q] * was + b.l[q] * is;
      a.m[q] = m;
    } else {
      a.l[q] = b.l[q];
      a.m[q] = b.m[q];
    }
    for (std::int64_t e = 0; e < a.stride; e += kLanes) {
      float* const o = a.o + q * a.stride + e;
      const Lanes added = load(b.o + q * a.stride + e);
      store(o, span > first ? load(o) * same(was) + added * same(is) : added);
    }
  }
}

template <class A>
void write_out(const PagedTile& t, const Partial& result) {
  for (std::int64_t q = 0; q < t.count(); ++q) {
    A* const out = static_cast<A*>(t.out) + q / t.heads() * t.out_stride + q % t.heads() * t.width;
    const Lanes l = same(result.l[q]);
    for_lanes(t.width, [&](std::int64_t e, auto part) {
      store(out + e, load(result.o + q * result.stride + e) / l, part);
    });
  }
}

void paged_span(const PagedTile& t, std::int64_t span, float* partial, float* scratch) {
  t.type == DType::f32 ? SpanOfTile<float>(t, partial, scratch).run(span)
                       : SpanOfTile<std::uint16_t>(t, partial, scratch).run(span);
}

// Joins the spans from first_span(t) on, whose partial results stand one after another, and writes the outputs.
void paged_join(const PagedTile& t, float* partials) {
  const std::int64_t floats = partial_floats(t.count(), t.width);
  for (std::int64_t span = first_span(t) + 1; span < end_span(t); ++span) {
    join_partial(t, span, partials, partials + (span - first_span(t)) * floats);
  }
  t.type == DType::f32 ? write_out<float>(t, {partials, t}) : write_out<std::uint16_t>(t, {partials, t});
}

// All spans, one after another.
void paged_rows(const PagedTile& t, float* scratch) {
  const std::int64_t floats = partial_floats(t.count(), t.width);
  float *const result = scratch, *const next = scratch + floats, *const rest = next + floats;
  paged_span(t, first_span(t), result, rest);
  for (std::int64_t span = first_span(t) + 1; span < end_span(t); ++span) {
    paged_span(t, span, next, rest);
    join_partial(t, span, result, next);
  }
  t.type == DType::f32 ? write_out<float>(t, {result, t}) : write_out<std::uint16_t>(t, {result, t});
}

}  // namespace
}  // namespace slideway
