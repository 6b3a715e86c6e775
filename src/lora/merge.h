// Merging: an adapter folded into the weights it changes, so that the model needs no adapter any more.
//
//   W[n, c] = factor[n] · W[n, c] + Σ_r (scale · B[n, r]) · A[r, c]      in f32, r ascending
//   bias[n] = factor[n] · bias[n] + shift[n]
//
// Replaced weights and trained tokens' rows take the place of the base's.
//
// Threads  one at a time; rows are shared out among threads
// Errors   unsupported: a tied model whose embedding and head would no longer be one
#pragma once

#include <span>

#include "core/threads.h"
#include "lora/adapter.h"

namespace slideway {

// Whether the merged model is one of the base's kind.
void check_mergeable(const Adapter& adapter, const ModelLayout& layout);

void merge_module(const AdapterModule& module, std::span<float> weight /*[N, C]*/, Threads& threads);

// What the adapter makes of this tensor: out holds the base's numbers on entry.
void merge_adapter(const Adapter& adapter, const TensorSpec& spec, std::span<float> out, Threads& threads);

}  // namespace slideway
