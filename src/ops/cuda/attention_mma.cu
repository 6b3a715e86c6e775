// Attention on tensor cores: bf16, heads of up to 128 numbers, multiples of 8.
//
// Scores and sums are f32; weights e^(score − m), and in backward d_score too, are rounded to bf16 before they meet values,
// keys or queries. Forward: four warps of 32 queries each against 64 keys at a time. Backward makes scores again from lse,
// twice: a block of 64 queries sums its d_q over the keys, a block of 64 keys its d_k and d_v over the heads and queries. So
// every gradient is summed by one block, in one order, and no memory is needed that grows with the square of a sequence.
#include "ops/cuda/attention_tile.h"
#include "ops/cuda/launch.h"
#include "ops/cuda/mma.cuh"

namespace slideway {
namespace {

constexpr int kThreads = 128;
constexpr int kQueries = kForwardQueries, kKeys = 64;  // of a forward block, and of one turn
constexpr int kSide = kBackwardRows;                   // queries and keys of a backward block's turn
constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

struct Lane {
  int warp = int(threadIdx.x) / kWarp, row = int(threadIdx.x) % kWarp / 4, column = int(threadIdx.x) % 4 * 2;
};

__device__ bool sees(int query, int key, int window) {
  return key <= query && (window == 0 || key > query - window);
}
// Whether all of these queries see all of these keys.
__device__ bool all_see(int first_query, int last_query, int first_key, int last_key, int window) {
  return last_key <= first_query && (window == 0 || first_key > last_query - window);
}
// The first border, of tiles of `rows` keys, at or before the first key that a query sees.
__device__ int first_key(int query, const AttentionTile& tile, int window, int rows) {
  const int first = window == 0 ? tile.begin : max(tile.begin, query - window + 1);
  return tile.begin + (first - tile.begin) / rows * rows;
}

// Over the four lanes that share rows.
__device__ float across_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(kAllLanes, v, 1));
  return fmaxf(v, __shfl_xor_sync(kAllLanes, v, 2));
}
__device__ float across_sum(float v) {
  v += __shfl_xor_sync(kAllLanes, v, 1);
  return v + __shfl_xor_sync(kAllLanes, v, 2);
}

struct Places {
  const bf16_t *q, *k, *v;
  std::int64_t row;
};
__device__ Places places(const AttentionCall& c, int head, int kv_head) {
  const auto* const qkv = static_cast<const bf16_t*>(c.qkv);
  return {qkv + std::int64_t(head) * c.width, qkv + std::int64_t(c.heads + kv_head) * c.width,
          qkv + std::int64_t(c.heads + c.kv_heads + kv_head) * c.width,
          std::int64_t(c.heads + 2 * c.kv_heads) * c.width};
}

// Sixteen rows of sums, times low (rows l/4) and high (rows l/4 + 8), as bf16 from row `row` on.
template <int kE>
__device__ void put_rows(bf16_t* to, std::int64_t stride, const float (&sums)[kE / 8][4], float low,
                         float high, int row, int last, int width) {
  const Lane lane;
#pragma unroll
  for (int j = 0; j < kE / 8; ++j) {
    if (j * 8 >= width) continue;
    bf16_t* const at = to + (row + lane.row) * stride + j * 8 + lane.column;
    if (row + lane.row < last)
      *reinterpret_cast<std::uint32_t*>(at) = bf16_pair(sums[j][0] * low, sums[j][1] * low);
    if (row + lane.row + 8 < last)
      *reinterpret_cast<std::uint32_t*>(at + 8 * stride) = bf16_pair(sums[j][2] * high, sums[j][3] * high);
  }
}

