// Attention: who computes it. cuDNN where it is there and takes the shape (cudnn.h), else tensor cores (attention_mma.cu), else
// f32 (attention_f32.cu); and what they share.
#include "ops/cuda/attention_tile.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/cudnn.h"
#include "ops/cuda/numbers.cuh"
#include "ops/shapes.h"

namespace slideway {
namespace {

// One warp a row and head.
template <class A>
__global__ void deltas_kernel(const AttentionCall c) {
  const std::int64_t index = std::int64_t(blockIdx.x) * (blockDim.x / kWarp) + threadIdx.x / kWarp;
  if (index >= c.rows * c.heads) return;
  const std::int64_t t = index / c.heads, h = index % c.heads, at = index * c.width;
  const int lane = int(threadIdx.x) % kWarp;
  const A *const out = static_cast<const A*>(c.out) + at, *const d_out = static_cast<const A*>(c.d_out) + at;
  float sum = 0;
  for (int e = lane; e < c.width; e += kWarp) sum = fmaf(load(d_out + e), load(out + e), sum);
  sum = warp_sum(sum);
  if (lane == 0) c.deltas[h * c.rows + t] = sum;
}

constexpr int kTurn = 32;

__global__ void turn_kernel(float* to, const float* from, std::int64_t rows, std::int64_t columns) {
  __shared__ float tile[kTurn][kTurn + 1];
  const std::int64_t row0 = std::int64_t(blockIdx.x) * kTurn, column0 = std::int64_t(blockIdx.y) * kTurn;
  const int x = int(threadIdx.x);
  for (int y = int(threadIdx.y); y < kTurn; y += int(blockDim.y))
    if (row0 + y < rows && column0 + x < columns) tile[y][x] = from[(row0 + y) * columns + column0 + x];
  __syncthreads();
  for (int y = int(threadIdx.y); y < kTurn; y += int(blockDim.y))
    if (row0 + x < rows && column0 + y < columns) to[(column0 + y) * rows + row0 + x] = tile[x][y];
}

std::vector<AttentionTile> tiles_of(const Sequences& sequences, int rows) {
  std::vector<AttentionTile> tiles;
  for (std::size_t n = 0; n + 1 < sequences.starts.size(); ++n) {
    for (std::int32_t t = sequences.starts[n]; t < sequences.starts[n + 1]; t += rows)
      tiles.push_back({sequences.starts[n], sequences.starts[n + 1], t});
  }
  return tiles;
}

AttentionCall call_of(Tensor out, Tensor lse, Tensor qkv, Heads heads, const Sequences& sequences,
                      float scale) {
  return {.qkv = qkv.data(),
          .out = out.data(),
          .lse = lse.f32(),
          .rows = qkv.size(0),
          .heads = heads.query,
          .kv_heads = heads.key_value,
          .width = heads.width,
          .window = sequences.window,
          .scale = scale};
}

// Gives the call its tiles, of mma_rows where tensor cores take it: then true.
bool cut(AttentionCall& call, const Sequences& sequences, DType type, int mma_rows, HostData& host_data) {
  const bool mma = mma_attention_takes(call, type);
  const std::vector<AttentionTile> tiles =
      tiles_of(sequences, mma ? mma_rows : attention_tile_rows(padded_width(call.width)));
  call.tiles = host_data.put(std::span<const AttentionTile>(tiles));
  call.tile_count = std::int64_t(tiles.size());
  return mma;
}

void check_width(const Heads& heads) {
  if (heads.width > kWidestHead)
    fail(ErrorKind::unsupported, "attention on CUDA takes heads of at most ", kWidestHead,
         " numbers, and these have ", heads.width);
}

}  // namespace

void turn_numbers(float* to, const float* from, std::int64_t rows, std::int64_t columns,
                  cudaStream_t stream) {
  const dim3 grid(unsigned(pieces_of(rows, kTurn)), unsigned(pieces_of(columns, kTurn)));
  turn_kernel<<<grid, dim3(kTurn, 8), 0, stream>>>(to, from, rows, columns);
  check_launch();
}

void CudaOps::attention(Tensor out, Tensor lse, Tensor qkv, Heads heads, const Sequences& sequences,
                        float scale) {
  shapes::attention(out, lse, qkv, heads, sequences);
  check_width(heads);
  use();
  if (qkv.size(0) == 0) return;
  if (cudnn_ && cudnn_->forward({out, lse, qkv, heads, sequences, scale, {}, {}}, host_data_)) return;
  AttentionCall call = call_of(out, lse, qkv, heads, sequences, scale);
  if (cut(call, sequences, qkv.dtype(), kForwardQueries, host_data_)) return mma_attention(call, handle());
  f32_attention(call, qkv.dtype(), handle());
}

void CudaOps::attention_backward(Tensor d_qkv, Tensor d_out, Tensor out, Tensor lse, Tensor qkv, Heads heads,
                                 const Sequences& sequences, float scale) {
  shapes::attention_backward(d_qkv, d_out, out, lse, qkv, heads, sequences);
  check_width(heads);
  use();
  const std::int64_t T = qkv.size(0);
  if (T == 0) return;
  if (cudnn_ && cudnn_->backward({out, lse, qkv, heads, sequences, scale, d_qkv, d_out}, host_data_)) return;
  CHECK(heads.query * T * sizeof(float) <= workspace_.deltas.size(), "attention_backward of ", T,
        " rows and ", heads.query, " heads, but OpsOptions said ", options_.rows, " and ",
        options_.heads.query);
  AttentionCall call = call_of(out, lse, qkv, heads, sequences, scale);
  call.d_out = d_out.data();
  call.d_qkv = d_qkv.data();
  call.deltas = reinterpret_cast<float*>(workspace_.deltas.data());
  const bool mma = cut(call, sequences, qkv.dtype(), kBackwardRows, host_data_);
  with_type(qkv.dtype(), [&](auto zero) {
    using A = decltype(zero);
    deltas_kernel<A><<<unsigned(pieces_of(T * heads.query, 8)), 8 * kWarp, 0, handle()>>>(call);
    check_launch();
  });
  if (mma) return mma_attention_backward(call, handle());
  f32_attention_backward(call, qkv.dtype(), handle());
}

}  // namespace slideway
