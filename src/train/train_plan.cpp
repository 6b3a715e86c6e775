#include "train/train_plan.h"

#include <algorithm>
#include <iomanip>
#include <sstream>

#include "model/layer.h"
#include "train/head.h"
#include "train/layer_store.h"
#include "train/optimizer.h"
#include "train/slider.h"
#include "train/slider_sizes.h"

namespace slideway {
namespace {

// Tiles of the head, part of the numeric plan: 256 × 8192 logits are 8 MiB. A GPU wants more rows in a launch.
constexpr std::int64_t kHeadTokenTile = 256, kHeadTokenTileCuda = 2048, kHeadVocabTile = 8192;

Precision choose_precision(const TrainOptions& options, DType preferred_activation) {
  if (options.compute == ComputeType::fp32) return {DType::f32, DType::f32, DType::f32};
  return {DType::bf16, preferred_activation, DType::bf16};
}

OptimizerOptions optimizer_shape(const TrainOptions& options, const TrainPlan& plan, const PlanInputs& in) {
  return {.max_grad_norm = options.max_grad_norm,
          .gradients = in.lora ? DType::f32 : plan.numeric.precision.gradients,
          .kinds = optimizer_kinds(*in.layout, in.lora, in.device_copies)};
}

std::vector<Demand> all_demands(const TrainOptions& options, const TrainPlan& plan, const PlanInputs& in) {
  std::vector<Demand> all{{Tier::host, "program, tokenizer, data set", in.process_bytes}};
  const auto add = [&](const std::vector<Demand>& more) {
    for (const Demand& demand : more)
      if (demand.bytes > 0) all.push_back(demand);
  };
  const std::vector<const BlockLayout*> base = in.layout->blocks();
  const OptimizerOptions optimizer = optimizer_shape(options, plan, in);
  const bool exact = plan.numeric.precision.weights == DType::f32;
  add(LayerStore::demands(base, {.trained = !in.lora, .exact = exact}, in.lora ? "base" : "model"));
  if (in.lora) {
    const std::vector<BlockLayout> adapter = lora_block_layouts(*in.lora);
    add(LayerStore::demands(block_pointers(adapter), {}, "adapter"));
    add(Optimizer::demands(block_pointers(adapter), optimizer));
  } else {
    std::int64_t largest = 0;
    for (const BlockLayout* block : base)
      for (const TensorSpec& tensor : block->tensors) largest = std::max(largest, tensor.elements());
    add({{Tier::host, "a tensor on its way to a file, FP32", std::uint64_t(largest) * 4}});
    add(Optimizer::demands(base, optimizer));
  }
  add(slider_demands(*in.config, *in.layout, plan, in.lora, in.device, in.device_copies));
  add(HeadTrainer::demands(*in.config, plan, in.lora == nullptr, in.device_copies));
  return all;
}

bool fits(const TrainPlan& plan, const PlanInputs& in) {
  const std::uint64_t device = plan.total(Tier::device),
                      host = plan.total(Tier::host) + plan.total(Tier::pinned);
  return device <= in.device_bytes && host + (in.device_copies ? 0 : device) <= in.host_bytes;
}

// The memory half for a number of kept layers and a way through the head.
void decide(TrainPlan& plan, const TrainOptions& options, const PlanInputs& in, int kept, bool one_pass) {
  plan.kept_layers = kept;
  plan.head_in_one_pass = one_pass;
  plan.demands = all_demands(options, plan, in);
}

// The best choice that fits: most layers kept, then the head in one pass; false where none does. Leaves the smallest
// choice in plan then.
bool choose(TrainPlan& plan, const TrainOptions& options, const PlanInputs& in) {
  const int layers = in.config->num_layers();
  const int most = options.activations == ActivationPolicy::recompute ? 0 : layers;
  const int least = options.activations == ActivationPolicy::keep ? layers : 0;
  for (const bool one_pass : {true, false})
    for (int kept = most; kept >= least; --kept) {
      decide(plan, options, in, kept, one_pass);
      if (fits(plan, in)) return true;
    }
  return false;
}

void size_rows(TrainPlan& plan, const PlanInputs& in, std::int64_t rows) {
  const DType act = plan.numeric.precision.activations;
  plan.micro_batch_rows = rows;
  plan.saved_bytes = saved_bytes(*in.config, *in.layout, in.lora, rows, act);
  plan.scratch_bytes =
      std::max(forward_scratch_bytes(*in.config, rows, act), backward_scratch_bytes(*in.config, rows, act));
}

// Says what is missing, and what would fit: the memory for this run, or the rows for this memory.
[[noreturn]] void refuse(const TrainPlan& plan, const TrainOptions& options, const PlanInputs& in) {
  const std::uint64_t device = plan.total(Tier::device);
  const std::uint64_t host =
      plan.total(Tier::host) + plan.total(Tier::pinned) + (in.device_copies ? 0 : device);
  std::ostringstream text;
  text << "this run does not fit: ";
  if (device > in.device_bytes)
    text << "it needs at least " << bytes_text(device) << " of device memory, and gpu_memory allows "
         << bytes_text(in.device_bytes) << "; ";
  if (host > in.host_bytes)
    text << "it needs at least " << bytes_text(host) << " of host memory, and there are "
         << bytes_text(in.host_bytes) << "; ";
  text << "what would fit: that much memory";
  TrainPlan smaller = plan;
  for (std::int64_t rows = plan.micro_batch_rows / 2; rows >= 16; rows /= 2) {
    size_rows(smaller, in, rows);
    if (!choose(smaller, options, in)) continue;
    text << ", or micro-batches of " << rows << " tokens (smaller sequence_len × micro_batch_size)";
    break;
  }
  if (options.activations == ActivationPolicy::keep) text << ", or activations: auto";
  if (!in.lora) text << ", or adapter: lora";
  fail(ErrorKind::out_of_memory, text.str(), ". The smallest plan was:\n", plan.table());
}

}  // namespace

std::uint64_t TrainPlan::total(Tier tier) const {
  std::uint64_t sum = 0;
  for (const Demand& demand : demands)
    if (demand.tier == tier) sum += demand.bytes;
  return sum;
}

std::string TrainPlan::table() const {
  std::ostringstream out;
  for (const Tier tier : {Tier::device, Tier::pinned, Tier::host, Tier::disk}) {
    if (total(tier) == 0) continue;
    out << std::left << std::setw(10) << name_of(tier) << std::right << std::setw(12)
        << bytes_text(total(tier)) << '\n';
    for (const Demand& demand : demands)
      if (demand.tier == tier)
        out << std::setw(24) << bytes_text(demand.bytes) << "  " << demand.purpose << '\n';
  }
  out << "micro-batches of at most " << micro_batch_rows << " tokens, " << micro_batches << " a step; ";
  if (slots > 0) out << slots << " layer slots; ";
  out << "activations of " << kept_layers << " layers kept, the others' computed again; head in "
      << (head_in_one_pass ? "one pass" : "two passes") << '\n';
  return out.str();
}

TrainPlan make_train_plan(const TrainOptions& options, const PlanInputs& in) {
  TrainPlan plan;
  plan.numeric = {.precision = choose_precision(options, in.preferred_activation),
                  .micro_batch_size = options.micro_batch_size,
                  .gradient_accumulation_steps = options.gradient_accumulation_steps,
                  .head_token_tile = in.device == DeviceKind::cuda ? kHeadTokenTileCuda : kHeadTokenTile,
                  .head_vocab_tile = std::min(kHeadVocabTile, in.config->vocab_size),
                  .products = in.products};
  plan.micro_batches = options.gradient_accumulation_steps;
  plan.slots = in.device_copies ? std::max(2, options.slots) : 0;
  size_rows(plan, in, in.micro_batch_rows);
  if (!choose(plan, options, in)) refuse(plan, options, in);
  return plan;
}

std::vector<const BlockLayout*> block_pointers(const std::vector<BlockLayout>& layouts) {
  std::vector<const BlockLayout*> all;
  for (const BlockLayout& layout : layouts) all.push_back(&layout);
  return all;
}

std::vector<BlockLayout> lora_block_layouts(const LoraLayout& lora) {
  std::vector<BlockLayout> layouts;
  for (std::size_t l = 0; l < lora.layers.size(); ++l) {
    BlockLayout layout{.name = "adapter.layers." + std::to_string(l), .elements = lora.layers[l].elements};
    for (const LoraModule& module : lora.layers[l].modules) {
      const std::string name = kPeftPrefix + module.name;
      layout.tensors.push_back({.role = module.role,
                                .name = name + ".lora_A.weight",
                                .shape = {module.rank, module.inputs},
                                .offset = module.a_offset,
                                .decays = true});
      layout.tensors.push_back({.role = module.role,
                                .name = name + ".lora_B.weight",
                                .shape = {module.outputs, module.rank},
                                .offset = module.b_offset,
                                .decays = true});
    }
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

}  // namespace slideway
