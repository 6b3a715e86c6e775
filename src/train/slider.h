// Slider: the sliding engine. One optimizer step over a model of which only a few layers are on the device.
//
//   forward    fetch(l + 1) ‖ all micro-batches through layer l
//   head       train/head.h
//   backward   fetch(l − 1) ‖ recompute and backward of layer l, all micro-batches ‖ gradient of l + 1 down ‖ its update
//
// All micro-batches pass through a layer before the next one (vertical micro-batching), so weights cross to the device
// twice a step and gradients cross back once, whatever the batch. The inputs of every layer stay on the device; the
// last kept_layers layers also keep what backward needs, the others compute it again: the same bits.
//
// launch() only issues; wait() blocks until the oldest launched step has its loss and norm. The next step may be
// launched before: it waits, layer by layer, for the updates it needs, never for all.
//
// Owns     device buffers as TrainPlan says, the streams, the optimizer and its worker
// Threads  one
// Errors   internal, device
// Source   docs/design.md, "Sliding"
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/threads.h"
#include "model/decoder.h"
#include "train/dataset.h"
#include "train/head.h"
#include "train/layer_store.h"
#include "train/optimizer.h"

namespace slideway {

struct StepResult {
  std::int64_t step = 0;  // from 1
  double loss = 0;        // mean over trained tokens
  double grad_norm = 0;   // before clipping
  std::string bad_block;  // a block whose gradient is not finite; empty: all are
  std::chrono::steady_clock::time_point
      known_at;  // when its loss and norm were known, whenever they are asked for
};

// The places of the base model's blocks in its store, which follows ModelLayout::blocks().
struct BaseBlocks {
  int embed = 0;
  int first_layer = 1;
  int norm = 0;
  int head = 0;  // embed's where the two are tied
};
BaseBlocks base_blocks(const ModelLayout& layout);

struct SliderParts {
  const ModelConfig& config;
  const ModelLayout& layout;
  const TrainPlan& plan;
  Device& device;
  Threads& threads;
  LayerStore& base;
  const LoraLayout* lora = nullptr;  // null: full-parameter
  LayerStore* adapter = nullptr;     // blocks as lora_block_layouts(); null: full-parameter
  OptimizerOptions optimizer;        // kinds are filled in here
  double lora_dropout = 0;
  std::uint64_t seed = 0;  // of dropout
};

class Slider {
 public:
  explicit Slider(const SliderParts& parts);
  ~Slider();

  void launch(std::shared_ptr<const StepBatch> batch, double lr);
  std::optional<StepResult> wait();  // empty: nothing is under way
  void flush();                      // waits until every update has been done
  Optimizer& optimizer() { return *optimizer_; }

 private:
  struct MicroRows {                // what a micro-batch has on the device
    Tensor positions, targets;      // [T] i32
    Tensor losses;                  // [T] f32
    std::int64_t rows = 0, at = 0;  // T, and the rows of the step before it
  };
  void allocate();
  void fill_tables();
  void begin(const StepBatch& batch);
  void embed(const StepBatch& batch);
  void gather(const StepBatch& batch, std::byte* out) const;
  void adapter_up();
  void norm_up();
  void forward(const StepBatch& batch);
  void head(const StepBatch& batch);
  void backward(const StepBatch& batch);
  void embed_gradient(const StepBatch& batch);
  void gradient_down(int block, std::int64_t elements, Tensor sum);
  Tensor sum_squares(int block, Tensor rounded);
  void sum_losses(const StepBatch& batch);

  void fetch(int layer);
  LayerWeights acquire(int layer);
  void release(int layer);
  Tensor joined(Tensor hi, Tensor lo, Buffer& into);

  Rows rows_of(const StepBatch& batch, int micro_batch) const;
  struct AdapterView;
  void bind_adapter(const StepBatch& batch);
  AdapterView& adapter_view(int layer, int micro_batch);
  const LayerLora* lora_of(int layer, int micro_batch);
  LayerSaved saved_of(int layer, int micro_batch, const LayerLora* lora);
  Tensor inv_freq_of(int layer) const;
  Tensor boundary(int layer, int micro_batch) const;  // [T, D] act: input of a layer; of the head for L
  Tensor d_x(int micro_batch) const;
  bool keeps(int layer) const { return layer >= config_.num_layers() - plan_.kept_layers; }
  bool full() const { return parts_.adapter == nullptr; }
  Stream& downward() { return in_place_ ? *compute_ : *down_; }  // what carries gradients to the host

  SliderParts parts_;
  const ModelConfig& config_;
  const TrainPlan& plan_;
  BaseBlocks blocks_;
  DType act_;
  bool exact_, in_place_;

  // Buffers outlive the streams, whose queues may still name them.
  Buffer slots_, joined_layer_, gradient_, rounded_, squares_, boundaries_, kept_, recomputed_,
      scratch_bytes_, d_x_, tables_, indices_, losses_, norm_slot_, joined_norm_, d_norm_, x0_staging_,
      d_x0_staging_, losses_host_, indices_host_, adapter_image_, adapter_values_;
  std::unique_ptr<Event> gathered_, x0_up_, x0_used_, adapter_joined_, adapter_up_, gradient_ready_,
      gradient_copied_, d_x0_down_, losses_ready_, losses_down_;
  std::unique_ptr<Stream> compute_, up_, down_;
  std::unique_ptr<Worker> updates_, gathers_;
  std::unique_ptr<Ops> ops_, update_ops_;
  std::unique_ptr<Decoder> decoder_;
  std::unique_ptr<Optimizer> optimizer_;
  std::unique_ptr<HeadTrainer> head_;
  std::unique_ptr<SlotRing> ring_;
  std::optional<Arena> scratch_;
  struct AdapterView {
    LayerParts parts;
    LayerLora lora;  // of parts
  };
  std::vector<AdapterView> adapter_views_;  // [2 steps, L, micro-batches]

  std::vector<MicroRows> micro_;
  std::uint64_t step_ = 0;       // of the step being issued: most events count steps
  std::uint64_t gradients_ = 0;  // blocks sent down so far
  double losses_of_step_[2] = {0, 0};
  struct Pending {
    std::shared_ptr<const StepBatch> batch;
    std::int64_t step;
  };
  std::deque<Pending> pending_;
};

// What a Slider takes beside the stores and the optimizer, by purpose.
std::vector<Demand> slider_demands(const ModelConfig& config, const ModelLayout& layout,
                                   const TrainPlan& plan, const LoraLayout* lora, DeviceKind device,
                                   bool copies);
// copies: a head of its own is rounded on the device, as the layers are.
std::vector<OptimizerOptions::Kind> optimizer_kinds(const ModelLayout& layout, const LoraLayout* lora,
                                                    bool copies);

}  // namespace slideway
