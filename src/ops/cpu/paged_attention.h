// Attention over pages of a KV cache, row-invariant: a row's bits depend on its own sequence alone, never on the batch, on
// the chunk in which it was prefilled, on the page size, or on threads.
//
// The order of sums, for one row at position p and one head, over the positions s in [max(0, p − window + 1), p]:
//   a score is scale · (q·k), the dot product in the order of ops/cpu/row_products.h;
//   positions go in blocks of 64 at absolute borders; within a span of 256 positions (absolute too) the blocks follow each
//   other as one running softmax (m, l, o); then the spans' results are joined in ascending order.
//
// Threads  pieces are tiles (ops/cpu/paged_tile.h), and spans of positions where tiles are few
// Source   docs/numerics.md, "Attention over pages"; the running softmax: Milakov and Gimelshein 2018
#pragma once

#include "core/threads.h"
#include "ops/cpu/cpu_level.h"
#include "ops/ops.h"

namespace slideway {

void write_kv(Threads& threads, const PagedKv& kv, Tensor qkv /*[T, (H+2K)E] f32 or bf16*/, Heads heads);
void paged_attention(Threads& threads, Tensor out /*[T, H E]*/, Tensor qkv /*[T, (H+2K)E]*/, Heads heads,
                     const PagedKv& kv, float scale, CpuLevel level = best_cpu_level());

}  // namespace slideway