template <int kE>
__global__ void __launch_bounds__(kThreads) forward_kernel(const AttentionCall c) {
  extern __shared__ __align__(16) bf16_t tiles[];
  bf16_t *const q = tiles, *const k = q + kQueries * kE, *const v = k + kKeys * kE;
  const AttentionTile tile = c.tiles[c.tile_count - 1 - blockIdx.x];  // late queries see most keys
  const int head = int(blockIdx.y), last = min(tile.end, tile.first + kQueries);
  const Places at = places(c, head, head / (c.heads / c.kv_heads));
  const Lane lane;
  const int row0 = lane.warp * 32, query0 = tile.first + row0;  // of the warp
  float sums[2][kE / 8][4] = {}, most[2][2], total[2][2] = {};  // most: scaled, base 2
#pragma unroll
  for (int i = 0; i < 2; ++i) most[i][0] = most[i][1] = -INFINITY;
  const float factor = c.scale * kLog2E;

  copy_rows<kE, kQueries, kThreads>(q, at.q, at.row, tile.first, last, c.width);
  int k0 = first_key(tile.first, tile, c.window, kKeys);
  copy_rows<kE, kKeys, kThreads>(k, at.k, at.row, k0, last, c.width);
  end_copies();
  for (; k0 < last; k0 += kKeys) {
    await_copies<0>();
    __syncthreads();  // the keys are there, and nobody reads the last values any more
    copy_rows<kE, kKeys, kThreads>(v, at.v, at.row, k0, last, c.width);
    end_copies();
    const bool idle = k0 > query0 + 31;  // the warp's queries are all before these keys
    float scores[2][kKeys / 8][4] = {};
    if (!idle) {
#pragma unroll
      for (int e = 0; e < kE / 16; ++e) {
        const Four a[2] = {load_a<kE>(q, row0, e), load_a<kE>(q, row0 + 16, e)};
#pragma unroll
        for (int n = 0; n < kKeys / 16; ++n) {
          const Four b = load_b<kE>(k, n * 16, e);
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            multiply(scores[i][2 * n], a[i], b.r[0], b.r[1]);
            multiply(scores[i][2 * n + 1], a[i], b.r[2], b.r[3]);
          }
        }
      }
    }
    await_copies<0>();
    __syncthreads();  // the values are there, and nobody reads these keys any more
    if (k0 + kKeys < last) copy_rows<kE, kKeys, kThreads>(k, at.k, at.row, k0 + kKeys, last, c.width);
    end_copies();
    if (idle) continue;

    if (!all_see(query0, query0 + 31, k0, k0 + kKeys - 1, c.window)) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
          for (int n = 0; n < 4; ++n) {
            const int query = query0 + i * 16 + lane.row + n / 2 * 8, key = k0 + j * 8 + lane.column + n % 2;
            if (!sees(query, key, c.window)) scores[i][j][n] = -INFINITY;
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float top = -INFINITY;
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j)
          top = fmaxf(top, fmaxf(scores[i][j][2 * half], scores[i][j][2 * half + 1]));
        top = fmaxf(most[i][half], across_max(top) * factor);
        const float base = top == -INFINITY ? 0.0f : top, fade = exp2_of(most[i][half] - base);
        float sum = 0;
#pragma unroll
        for (int j = 0; j < kKeys / 8; ++j) {
#pragma unroll
          for (int n = 2 * half; n < 2 * half + 2; ++n)
            sum += scores[i][j][n] = exp2_of(fmaf(scores[i][j][n], factor, -base));
        }
        total[i][half] = fmaf(total[i][half], fade, sum);  // of this lane's keys; lanes are added at the end
        most[i][half] = top;
#pragma unroll
        for (int j = 0; j < kE / 8; ++j) {
          sums[i][j][2 * half] *= fade;
          sums[i][j][2 * half + 1] *= fade;
        }
      }
    }
#pragma unroll
    for (int s = 0; s < kKeys / 16; ++s) {
      const Four a[2] = {as_a(scores[0][2 * s], scores[0][2 * s + 1]),
                         as_a(scores[1][2 * s], scores[1][2 * s + 1])};
#pragma unroll
      for (int n = 0; n < kE / 16; ++n) {
        const Four b = load_b_turned<kE>(v, s * 16, n * 16);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          multiply(sums[i][2 * n], a[i], b.r[0], b.r[1]);
          multiply(sums[i][2 * n + 1], a[i], b.r[2], b.r[3]);
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    float inverse[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float sum = across_sum(total[i][half]);
      inverse[half] = 1.0f / sum;
      const int query = query0 + i * 16 + lane.row + half * 8;
      if (lane.column == 0 && query < last)
        c.lse[head * c.rows + query] = fmaf(most[i][half], kLn2, logf(sum));
    }
    put_rows<kE>(static_cast<bf16_t*>(c.out) + std::int64_t(head) * c.width, std::int64_t(c.heads) * c.width,
                 sums[i], inverse[0], inverse[1], query0 + i * 16, last, c.width);
  }
}

