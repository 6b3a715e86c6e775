#include <algorithm>

#include "ops/cpu/dropout.h"
#include "ops/cuda/lora_add.cuh"
#include "ops/cuda/lora_products.h"
#include "ops/cuda/numbers.cuh"
#include "ops/cuda_workspace.h"

namespace slideway {
namespace {

constexpr int kThreads = 256;

// Where the halves of [rows, columns] numbers go: out[row · stride + place + column].
struct Halves {
  bf16_t* out;
  std::int64_t stride, hi, hi_again, lo;
};

template <class A>
__global__ void __launch_bounds__(kThreads)
    split_kernel(Halves to, const A* x, std::int64_t stride, std::int64_t rows, std::int64_t columns) {
  const std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= rows * columns) return;
  const std::int64_t row = i / columns, column = i % columns;
  const float v = load(x + row * stride + column);
  const bf16_t hi = bf16_of(v);
  bf16_t* const out = to.out + row * to.stride + column;
  out[to.hi] = out[to.hi_again] = hi;
  out[to.lo] = bf16_of(v - load(&hi));
}

// out[r, c] (+)= factor · (sums[r, c] + sums[second + r, c]), where second is in numbers
__global__ void __launch_bounds__(kThreads)
    join_kernel(float* out, std::int64_t stride, const float* sums, std::int64_t sums_stride,
                std::int64_t second, std::int64_t rows, std::int64_t columns, float factor, bool accumulate) {
  const std::int64_t i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= rows * columns) return;
  const std::int64_t row = i / columns, column = i % columns;
  const float* const from = sums + row * sums_stride + column;
  float* const to = out + row * stride + column;
  const float sum = factor * (from[0] + from[second]);
  *to = accumulate ? *to + sum : sum;
}

// Rows of x, zero where dropped; the factor is left to the product. A thread draws the eight Philox blocks that hold the
// bits of columns c … c + 7 and of those 16, 32 and 48 further.
__global__ void __launch_bounds__(kThreads)
    mask_kernel(bf16_t* out, const bf16_t* x, const std::int64_t* tokens, std::int64_t rows, std::int64_t C,
                DeviceMask mask) {
  const std::int64_t groups = (C + 63) / 64, i = std::int64_t(blockIdx.x) * kThreads + threadIdx.x;
  const std::int64_t t = i / (groups * 2);
  if (t >= rows) return;
  const std::int64_t c = i % (groups * 2) / 2 * 64 + i % 2 * 8;
  std::uint32_t keep[4][4] = {};  // pairs of columns, a mask of sixteen bits each
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const uint4 bits = mask.block(tokens[t], c + j);
    const std::uint32_t words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (words[k] >> 8 >= mask.threshold) keep[k][j / 2] |= 0xffffu << (j % 2 * 16);
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const std::int64_t at = t * C + c + 16 * k;
    if (c + 16 * k >= C) continue;  // C is a multiple of eight
    uint4 v = *reinterpret_cast<const uint4*>(x + at);
    v.x &= keep[k][0], v.y &= keep[k][1], v.z &= keep[k][2], v.w &= keep[k][3];
    *reinterpret_cast<uint4*>(out + at) = v;
  }
}

unsigned grid_of(std::int64_t n) {
  return unsigned(pieces_of(n, kThreads));
}

void split(const Halves& to, const Tensor& x, std::int64_t stride, std::int64_t rows, std::int64_t columns,
           cudaStream_t stream) {
  with_type(x.dtype(), [&](auto zero) {
    using A = decltype(zero);
    split_kernel<<<grid_of(rows * columns), kThreads, 0, stream>>>(to, numbers<A>(x), stride, rows, columns);
    check_launch();
  });
}

void join(float* out, std::int64_t stride, const float* sums, std::int64_t sums_stride, std::int64_t second,
          std::int64_t rows, std::int64_t columns, float factor, bool accumulate, cudaStream_t stream) {
  join_kernel<<<grid_of(rows * columns), kThreads, 0, stream>>>(out, stride, sums, sums_stride, second, rows,
                                                                columns, factor, accumulate);
  check_launch();
}

std::int64_t widest(const LoraTarget& lora) {
  std::int64_t most = 0;
  for (const LoraPart& part : lora.parts) most = std::max(most, part.b.size(0));
  return most;
}

}  // namespace

// Halves of v or d_v, [T, 3 S]: of each part hi, hi, lo; of A, [3 S, C]: hi, lo, hi; of one part's B, [N, 3 R]: hi, lo, hi.
struct LoraProducts::Room {
  bf16_t *v, *a, *b;
  float* sums;
  bf16_t* masked;
  std::int64_t T, C, S, masked_rows;  // masked_rows: as many as are masked at a time
  cudaStream_t stream;

