// LoRA's additions to a projection, forward and backward: by the library's products where they take it (lora_products.h),
// else one launch for all parts of a target, whatever their ranks and rows. There sums are chains over the ascending index
// in f32, so a row's results do not depend on the other rows.
#include <algorithm>

#include "ops/cpu/dropout.h"
#include "ops/cuda/cuda_ops.h"
#include "ops/cuda/dropout.cuh"
#include "ops/cuda/lora_products.h"
#include "ops/cuda/tile_product.cuh"
#include "ops/shapes.h"

namespace slideway {
namespace {

// A LoraPart on the device. Its matrices are f32 or bf16, which a load looks up.
struct Part {
  const void *a, *b;  // [R, C], [N, R]
  float *d_a, *d_b;
  std::int64_t row_begin, row_end, rank, outputs, out_column, v_column;
  DeviceMask mask;
  float scale;
  bool a_wide, b_wide;

  __device__ float a_at(std::int64_t i) const {
    return a_wide ? static_cast<const float*>(a)[i] : load(static_cast<const bf16_t*>(a) + i);
  }
  __device__ float b_at(std::int64_t i) const {
    return b_wide ? static_cast<const float*>(b)[i] : load(static_cast<const bf16_t*>(b) + i);
  }
};

// All parts of a target, and what they have in common.
struct Target {
  const Part* parts;
  int count;
  std::int64_t v_width, inputs, outputs;  // ΣR, C, N'
  const std::int64_t* tokens;             // null: nothing is dropped
};

template <class A>
__device__ float dropped(const Target& target, const Part& part, const A* x, std::int64_t t, std::int64_t c) {
  const float v = load(x + t * target.inputs + c);
  return target.tokens ? v * part.mask.factor(target.tokens[t], c) : v;
}

constexpr int kRows = 64, kRanks = 16, kColumns = 64;

// v[t, r] = Σ_c dropout(x)[t, c] a[r, c]
template <class A>
__global__ void __launch_bounds__(kTileThreads) shrink_kernel(float* v, const A* x, const Target target) {
  const Part part = target.parts[blockIdx.z];
  const std::int64_t t0 = part.row_begin + std::int64_t(blockIdx.x) * kRows;
  const std::int64_t r0 = std::int64_t(blockIdx.y) * kRanks, C = target.inputs;
  if (t0 >= part.row_end || r0 >= part.rank) return;
  float sums[kRows / 16][kRanks / 16] = {};
  tile_product<kRows, kRanks>(
      sums, 0, C,
      [&](int i, std::int64_t c) {
        return t0 + i < part.row_end ? dropped(target, part, x, t0 + i, c) : 0.0f;
      },
      true, [&](std::int64_t c, int j) { return r0 + j < part.rank ? part.a_at((r0 + j) * C + c) : 0.0f; },
      true);
  for_tile<kRows, kRanks>(sums, [&](int i, int j, float sum) {
    if (t0 + i < part.row_end && r0 + j < part.rank)
      v[(t0 + i) * target.v_width + part.v_column + r0 + j] = sum;
  });
}

// y[t, n] += scale · Σ_r v[t, r] b[n, r]
template <class A>
__global__ void __launch_bounds__(kTileThreads) expand_kernel(A* y, const float* v, const Target target) {
  const Part part = target.parts[blockIdx.z];
  const std::int64_t t0 = part.row_begin + std::int64_t(blockIdx.x) * kRows;
  const std::int64_t n0 = std::int64_t(blockIdx.y) * kColumns, R = part.rank;
  if (t0 >= part.row_end || n0 >= part.outputs) return;
  float sums[kRows / 16][kColumns / 16] = {};
  tile_product<kRows, kColumns>(
      sums, 0, R,
      [&](int i, std::int64_t r) {
        return t0 + i < part.row_end ? v[(t0 + i) * target.v_width + part.v_column + r] : 0.0f;
      },
      true, [&](std::int64_t r, int j) { return n0 + j < part.outputs ? part.b_at((n0 + j) * R + r) : 0.0f; },
      true);
  for_tile<kRows, kColumns>(sums, [&](int i, int j, float sum) {
    if (t0 + i >= part.row_end || n0 + j >= part.outputs) return;
    A* const to = y + (t0 + i) * target.outputs + part.out_column + n0 + j;
    store(to, fmaf(part.scale, sum, load(to)));
  });
}

// d_b[n, r] += scale · Σ_t d_y[t, n] v[t, r]
template <class A>
__global__ void __launch_bounds__(kTileThreads)
    d_b_kernel(const A* d_y, const float* v, const Target target) {
  const Part part = target.parts[blockIdx.z];
  const std::int64_t n0 = std::int64_t(blockIdx.x) * kRows, r0 = std::int64_t(blockIdx.y) * kRanks;
  if (n0 >= part.outputs || r0 >= part.rank) return;
  float sums[kRows / 16][kRanks / 16] = {};
  tile_product<kRows, kRanks>(
      sums, part.row_begin, part.row_end,
      [&](int i, std::int64_t t) {
        return n0 + i < part.outputs ? load(d_y + t * target.outputs + part.out_column + n0 + i) : 0.0f;
      },
      false,
      [&](std::int64_t t, int j) {
        return r0 + j < part.rank ? v[t * target.v_width + part.v_column + r0 + j] : 0.0f;
      },
      false);
  for_tile<kRows, kRanks>(sums, [&](int i, int j, float sum) {
    if (n0 + i >= part.outputs || r0 + j >= part.rank) return;
    float* const to = part.d_b + (n0 + i) * part.rank + r0 + j;
    *to = fmaf(part.scale, sum, *to);
  });
}

// v[t, r] ← d_v = scale · Σ_n d_y[t, n] b[n, r]
template <class A>
__global__ void __launch_bounds__(kTileThreads) d_v_kernel(float* v, const A* d_y, const Target target) {
  const Part part = target.parts[blockIdx.z];
  const std::int64_t t0 = part.row_begin + std::int64_t(blockIdx.x) * kRows;
  const std::int64_t r0 = std::int64_t(blockIdx.y) * kRanks, R = part.rank;
  if (t0 >= part.row_end || r0 >= R) return;
  float sums[kRows / 16][kRanks / 16] = {};
  tile_product<kRows, kRanks>(
      sums, 0, part.outputs,
      [&](int i, std::int64_t n) {
        return t0 + i < part.row_end ? load(d_y + (t0 + i) * target.outputs + part.out_column + n) : 0.0f;
      },
      true, [&](std::int64_t n, int j) { return r0 + j < R ? part.b_at(n * R + r0 + j) : 0.0f; }, false);
  for_tile<kRows, kRanks>(sums, [&](int i, int j, float sum) {
    if (t0 + i < part.row_end && r0 + j < R)
      v[(t0 + i) * target.v_width + part.v_column + r0 + j] = part.scale * sum;
  });
}

// d_a[r, c] += Σ_t d_v[t, r] dropout(x)[t, c]
template <class A>
__global__ void __launch_bounds__(kTileThreads)
    d_a_kernel(const float* d_v, const A* x, const Target target) {
  const Part part = target.parts[blockIdx.z];
  const std::int64_t c0 = std::int64_t(blockIdx.x) * kRows, r0 = std::int64_t(blockIdx.y) * kRanks;
  if (r0 >= part.rank) return;
  float sums[kRows / 16][kRanks / 16] = {};
  tile_product<kRows, kRanks>(
      sums, part.row_begin, part.row_end,
      [&](int i, std::int64_t t) {
        return c0 + i < target.inputs ? dropped(target, part, x, t, c0 + i) : 0.0f;
      },
      false,
      [&](std::int64_t t, int j) {
        return r0 + j < part.rank ? d_v[t * target.v_width + part.v_column + r0 + j] : 0.0f;
      },
      false);
  for_tile<kRows, kRanks>(sums, [&](int i, int j, float sum) {
    if (c0 + i < target.inputs && r0 + j < part.rank) part.d_a[(r0 + j) * target.inputs + c0 + i] += sum;
  });
}

// d_x[t, c] += Σ_parts mask · Σ_r d_v[t, r] a[r, c], rounded once
template <class A>
__global__ void __launch_bounds__(kTileThreads) d_x_kernel(A* d_x, const float* d_v, const Target target) {
  const std::int64_t t0 = std::int64_t(blockIdx.x) * kRows, c0 = std::int64_t(blockIdx.y) * kColumns;
  const std::int64_t C = target.inputs;
  float all[kRows / 16][kColumns / 16] = {};
  bool any = false;
  for (int p = 0; p < target.count; ++p) {
    const Part part = target.parts[p];
    if (t0 + kRows <= part.row_begin || part.row_end <= t0) continue;
    any = true;
    const auto in_part = [&](int i) { return part.row_begin <= t0 + i && t0 + i < part.row_end; };
    float sums[kRows / 16][kColumns / 16] = {};
    tile_product<kRows, kColumns>(
        sums, 0, part.rank,
        [&](int i, std::int64_t r) {
          return in_part(i) ? d_v[(t0 + i) * target.v_width + part.v_column + r] : 0.0f;
        },
        true, [&](std::int64_t r, int j) { return c0 + j < C ? part.a_at(r * C + c0 + j) : 0.0f; }, false);
    for_tile<kRows, kColumns>(sums, [&](int i, int j, float sum) {
      const bool masked = target.tokens && in_part(i) && c0 + j < C;
      all[i / 16][j / 16] += masked ? sum * part.mask.factor(target.tokens[t0 + i], c0 + j) : sum;
    });
  }
  if (!any) return;
  for_tile<kRows, kColumns>(all, [&](int i, int j, float sum) {
    bool theirs = false;  // rows of no part are left alone
    for (int p = 0; p < target.count && !theirs; ++p)
      theirs = target.parts[p].row_begin <= t0 + i && t0 + i < target.parts[p].row_end;
    if (!theirs || c0 + j >= C) return;
    A* const to = d_x + (t0 + i) * C + c0 + j;
    store(to, load(to) + sum);
  });
}

// Grids that cover the largest part.
struct Most {
  std::int64_t rows = 0, rank = 0, outputs = 0;
  explicit Most(const LoraTarget& lora) {
    for (const LoraPart& part : lora.parts) {
      rows = std::max(rows, part.row_end - part.row_begin);
      rank = std::max(rank, part.a.size(0));
      outputs = std::max(outputs, part.b.size(0));
    }
  }
};
dim3 grid(std::int64_t first, std::int64_t first_tile, std::int64_t second, std::int64_t second_tile,
          std::size_t parts) {
  return {unsigned(pieces_of(first, first_tile)), unsigned(pieces_of(second, second_tile)), unsigned(parts)};
}

const std::int64_t* tokens_of(const Dropout& dropout, HostData& host_data) {
  return dropout.p > 0 ? host_data.put(dropout.tokens) : nullptr;
}

Target on_device(const LoraTarget& lora, std::int64_t inputs, std::int64_t outputs, const Dropout& dropout,
                 HostData& host_data) {
  std::vector<Part> parts;
  for (const LoraPart& p : lora.parts) {
    const DropoutMask mask(dropout, p.dropout_key);
    parts.push_back({.a = p.a.data(),
                     .b = p.b.data(),
                     .d_a = p.d_a ? p.d_a.f32() : nullptr,
                     .d_b = p.d_b ? p.d_b.f32() : nullptr,
                     .row_begin = p.row_begin,
                     .row_end = p.row_end,
                     .rank = p.a.size(0),
                     .outputs = p.b.size(0),
                     .out_column = p.out_column,
                     .v_column = p.v_column,
                     .mask = {mask.key, mask.threshold, mask.scale},
                     .scale = p.scale,
                     .a_wide = p.a.dtype() == DType::f32,
                     .b_wide = p.b.dtype() == DType::f32});
  }
  return {.parts = host_data.put(std::span<const Part>(parts)),
          .count = int(parts.size()),
          .v_width = lora.v_width,
          .inputs = inputs,
          .outputs = outputs,
          .tokens = tokens_of(dropout, host_data)};
}

void refuse_factors(const LoraTarget& lora) {
  for (const LoraPart& part : lora.parts)
    if (part.factor || part.shift || !part.a)
      fail(ErrorKind::unsupported,
           "adapters with DoRA, biases or trained tokens or embeddings are not "
           "supported on CUDA devices yet");
}

}  // namespace

void CudaOps::lora_shrink(Tensor v, Tensor x, const LoraTarget& lora, const Dropout& dropout) {
  shapes::lora_shrink(v, x, lora, dropout);
  refuse_factors(lora);
  use();
  const Most most(lora);
  if (most.rows == 0) return;
  LoraProducts products(products_, workspace_.lora, handle());
  if (!options_.row_invariant && products.take(x, {}, v, lora))
    return products.shrink(v, x, lora, dropout, tokens_of(dropout, host_data_));
  const Target target = on_device(lora, x.size(1), 0, dropout, host_data_);
  with_type(x.dtype(), [&](auto zero) {
    using A = decltype(zero);
    shrink_kernel<<<grid(most.rows, kRows, most.rank, kRanks, lora.parts.size()), kTileThreads, 0,
                    handle()>>>(v.f32(), numbers<A>(x), target);
    check_launch();
  });
}

void CudaOps::lora_expand(Tensor y, Tensor v, const LoraTarget& lora) {
  shapes::lora_expand(y, v, lora);
  refuse_factors(lora);
  use();
  const Most most(lora);
  if (most.rows == 0) return;
  LoraProducts products(products_, workspace_.lora, handle());
  if (!options_.row_invariant && products.take({}, y, v, lora)) return products.expand(y, v, lora);
  const Target target = on_device(lora, 0, y.size(1), {}, host_data_);
  with_type(y.dtype(), [&](auto zero) {
    using A = decltype(zero);
    expand_kernel<<<grid(most.rows, kRows, most.outputs, kColumns, lora.parts.size()), kTileThreads, 0,
                    handle()>>>(numbers<A>(y), v.f32(), target);
    check_launch();
  });
}

void CudaOps::lora_backward(Tensor d_x, Tensor d_y, Tensor x, Tensor v, const LoraTarget& lora,
                            const Dropout& dropout) {
  shapes::lora_backward(d_x, d_y, x, v, lora, dropout);
  use();
  const Most most(lora);
  if (most.rows == 0) return;
  const std::size_t parts = lora.parts.size();
  const Target target = on_device(lora, x.size(1), d_y.size(1), dropout, host_data_);
  LoraProducts products(products_, workspace_.lora, handle());
  if (!options_.row_invariant && products.take(x, d_y, v, lora))
    return products.backward(d_x, d_y, x, v, lora, dropout, target.tokens);
  with_type(x.dtype(), [&](auto zero) {
    using A = decltype(zero);
    d_b_kernel<<<grid(most.outputs, kRows, most.rank, kRanks, parts), kTileThreads, 0, handle()>>>(
        numbers<A>(d_y), v.f32(), target);
    d_v_kernel<<<grid(most.rows, kRows, most.rank, kRanks, parts), kTileThreads, 0, handle()>>>(
        v.f32(), numbers<A>(d_y), target);
    d_a_kernel<<<grid(x.size(1), kRows, most.rank, kRanks, parts), kTileThreads, 0, handle()>>>(
        v.f32(), numbers<A>(x), target);
    if (d_x)
      d_x_kernel<<<grid(x.size(0), kRows, x.size(1), kColumns, 1), kTileThreads, 0, handle()>>>(
          numbers<A>(d_x), v.f32(), target);
    check_launch();
  });
}

}  // namespace slideway