// c [16, kSide] = rows row … of a · b's rows, over the width of a head
template <int kE>
__device__ void row_products(float (&to)[kSide / 8][4], const bf16_t* a_tile, int row, const bf16_t* b_tile) {
#pragma unroll
  for (int j = 0; j < kSide / 8; ++j) to[j][0] = to[j][1] = to[j][2] = to[j][3] = 0;
#pragma unroll
  for (int e = 0; e < kE / 16; ++e) {
    const Four a = load_a<kE>(a_tile, row, e);
#pragma unroll
    for (int n = 0; n < kSide / 16; ++n) {
      const Four b = load_b<kE>(b_tile, n * 16, e);
      multiply(to[2 * n], a, b.r[0], b.r[1]);
      multiply(to[2 * n + 1], a, b.r[2], b.r[3]);
    }
  }
}

// sums [16, kE] += weights [16, kSide] · tile [kSide, kE]
template <int kE>
__device__ void add_rows(float (&sums)[kE / 8][4], const float (&weights)[kSide / 8][4], const bf16_t* tile) {
#pragma unroll
  for (int s = 0; s < kSide / 16; ++s) {
    const Four a = as_a(weights[2 * s], weights[2 * s + 1]);
#pragma unroll
    for (int n = 0; n < kE / 16; ++n) {
      const Four b = load_b_turned<kE>(tile, s * 16, n * 16);
      multiply(sums[2 * n], a, b.r[0], b.r[1]);
      multiply(sums[2 * n + 1], a, b.r[2], b.r[3]);
    }
  }
}

template <int kE>
__global__ void __launch_bounds__(kThreads) d_queries_kernel(const AttentionCall c) {
  extern __shared__ __align__(16) bf16_t tiles[];
  constexpr int kTile = kSide * kE;
  bf16_t *const q = tiles, *const d = q + kTile, *const pairs = d + kTile;  // twice keys and values
  const AttentionTile tile = c.tiles[c.tile_count - 1 - blockIdx.x];
  const int head = int(blockIdx.y), last = min(tile.end, tile.first + kSide);
  const Places at = places(c, head, head / (c.heads / c.kv_heads));
  const std::int64_t out_row = std::int64_t(c.heads) * c.width;
  const Lane lane;
  const int row0 = lane.warp * 16, query0 = tile.first + row0;
  const float factor = c.scale * kLog2E;
  const auto copy_pair = [&](int k0, int stage) {
    bf16_t* const to = pairs + stage * 2 * kTile;
    copy_rows<kE, kSide, kThreads>(to, at.k, at.row, k0, last, c.width);
    copy_rows<kE, kSide, kThreads>(to + kTile, at.v, at.row, k0, last, c.width);
    end_copies();
  };
  copy_rows<kE, kSide, kThreads>(q, at.q, at.row, tile.first, last, c.width);
  copy_rows<kE, kSide, kThreads>(d, static_cast<const bf16_t*>(c.d_out) + std::int64_t(head) * c.width,
                                 out_row, tile.first, last, c.width);
  int k0 = first_key(tile.first, tile, c.window, kSide), stage = 0;
  copy_pair(k0, 0);
  float lse[2], delta[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = query0 + lane.row + half * 8;
    lse[half] = query < last ? c.lse[head * c.rows + query] * kLog2E : 0.0f;
    delta[half] = query < last ? c.deltas[head * c.rows + query] : 0.0f;
  }
  float sums[kE / 8][4] = {};
  for (; k0 < last; k0 += kSide, stage ^= 1) {
    if (k0 + kSide < last) {
      copy_pair(k0 + kSide, stage ^ 1);
      await_copies<1>();
    } else {
      await_copies<0>();
    }
    __syncthreads();
    const bf16_t *const k = pairs + stage * 2 * kTile, *const v = k + kTile;
    float scores[kSide / 8][4], d_scores[kSide / 8][4];
    row_products<kE>(scores, q, row0, k);
    row_products<kE>(d_scores, d, row0, v);
    const bool whole = all_see(query0, query0 + 15, k0, k0 + kSide - 1, c.window);
#pragma unroll
    for (int j = 0; j < kSide / 8; ++j) {
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        float p = exp2_of(fmaf(scores[j][n], factor, -lse[n / 2]));
        if (!whole && !sees(query0 + lane.row + n / 2 * 8, k0 + j * 8 + lane.column + n % 2, c.window)) p = 0;
        d_scores[j][n] = p * (d_scores[j][n] - delta[n / 2]);
      }
    }
    add_rows<kE>(sums, d_scores, k);
    __syncthreads();  // nobody reads this pair any more
  }
  put_rows<kE>(static_cast<bf16_t*>(c.d_qkv) + std::int64_t(head) * c.width, at.row, sums, c.scale, c.scale,
               query0, last, c.width);
}

