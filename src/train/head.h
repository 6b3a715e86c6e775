// HeadTrainer: final norm, logits, cross entropy and their gradients over one grid of tiles; logits never exist whole.
//
// The grid is token tiles × vocabulary tiles. Two loops walk it with one order of sums, so they agree bit for bit:
//   one pass    all vocabulary tiles are on the device: token tiles outermost, each logit computed once
//   two passes  two vocabulary tiles at a time: they are outermost, first for the log-sum-exp, then, with the logits
//               computed again, for the gradient
// Sums: log-sum-exp and d_h over vocabulary tiles ascending; d_W and d_norm over token tiles ascending, f32.
//
//   losses[t] = −log softmax(h Wᵀ)[target],  h = rms_norm(x);   gradients are of weight · Σ losses
//
// Owns     its tiles and sums
// Threads  one; the work runs on the compute, up and down streams
// Source   docs/design.md, "Head"
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "device/device.h"
#include "memory/slot_ring.h"
#include "model/config.h"
#include "ops/ops.h"
#include "train/train_plan.h"

namespace slideway {

// The three streams that a training step runs on. ops is bound to compute.
struct TrainStreams {
  Device& device;
  Ops& ops;
  Stream& compute;
  Stream& up;    // host to device
  Stream& down;  // device to host
};

class HeadTrainer {
 public:
  HeadTrainer(const ModelConfig& config, const TrainPlan& plan, const TrainStreams& streams, bool trained);

  // What construction takes, by purpose.
  static std::vector<Demand> demands(const ModelConfig& config, const TrainPlan& plan, bool trained,
                                     bool copies);

  // The rows of one micro-batch.
  struct Part {
    Tensor x;        // [T, D] act: output of the last layer
    Tensor targets;  // [T] i32, −1: not trained
    Tensor losses;   // [T] f32, written; 0 where not trained
    Tensor d_x;      // [T, D] act, written: gradient at x
  };
  struct Weights {
    Tensor norm;                 // [D] on the device
    Tensor d_norm;               // [D] f32, added to; empty: frozen
    bf16_t* hi = nullptr;        // [V, D] on the host: where tiles come from
    std::int16_t* lo = nullptr;  // [V, D] where products use the exact master
    std::uint64_t version = 0;   // SlotRing's
    Tensor d_head;  // [V, D] on the host, overwritten; f32, or bf16 where the device copies; empty: frozen
  };
  // weight: 1 / trained tokens of the step. d_head is there once everything issued on down so far has been done.
  // The up stream must already wait for the weights, the down stream for d_head's place.
  void run(std::span<const Part> parts, const Weights& weights, float weight);

 private:
  struct Rows {  // a token tile
    const Part* part;
    std::int64_t begin, end;  // rows of the part
    std::int64_t at;          // rows of the step before it
  };
  std::int64_t tile_begin(int tile) const { return tile * plan_.numeric.head_vocab_tile; }
  std::int64_t tile_rows(int tile) const;
  void fetch(int tile, const Weights& weights);
  Tensor acquire(int tile, const Weights& weights);  // [tile, D] in the products' type
  void release(int tile);

  Tensor norm_tile(const Rows& rows, const Weights& weights);  // h [rows, D], rstd_
  Tensor logits_tile(const Rows& rows, int tile, Tensor h, Tensor w);
  void gradient_tile(const Rows& rows, int tile, Tensor h, Tensor w, Tensor logits, Tensor d_w, float weight);
  Tensor begin_d_w(int tile,
                   const Weights& weights);  // two passes: where the tile's gradient is summed, zeroed
  void send_d_w(std::int64_t begin, Tensor d_w, const Weights& weights);  // rows [begin, …) of d_head
  void finish_tile(const Rows& rows, const Weights& weights);
  void one_pass(std::span<const Rows> rows, const Weights& weights, float weight);
  void two_passes(std::span<const Rows> rows, const Weights& weights, float weight);

  Tensor max_sum(const Rows& rows) const;
  Tensor target_logit(const Rows& rows) const;
  Tensor d_h(const Rows& rows) const;

  const ModelConfig& config_;
  const TrainPlan& plan_;
  TrainStreams on_;
  DType act_;
  bool trained_, exact_, in_place_;
  int tiles_;

  Buffer slots_, joined_, logits_, d_logits_, rows_f32_, h_, d_w_, rounded_;
  Tensor h_tile_, d_h_act_, rstd_;
  std::unique_ptr<SlotRing> ring_;
  std::unique_ptr<Event> d_w_ready_, d_w_copied_;
  std::uint64_t d_w_turns_ = 0;
  std::int64_t step_rows_ = 0;
};

}  // namespace slideway
