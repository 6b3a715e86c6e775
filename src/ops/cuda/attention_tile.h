// AttentionTile: what our own attention kernels are told, and how they cut rows into tiles.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "ops/ops.h"

namespace slideway {

// Rows [first, first + tile rows) of the sequence [begin, end): queries in forward and d_q, keys in d_k and d_v.
struct AttentionTile {
  std::int32_t begin, end, first;
};

struct AttentionCall {
  const void* qkv;
  void* out;          // [T, H E]
  float* lse;         // [H, T]
  const void* d_out;  // [T, H E]
  void* d_qkv;
  float* deltas;  // [H, T]: Σ_e d_out · out
  std::int64_t rows;
  int heads, kv_heads, width, window;
  float scale;
  const AttentionTile* tiles;  // on the device
  std::int64_t tile_count;
};

// Heads are padded to 64, 128 or 256 numbers; a tile has as many rows as its memory on the chip allows.
constexpr int padded_width(int width) {
  return width <= 64 ? 64 : width <= 128 ? 128 : 256;
}
constexpr int attention_tile_rows(int padded) {
  return padded <= 128 ? 32 : 16;
}

// to [columns, rows] = from [rows, columns], turned.
void turn_numbers(float* to, const float* from, std::int64_t rows, std::int64_t columns, cudaStream_t stream);

// In f32, whatever the type (attention_f32.cu): tiles of attention_tile_rows(padded_width(width)) rows. Backward with deltas.
void f32_attention(const AttentionCall& call, DType type, cudaStream_t stream);
void f32_attention_backward(const AttentionCall& call, DType type, cudaStream_t stream);

// On tensor cores (attention_mma.cu).
constexpr int kForwardQueries = 128, kBackwardRows = 64;
bool mma_attention_takes(const AttentionCall& call, DType type);
void mma_attention(const AttentionCall& call, cudaStream_t stream);  // tiles of kForwardQueries rows
void mma_attention_backward(const AttentionCall& call,
                            cudaStream_t stream);  // tiles of kBackwardRows; with deltas

}  // namespace slideway