// Scores lie turned, keys down and queries across: what a warp computes it can multiply at once.
template <int kE>
__global__ void __launch_bounds__(kThreads) d_keys_kernel(const AttentionCall c) {
  extern __shared__ __align__(16) bf16_t tiles[];
  constexpr int kTile = kSide * kE;
  bf16_t *const k = tiles, *const v = k + kTile, *const pairs = v + kTile;    // twice queries and d_out
  auto* const numbers_of_rows = reinterpret_cast<float*>(pairs + 4 * kTile);  // twice lse and delta
  const AttentionTile tile = c.tiles[blockIdx.x];  // early keys are seen by most queries
  const int kv_head = int(blockIdx.y), group = c.heads / c.kv_heads, head0 = kv_head * group;
  const int last = min(tile.end, tile.first + kSide);
  const Places at = places(c, head0, kv_head);
  const std::int64_t out_row = std::int64_t(c.heads) * c.width;
  const int end =
      c.window == 0 ? tile.end : min(tile.end, last - 1 + c.window);  // of queries that see these keys
  const int turns = (end - tile.first + kSide - 1) / kSide, all = turns * group;
  const Lane lane;
  const int row0 = lane.warp * 16, key0 = tile.first + row0;
  const float factor = c.scale * kLog2E;
  const auto copy_pair = [&](int turn, int stage) {
    const int g = turn / turns, q0 = tile.first + turn % turns * kSide, head = head0 + g;
    bf16_t* const to = pairs + stage * 2 * kTile;
    copy_rows<kE, kSide, kThreads>(to, at.q + std::int64_t(g) * c.width, at.row, q0, tile.end, c.width);
    copy_rows<kE, kSide, kThreads>(to + kTile,
                                   static_cast<const bf16_t*>(c.d_out) + std::int64_t(head) * c.width,
                                   out_row, q0, tile.end, c.width);
    float* const rows = numbers_of_rows + stage * 2 * kSide;
    for (int i = int(threadIdx.x); i < 2 * kSide; i += kThreads) {
      const int query = q0 + i % kSide;
      const float* const from = (i < kSide ? c.lse : c.deltas) + head * c.rows;
      copy4(rows + i, query < tile.end ? from + query : from, query < tile.end);
    }
    end_copies();
  };
  copy_rows<kE, kSide, kThreads>(k, at.k, at.row, tile.first, last, c.width);
  copy_rows<kE, kSide, kThreads>(v, at.v, at.row, tile.first, last, c.width);
  copy_pair(0, 0);
  float d_k[kE / 8][4] = {}, d_v[kE / 8][4] = {};
  int stage = 0;
  for (int turn = 0; turn < all; ++turn, stage ^= 1) {
    if (turn + 1 < all) {
      copy_pair(turn + 1, stage ^ 1);
      await_copies<1>();
    } else {
      await_copies<0>();
    }
    __syncthreads();
    const int q0 = tile.first + turn % turns * kSide;
    const bf16_t *const q = pairs + stage * 2 * kTile, *const d = q + kTile;
    const float *const lse = numbers_of_rows + stage * 2 * kSide, *const deltas = lse + kSide;
    float scores[kSide / 8][4], d_scores[kSide / 8][4];
    row_products<kE>(scores, k, row0, q);
    const bool whole = all_see(q0, q0 + kSide - 1, key0, key0 + 15, c.window);
#pragma unroll
    for (int j = 0; j < kSide / 8; ++j) {
      const float2 l = *reinterpret_cast<const float2*>(lse + j * 8 + lane.column);
#pragma unroll
      for (int n = 0; n < 4; ++n) {
        float p = exp2_of(fmaf(scores[j][n], factor, -(n % 2 ? l.y : l.x) * kLog2E));
        if (!whole && !sees(q0 + j * 8 + lane.column + n % 2, key0 + lane.row + n / 2 * 8, c.window)) p = 0;
        scores[j][n] = p;
      }
    }
    add_rows<kE>(d_v, scores, d);
    row_products<kE>(d_scores, v, row0, d);
#pragma unroll
    for (int j = 0; j < kSide / 8; ++j) {
      const float2 delta = *reinterpret_cast<const float2*>(deltas + j * 8 + lane.column);
#pragma unroll
      for (int n = 0; n < 4; ++n)
        d_scores[j][n] = scores[j][n] * (d_scores[j][n] - (n % 2 ? delta.y : delta.x));
    }
    add_rows<kE>(d_k, d_scores, q);
    __syncthreads();  // nobody reads this pair any more
  }
  auto* const d_qkv = static_cast<bf16_t*>(c.d_qkv);
  put_rows<kE>(d_qkv + std::int64_t(c.heads + kv_head) * c.width, at.row, d_k, c.scale, c.scale, key0, last,
               c.width);
  put_rows<kE>(d_qkv + std::int64_t(c.heads + c.kv_heads + kv_head) * c.width, at.row, d_v, 1, 1, key0, last,
               c.width);
}

