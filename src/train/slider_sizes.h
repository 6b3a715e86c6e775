// SliderSizes: the bytes of each of the slider's buffers, from the plan; one source for the forecast and the run.
#pragma once

#include <cstdint>

#include "lora/lora_layout.h"
#include "model/config.h"
#include "model/tensor_table.h"
#include "train/train_plan.h"

namespace slideway {

struct SliderSizes {
  // on the device
  std::uint64_t slots, joined_layer, gradient, rounded, squares, boundaries, kept, recomputed, scratch, d_x,
      tables, indices, losses, norm_slot, joined_norm, d_norm, adapter_values;
  // pinned on the host
  std::uint64_t x0_staging, d_x0_staging, indices_host, losses_host, adapter_image;

  std::int64_t layer_elements, largest_gradient, adapter_elements;
};

SliderSizes slider_sizes(const ModelConfig& config, const ModelLayout& layout, const TrainPlan& plan,
                         const LoraLayout* lora, bool copies);

// What the slider tells its ops, and what their workspace depends on.
OpsOptions slider_ops_options(const ModelConfig& config, const TrainPlan& plan, const LoraLayout* lora);

// Bytes of what a layer keeps of one micro-batch for backward, at most, beside its input.
std::uint64_t saved_bytes(const ModelConfig& config, const ModelLayout& layout, const LoraLayout* lora,
                          std::int64_t rows, DType act);

constexpr int kRounded = 2;  // gradients on their way down at once

}  // namespace slideway
