// TrainBench: training steps of a model of true shapes and random weights, timed.
//
// One store of weights and moments serves several settings, since filling the memory of a large model takes longer than
// a step. Steps are launched one ahead, as the trainer does.
//
// Owns     the store
// Threads  one
// Errors   out_of_memory: the plan's
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lora/lora_layout.h"
#include "plan/forecast.h"
#include "plan/measure.h"
#include "train/layer_store.h"
#include "train/train_plan.h"

namespace slideway {

struct TrainBenchOptions {
  std::int64_t tokens = 8192;  // of a step
  int sequence_len = 1024;
  int micro_batch_size = 4;
  double max_grad_norm = 1;
  std::uint64_t gpu_memory = 0;  // 0: what the device has
  int warm_steps = 2, steps = 4;
  std::function<void(const std::string&)> on_note;  // what has been done, as it is done
};

struct TrainBenchResult {
  TrainPlan plan;
  StepWork work;
  StepForecast forecast;  // from the measured rates
  double step_s = 0;
  double loss = 0;
  std::uint64_t device_bytes = 0;  // taken of the device by the run, as the device tells it
};

class TrainBench {
 public:
  // lora_r > 0: a LoRA adapter on all linear modules over a frozen base.
  TrainBench(Device& device, Threads& threads, ModelConfig config, int lora_r);
  ~TrainBench();

  TrainBenchResult run(const TrainBenchOptions& options, const MeasuredRates& rates);
  const ModelLayout& layout() const { return layout_; }

 private:
  TrainPlan make_plan(const TrainBenchOptions& options) const;

  Device& device_;
  Threads& threads_;
  ModelConfig config_;
  ModelLayout layout_;
  std::unique_ptr<LoraLayout> lora_;
  std::vector<BlockLayout> lora_blocks_;
  std::unique_ptr<LayerStore> base_, adapter_;
};

}  // namespace slideway
