// Checkpoints: all that a run needs to go on as if it had never stopped, bit for bit.
//
// output_dir/checkpoint-<step>/ is a Hugging Face folder (or a PEFT adapter folder) with FP32 master weights, and
//   optimizer.safetensors   <tensor>.exp_avg and <tensor>.exp_avg_sq, F32
//   trainer_state.json      step, place in the data, numeric plan, and what must agree on resume
//   manifest.json           sizes and SHA-256 of all files, written last
// Tensors are written and read one at a time. The folder gets its name only when it is complete and on the disk, so
// that after a kill at any moment the newest complete checkpoint stands.
//
// Threads  one; the store must be at rest (Slider::flush)
// Errors   io, corrupt, invalid_input (the run differs from the one that was saved)
// Source   docs/formats.md, "Checkpoint"
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "train/dataset.h"
#include "train/layer_store.h"
#include "train/train_plan.h"

namespace slideway {

struct TrainerState {
  std::int64_t step = 0;          // updates done
  std::int64_t total_steps = 0;   // of the whole run: the schedule depends on it
  DataPosition position;          // of the next batch
  std::uint64_t data_digest = 0;  // of the data set
  std::uint64_t seed = 0;
  std::string schedule;  // learning rate, warm-up, AdamW and clipping, as text: must agree on resume
  NumericPlan numeric;
};

// Writes the weights (model or adapter files) into a folder that exists.
using WriteWeights = std::function<void(const std::filesystem::path& folder)>;

void save_checkpoint(const std::filesystem::path& folder, const TrainerState& state, const LayerStore& store,
                     const WriteWeights& write_weights);

TrainerState load_trainer_state(const std::filesystem::path& checkpoint);
// The moments of every tensor of the store.
void load_moments(const std::filesystem::path& checkpoint, LayerStore& store);

std::filesystem::path checkpoint_path(const std::filesystem::path& output_dir, std::int64_t step);
// The newest whole checkpoint of output_dir; newer ones that are not whole are named in the log, with the reason.
std::optional<std::filesystem::path> newest_checkpoint(const std::filesystem::path& output_dir);
// Keeps the newest `keep` checkpoints (0: all), removes the others.
void remove_old_checkpoints(const std::filesystem::path& output_dir, int keep);

}  // namespace slideway
