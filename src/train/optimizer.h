// Optimizer: gradients arrive on the host block by block; AdamW runs there, beside the device.
//
// Without clipping a block is updated as soon as its gradient has landed, while earlier layers are still in backward.
// With max_grad_norm every gradient stays on the host until the last has landed; then the exact global norm is known,
// and the blocks are updated in forward order, each just before the next forward fetches it. No step waits for all of
// them: whoever reads a block's weights waits for that block's own update (wait_for_weights).
//
// Gradients are f32 on the device, rounded once to the run's gradient type; their squares are summed per tensor in a
// fixed order, then over tensors in f64 in block order. A norm that is not finite stops all updates from there on and
// is reported with the step.
//
// Owns     landing places of gradients, the host worker's events
// Threads  issued by one thread; the work runs on the worker
// Source   docs/design.md, "Update"; ops/adamw.h
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include "core/threads.h"
#include "device/device.h"
#include "memory/budget.h"
#include "ops/adamw.h"
#include "ops/ops.h"
#include "train/layer_store.h"

namespace slideway {

struct OptimizerOptions {
  AdamwOptions adamw;
  double weight_decay = 0.0;
  double max_grad_norm = 1.0;  // 0: no clipping
  DType gradients = DType::bf16;
  // One entry a block.
  struct Kind {
    bool summed_on_host = false;  // a vocabulary matrix: summed there in f32, then rounded like the others
    bool in_ring = false;         // a decoder layer: without clipping, two landing places serve all of them
  };
  std::vector<Kind> kinds;
};

class Optimizer {
 public:
  // host_ops computes on worker.
  Optimizer(LayerStore& store, Device& device, Worker& worker, Ops& host_ops, Threads& threads,
            const OptimizerOptions& options);

  static std::vector<Demand> demands(std::span<const BlockLayout* const> layouts,
                                     const OptimizerOptions& options);

  // --- a step, in this order ---
  // t counts from 1 (AdamW's bias correction).
  void begin_step(std::int64_t t, double lr);
  // Where block's gradient goes: [n] in gradient_type(block). copier waits until the place is free.
  Tensor landing(int block, Stream& copier);
  // Where this step's sums of squares go, one a tensor of the block, if the device makes them: pinned.
  std::span<double> squares(int block);
  // The gradient is there once everything issued on copier so far has been done, and with it, if with_squares, what goes
  // to squares(block); otherwise the host sums them.
  void landed(int block, Stream& copier, bool with_squares = false);
  void end_step();

  // Nothing issued later on stream reads block's weights before its latest update.
  void wait_for_weights(int block, Stream& stream);
  // How many updates block has had or will have had by the work issued so far: SlotRing's version.
  std::uint64_t version(int block) const { return versions_[std::size_t(block)]; }
  DType gradient_type(int block) const;

  struct Norms {
    double total = 0;          // global L2 norm before clipping
    int first_bad_block = -1;  // a block whose sum is not finite; −1: none
    std::chrono::steady_clock::time_point known_at;
  };
  // Signalled with t when the norms of step t are known; norms(t) may then be read until step t + 2 ends.
  Event& norms_known() { return *norms_known_; }
  const Norms& norms(std::int64_t t) const { return norms_[std::size_t(t % 2)]; }

  // Every update issued so far has been done when it returns.
  void flush();
  std::int64_t steps() const { return step_; }
  void resume_at(std::int64_t t) { step_ = t; }

 private:
  struct Place {
    Buffer bytes;
    std::uint64_t free_at = 0;  // value of updated_ from which on it may be overwritten
  };
  Place& place_of(int block);
  Tensor gradient(int block);
  void sum_squares(int block);
  void check_squares(int block);
  void update(int block);

  LayerStore& store_;
  Worker& worker_;
  Ops& host_ops_;
  Threads& threads_;
  OptimizerOptions options_;
  bool clips_;

  std::vector<Place> places_;            // one per block, or a ring of two for the decoder layers
  std::vector<int> place_index_;         // [blocks]
  std::vector<std::uint64_t> versions_;  // [blocks]
  std::vector<std::uint64_t>
      tickets_;     // [blocks]: value of updated_ at which the block's weights are current
  Buffer squares_;  // [2 steps, tensors] f64, in block order
  std::vector<std::size_t> first_square_;  // [blocks + 1]
  std::unique_ptr<Event> landed_, updated_, norms_known_;
  std::uint64_t landings_ = 0, updates_ = 0;
  std::int64_t step_ = 0;
  double lr_ = 0;
  float clip_ = 1;        // written and read on the worker
  bool stopped_ = false;  // a norm was not finite; on the worker
  Norms norms_[2];
};

}  // namespace slideway
