// AttentionTile: attention of one key-value head within one sequence, cut into tiles of queries or of keys.
//
// The query heads that share the key-value head form one tile: row j · Q + i is token i of head j of the group, Q being
// the tile's tokens rounded up to 16. In a tile everything is f32 and padded with zeros; no score outlives it.
//
// Forward, and backward for queries, keep a query tile and walk over keys; scores lie as [keys, rows], so that a query
// is a lane and its maximum and sum need no step across lanes. Backward for keys and values keeps a key tile and walks
// over queries; scores lie as [rows, keys]. So backward computes scores and their gradients twice, seven products for
// five, but no two tiles add to the same numbers, however many sequences and heads there are.
//
// Threads  pure functions of their arguments; tiles may run side by side, each with its own scratch
// Source   Dao 2023, FlashAttention-2, for the running softmax and the gradient through lse
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace slideway {

struct AttentionTile {
  DType type;                           // act: of qkv, out and their gradients
  const void* qkv;                      // [T, (H+2K)E]
  void* out;                            // [T, H E]; backward: read
  float* lse;                           // [H, T]; backward: read
  const void* d_out;                    // [T, H E], backward
  void* d_qkv;                          // [T, (H+2K)E], backward
  std::int64_t rows;                    // T
  std::int64_t heads, kv_heads, width;  // H, K, E
  std::int64_t kv_head;                 // this one
  std::int64_t begin, end;              // rows of the sequence
  std::int64_t window;                  // 0: all
  float scale;
  std::int64_t first;  // row of the tile's first query, or first key
  float* scratch;      // attention_scratch floats, aligned to 64
};

constexpr std::int64_t kQueryRows = 192;  // rows of a query tile at most, all heads of the group together
constexpr std::int64_t kKeyTile = 128;    // keys of a key tile

// Tokens of a query tile where group query heads share a key-value head.
static constexpr std::int64_t query_tile(std::int64_t group) {
  const std::int64_t tokens = kQueryRows / group / 16 * 16;
  return tokens < 16 ? 16 : tokens;
}

static constexpr std::int64_t attention_scratch(std::int64_t group, std::int64_t width) {
  const std::int64_t M = group * query_tile(group), E = (width + 15) / 16 * 16;
  return 3 * M * E + 4 * kKeyTile * E + 2 * M * kKeyTile + 4 * M;
}

}  // namespace slideway
