// StepWork of a training run: what one step of a plan asks of GPU, link and host memory, counted from its shapes.
//
//   products            2 operations a weight and token forward, 4 backward; 2 more where a layer is computed again
//   attention, causal   2 · T · S · H · E forward of sequences of S tokens (half of the square), 5/2 of that backward
//   head                2 operations a weight and token forward, 4 backward, 2 more in two passes
//
// Source   docs/design.md, "Sliding"
#pragma once

#include "model/config.h"
#include "model/tensor_table.h"
#include "plan/forecast.h"
#include "train/train_plan.h"

namespace slideway {

// tokens: of a step; sequence: tokens that attend to each other.
StepWork step_work(const ModelConfig& config, const ModelLayout& layout, const TrainPlan& plan,
                   const LoraLayout* lora, double max_grad_norm, double tokens, double sequence);

}  // namespace slideway
