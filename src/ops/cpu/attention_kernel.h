// The tiles of ops/cpu/attention_tile.h over Lanes.
#pragma once

#include "ops/cpu/attention_tile.h"
#include "ops/cpu/lane_loops.h"
#include "ops/cpu/small_product_kernel.h"
#include "ops/cpu/transpose_kernel.h"

namespace slideway {
namespace {

constexpr float kNoScore = -1e30f;  // below every score, and finite: a difference of two is no NaN
constexpr float kMasked = -__builtin_inff();

LANES std::int64_t up_to_lanes(std::int64_t n) {
  return (n + kLanes - 1) / kLanes * kLanes;
}
LANES std::int64_t lesser(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}
LANES std::int64_t greater(std::int64_t a, std::int64_t b) {
  return a > b ? a : b;
}

// A tile's view of the call: strides, places, sizes.
template <class A>
struct View {
  const AttentionTile& t;
  std::int64_t group, row, out_row,
      E;  // query heads a key-value head; numbers of a row of qkv and of out; padded width
  const A *queries, *keys, *values;  // of this key-value head, in row 0
  float* next;                       // scratch not yet taken

  explicit View(const AttentionTile& tile)
      : t(tile),
        group(tile.heads / tile.kv_heads),
        row((tile.heads + 2 * tile.kv_heads) * tile.width),
        out_row(tile.heads * tile.width),
        E(up_to_lanes(tile.width)),
        queries(static_cast<const A*>(tile.qkv) + tile.kv_head * group * tile.width),
        keys(static_cast<const A*>(tile.qkv) + (tile.heads + tile.kv_head) * tile.width),
        values(keys + tile.kv_heads * tile.width),
        next(tile.scratch) {}

  float* take(std::int64_t n) {
    float* const taken = next;
    next += up_to_lanes(n);
    return taken;
  }
  const A* d_out() const { return static_cast<const A*>(t.d_out) + t.kv_head * group * t.width; }
  A* out() const { return static_cast<A*>(t.out) + t.kv_head * group * t.width; }
  A* d_qkv() const { return static_cast<A*>(t.d_qkv); }
  float* lse() const { return t.lse + t.kv_head * group * t.rows; }