template <class Kernel>
void launch(Kernel kernel, std::size_t bytes, int heads, const AttentionCall& call, cudaStream_t stream) {
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)));
  kernel<<<dim3(unsigned(call.tile_count), unsigned(heads)), kThreads, bytes, stream>>>(call);
  check_launch();
}

template <int kE>
constexpr std::size_t forward_bytes = sizeof(bf16_t) * kE * (kQueries + 2 * kKeys);
template <int kE>
constexpr std::size_t backward_bytes = sizeof(bf16_t) * kE * 6 * kSide;

}  // namespace

bool mma_attention_takes(const AttentionCall& call, DType type) {
  const std::int64_t row = std::int64_t(call.heads + 2 * call.kv_heads) * call.width;
  return type == DType::bf16 && call.width <= 128 && call.width % 8 == 0 &&
         aligned8(row, call.qkv, call.out, call.d_out, call.d_qkv);
}

void mma_attention(const AttentionCall& call, cudaStream_t stream) {
  if (call.width <= 64) {
    launch(forward_kernel<64>, forward_bytes<64>, call.heads, call, stream);
  } else {
    launch(forward_kernel<128>, forward_bytes<128>, call.heads, call, stream);
  }
}

void mma_attention_backward(const AttentionCall& call, cudaStream_t stream) {
  constexpr std::size_t kRows = sizeof(float) * 4 * kSide;
  if (call.width <= 64) {
    launch(d_queries_kernel<64>, backward_bytes<64>, call.heads, call, stream);
    launch(d_keys_kernel<64>, backward_bytes<64> + kRows, call.kv_heads, call, stream);
  } else {
    launch(d_queries_kernel<128>, backward_bytes<128>, call.heads, call, stream);
    launch(d_keys_kernel<128>, backward_bytes<128> + kRows, call.kv_heads, call, stream);
  }
}

}  // namespace slideway
