// TrainPlan: everything about a run that is decided before it starts.
//
// Two halves. The numeric plan fixes every bit of the result: types, micro-batch cut, tiles, libraries, order of sums.
// It follows from the configuration and the kind of processor only, is written into every checkpoint, and must agree
// on resume. The memory half (slots, which layers keep their activations) follows from the budget and changes no bit.
//
// The demands are what the run takes: LayerStore, Optimizer, HeadTrainer and Slider allocate exactly these bytes.
//
// Units    bytes; rows are tokens
// Errors   out_of_memory: what is needed, what there is, and what would fit
// Source   docs/design.md, "Plan"
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lora/lora_layout.h"
#include "memory/budget.h"
#include "model/config.h"
#include "model/tensor_table.h"
#include "train/options.h"
#include "train/precision.h"

namespace slideway {

struct NumericPlan {
  Precision precision;
  std::int64_t micro_batch_size = 1;             // samples
  std::int64_t gradient_accumulation_steps = 1;  // micro-batches
  std::int64_t head_token_tile = 0;              // rows of a logits tile
  std::int64_t head_vocab_tile = 0;              // columns of a logits tile
  std::string products;                          // library, level, tiles of the products

  std::string to_json() const;
  static NumericPlan from_json(const std::string& text, const std::string& where);
  // Empty when both give the same bits, else the first field that differs, with both values.
  std::string difference(const NumericPlan& other) const;
};

// What the planner is told about model, data and machine.
struct PlanInputs {
  const ModelConfig* config = nullptr;
  const ModelLayout* layout = nullptr;
  const LoraLayout* lora = nullptr;         // null: full-parameter
  std::int64_t micro_batch_rows = 0;        // most of one micro-batch
  DeviceKind device = DeviceKind::host;     // Device::kind()
  bool device_copies = true;                // Device::copies(); false: device memory is host memory
  DType preferred_activation = DType::f32;  // Ops::preferred_activation()
  std::string products;                     // the Ops' description of themselves
  std::uint64_t device_bytes = Budget::kUnlimited;
  std::uint64_t host_bytes = Budget::kUnlimited;  // for the process as a whole
  std::uint64_t process_bytes = 0;                // what it holds already: program, tokenizer, data set
};

struct TrainPlan {
  NumericPlan numeric;
  std::int64_t micro_batches = 1;     // most of one step
  std::int64_t micro_batch_rows = 0;  // most of one
  int slots = 0;                      // layer slots; 0: weights are used in place
  int kept_layers = 0;                // the last kept_layers layers keep what backward needs; others redo it
  bool head_in_one_pass = false;      // see train/head.h
  std::uint64_t saved_bytes = 0;      // what a layer keeps of one micro-batch
  std::uint64_t scratch_bytes = 0;    // temporaries of a layer's forward or backward
  std::vector<Demand> demands;

  std::uint64_t total(Tier tier) const;
  std::string table() const;  // the demands by tier and purpose, and what was decided: for people
};

// Decides everything; refuses what cannot fit.
TrainPlan make_train_plan(const TrainOptions& options, const PlanInputs& inputs);

// LoRA's blocks as a LayerStore takes them: one a layer, tensors named as peft names them in its file.
std::vector<BlockLayout> lora_block_layouts(const LoraLayout& lora);
// layouts must outlive what takes these.
std::vector<const BlockLayout*> block_pointers(const std::vector<BlockLayout>& layouts);

}  // namespace slideway
