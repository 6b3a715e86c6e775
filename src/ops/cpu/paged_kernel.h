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

// The positions of a block, as offsets into it, that a query sees.
LANES Range seen(const PagedTile& t, std::int64_t query, std::int64_t block) {
  const std::int64_t row = query / t.group;
  return common({t.first_seen(row) - block, t.end_seen(row) - block}, {0, kSpanBlock});
}

// The positions of a block that any query of the tile sees.
LANES Range seen_by_any(const PagedTile& t, std::int64_t block) {
  return common({t.first_seen(0) - block, t.end_seen(t.rows - 1) - block}, {0, kSpanBlock});
}

// Where a block's keys and values lie. What no query sees stands for the first that one does, since scores are made eight
// at a time.
template <class A>
struct BlockOfPages {
  const A *keys[kSpanBlock], *values[kSpanBlock];

  void set(const PagedTile& t, std::int64_t block, Range range) {
    const std::int64_t step = t.kv_heads * t.width, to_values = t.page_tokens * step;
    std::int64_t page = (block + range.begin) / t.page_tokens, token = (block + range.begin) % t.page_tokens;
    for (std::int64_t i = range.begin; i < range.end; ++page, token = 0) {
      const std::byte* const at = t.pool + std::size_t(t.pages[page]) * t.page_bytes;
      const A* key = reinterpret_cast<const A*>(at) + token * step + t.kv_head * t.width;
      const std::int64_t end = common({i, i + t.page_tokens - token}, range).end;
      for (; i < end; ++i, key += step) keys[i] = key, values[i] = key + to_values;
    }
    for (std::int64_t i = 0; i < kSpanBlock; ++i) {
      if (i < range.begin || i >= range.end) keys[i] = keys[range.begin], values[i] = values[range.begin];
    }
  }
};

// Into the L2 cache: a block of keys and values and the next one may be more than the L1 cache holds.
LANES void ask_for(const void* p) {
  _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1);
}

// scores[r][i] = scale · (query r · key i) for i in range, rounded out to groups of eight. The next block's keys are asked
// for meanwhile: short vectors far apart are nothing that a processor sees coming.
template <int kRows, class A>
LANES void block_scores(float (*scores)[kSpanBlock], const A* const* queries, const A* const* keys,
                        const A* const* next_keys, Range range, std::int64_t width, float scale) {
  for (std::int64_t i = range.begin / 8 * 8; i < range.end; i += 8) {
    for (std::int64_t k = i; next_keys && k < i + 8; ++k) {
      for (std::int64_t e = 0; e < width; e += 64 / std::int64_t(sizeof(A))) ask_for(next_keys[k] + e);
    }
    __m256 products[kRows];
    tile_products<kRows>(products, queries, keys + i, width);
#pragma GCC unroll 3
    for (int r = 0; r < kRows; ++r) {
      _mm256_storeu_ps(scores[r] + i, _mm256_mul_ps(products[r], _mm256_set1_ps(scale)));
    }
  }
}

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

