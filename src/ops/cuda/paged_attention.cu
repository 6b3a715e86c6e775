// Keys and values in pages. A row's bits depend on its own sequence alone: one block works on one query of one head, over
// positions in blocks of kSpan at absolute borders, each joined to the running softmax in ascending order.
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/numbers.cuh"
#include "ops/shapes.h"

namespace slideway {
namespace {

constexpr int kSpan = 128;  // positions at a time, one a thread

// On the device.
struct Pages {
  std::byte* pool;
  std::size_t page_bytes;
  int page_tokens, max_pages, window, sequences;
  const std::int32_t *pages, *starts, *lengths;
};

// Which sequence row t is of.
__device__ int sequence_of(const Pages& p, std::int64_t t) {
  int low = 0, high = p.sequences - 1;  // the last n with starts[n] <= t and rows of its own
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (p.starts[middle] <= t) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}
__device__ std::int64_t position_of(const Pages& p, int n, std::int64_t t) {
  return p.lengths[n] - (p.starts[n + 1] - p.starts[n]) + (t - p.starts[n]);
}
// Where the keys (values: + 1) of a position lie.
template <class A>
__device__ A* slot(const Pages& p, int n, std::int64_t position, std::int64_t token_width, int values) {
  const std::int64_t page = p.pages[std::int64_t(n) * p.max_pages + position / p.page_tokens];
  return reinterpret_cast<A*>(p.pool + page * p.page_bytes) +
         (values * p.page_tokens + position % p.page_tokens) * token_width;
}

template <class A>
__global__ void write_kv_kernel(const Pages p, const A* qkv, Heads heads) {
  const std::int64_t t = blockIdx.x, width = std::int64_t(heads.key_value) * heads.width;
  const int n = sequence_of(p, t);
  const std::int64_t position = position_of(p, n, t);
  const A* const from = qkv + t * heads.row() + std::int64_t(heads.query) * heads.width;
  A *const keys = slot<A>(p, n, position, width, 0), *const values = slot<A>(p, n, position, width, 1);
  for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    keys[i] = from[i];
    values[i] = from[width + i];
  }
}

template <class A>
__global__ void __launch_bounds__(kSpan)
    paged_attention_kernel(A* out, const Pages p, const A* qkv, Heads heads, float scale) {
  __shared__ float query[kWidestHead], weights[kSpan], room[2][kWarp];
  __shared__ const A* places[kSpan];  // values of the span's positions
  const std::int64_t t = blockIdx.x;
  const int head = int(blockIdx.y), kv_head = head / (heads.query / heads.key_value), E = heads.width;
  const int thread = int(threadIdx.x), n = sequence_of(p, t);
  const std::int64_t position = position_of(p, n, t), width = std::int64_t(heads.key_value) * E;
  const std::int64_t begin = p.window > 0 ? max(std::int64_t(0), position - p.window + 1) : 0;
  for (int e = thread; e < E; e += kSpan) query[e] = load(qkv + t * heads.row() + std::int64_t(head) * E + e);
  float sums[kWidestHead / kSpan] = {}, most = -INFINITY, total = 0;
  for (std::int64_t s0 = begin / kSpan * kSpan; s0 <= position; s0 += kSpan) {
    const std::int64_t s = s0 + thread;
    const bool seen = begin <= s && s <= position;
    __syncthreads();
    float score = -INFINITY;
    if (seen) {
      const A* const key = slot<A>(p, n, s, width, 0) + std::int64_t(kv_head) * E;
      places[thread] = slot<A>(p, n, s, width, 1) + std::int64_t(kv_head) * E;
      score = 0;
      for (int e = 0; e < E; ++e) score = fmaf(query[e], load(key + e), score);
      score *= scale;
    }
    const float top = fmaxf(most, block_max(score, room[0])), fade = expf(most - top);
    const float weight = expf(score - top);
    weights[thread] = weight;
    total = total * fade + block_sum(weight, room[1]);
    most = top;
    const int first = int(max(begin, s0) - s0), last = int(min(position + 1, s0 + kSpan) - s0);
#pragma unroll
    for (int j = 0; j < kWidestHead / kSpan; ++j) {
      const int e = thread + j * kSpan;
      if (e >= E) continue;
      float sum = sums[j] * fade;
      for (int i = first; i < last; ++i) sum = fmaf(weights[i], load(places[i] + e), sum);
      sums[j] = sum;
    }
  }
#pragma unroll
  for (int j = 0; j < kWidestHead / kSpan; ++j) {
    const int e = thread + j * kSpan;
    if (e < E) store(out + (t * heads.query + head) * E + e, sums[j] / total);
  }
}

Pages on_device(const PagedKv& kv, HostData& host_data) {
  return {kv.pool,
          kv.page_bytes,
          kv.page_tokens,
          kv.max_pages,
          kv.window,
          int(kv.lengths.size()),
          host_data.put(kv.pages),
          host_data.put(kv.starts),
          host_data.put(kv.lengths)};
}

}  // namespace

void CudaOps::write_kv(const PagedKv& kv, Tensor qkv, Heads heads) {
  shapes::write_kv(kv, qkv, heads);
  use();
  if (qkv.size(0) == 0) return;
  with_type(qkv.dtype(), [&](auto zero) {
    using A = decltype(zero);
    write_kv_kernel<<<unsigned(qkv.size(0)), 128, 0, handle()>>>(on_device(kv, host_data_), numbers<A>(qkv),
                                                                 heads);
    check_launch();
  });
}

void CudaOps::paged_attention(Tensor out, Tensor qkv, Heads heads, const PagedKv& kv, float scale) {
  shapes::paged_attention(out, qkv, heads, kv);
  if (heads.width > kWidestHead)
    fail(ErrorKind::unsupported, "attention on CUDA takes heads of at most ", kWidestHead,
         " numbers, and these have ", heads.width);
  use();
  if (qkv.size(0) == 0) return;
  with_type(qkv.dtype(), [&](auto zero) {
    using A = decltype(zero);
    paged_attention_kernel<<<dim3(unsigned(qkv.size(0)), unsigned(heads.query)), kSpan, 0, handle()>>>(
        numbers<A>(out), on_device(kv, host_data_), numbers<A>(qkv), heads, scale);
    check_launch();
  });
}

}  // namespace slideway
