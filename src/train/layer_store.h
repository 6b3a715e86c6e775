// LayerStore: the host tier. Owns the master weights and optimizer states of a run, block by block.
//
// A block (model/tensor_table.h) is kept as: hi [n] bf16 in pinned memory (what the device computes with), lo [n] the
// 16-bit remainder, m [n] and v [n] f32. hi and lo together are an FP32 master, bit for bit. A frozen store has no
// moments, and no remainder either unless products use the exact master; then lo is pinned too.
//
// Units    elements
// Owns     one slab per kind, reserved and taken at construction; blocks lie one after another
// Threads  blocks may be used side by side; who may touch which when is the optimizer's business (train/optimizer.h)
// Errors   out_of_memory, and those of reading weights
// Source   docs/numerics.md, "Split master"
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "device/device.h"
#include "memory/budget.h"
#include "model/tensor_table.h"

namespace slideway {

class Threads;

struct LayerStoreOptions {
  bool trained = true;  // has moments
  bool exact = false;   // products use the exact master: lo travels to the device too, so it is pinned
  bool remainder() const { return trained || exact; }  // has lo
};

class LayerStore {
 public:
  struct Block {
    const BlockLayout* layout = nullptr;
    bf16_t* hi = nullptr;        // [n]
    std::int16_t* lo = nullptr;  // [n] or null
    float* m = nullptr;          // [n] or null
    float* v = nullptr;          // [n] or null
    std::int64_t elements = 0;   // n = layout->elements
  };

  // layouts must outlive the store.
  LayerStore(Device& device, std::vector<const BlockLayout*> layouts, const LayerStoreOptions& options);

  // What construction takes: pinned hi, host lo, m, v.
  static std::vector<Demand> demands(std::span<const BlockLayout* const> layouts,
                                     const LayerStoreOptions& options, const std::string& whose);

  int count() const { return int(blocks_.size()); }
  const Block& block(int index) const { return blocks_[std::size_t(index)]; }
  bool trained() const { return options_.trained; }

  // Sets a tensor's master from f32 (rounded to BF16 where there is no remainder). Moments are left alone.
  void write(int block, const TensorSpec& spec, std::span<const float> values);
  // The master as f32.
  void read(int block, const TensorSpec& spec, std::span<float> out) const;

 private:
  LayerStoreOptions options_;
  std::vector<Block> blocks_;
  Buffer hi_, lo_, m_, v_;
};

}  // namespace slideway