// o[r][at : at + kCount · 16] += Σ_i weights[r][i] values[i], i ascending through the range.
template <int kRows, int kCount, class A, class Amount>
LANES void add_values_at(float* const* o, const float* const* weights, const A* const* values,
                         const A* const* next_values, Range range, std::int64_t at, Amount amount) {
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
    if (next_values) {
#pragma GCC unroll 4
      for (int c = 0; c < kCount; ++c) ask_for(next_values[i] + at + c * kLanes);
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

template <int kRows, class A>
void add_values(float* const* o, const float* const* weights, const A* const* values,
                const A* const* next_values, Range range, std::int64_t width) {
  if (range.empty()) return;
  constexpr int kCount = kWideLanes ? 4 : 2;
  std::int64_t e = 0;
  for (; e + kCount * kLanes <= width; e += kCount * kLanes) {
    add_values_at<kRows, kCount>(o, weights, values, next_values, range, e, Whole{});
  }
  for (; e + kLanes <= width; e += kLanes) {
    add_values_at<kRows, 1>(o, weights, values, next_values, range, e, Whole{});
  }
  if (e < width) add_values_at<kRows, 1>(o, weights, values, next_values, range, e, Part{width - e});
}

// One block of positions for kRows queries from `first` on: scores, softmax, values.
template <int kRows, class A>
void queries_of_block(const PagedTile& t, const BlockOfPages<A>& pages, const BlockOfPages<A>* next,
                      std::int64_t block, std::int64_t first, Partial& partial, float* l_lanes,
                      float (*scores)[kSpanBlock]) {
  const A* queries[kRows];
  float* o[kRows];
  const float* weights[kRows];
  Range own[kRows], all = seen(t, first, block), any = all;
  for (int r = 0; r < kRows; ++r) {
    const std::int64_t query = first + r;
    queries[r] =
        static_cast<const A*>(t.queries) + query / t.group * t.queries_stride + query % t.group * t.width;
    o[r] = partial.o + query * partial.stride;
    weights[r] = scores[r];
    own[r] = seen(t, query, block);
    all = common(all, own[r]);
    any = {any.begin < own[r].begin ? any.begin : own[r].begin, any.end > own[r].end ? any.end : own[r].end};
  }
  if (any.empty()) return;
  block_scores<kRows, A>(scores, queries, pages.keys, next ? next->keys : nullptr, any, t.width, t.scale);
  for (int r = 0; r < kRows; ++r) {
    if (own[r].empty()) continue;
    const float shrink =
        softmax_block(scores[r], own[r], partial.m[first + r], l_lanes + (first + r) * kLanes);
    if (shrink == 1) continue;
    for (std::int64_t e = 0; e < partial.stride; e += kLanes) store(o[r] + e, load(o[r] + e) * same(shrink));
  }
  // Together where all see, alone before and after: each query's chain runs upwards through its own positions only.
  if (all.empty()) all = {any.end, any.end};
  const auto alone = [&](int r, Range part) {
    add_values<1, A>(o + r, weights + r, pages.values, nullptr, common(own[r], part), t.width);
  };
  for (int r = 0; r < kRows; ++r) alone(r, {0, all.begin});
  add_values<kRows, A>(o, weights, pages.values, next ? next->values : nullptr, all, t.width);
  for (int r = 0; r < kRows; ++r) alone(r, {all.end, kSpanBlock});
}

// The partial results of one span.
template <class A>
void span_of(const PagedTile& t, std::int64_t span, float* memory, float* scratch) {
  Partial partial(memory, t);
  float* const l_lanes = scratch;
  auto* const scores = reinterpret_cast<float(*)[kSpanBlock]>(scratch + t.count() * kLanes);
  for (std::int64_t q = 0; q < t.count(); ++q) {
    partial.m[q] = kNothingSeen;
    store(l_lanes + q * kLanes, zeros());
    for (std::int64_t e = 0; e < partial.stride; e += kLanes)
      store(partial.o + q * partial.stride + e, zeros());
  }
  BlockOfPages<A> pages[2];  // this block's and the next one's
  bool next_is_set = false;
  for (std::int64_t i = 0; i < kSpan / kSpanBlock; ++i) {
    const std::int64_t block = span * kSpan + i * kSpanBlock;
    const Range any = seen_by_any(t, block), after = seen_by_any(t, block + kSpanBlock);
    if (any.empty()) continue;
    if (!next_is_set) pages[i % 2].set(t, block, any);
    next_is_set = !after.empty();
    if (next_is_set) pages[(i + 1) % 2].set(t, block + kSpanBlock, after);
    for (std::int64_t q = 0, tile; q < t.count(); q += tile) {
      tile = rows_of_tile(t.count() - q);
      const BlockOfPages<A>* const next = next_is_set && q == 0 ? &pages[(i + 1) % 2] : nullptr;
      with_tile_rows(int(tile), [&](auto shape) {
        queries_of_block<decltype(shape)::kRows>(t, pages[i % 2], next, block, q, partial, l_lanes, scores);
      });
    }
  }
  for (std::int64_t q = 0; q < t.count(); ++q) partial.l[q] = sum(load(l_lanes + q * kLanes));
}

// into: the partial results of all spans before this one; from: those of this one.
void join_partial(const PagedTile& t, std::int64_t span, float* into, float* from) {
  Partial a(into, t), b(from, t);
  for (std::int64_t q = 0; q < t.count(); ++q) {
    const std::int64_t row = q / t.group, first = t.first_seen(row) / kSpan;
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
    A* const out = static_cast<A*>(t.out) + q / t.group * t.out_stride + q % t.group * t.width;
    const Lanes l = same(result.l[q]);
    for_lanes(t.width, [&](std::int64_t e, auto part) {
      store(out + e, load(result.o + q * result.stride + e) / l, part);
    });
  }
}

void paged_span(const PagedTile& t, std::int64_t span, float* partial, float* scratch) {
  t.type == DType::f32 ? span_of<float>(t, span, partial, scratch)
                       : span_of<std::uint16_t>(t, span, partial, scratch);
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
