// LoRA's additions to a projection, forward and backward. Work is proportional to each part's exact rank.
//
// Row-invariant: v's rows are row products (ops/cpu/row_products.h); y's rows add scale · Σ_r v[r] b[n,r], one chain over
// ascending r from 0. Sums over rows (d_a, d_b) are chains over ascending rows of the part. So no result depends on threads,
// and forward results do not depend on the other rows.
//
// Threads  pieces are tiles of rows and columns at fixed borders
// Source   docs/numerics.md, "LoRA"
#pragma once

#include "core/threads.h"
#include "ops/cpu/cpu_level.h"
#include "ops/ops.h"

namespace slideway {

void lora_shrink(Threads& threads, Tensor v /*[T, ΣR] f32*/, Tensor x /*[T, C] act*/, const LoraTarget& lora,
                 const Dropout& dropout, CpuLevel level = best_cpu_level());
void lora_expand(Threads& threads, Tensor y /*[T, N'] act*/, Tensor v /*[T, ΣR] f32*/, const LoraTarget& lora,
                 CpuLevel level = best_cpu_level());
// v is the forward's on entry and d_v on return: the gradient needs the room, and nobody needs v any more.
void lora_backward(Threads& threads, Tensor d_x /*[T, C] act or empty*/, Tensor d_y /*[T, N'] act*/,
                   Tensor x /*[T, C] act*/, Tensor v /*[T, ΣR] f32*/, const LoraTarget& lora,
                   const Dropout& dropout, CpuLevel level = best_cpu_level());

}  // namespace slideway