  // The first row that a query of this row sees, and the row after the last that sees a key of this row.
  std::int64_t first_key(std::int64_t query) const {
    return t.window > 0 ? greater(t.begin, query - t.window + 1) : t.begin;
  }
  std::int64_t end_query(std::int64_t key) const {
    return t.window > 0 ? lesser(t.end, key + t.window) : t.end;
  }
};

// to[i, :E] = the numbers of token first + i, zeros beyond width and beyond count.
template <class A>
void load_tokens(float* to, const A* from, std::int64_t stride, std::int64_t first, std::int64_t count,
                 std::int64_t padded, std::int64_t width) {
  const std::int64_t E = up_to_lanes(width);
  for (std::int64_t i = 0; i < padded; ++i) {
    float* const line = to + i * E;
    if (i >= count) {
      for (std::int64_t e = 0; e < E; e += kLanes) store(line + e, zeros());
      continue;
    }
    const A* const numbers = from + (first + i) * stride;
    for_lanes(width, [&](std::int64_t e, auto part) { store(line + e, load(numbers + e, part)); });
  }
}

// A tile of queries: tokens [first, first + count), padded to a multiple of 16; rows = group · padded.
struct Queries {
  std::int64_t first, count, padded, rows;
};

template <class A>
Queries queries_at(const View<A>& v, std::int64_t first) {
  const std::int64_t count = lesser(query_tile(v.group), v.t.end - first), padded = up_to_lanes(count);
  return {first, count, padded, v.group * padded};
}

// to[rows, E] = the group's heads in a tensor of which head 0 of the group begins at from.
template <class A>
void load_heads(float* to, const A* from, std::int64_t stride, const View<A>& v, const Queries& q) {
  for (std::int64_t j = 0; j < v.group; ++j) {
    load_tokens(to + j * q.padded * v.E, from + j * v.t.width, stride, q.first, q.count, q.padded, v.t.width);
  }
}

template <class A>
void store_heads(A* to, std::int64_t stride, const float* from, const View<A>& v, const Queries& q) {
  for (std::int64_t j = 0; j < v.group; ++j) {
    for (std::int64_t i = 0; i < q.count; ++i) {
      A* const numbers = to + (q.first + i) * stride + j * v.t.width;
      const float* const line = from + (j * q.padded + i) * v.E;
      for_lanes(v.t.width, [&](std::int64_t e, auto part) { store(numbers + e, load(line + e), part); });
    }
  }
}

template <class A>
void store_tokens(A* to, std::int64_t stride, const float* from, const View<A>& v, std::int64_t first,
                  std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) {
    for_lanes(v.t.width, [&](std::int64_t e, auto part) {
      store(to + (first + i) * stride + e, load(from + i * v.E + e), part);
    });
  }
}

// --- scores as [keys, rows]: a query is a lane -----------------------------------------------------------------

// Masks what a query must not see: later keys, and keys before its window.
template <class A>
void mask_lanes(float* scores, const View<A>& v, const Queries& q, std::int64_t k0, std::int64_t keys) {
  const bool late = k0 + keys > q.first + 1;
  const bool early = v.t.window > 0 && k0 < v.first_key(q.first + q.count - 1);
  if (!late && !early) return;
  for (std::int64_t k = 0; k < keys; ++k) {
    const std::int64_t from =
        late ? greater(0, lesser(q.padded, k0 + k - q.first)) : 0;  // queries [from, to) see it
    const std::int64_t to = early ? greater(from, lesser(q.padded, k0 + k + v.t.window - q.first)) : q.padded;
    for (std::int64_t j = 0; j < v.group; ++j) {
      float* const line = scores + k * q.rows + j * q.padded;
      for (std::int64_t i = 0; i < from; ++i) line[i] = kMasked;
      for (std::int64_t i = to; i < q.padded; ++i) line[i] = kMasked;
    }
  }
}

// One step of the running softmax: scores become e^(scale · score − m) with the new maximum m; shrink is what the older
// sums are to be multiplied by.
void softmax_step(float* scores, float* m, float* l, float* shrink, std::int64_t rows, std::int64_t keys,
                  float scale) {
  for (std::int64_t r = 0; r < rows; r += kLanes) {
    Lanes top = load(m + r);
    for (std::int64_t k = 0; k < keys; ++k) top = larger(load(scores + k * rows + r) * same(scale), top);
    const Lanes older = exp_of_negative(load(m + r) - top);
    Lanes sum = load(l + r) * older;
    for (std::int64_t k = 0; k < keys; ++k) {
      float* const score = scores + k * rows + r;
      const Lanes p = exp_of_negative(load(score) * same(scale) - top);
      store(score, p);
      sum = sum + p;
    }
    store(m + r, top);
    store(l + r, sum);
    store(shrink + r, older);
  }
}

template <class A>
void attention_forward(const AttentionTile& tile) {
  View<A> v(tile);
  const std::int64_t E = v.E;
  const Queries q = queries_at(v, tile.first);
  float *const qt = v.take(E * q.rows), *const o = v.take(q.rows * E), *const keys = v.take(kKeyTile * E),
               *const values = v.take(kKeyTile * E), *const scores = v.take(kKeyTile * q.rows),
               *const m = v.take(q.rows), *const l = v.take(q.rows), *const shrink = v.take(q.rows);
  load_heads(o, v.queries, v.row, v, q);
  transpose(qt, q.rows, o, E, q.rows, E);
  for (std::int64_t i = 0; i < q.rows * E; i += kLanes) store(o + i, zeros());
  for (std::int64_t r = 0; r < q.rows; r += kLanes) {
    store(m + r, same(kNoScore));
    store(l + r, zeros());
  }
  const std::int64_t end = q.first + q.count;
  for (std::int64_t k0 = v.first_key(q.first); k0 < end; k0 += kKeyTile) {
    const std::int64_t n = lesser(kKeyTile, end - k0);
    load_tokens(keys, v.keys, v.row, k0, n, n, tile.width);
    load_tokens(values, v.values, v.row, k0, n, n, tile.width);
    small_product({scores, q.rows, keys, E, 1, qt, q.rows, n, q.rows, tile.width, false});
    mask_lanes(scores, v, q, k0, n);
    softmax_step(scores, m, l, shrink, q.rows, n, tile.scale);
    for (std::int64_t r = 0; r < q.rows; ++r) {
      if (shrink[r] == 1.0f) continue;
      for (std::int64_t e = 0; e < E; e += kLanes)
        store(o + r * E + e, load(o + r * E + e) * same(shrink[r]));
    }
    small_product({o, E, scores, 1, q.rows, values, E, q.rows, E, n, true});
  }
  for (std::int64_t r = 0; r < q.rows; ++r) {
    for (std::int64_t e = 0; e < E; e += kLanes) store(o + r * E + e, load(o + r * E + e) / same(l[r]));
  }
  store_heads(v.out(), v.out_row, o, v, q);
  for (std::int64_t j = 0; j < v.group; ++j) {
    for (std::int64_t i = 0; i < q.count; ++i) {
      v.lse()[j * tile.rows + q.first + i] = m[j * q.padded + i] + __builtin_logf(l[j * q.padded + i]);
    }
  }
}

// --- backward -----------------------------------------------------------------------------------------------------

// dots[r] = Σ_e d_out · out, and the lse of each row; 0 for rows of padding. d_out is in the tile already.
template <class A>
void load_row_sums(float* dots, float* lse, const float* d_out, const View<A>& v, const Queries& q) {
  for (std::int64_t j = 0; j < v.group; ++j) {
    for (std::int64_t i = 0; i < q.padded; ++i) {
      const std::int64_t r = j * q.padded + i, t = q.first + i;
      dots[r] = lse[r] = 0;
      if (i >= q.count) continue;
      const A* const out = v.out() + t * v.out_row + j * v.t.width;
      Lanes products = zeros();
      for_lanes(v.t.width, [&](std::int64_t e, auto part) {
        products = fma(load(d_out + r * v.E + e), load(out + e, part), products);
      });
      dots[r] = sum(products);
      lse[r] = v.lse()[j * v.t.rows + t];
    }
  }
}

// Gradient of a query tile.
template <class A>
void attention_d_queries(const AttentionTile& tile) {
  View<A> v(tile);
  const std::int64_t E = v.E;
  const Queries q = queries_at(v, tile.first);
  float *const qt = v.take(E * q.rows), *const dot = v.take(E * q.rows), *const dq = v.take(q.rows * E),
               *const keys = v.take(kKeyTile * E), *const values = v.take(kKeyTile * E),
               *const scores = v.take(kKeyTile * q.rows), *const d_scores = v.take(kKeyTile * q.rows),
               *const lse = v.take(q.rows), *const dots = v.take(q.rows);
  load_heads(dq, v.queries, v.row, v, q);
  transpose(qt, q.rows, dq, E, q.rows, E);
  load_heads(dq, v.d_out(), v.out_row, v, q);
  load_row_sums(dots, lse, dq, v, q);
  transpose(dot, q.rows, dq, E, q.rows, E);
  for (std::int64_t i = 0; i < q.rows * E; i += kLanes) store(dq + i, zeros());
  const std::int64_t end = q.first + q.count;
  for (std::int64_t k0 = v.first_key(q.first); k0 < end; k0 += kKeyTile) {
    const std::int64_t n = lesser(kKeyTile, end - k0);
    load_tokens(keys, v.keys, v.row, k0, n, n, tile.width);
    load_tokens(values, v.values, v.row, k0, n, n, tile.width);
    small_product({scores, q.rows, keys, E, 1, qt, q.rows, n, q.rows, tile.width, false});
    mask_lanes(scores, v, q, k0, n);
    small_product({d_scores, q.rows, values, E, 1, dot, q.rows, n, q.rows, tile.width, false});
    for (std::int64_t k = 0; k < n; ++k) {
      for (std::int64_t r = 0; r < q.rows; r += kLanes) {
        const Lanes p = exp_of_negative(load(scores + k * q.rows + r) * same(tile.scale) - load(lse + r));
        float* const d = d_scores + k * q.rows + r;
        store(d, p * (load(d) - load(dots + r)) * same(tile.scale));
      }
    }
    small_product({dq, E, d_scores, 1, q.rows, keys, E, q.rows, E, n, true});
  }
  store_heads(v.d_qkv() + tile.kv_head * v.group * tile.width, v.row, dq, v, q);
}

// Masks a tile of scores as [rows, keys].
template <class A>
void mask_rows(float* scores, const View<A>& v, const Queries& q, std::int64_t k0, std::int64_t padded_keys) {
  for (std::int64_t j = 0; j < v.group; ++j) {
    for (std::int64_t i = 0; i < q.padded; ++i) {
      const std::int64_t t = q.first + i;
      const std::int64_t from = greater(0, lesser(padded_keys, v.first_key(t) - k0));  // sees keys [from, to)
      const std::int64_t to = greater(from, lesser(padded_keys, t + 1 - k0));
      float* const line = scores + (j * q.padded + i) * padded_keys;
      for (std::int64_t k = 0; k < from; ++k) line[k] = kMasked;
      for (std::int64_t k = to; k < padded_keys; ++k) line[k] = kMasked;
    }
  }
}

// Gradients of a key tile and its values.
template <class A>
void attention_d_keys(const AttentionTile& tile) {
  View<A> v(tile);
  const std::int64_t E = v.E, k0 = tile.first, n = lesser(kKeyTile, tile.end - k0), padded = up_to_lanes(n);
  const std::int64_t rows = v.group * query_tile(v.group);
  float *const kt = v.take(E * padded), *const vt = v.take(E * padded), *const dk = v.take(padded * E),
               *const dv = v.take(padded * E), *const queries = v.take(rows * E),
               *const d_out = v.take(rows * E), *const scores = v.take(rows * padded),
               *const d_scores = v.take(rows * padded), *const lse = v.take(rows), *const dots = v.take(rows);
  load_tokens(dk, v.keys, v.row, k0, n, padded, tile.width);
  transpose(kt, padded, dk, E, padded, E);
  load_tokens(dk, v.values, v.row, k0, n, padded, tile.width);
  transpose(vt, padded, dk, E, padded, E);
  for (std::int64_t i = 0; i < padded * E; i += kLanes) {
    store(dk + i, zeros());
    store(dv + i, zeros());
  }
  const std::int64_t step = query_tile(v.group), end = v.end_query(k0 + n - 1);
  for (std::int64_t first = tile.begin + (k0 - tile.begin) / step * step; first < end; first += step) {
    const Queries q = queries_at(v, first);
    load_heads(queries, v.queries, v.row, v, q);
    load_heads(d_out, v.d_out(), v.out_row, v, q);
    load_row_sums(dots, lse, d_out, v, q);
    small_product({scores, padded, queries, E, 1, kt, padded, q.rows, padded, tile.width, false});
    mask_rows(scores, v, q, k0, padded);
    small_product({d_scores, padded, d_out, E, 1, vt, padded, q.rows, padded, tile.width, false});
    for (std::int64_t r = 0; r < q.rows; ++r) {
      for (std::int64_t k = 0; k < padded; k += kLanes) {
        float *const score = scores + r * padded + k, *const d = d_scores + r * padded + k;
        const Lanes p = exp_of_negative(load(score) * same(tile.scale) - same(lse[r]));
        store(score, p);
        store(d, p * (load(d) - same(dots[r])) * same(tile.scale));
      }
    }
    small_product({dv, E, scores, 1, padded, d_out, E, n, E, q.rows, true});
    small_product({dk, E, d_scores, 1, padded, queries, E, n, E, q.rows, true});
  }
  A* const d_keys = v.d_qkv() + (tile.heads + tile.kv_head) * tile.width;
  store_tokens(d_keys, v.row, dk, v, k0, n);
  store_tokens(d_keys + tile.kv_heads * tile.width, v.row, dv, v, k0, n);
}

// One tile, of the type that its tensors have.
#define BY_TYPE(function)                                                            \
  [](const AttentionTile& tile) {                                                    \
    tile.type == DType::f32 ? function<float>(tile) : function<std::uint16_t>(tile); \
  }

}  // namespace
}  // namespace slideway
