// Row-invariant products: a row of the result depends on its own row of x and on w alone. Never on the number of rows, on
// the tile that a row falls into, or on threads; so a sequence decodes to the same bits alone or in any batch.
//
//   out[t,n] = Σ_c x[t,c] · w[n,c] + bias[n]
//
// The order of the sum: lane i of 16 runs over c = i, i + 16, … in ascending order with fused multiply-adds, from 0; the
// lanes are then added as a tree (i with i + 8, + 4, + 2, + 1), then the bias; rounded once to out's type. BF16 weights are
// read as BF16, once for each block of rows, and widened in registers.
//
// Threads  pieces are ranges of outputs; their number may follow the pool's, since no output sees another
// Source   docs/numerics.md, "Row-invariant products"
#pragma once

#include "core/threads.h"
#include "ops/cpu/cpu_level.h"
#include "tensor/tensor.h"

namespace slideway {

void row_linear(Threads& threads, Tensor out /*[T, N] f32 or bf16*/, Tensor x /*[T, C] f32 or bf16*/,
                Tensor w /*[N, C] f32 or bf16*/, Tensor bias /*[N] f32 or bf16, or empty*/,
                CpuLevel level = best_cpu_level());

}  // namespace slideway
