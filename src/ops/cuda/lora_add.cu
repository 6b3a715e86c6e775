#include "ops/cuda/lora_add.cuh"
#include "ops/cuda/mma.cuh"

namespace slideway {
namespace {

constexpr int kAddRows = 128, kAddColumns = 64, kAddDepth = 64, kAddThreads = 128;

// Of four neighbouring lanes' four words each, lane l gets word l of each.
__device__ uint4 turned4(uint4 w) {
  const auto exchange = [](std::uint32_t& a, std::uint32_t& b, int distance) {
    const bool upper = threadIdx.x & unsigned(distance);
    const std::uint32_t got = __shfl_xor_sync(kAllLanes, upper ? a : b, distance);
    (upper ? a : b) = got;
  };
  exchange(w.x, w.y, 1);
  exchange(w.z, w.w, 1);
  exchange(w.x, w.z, 2);
  exchange(w.y, w.w, 2);
  return w;
}

// Four warps of 32 rows each.
template <bool kTurned, bool kMasked>
__global__ void __launch_bounds__(kAddThreads, kMasked ? 3 : 4)
    add_kernel(bf16_t* y, std::int64_t stride, const __grid_constant__ Addends addends, std::int64_t T,
               std::int64_t N, float factor) {
  __shared__ __align__(16) bf16_t a[kAddRows * kAddDepth], b[kAddColumns * kAddDepth];
  const std::int64_t t0 = std::int64_t(blockIdx.y) * kAddRows, c0 = std::int64_t(blockIdx.x) * kAddColumns;
  const int warp = int(threadIdx.x) / kWarp, row = int(threadIdx.x) % kWarp / 4,
            column = int(threadIdx.x) % 4 * 2;
  const int rows = int(min(std::int64_t(kAddRows), T - t0)),
            columns = int(min(std::int64_t(kAddColumns), N - c0));
  const int left_rows = rows - warp * 32 - row;  // rows i · 8 below this lane's are there
  // A lane reads and writes chunks `quarter` and `quarter + 4` of its rows; their sums are spread over the four lanes.
  const int quarter = int(threadIdx.x) % 4;
  bf16_t* const corner = y + (t0 + warp * 32 + row) * stride + c0 + quarter * 8;
  const auto there = [&](int i, int m) { return i * 8 < left_rows && (quarter + 4 * m) * 8 < columns; };
  uint4 old[4][2];  // read at once, before anything waits
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int m = 0; m < 2; ++m)
      old[i][m] = there(i, m) ? *reinterpret_cast<const uint4*>(corner + i * 8 * stride + m * 32) : uint4{};
  }
  float all[2][kAddColumns / 8][4] = {};
  for (int p = 0; p < addends.count; ++p) {
    const Addend& of = addends.each[p];
    float masked[kMasked ? 2 : 1][kMasked ? kAddColumns / 8 : 1][4] = {};
    for (int k = 0; k < of.depth; k += kAddDepth) {
      __syncthreads();
      copy_rows<kAddDepth, kAddRows, kAddThreads>(a, of.a + t0 * of.a_stride + k, of.a_stride, 0, rows,
                                                  of.depth - k);
      if constexpr (kTurned) {
        copy_rows<kAddDepth, kAddColumns, kAddThreads>(b, of.b + c0 * of.b_stride + k, of.b_stride, 0,
                                                       columns, of.depth - k);
      } else {
        copy_rows<kAddColumns, kAddDepth, kAddThreads>(b, of.b + k * of.b_stride + c0, of.b_stride, 0,
                                                       of.depth - k, columns);
      }
      end_copies();
      await_copies<0>();
      __syncthreads();
#pragma unroll
      for (int step = 0; step < kAddDepth / 16; ++step) {
        if (k + step * 16 >= of.depth) break;
        const Four left[2] = {load_a<kAddDepth>(a, warp * 32, step),
                              load_a<kAddDepth>(a, warp * 32 + 16, step)};
#pragma unroll
        for (int n = 0; n < kAddColumns / 16; ++n) {
          const Four right =
              kTurned ? load_b<kAddDepth>(b, n * 16, step) : load_b_turned<kAddColumns>(b, step * 16, n * 16);
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            if constexpr (kMasked) {
              multiply(masked[i][2 * n], left[i], right.r[0], right.r[1]);
              multiply(masked[i][2 * n + 1], left[i], right.r[2], right.r[3]);
            } else {
              multiply(all[i][2 * n], left[i], right.r[0], right.r[1]);
              multiply(all[i][2 * n + 1], left[i], right.r[2], right.r[3]);
            }
          }
        }
      }
    }
    if constexpr (kMasked) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const std::int64_t token = i * 8 < left_rows ? addends.tokens[t0 + warp * 32 + row + i * 8] : 0;
#pragma unroll
        for (int q = 0; q < 4; ++q) {  // columns 16 w + place, for w = 0 … 3, share a Philox block
          const uint4 bits = of.mask.block(token, c0 + column + q % 2 + q / 2 * 8);
          const std::uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
          for (int w = 0; w < 4; ++w) {
            const float sum = masked[i / 2][2 * w + q / 2][2 * (i % 2) + q % 2];
            all[i / 2][2 * w + q / 2][2 * (i % 2) + q % 2] +=
                words[w] >> 8 >= of.mask.threshold ? sum * of.mask.scale : 0.0f;
          }
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      const uint4 before = turned4(old[i][m]);
      const std::uint32_t words[4] = {before.x, before.y, before.z, before.w};
      std::uint32_t sums[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const float* const sum = &all[i / 2][4 * m + j][2 * (i % 2)];
        sums[j] = bf16_pair(fmaf(factor, sum[0], __uint_as_float(words[j] << 16)),
                            fmaf(factor, sum[1], __uint_as_float(words[j] & 0xffff0000u)));
      }
      const uint4 after = turned4({sums[0], sums[1], sums[2], sums[3]});
      if (there(i, m)) *reinterpret_cast<uint4*>(corner + i * 8 * stride + m * 32) = after;
    }
  }
}

}  // namespace

void add_products(bf16_t* y, std::int64_t stride, const Addends& addends, bool turned, std::int64_t T,
                  std::int64_t N, float factor, cudaStream_t stream) {
  const dim3 grid(unsigned(pieces_of(N, kAddColumns)), unsigned(pieces_of(T, kAddRows)));
  const bool masked = addends.tokens != nullptr;
  const auto kernel = turned ? (masked ? add_kernel<true, true> : add_kernel<true, false>)
                             : (masked ? add_kernel<false, true> : add_kernel<false, false>);
  kernel<<<grid, kAddThreads, 0, stream>>>(y, stride, addends, T, N, factor);
  check_launch();
}

}  // namespace slideway
