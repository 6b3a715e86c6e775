// Merging: an adapter folded into the weights it changes, so that the model needs no adapter any more.
//
//   W[n, c] += Σ_r (scale · B[n, r]) · A[r, c]      in f32, r ascending
//
// Threads  one at a time; rows are shared out among threads
#pragma once

#include <span>

#include "core/threads.h"
#include "lora/adapter.h"

namespace slideway {

void merge_module(const AdapterModule& module, std::span<float> weight /*[N, C]*/, Threads& threads);

// The adapter's addition to this tensor, if it has one: out holds the base's numbers on entry.
void merge_adapter(const Adapter& adapter, const TensorSpec& spec, std::span<float> out, Threads& threads);

}  // namespace slideway
