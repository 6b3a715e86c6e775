#include "train/options.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/error.h"

namespace slideway {
namespace {

template <class Value>
void need(bool good, const char* key, const char* needed, const Value& found) {
  if (!good) fail(ErrorKind::invalid_input, key, " must be ", needed, ", found ", found);
}

void validate_adapter(const TrainOptions& o) {
  if (o.adapter == AdapterKind::none) {
    if (!o.lora_target_modules.empty())
      fail(ErrorKind::invalid_input, "lora_target_modules is set, but adapter is not: write adapter: lora");
    return;
  }
  need(o.lora_r >= 1, "lora_r", "at least 1", o.lora_r);
  need(std::isfinite(o.lora_alpha) && o.lora_alpha > 0, "lora_alpha", "above 0", o.lora_alpha);
  need(o.lora_dropout >= 0 && o.lora_dropout < 1, "lora_dropout", "at least 0 and below 1", o.lora_dropout);
}

void validate_optimizer(const TrainOptions& o) {
  need(std::isfinite(o.learning_rate) && o.learning_rate >= 0, "learning_rate", "at least 0",
       o.learning_rate);
  need(o.warmup_steps >= 0, "warmup_steps", "at least 0", o.warmup_steps);
  need(o.warmup_ratio >= 0 && o.warmup_ratio <= 1, "warmup_ratio", "from 0 to 1", o.warmup_ratio);
  if (o.warmup_steps > 0 && o.warmup_ratio > 0)
    fail(ErrorKind::invalid_input, "warmup_steps and warmup_ratio are both set: give one");
  need(std::isfinite(o.weight_decay) && o.weight_decay >= 0, "weight_decay", "at least 0", o.weight_decay);
  need(o.adam_beta1 >= 0 && o.adam_beta1 < 1, "adam_beta1", "at least 0 and below 1", o.adam_beta1);
  need(o.adam_beta2 >= 0 && o.adam_beta2 < 1, "adam_beta2", "at least 0 and below 1", o.adam_beta2);
  need(std::isfinite(o.adam_epsilon) && o.adam_epsilon > 0, "adam_epsilon", "above 0", o.adam_epsilon);
  need(std::isfinite(o.max_grad_norm) && o.max_grad_norm >= 0, "max_grad_norm", "at least 0 (0: no clipping)",
       o.max_grad_norm);
}

}  // namespace

void TrainOptions::validate() const {
  if (base_model.empty())
    fail(ErrorKind::invalid_input, "base_model is not set: the folder or .gguf file to tune");
  if (datasets.empty()) fail(ErrorKind::invalid_input, "datasets is not set: the JSONL files to train on");
  if (output_dir.empty()) fail(ErrorKind::invalid_input, "output_dir is not set: where the result goes");
  validate_adapter(*this);
  validate_optimizer(*this);
  need(sequence_len >= 2, "sequence_len", "at least 2", sequence_len);
  need(micro_batch_size >= 1, "micro_batch_size", "at least 1", micro_batch_size);
  need(gradient_accumulation_steps >= 1, "gradient_accumulation_steps", "at least 1",
       gradient_accumulation_steps);
  need(max_steps >= 0, "max_steps", "at least 0", max_steps);
  need(max_steps > 0 || (std::isfinite(num_epochs) && num_epochs > 0), "num_epochs", "above 0", num_epochs);
  need(logging_steps >= 1, "logging_steps", "at least 1", logging_steps);
  need(save_steps >= 0, "save_steps", "at least 0 (0: only at the end)", save_steps);
  need(save_total_limit >= 0, "save_total_limit", "at least 0 (0: all)", save_total_limit);
  need(max_shard_size >= 1024, "max_shard_size", "at least 1024 bytes", max_shard_size);
  need(slots == 0 || slots >= 2, "slots", "0 (chosen) or at least 2", slots);
  need(threads >= 0, "threads", "at least 0 (0: all processors)", threads);
}

std::int64_t total_steps(const TrainOptions& options, std::int64_t steps_per_epoch) {
  if (options.max_steps > 0) return options.max_steps;
  return std::max<std::int64_t>(1, std::int64_t(std::ceil(options.num_epochs * double(steps_per_epoch))));
}

std::int64_t warmup_steps(const TrainOptions& options, std::int64_t total) {
  if (options.warmup_steps > 0) return options.warmup_steps;
  return std::int64_t(std::ceil(options.warmup_ratio * double(total)));
}

double learning_rate_at(const TrainOptions& options, std::int64_t step, std::int64_t total) {
  const std::int64_t warmup = warmup_steps(options, total);
  if (step < warmup) return options.learning_rate * double(step) / double(std::max<std::int64_t>(1, warmup));
  const double span = double(std::max<std::int64_t>(1, total - warmup));
  switch (options.lr_scheduler) {
    case LrSchedule::constant:
      return options.learning_rate;
    case LrSchedule::linear:
      return options.learning_rate * std::max(0.0, double(total - step) / span);
    case LrSchedule::cosine:
      return options.learning_rate *
             std::max(0.0, 0.5 * (1 + std::cos(std::numbers::pi * double(step - warmup) / span)));
  }
  fail(ErrorKind::internal, "no such schedule");
}

}  // namespace slideway