  Room(std::span<std::byte> workspace, std::int64_t rows, std::int64_t inputs, std::int64_t outputs,
       std::int64_t ranks, cudaStream_t on)
      : T(rows), C(inputs), S(ranks), stream(on) {
    const LoraRoomSizes sizes(T, C, outputs, S);
    std::byte* at = workspace.data();
    const auto take = [&](auto*& part, std::uint64_t bytes) {
      part = reinterpret_cast<std::remove_reference_t<decltype(part)>>(at);
      at += bytes;
    };
    take(v, sizes.v);
    take(a, sizes.a);
    take(b, sizes.b);
    take(sums, sizes.sums);
    take(masked, sizes.masked);
    masked_rows = C == 0 ? T
                         : std::min<std::int64_t>(
                               T, std::int64_t(sizes.masked) / (2 * C) / kLoraLeastRows * kLoraLeastRows);
    if (masked_rows == 0) masked_rows = T;
  }

  void split_v(const Tensor& from, const LoraTarget& lora) const {
    for (const LoraPart& p : lora.parts) {
      const std::int64_t R = p.a.size(0);
      const Tensor columns(from.f32() + p.v_column, DType::f32, {1});
      split({v + 3 * p.v_column, 3 * S, 0, R, 2 * R}, columns, S, T, R, stream);
    }
  }
  void split_a(const LoraTarget& lora) const {
    for (const LoraPart& p : lora.parts) {
      const std::int64_t R = p.a.size(0);
      split({a + 3 * p.v_column * C, C, 0, 2 * R * C, R * C}, p.a, C, R, C, stream);
    }
  }
  void split_b(const LoraPart& p) const {
    const std::int64_t R = p.b.size(1);
    split({b, 3 * R, 0, 2 * R, R}, p.b, R, p.b.size(0), R, stream);
  }
  // Calls body(rows of x under the part's mask, first row, number of rows, factor).
  template <class Body>
  void for_masked(const Tensor& x, const LoraPart& p, const Dropout& dropout, const std::int64_t* tokens,
                  const Body& body) const {
    const DropoutMask mask(dropout, p.dropout_key);
    for (std::int64_t t = 0; t < T; t += masked_rows) {
      const std::int64_t rows = std::min(masked_rows, T - t);
      mask_kernel<<<grid_of(rows * ((C + 63) / 64) * 2), kThreads, 0, stream>>>(
          masked, x.bf16() + t * C, tokens + t, rows, C, DeviceMask{mask.key, mask.threshold, mask.scale});
      check_launch();
      body(masked, t, rows, mask.scale);
    }
  }
};

bool LoraProducts::take(const Tensor& x, const Tensor& y, const Tensor& v, const LoraTarget& lora) const {
  const Tensor& act = x ? x : y;
  if (!aligned8(0, x.data(), y.data())) return false;
  const std::int64_t T = v.size(0), S = lora.v_width, C = x ? x.size(1) : 0;
  if (act.dtype() != DType::bf16 || T < kLoraLeastRows) return false;
  bool fits = lora.parts.size() <= kMostAddends && C % 8 == 0 && (!y || y.size(1) % 8 == 0);
  std::int64_t ranks = 0;
  for (const LoraPart& p : lora.parts) {
    fits = fits && p.row_begin == 0 && p.row_end == T && p.v_column == ranks && p.a.size(0) % 8 == 0 &&
           p.b.size(0) % 8 == 0 && p.out_column % 8 == 0;
    ranks += p.a.size(0);
  }
  return fits && ranks == S && LoraRoomSizes(T, C, widest(lora), S).total() <= workspace_.size();
}

void LoraProducts::run(const Product& product) {
  if (!products_.run(product, stream_))
    fail(ErrorKind::device, "cuBLASLt has no product of ", product.m, " x ", product.n, " x ", product.k);
}

namespace {
ProductMatrix halves(const bf16_t* data, std::int64_t stride, bool turned = false) {
  return {data, DType::bf16, stride, turned};
}
Product sums_of(float* out, std::int64_t m, std::int64_t n, std::int64_t k, ProductMatrix a,
                ProductMatrix b) {
  return {.m = m, .n = n, .k = k, .out = out, .out_type = DType::f32, .out_stride = n, .a = a, .b = b};
}
}  // namespace

