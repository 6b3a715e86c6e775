// Attention in f32, whatever the type and width: where tensor cores do not take it (attention_mma.cu).
//
// A block of 128 threads, 8 × 16, works on a tile of queries (or, for d_k and d_v, of keys) of one head, against tiles of
// the other side in ascending order; scores never leave the chip. Softmax is the running one: m' = max(m, scores),
// l ← l · e^(m−m') + Σ e^(score−m'), o ← o · e^(m−m') + Σ e^(score−m') v. Backward computes scores again, from lse; each
// gradient is summed by one block, so that no order is left to chance.
#include "ops/cuda/attention_tile.h"
#include "ops/cuda/numbers.cuh"

namespace slideway {
namespace {

constexpr int kThreads = 128, kAcross = 16, kDown = kThreads / kAcross;

// Sizes for heads padded to kE.
template <int kE>
struct Cut {
  static constexpr int kTile = attention_tile_rows(kE);
  static constexpr int kRows = kTile / kDown;       // rows of a tile that a thread holds: y · kRows …
  static constexpr int kColumns = kTile / kAcross;  // columns of scores: x, x + 16, …
  static constexpr int kWidths = kE / kAcross;      // numbers of a head: x, x + 16, …
  static constexpr int kStride = kE + 4;
  static constexpr int kScoreStride = kTile + 1;
  static constexpr std::size_t bytes(int heads, int scores) {
    return sizeof(float) * std::size_t(heads * kTile * kStride + scores * kTile * kScoreStride);
  }
};

// Rows [first, first + kTile) of a head to shared memory, 0 beyond last and beyond the head's width.
template <int kE, class A>
__device__ void fetch(float* to, const A* from, std::int64_t stride, int first, int last, int width) {
  using C = Cut<kE>;
  for (int i = int(threadIdx.x); i < C::kTile * kE; i += kThreads) {
    const int row = i / kE, e = i % kE;
    to[row * C::kStride + e] =
        first + row < last && e < width ? load(from + (first + row) * stride + e) : 0.0f;
  }
}

// scores[r][c] = Σ_e a[y kRows + r][e] · b[x + 16 c][e]
template <int kE>
__device__ void products(float (&scores)[Cut<kE>::kRows][Cut<kE>::kColumns], const float* a, const float* b) {
  using C = Cut<kE>;
  const int y = int(threadIdx.x) / kAcross, x = int(threadIdx.x) % kAcross;
#pragma unroll
  for (int r = 0; r < C::kRows; ++r) {
#pragma unroll
    for (int c = 0; c < C::kColumns; ++c) scores[r][c] = 0;
  }
#pragma unroll 4
  for (int e = 0; e < kE; e += 4) {
    float4 u[C::kRows], v[C::kColumns];
#pragma unroll
    for (int r = 0; r < C::kRows; ++r)
      u[r] = *reinterpret_cast<const float4*>(a + (y * C::kRows + r) * C::kStride + e);
#pragma unroll
    for (int c = 0; c < C::kColumns; ++c)
      v[c] = *reinterpret_cast<const float4*>(b + (x + kAcross * c) * C::kStride + e);
#pragma unroll
    for (int r = 0; r < C::kRows; ++r) {
#pragma unroll
      for (int c = 0; c < C::kColumns; ++c) {
        float& s = scores[r][c];
        s = fmaf(u[r].x, v[c].x, s);
        s = fmaf(u[r].y, v[c].y, s);
        s = fmaf(u[r].z, v[c].z, s);
        s = fmaf(u[r].w, v[c].w, s);
      }
    }
  }
}

// sums[r][j] += Σ_s weights(y kRows + r, s) · b[s][x + 16 j]; weights lie in shared memory, turned or not.
template <int kE, bool kTurned>
__device__ void add_products(float (&sums)[Cut<kE>::kRows][Cut<kE>::kWidths], const float* weights,
                             const float* b) {
  using C = Cut<kE>;
  const int y = int(threadIdx.x) / kAcross, x = int(threadIdx.x) % kAcross;
#pragma unroll 4
  for (int s = 0; s < C::kTile; ++s) {
    float u[C::kRows];
#pragma unroll
    for (int r = 0; r < C::kRows; ++r) {
      const int row = y * C::kRows + r;
      u[r] = kTurned ? weights[s * C::kScoreStride + row] : weights[row * C::kScoreStride + s];
    }
#pragma unroll
    for (int j = 0; j < C::kWidths; ++j) {
      const float v = b[s * C::kStride + x + kAcross * j];
#pragma unroll
      for (int r = 0; r < C::kRows; ++r) sums[r][j] = fmaf(u[r], v, sums[r][j]);
    }
  }
}

template <int kE>
__device__ void put_scores(float* to, const float (&scores)[Cut<kE>::kRows][Cut<kE>::kColumns]) {
  using C = Cut<kE>;
  const int y = int(threadIdx.x) / kAcross, x = int(threadIdx.x) % kAcross;
#pragma unroll
  for (int r = 0; r < C::kRows; ++r) {
#pragma unroll
    for (int c = 0; c < C::kColumns; ++c)
      to[(y * C::kRows + r) * C::kScoreStride + x + kAcross * c] = scores[r][c];
  }
}

template <int kE, class A>
__device__ void put_rows(A* to, std::int64_t stride, const float (&sums)[Cut<kE>::kRows][Cut<kE>::kWidths],
                         const float (&factors)[Cut<kE>::kRows], int first, int last, int width) {
  using C = Cut<kE>;
  const int y = int(threadIdx.x) / kAcross, x = int(threadIdx.x) % kAcross;
#pragma unroll
  for (int r = 0; r < C::kRows; ++r) {
    const int row = first + y * C::kRows + r;
    if (row >= last) continue;
#pragma unroll
    for (int j = 0; j < C::kWidths; ++j) {
      const int e = x + kAcross * j;
      if (e < width) store(to + row * stride + e, sums[r][j] * factors[r]);
    }
  }
}

// Over the 16 threads that share rows.
__device__ float across_max(float v) {
#pragma unroll
  for (int d = kAcross / 2; d > 0; d /= 2) v = fmaxf(v, __shfl_xor_sync(kAllLanes, v, d));
  return v;
}
__device__ float across_sum(float v) {
#pragma unroll
  for (int d = kAcross / 2; d > 0; d /= 2) v += __shfl_xor_sync(kAllLanes, v, d);
  return v;
}

__device__ bool sees(int query, int key, int end, int window) {
  return key <= query && query < end && (window == 0 || key > query - window);
}
// The first tile border at or before the first key that the query sees.
__device__ int first_key(int query, const AttentionTile& tile, int window, int tile_rows) {
  const int first = window == 0 ? tile.begin : max(tile.begin, query - window + 1);
  return tile.begin + (first - tile.begin) / tile_rows * tile_rows;
}

template <class A>
struct Places {
  const A *q, *k, *v;
  std::int64_t row;
};
template <class A>
__device__ Places<A> places(const AttentionCall& c, int head, int kv_head) {
  const auto* const qkv = static_cast<const A*>(c.qkv);
  return {qkv + std::int64_t(head) * c.width, qkv + std::int64_t(c.heads + kv_head) * c.width,
          qkv + std::int64_t(c.heads + c.kv_heads + kv_head) * c.width,
          std::int64_t(c.heads + 2 * c.kv_heads) * c.width};
}

template <class A, int kE>
__global__ void __launch_bounds__(kThreads) forward_kernel(const AttentionCall c) {
  using C = Cut<kE>;
  extern __shared__ float memory[];
  float *const q = memory, *const kv = q + C::kTile * C::kStride, *const p = kv + C::kTile * C::kStride;
  const AttentionTile tile = c.tiles[c.tile_count - 1 - blockIdx.x];  // late queries see most keys
  const int head = int(blockIdx.y), y = int(threadIdx.x) / kAcross, x = int(threadIdx.x) % kAcross;
  const Places<A> at = places<A>(c, head, head / (c.heads / c.kv_heads));
  const int last = min(tile.end, tile.first + C::kTile);
  fetch<kE>(q, at.q, at.row, tile.first, last, c.width);
  float sums[C::kRows][C::kWidths] = {}, most[C::kRows], total[C::kRows] = {};
#pragma unroll
  for (int r = 0; r < C::kRows; ++r) most[r] = -INFINITY;
  for (int k0 = first_key(tile.first, tile, c.window, C::kTile); k0 < last; k0 += C::kTile) {
    __syncthreads();
    fetch<kE>(kv, at.k, at.row, k0, last, c.width);
    __syncthreads();
    float scores[C::kRows][C::kColumns];
    products<kE>(scores, q, kv);
    __syncthreads();
    fetch<kE>(kv, at.v, at.row, k0, last, c.width);
#pragma unroll
    for (int r = 0; r < C::kRows; ++r) {
      const int query = tile.first + y * C::kRows + r;
      float top = most[r];
#pragma unroll
      for (int k = 0; k < C::kColumns; ++k) {
        float& s = scores[r][k];
        s = sees(query, k0 + x + kAcross * k, tile.end, c.window) ? s * c.scale : -INFINITY;
        top = fmaxf(top, s);
      }
      top = across_max(top);
      const float base = top == -INFINITY ? 0.0f : top, fade = expf(most[r] - base);
      float sum = 0;
#pragma unroll
      for (int k = 0; k < C::kColumns; ++k) sum += scores[r][k] = expf(scores[r][k] - base);
      total[r] = total[r] * fade + across_sum(sum);
      most[r] = top;
#pragma unroll
      for (int j = 0; j < C::kWidths; ++j) sums[r][j] *= fade;
    }
    put_scores<kE>(p, scores);
    __syncthreads();
    add_products<kE, false>(sums, p, kv);
  }
  float factors[C::kRows];
#pragma unroll
  for (int r = 0; r < C::kRows; ++r) {
    factors[r] = 1.0f / total[r];
    const int query = tile.first + y * C::kRows + r;
    if (x == 0 && query < last) c.lse[head * c.rows + query] = most[r] + logf(total[r]);
  }
  const std::int64_t out_row = std::int64_t(c.heads) * c.width;
  put_rows<kE>(static_cast<A*>(c.out) + std::int64_t(head) * c.width, out_row, sums, factors, tile.first,
               last, c.width);
}

// Of one tile of scores: weights p = e^(scale · score − lse), and d_score = p · (d_p − delta) · scale in place of d_p.
template <int kE>
__device__ void score_gradient(float (&scores)[Cut<kE>::kRows][Cut<kE>::kColumns],
                               float (&d_scores)[Cut<kE>::kRows][Cut<kE>::kColumns], const AttentionCall& c,
                               const AttentionTile& tile, int head, int q0, int k0) {
  using C = Cut<kE>;
  const int y = int(threadIdx.x) / kAcross, x = int(threadIdx.x) % kAcross;
#pragma unroll
  for (int r = 0; r < C::kRows; ++r) {
    const int query = q0 + y * C::kRows + r;
    const bool there = query < tile.end;
    const float lse = there ? c.lse[head * c.rows + query] : 0.0f;
    const float delta = there ? c.deltas[head * c.rows + query] : 0.0f;
#pragma unroll
    for (int k = 0; k < C::kColumns; ++k) {
      const bool seen = sees(query, k0 + x + kAcross * k, tile.end, c.window);
      const float p = seen ? expf(fmaf(scores[r][k], c.scale, -lse)) : 0.0f;
      scores[r][k] = p;
      d_scores[r][k] = p * (d_scores[r][k] - delta) * c.scale;
    }
  }
}

template <class A, int kE>
__global__ void __launch_bounds__(kThreads) d_queries_kernel(const AttentionCall c) {
  using C = Cut<kE>;
  extern __shared__ float memory[];
  constexpr int kHead = C::kTile * C::kStride;
  float *const q = memory, *const d = q + kHead, *const k = d + kHead, *const v = k + kHead,
               *const p = v + kHead;
  const AttentionTile tile = c.tiles[c.tile_count - 1 - blockIdx.x];
  const int head = int(blockIdx.y);
  const Places<A> at = places<A>(c, head, head / (c.heads / c.kv_heads));
  const std::int64_t out_row = std::int64_t(c.heads) * c.width;
  const int last = min(tile.end, tile.first + C::kTile);
  fetch<kE>(q, at.q, at.row, tile.first, last, c.width);
  fetch<kE>(d, static_cast<const A*>(c.d_out) + std::int64_t(head) * c.width, out_row, tile.first, last,
            c.width);
  float sums[C::kRows][C::kWidths] = {}, ones[C::kRows];
#pragma unroll
  for (int r = 0; r < C::kRows; ++r) ones[r] = 1;
  for (int k0 = first_key(tile.first, tile, c.window, C::kTile); k0 < last; k0 += C::kTile) {
    __syncthreads();
    fetch<kE>(k, at.k, at.row, k0, last, c.width);
    fetch<kE>(v, at.v, at.row, k0, last, c.width);
    __syncthreads();
    float scores[C::kRows][C::kColumns], d_scores[C::kRows][C::kColumns];
    products<kE>(scores, q, k);
    products<kE>(d_scores, d, v);
    score_gradient<kE>(scores, d_scores, c, tile, head, tile.first, k0);
    put_scores<kE>(p, d_scores);
    __syncthreads();
    add_products<kE, false>(sums, p, k);
  }
  put_rows<kE>(static_cast<A*>(c.d_qkv) + std::int64_t(head) * c.width, at.row, sums, ones, tile.first, last,
               c.width);
}

// Heads of the group in ascending order, for each all queries that see these keys.
template <class A, int kE>
__global__ void __launch_bounds__(kThreads) d_keys_kernel(const AttentionCall c) {
  using C = Cut<kE>;
  extern __shared__ float memory[];
  constexpr int kHead = C::kTile * C::kStride;
  float *const k = memory, *const v = k + kHead, *const q = v + kHead, *const d = q + kHead,
               *const p = d + kHead, *const d_p = p + C::kTile * C::kScoreStride;
  const AttentionTile tile = c.tiles[blockIdx.x];  // early keys are seen by most queries
  const int kv_head = int(blockIdx.y), group = c.heads / c.kv_heads;
  const Places<A> at = places<A>(c, kv_head * group, kv_head);
  const std::int64_t out_row = std::int64_t(c.heads) * c.width;
  const int last = min(tile.end, tile.first + C::kTile);
  const int end = c.window == 0 ? tile.end : min(tile.end, last - 1 + c.window);
  fetch<kE>(k, at.k, at.row, tile.first, last, c.width);
  fetch<kE>(v, at.v, at.row, tile.first, last, c.width);
  float d_k[C::kRows][C::kWidths] = {}, d_v[C::kRows][C::kWidths] = {}, ones[C::kRows];
#pragma unroll
  for (int r = 0; r < C::kRows; ++r) ones[r] = 1;
  for (int g = 0; g < group; ++g) {
    const int head = kv_head * group + g;
    const A* const d_out = static_cast<const A*>(c.d_out) + std::int64_t(head) * c.width;
    for (int q0 = tile.first; q0 < end; q0 += C::kTile) {
      __syncthreads();
      fetch<kE>(q, at.q + std::int64_t(g) * c.width, at.row, q0, tile.end, c.width);
      fetch<kE>(d, d_out, out_row, q0, tile.end, c.width);
      __syncthreads();
      float scores[C::kRows][C::kColumns], d_scores[C::kRows][C::kColumns];
      products<kE>(scores, q, k);
      products<kE>(d_scores, d, v);
      score_gradient<kE>(scores, d_scores, c, tile, head, q0, tile.first);
      put_scores<kE>(p, scores);
      put_scores<kE>(d_p, d_scores);
      __syncthreads();
      add_products<kE, true>(d_v, p, d);
      add_products<kE, true>(d_k, d_p, q);
    }
  }
  A* const d_qkv = static_cast<A*>(c.d_qkv);
  put_rows<kE>(d_qkv + std::int64_t(c.heads + kv_head) * c.width, at.row, d_k, ones, tile.first, last,
               c.width);
  put_rows<kE>(d_qkv + std::int64_t(c.heads + c.kv_heads + kv_head) * c.width, at.row, d_v, ones, tile.first,
               last, c.width);
}

template <class Kernel>
void launch(Kernel kernel, std::size_t bytes, int heads, const AttentionCall& call, cudaStream_t stream) {
  CUDA_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)));
  kernel<<<dim3(unsigned(call.tile_count), unsigned(heads)), kThreads, bytes, stream>>>(call);
  check_launch();
}

template <class Body>
void with_width(int width, const Body& body) {
  switch (padded_width(width)) {
    case 64:
      return body(std::integral_constant<int, 64>());
    case 128:
      return body(std::integral_constant<int, 128>());
    default:
      return body(std::integral_constant<int, 256>());
  }
}

}  // namespace

void f32_attention(const AttentionCall& call, DType type, cudaStream_t stream) {
  with_type(type, [&](auto zero) {
    with_width(call.width, [&](auto e) {
      launch(forward_kernel<decltype(zero), e()>, Cut<e()>::bytes(2, 1), call.heads, call, stream);
    });
  });
}

void f32_attention_backward(const AttentionCall& call, DType type, cudaStream_t stream) {
  with_type(type, [&](auto zero) {
    using A = decltype(zero);
    with_width(call.width, [&](auto e) {
      launch(d_queries_kernel<A, e()>, Cut<e()>::bytes(4, 1), call.heads, call, stream);
      launch(d_keys_kernel<A, e()>, Cut<e()>::bytes(4, 2), call.kv_heads, call, stream);
    });
  });
}

}  // namespace slideway
