#include "train/slider_sizes.h"

#include <algorithm>

#include "model/layer.h"
#include "train/slider.h"

namespace slideway {

std::uint64_t saved_bytes(const ModelConfig& config, const ModelLayout& layout, const LoraLayout* lora,
                          std::int64_t rows, DType act) {
  std::size_t most = 0;
  const int layers = lora ? config.num_layers() : 1;  // without adapters all layers are alike
  for (int l = 0; l < layers; ++l) {
    LayerParts parts;
    if (lora)
      bind_lora(parts, layout.layers[std::size_t(l)], lora->layers[std::size_t(l)], nullptr, DType::f32,
                nullptr, rows);
    const LayerLora view = parts.lora();
    Arena arena = Arena::measuring();
    std::byte here;  // stands for the layer's input, which lies elsewhere
    take_saved(arena, config, rows, act, lora && !parts.empty() ? &view : nullptr,
               Tensor(&here, act, {rows, config.hidden_size}));
    most = std::max(most, arena.high_water());
  }
  return most;
}

OpsOptions slider_ops_options(const ModelConfig& config, const TrainPlan& plan, const LoraLayout* lora) {
  OpsOptions options{.rows = plan.micro_batch_rows,
                     .heads = {config.num_attention_heads, config.num_key_value_heads, config.head_dim}};
  if (!lora) return options;
  options.lora_inputs = std::max<std::int64_t>({config.hidden_size, config.intermediate_size,
                                                options.heads.query * std::int64_t(options.heads.width)});
  options.lora_outputs =
      std::max<std::int64_t>({config.hidden_size, 2 * config.intermediate_size, options.heads.row()});
  for (const LoraBlock& block : lora->layers) {
    std::int64_t ranks = 0;  // of all modules: no projection has more
    for (const LoraModule& module : block.modules) ranks += module.rank;
    options.lora_rank = std::max(options.lora_rank, ranks);
  }
  return options;
}

SliderSizes slider_sizes(const ModelConfig& config, const ModelLayout& layout, const TrainPlan& plan,
                         const LoraLayout* lora, bool copies) {
  const NumericPlan& numeric = plan.numeric;
  const bool exact = numeric.precision.weights == DType::f32;
  const DType act_type = numeric.precision.activations;
  const std::uint64_t act = bytes_of(act_type);
  const auto width = std::uint64_t(config.hidden_size);
  const auto step_rows = std::uint64_t(plan.micro_batches * plan.micro_batch_rows);
  const std::int64_t layer = layout.layers.front().elements, norm = layout.norm.elements;

  std::int64_t largest = std::max(layer, norm), adapter = 0;
  if (lora) {
    largest = 0;
    for (const LoraBlock& block : lora->layers) {
      largest = std::max(largest, block.elements);
      adapter += block.elements;
    }
  }
  const bool full = lora == nullptr;
  // A LoRA module has two tensors, and a layer seven modules at most.
  const std::uint64_t most_tensors = std::max<std::uint64_t>(14, layout.layers.front().tensors.size());
  const std::uint64_t half = exact ? 4 : 2;  // bytes a parameter that a fetch moves
  const DType gradient_type = full ? numeric.precision.gradients : DType::f32;
  return {
      .slots = copies ? std::uint64_t(plan.slots) * std::uint64_t(layer) * half : 0,
      .joined_layer = exact ? std::uint64_t(layer) * 4 : 0,
      .gradient = std::uint64_t(largest) * 4,
      .rounded = copies ? kRounded * std::uint64_t(largest) * bytes_of(gradient_type) : 0,
      .squares = copies ? kRounded * most_tensors * sizeof(double) : 0,
      .boundaries = (std::uint64_t(config.num_layers()) + 1) * step_rows * width * act,
      .kept = std::uint64_t(plan.kept_layers) * std::uint64_t(plan.micro_batches) * plan.saved_bytes,
      .recomputed = plan.kept_layers < config.num_layers() ? plan.saved_bytes : 0,
      .scratch = plan.scratch_bytes,
      .d_x = step_rows * width * act,
      .tables = std::uint64_t(config.ropes.size()) * std::uint64_t(config.head_dim / 2) * 4,
      .indices = step_rows * 2 * 4,
      .losses = step_rows * 4,
      .norm_slot = copies ? std::uint64_t(norm) * half : 0,
      .joined_norm = exact ? std::uint64_t(norm) * 4 : 0,
      .d_norm = full ? std::uint64_t(norm) * 4 : 0,
      .adapter_values = copies ? std::uint64_t(adapter) * 4 : 0,
      .x0_staging = copies ? step_rows * width * act : 0,
      .d_x0_staging = copies && full ? step_rows * width * act : 0,
      .indices_host = copies ? 2 * step_rows * 2 * 4 : 0,  // of two steps
      .losses_host = copies ? step_rows * 4 : 0,
      .adapter_image = std::uint64_t(adapter) * 4,
      .layer_elements = layer,
      .largest_gradient = largest,
      .adapter_elements = adapter,
  };
}

std::vector<Demand> slider_demands(const ModelConfig& config, const ModelLayout& layout,
                                   const TrainPlan& plan, const LoraLayout* lora, DeviceKind device,
                                   bool copies) {
  const SliderSizes s = slider_sizes(config, layout, plan, lora, copies);
  return {
      {Tier::device, "layer slots", s.slots + s.norm_slot},
      {Tier::device, "exact weights of a layer, FP32", s.joined_layer + s.joined_norm},
      {Tier::device, "adapter weights, FP32", s.adapter_values},
      {Tier::device, "gradient of a layer, FP32", s.gradient + s.d_norm},
      {Tier::device, "gradients on their way down", s.rounded + s.squares},
      {Tier::device, "layer inputs", s.boundaries + s.d_x},
      {Tier::device, "activations kept for backward", s.kept},
      {Tier::device, "activations of one layer", s.recomputed + s.scratch},
      {Tier::device, "workspace of the ops",
       ops_workspace_bytes(device, slider_ops_options(config, plan, lora))},
      {Tier::device, "positions, targets, losses", s.tables + s.indices + s.losses},
      {Tier::pinned, "embedding rows and their gradients", s.x0_staging + s.d_x0_staging},
      {Tier::pinned, "positions, targets, losses on their way", s.indices_host + s.losses_host},
      {Tier::pinned, "adapter weights, FP32 image", s.adapter_image},
  };
}

std::vector<OptimizerOptions::Kind> optimizer_kinds(const ModelLayout& layout, const LoraLayout* lora,
                                                    bool copies) {
  if (lora) return std::vector<OptimizerOptions::Kind>(lora->layers.size());
  std::vector<OptimizerOptions::Kind> kinds;
  for (const BlockLayout* block : layout.blocks())
    kinds.push_back(
        {.summed_on_host = block == &layout.embed || (block == &layout.head && !copies),
         .in_ring = block >= layout.layers.data() && block < layout.layers.data() + layout.layers.size()});
  return kinds;
}

}  // namespace slideway