void LoraProducts::shrink(Tensor v, Tensor x, const LoraTarget& lora, const Dropout& dropout,
                          const std::int64_t* tokens) {
  const Room room(workspace_, v.size(0), x.size(1), widest(lora), lora.v_width, stream_);
  const std::int64_t T = room.T, C = room.C, S = room.S;
  room.split_a(lora);
  if (!tokens) run(sums_of(room.sums, T, 3 * S, C, halves(x.bf16(), C), halves(room.a, C, true)));
  for (const LoraPart& p : lora.parts) {
    const std::int64_t R = p.a.size(0), at = 3 * p.v_column;
    float* const to = v.f32() + p.v_column;
    if (!tokens) {
      join(to, S, room.sums + at, 3 * S, R, T, R, 1, false, stream_);
      continue;
    }
    room.for_masked(
        x, p, dropout, tokens, [&](const bf16_t* kept, std::int64_t t, std::int64_t rows, float factor) {
          run(sums_of(room.sums, rows, 2 * R, C, halves(kept, C), halves(room.a + at * C, C, true)));
          join(to + t * S, S, room.sums, 2 * R, R, rows, R, factor, false, stream_);
        });
  }
}

void LoraProducts::expand(Tensor y, Tensor v, const LoraTarget& lora) {
  const Room room(workspace_, v.size(0), 0, widest(lora), lora.v_width, stream_);
  room.split_v(v, lora);
  for (const LoraPart& p : lora.parts) {
    const std::int64_t R = p.a.size(0);
    room.split_b(p);
    Addends addends{.count = 1};
    addends.each[0] = {room.v + 3 * p.v_column, room.b, 3 * room.S, 3 * R, int(3 * R), {0, 0, 1}};
    add_products(y.bf16() + p.out_column, y.size(1), addends, true, room.T, p.b.size(0), p.scale, stream_);
  }
}

// d_b += scale · d_yᵀ v, then v ← d_v = scale · d_y B
void LoraProducts::d_b_and_d_v(const Room& room, Tensor d_y, Tensor v, const LoraTarget& lora) {
  const std::int64_t T = room.T, width = d_y.size(1);
  room.split_v(v, lora);
  for (const LoraPart& p : lora.parts) {
    const std::int64_t R = p.a.size(0), N = p.b.size(0);
    const bf16_t* const d = d_y.bf16() + p.out_column;
    run(sums_of(room.sums, N, 2 * R, T, halves(d, width, true),
                halves(room.v + 3 * p.v_column + R, 3 * room.S)));
    join(p.d_b.f32(), R, room.sums, 2 * R, R, N, R, p.scale, true, stream_);
    room.split_b(p);
    run(sums_of(room.sums, T, 2 * R, N, halves(d, width), halves(room.b, 3 * R)));
    join(v.f32() + p.v_column, room.S, room.sums, 2 * R, R, T, R, p.scale, false, stream_);
  }
}

// d_a += d_vᵀ dropout(x); d_v lies split in the room
void LoraProducts::d_a(const Room& room, Tensor x, const LoraTarget& lora, const Dropout& dropout,
                       const std::int64_t* tokens) {
  const std::int64_t T = room.T, C = room.C, S = room.S;
  if (!tokens) run(sums_of(room.sums, 3 * S, C, T, halves(room.v, 3 * S, true), halves(x.bf16(), C)));
  for (const LoraPart& p : lora.parts) {
    const std::int64_t R = p.a.size(0), at = 3 * p.v_column + R;  // hi and lo
    if (!tokens) {
      join(p.d_a.f32(), C, room.sums + at * C, C, R * C, R, C, 1, true, stream_);
      continue;
    }
    room.for_masked(x, p, dropout, tokens,
                    [&](const bf16_t* kept, std::int64_t t, std::int64_t rows, float factor) {
                      run(sums_of(room.sums, 2 * R, C, rows, halves(room.v + t * 3 * S + at, 3 * S, true),
                                  halves(kept, C)));
                      join(p.d_a.f32(), C, room.sums, C, R * C, R, C, factor, true, stream_);
                    });
  }
}

void LoraProducts::backward(Tensor d_x, Tensor d_y, Tensor x, Tensor v, const LoraTarget& lora,
                            const Dropout& dropout, const std::int64_t* tokens) {
  const Room room(workspace_, v.size(0), x.size(1), widest(lora), lora.v_width, stream_);
  d_b_and_d_v(room, d_y, v, lora);
  room.split_v(v, lora);
  d_a(room, x, lora, dropout, tokens);
  if (!d_x) return;
  room.split_a(lora);
  Addends addends{.tokens = tokens};
  for (const LoraPart& p : lora.parts) {
    const DropoutMask mask(dropout, p.dropout_key);
    addends.each[addends.count++] = {
        room.v + 3 * p.v_column, room.a + 3 * p.v_column * room.C,      3 * room.S, room.C,
        int(3 * p.a.size(0)),    {mask.key, mask.threshold, mask.scale}};
  }
  add_products(d_x.bf16(), room.C, addends, false, room.T, room.C, 1, stream_);
}

}  // namespace slideway
