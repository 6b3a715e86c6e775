// Kernels: the inner loops that exist once a level, as a table of functions. Each has one source (…_kernel.h), written
// over ops/cpu/lanes.h and compiled for AVX2 and for AVX-512, so that the levels agree in every bit.
//
// Threads  pure functions of their arguments
#pragma once

#include <cstdint>

#include "ops/adamw.h"
#include "ops/cpu/attention_tile.h"
#include "ops/cpu/cpu_level.h"
#include "ops/cpu/dense_tile.h"
#include "ops/cpu/paged_tile.h"

namespace slideway {

// out[t,n] = Σ_c x[t,c] · w[n,c] + bias[n], in the order of ops/cpu/row_products.h.
struct RowProducts {
  const void* x;  // [rows, inputs], rows x_stride apart
  DType x_type;
  std::int64_t x_stride;
  const void* w;  // [N, inputs]
  DType w_type;
  const void* bias;  // [N] or null
  DType bias_type;
  void* out;  // [rows, N], rows out_stride apart
  DType out_type;
  std::int64_t out_stride;
  std::int64_t rows, inputs;
};

// out[t,c] = 1 / (1 − p) where dropout keeps column first_column + c of token tokens[t], else 0 (ops/cpu/dropout.h).
struct DropoutFactors {
  float* out;  // [rows, columns], rows out_stride apart
  std::int64_t out_stride;
  const std::int64_t* tokens;  // [rows]
  std::int64_t rows;
  std::int64_t first_column, columns;  // multiples of 64
  std::uint64_t key;
  std::uint32_t threshold;
  float scale;
};

// A part of a matrix of f32 or bf16.
struct Patch {
  void* data;
  DType type;
  std::int64_t rows, columns, stride;
};

struct Kernels {
  // ops/cpu/attention_tile.h
  void (*attention)(const AttentionTile& tile);
  void (*attention_d_queries)(const AttentionTile& tile);
  void (*attention_d_keys)(const AttentionTile& tile);
  // ops/cpu/paged_tile.h: one span's partial results; all spans' joined and written; or all of it at once
  void (*paged_span)(const PagedTile& tile, std::int64_t span, float* partial, float* scratch);
  void (*paged_join)(const PagedTile& tile, float* partials);
  void (*paged_rows)(const PagedTile& tile, float* scratch);
  // outputs [begin, end) of all rows
  void (*row_products)(const RowProducts& p, std::int64_t begin, std::int64_t end);
  // factors[r,c] becomes x[r,c] · factors[r,c]; its rows are stride apart
  void (*dropout_factors)(const DropoutFactors& d);
  void (*scale_patch)(const Patch& x, float* factors, std::int64_t stride);
  // to += scale · (from · factors), rounded once; factors may be null; rows of both are stride apart
  void (*add_patch)(const Patch& to, const float* from, const float* factors, std::int64_t stride,
                    float scale);
  // ops/cpu/dense_tile.h
  void (*dense)(const DenseTile& tile);
  // ops/adamw.h, without threads
  void (*adamw)(const AdamwRange& range, const AdamwStep& step, AdamwPiece piece);
  void (*split)(std::uint16_t* hi, std::int16_t* lo, const float* x, std::int64_t n);
  void (*join)(float* x, const std::uint16_t* hi, const std::int16_t* lo, std::int64_t n);
  void (*widen)(float* x, const std::uint16_t* hi, std::int64_t n);
};

extern const Kernels kKernelsAvx2;
extern const Kernels kKernelsAvx512;

// Where a kernel has no scalar form, the lowest level is AVX2.
inline const Kernels& kernels(CpuLevel level) {
  return level == CpuLevel::avx512 ? kKernelsAvx512 : kKernelsAvx2;
}

}  // namespace slideway
