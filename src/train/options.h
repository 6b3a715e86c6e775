// TrainOptions: what the user chose for a training run, with the names that a configuration file uses
// (cli/config).
//
// Filled by cli/config (or by a test), validated once, then only read. Whatever is derived (number of steps,
// warm-up, the rate of an update) is computed by the functions below, so that the log, the checkpoint and the
// run agree.
//
// Units    bytes, tokens, optimizer steps (updates)
// Errors   invalid_input from validate(): the key, what it needs, what was found
// Source   key names of axolotl; schedules of transformers' get_{constant,linear,cosine}_schedule_with_warmup
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace slideway {

enum class AdapterKind { none, lora };  // none: every parameter is trained
enum class LrSchedule { constant, linear, cosine };
enum class ComputeType { automatic, bf16, fp32 };  // fp32: from the exact master, FP32 gradients
enum class ActivationPolicy { automatic, keep, recompute };
// automatic: the GPU where there is one. seeded: the CPU in a seeded order of the streams, with real copies.
enum class DeviceChoice { automatic, cpu, cuda, seeded };
enum class LongRows { truncate, drop, refuse };  // rows longer than sequence_len
enum class SaveType { automatic, bf16, fp32 };   // automatic: as the base model was stored

struct TrainOptions {
  // --- model
  std::string base_model;  // a folder or .gguf file
  AdapterKind adapter = AdapterKind::none;
  int lora_r = 16;
  double lora_alpha = 32;
  double lora_dropout = 0;
  std::vector<std::string> lora_target_modules;  // "q_proj", …; empty: every linear module of the layers
  bool use_rslora = false;                       // scale alpha / sqrt(r) instead of alpha / r

  // --- data
  std::vector<std::string> datasets;  // JSONL files
  std::string chat_template;          // a Jinja file; empty: the model's own
  int sequence_len = 2048;            // most tokens of a sample
  LongRows long_rows = LongRows::truncate;
  bool train_on_inputs = false;  // loss on prompts and user turns too
  bool sample_packing = false;   // several samples share sequence_len, masked from each other

  // --- batch and length of the run
  int micro_batch_size = 1;             // samples (with sample_packing: packs) of one micro-batch
  int gradient_accumulation_steps = 1;  // micro-batches of one update
  double num_epochs = 1;
  std::int64_t max_steps = 0;  // > 0: that many updates, whatever num_epochs says

  // --- optimizer: AdamW, decoupled weight decay
  double learning_rate = 5e-5;
  LrSchedule lr_scheduler = LrSchedule::cosine;
  std::int64_t warmup_steps = 0;
  double warmup_ratio = 0;  // of all updates, rounded up; used where warmup_steps is 0
  double weight_decay = 0;  // never on norms and biases
  double adam_beta1 = 0.9;
  double adam_beta2 = 0.999;
  double adam_epsilon = 1e-8;
  double max_grad_norm = 1.0;  // 0: no clipping

  // --- results
  std::string output_dir;
  int logging_steps = 1;
  bool use_tensorboard = false;        // event files in output_dir/logs, beside trainer_log.jsonl
  std::int64_t save_steps = 500;       // 0: only at the end
  int save_total_limit = 2;            // newest checkpoints kept; 0: all
  std::string resume_from_checkpoint;  // empty: start anew; a checkpoint folder; "auto": the newest whole one
  SaveType save_dtype = SaveType::automatic;
  std::uint64_t max_shard_size = 5'000'000'000;  // bytes of one safetensors file of the result

  // --- machine; nothing here changes a bit of the result, save compute
  DeviceChoice device = DeviceChoice::automatic;
  std::uint64_t device_seed = 0;  // of the seeded device's orders
  ComputeType compute = ComputeType::automatic;
  std::uint64_t gpu_memory = 0;  // bytes of the device budget; 0: what the device has
  std::uint64_t ram = 0;         // bytes of the host budget; 0: what the machine has
  int slots = 0;                 // layer slots on the device; 0: chosen by the planner
  ActivationPolicy activations = ActivationPolicy::automatic;
  int threads = 0;  // 0: every processor this process may use
  bool deterministic = true;
  std::uint64_t seed = 42;  // of shuffling, dropout and new adapters

  // Checks every value and every pair that must agree.
  void validate() const;
};

// Updates of the whole run: max_steps, or ⌈num_epochs · steps_per_epoch⌉.
std::int64_t total_steps(const TrainOptions& options, std::int64_t steps_per_epoch);
// warmup_steps, or ⌈warmup_ratio · total⌉.
std::int64_t warmup_steps(const TrainOptions& options, std::int64_t total);
// The rate used by update `step` (from 0, so the first update uses step 0) of `total`, W = warm-up:
//   step < W   learning_rate · step / W
//   constant   learning_rate
//   linear     learning_rate · (total − step) / (total − W)
//   cosine     learning_rate · ½ (1 + cos(π (step − W) / (total − W)))
double learning_rate_at(const TrainOptions& options, std::int64_t step, std::int64_t total);

}  // namespace slideway
