// Precision: in which types a run computes. Part of the numeric plan: it follows from the configuration and the kind
// of processor, never from memory limits or timings.
#pragma once

#include "tensor/dtype.h"

namespace slideway {

struct Precision {
  DType weights = DType::bf16;     // what products see: bf16 = the master's high half; f32 = the exact master
  DType activations = DType::f32;  // and their gradients
  DType gradients = DType::bf16;   // of weights, rounded once after all micro-batches; always f32 for LoRA
};

}  // namespace slideway
