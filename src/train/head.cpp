#include "train/head.h"

#include <algorithm>

namespace slideway {
namespace {

constexpr int kTurns = 2;  // vocabulary tiles on the device when they do not all fit

// Bytes of each of the head's buffers.
struct Sizes {
  std::uint64_t slots, joined, logits, d_logits, rows, h, rounded, d_w;
};

int tiles_of(const ModelConfig& config, const TrainPlan& plan) {
  return int((config.vocab_size + plan.numeric.head_vocab_tile - 1) / plan.numeric.head_vocab_tile);
}

Sizes sizes(const ModelConfig& config, const TrainPlan& plan, bool trained, bool copies) {
  const NumericPlan& numeric = plan.numeric;
  const bool exact = numeric.precision.weights == DType::f32;
  const std::uint64_t act = bytes_of(numeric.precision.activations);
  const auto tiles = std::uint64_t(tiles_of(config, plan));
  const auto width = std::uint64_t(config.hidden_size);
  const auto token_tile = std::uint64_t(numeric.head_token_tile);
  const auto vocab_tile = std::uint64_t(numeric.head_vocab_tile);
  const std::uint64_t at_once = plan.head_in_one_pass ? tiles : kTurns;
  const auto step_rows = std::uint64_t(plan.micro_batches * plan.micro_batch_rows);
  // A head that is the embedding too is summed in f32 on the host.
  const bool rounds = !config.tie_word_embeddings && numeric.precision.gradients != DType::f32;
  const std::uint64_t d_h_rows = plan.head_in_one_pass ? token_tile : step_rows;
  return {
      .slots = copies ? at_once * vocab_tile * width * (exact ? 4 : 2) : 0,
      .joined = exact ? (plan.head_in_one_pass ? tiles : 1) * vocab_tile * width * 4 : 0,
      .logits = (plan.head_in_one_pass ? tiles : 1) * token_tile * vocab_tile * 4,
      .d_logits = act == 4 ? 0 : token_tile * vocab_tile * act,
      .rows = (3 * step_rows + token_tile + d_h_rows * width) * 4,
      .h = 2 * token_tile * width * act,
      .rounded = trained && copies && rounds
                     ? kTurns * vocab_tile * width * bytes_of(numeric.precision.gradients)
                     : 0,
      .d_w = trained && copies ? (plan.head_in_one_pass ? tiles : kTurns) * vocab_tile * width * 4 : 0,
  };
}

}  // namespace

HeadTrainer::HeadTrainer(const ModelConfig& config, const TrainPlan& plan, const TrainStreams& streams,
                         bool trained)
    : config_(config),
      plan_(plan),
      on_(streams),
      act_(plan.numeric.precision.activations),
      trained_(trained),
      exact_(plan.numeric.precision.weights == DType::f32),
      in_place_(!streams.device.copies()),
      tiles_(tiles_of(config, plan)) {
  const Sizes need = sizes(config, plan, trained, !in_place_);
  const auto allocate = [&](Buffer& buffer, std::uint64_t bytes) {
    if (bytes) buffer = on_.device.allocate(bytes);
  };
  allocate(slots_, need.slots);
  allocate(joined_, need.joined);
  allocate(logits_, need.logits);
  allocate(d_logits_, need.d_logits);
  allocate(rows_f32_, need.rows);
  allocate(h_, need.h);
  allocate(d_w_, need.d_w);
  allocate(rounded_, need.rounded);

  const std::int64_t token_tile = plan.numeric.head_token_tile, width = config.hidden_size;
  h_tile_ = Tensor(h_.data(), act_, {token_tile, width});
  d_h_act_ = Tensor(h_.data() + h_tile_.bytes(), act_, {token_tile, width});
  step_rows_ = plan.micro_batches * plan.micro_batch_rows;
  rstd_ = Tensor(rows_f32_.data() + 3 * step_rows_ * 4, DType::f32, {token_tile});

  if (!in_place_) {
    const std::size_t slot = std::size_t(plan.numeric.head_vocab_tile * width) * (exact_ ? 4 : 2);
    std::vector<SlotRing::Bytes> slots;
    for (std::size_t at = 0; at < slots_.bytes(); at += slot)
      slots.push_back(slots_.span().subspan(at, slot));
    ring_ = std::make_unique<SlotRing>(on_.device, std::move(slots), on_.up, on_.compute);
    d_w_ready_ = on_.device.make_event("head gradient ready");
    d_w_copied_ = on_.device.make_event("head gradient copied");
  }
}

std::vector<Demand> HeadTrainer::demands(const ModelConfig& config, const TrainPlan& plan, bool trained,
                                         bool copies) {
  const Sizes need = sizes(config, plan, trained, copies);
  return {{Tier::device, "head: vocabulary tiles", need.slots + need.joined},
          {Tier::device, "head: logits of a tile", need.logits + need.d_logits},
          {Tier::device, "head: hidden states and their gradients", need.rows + need.h},
          {Tier::device, "head: gradient tiles, FP32", need.d_w + need.rounded}};
}

std::int64_t HeadTrainer::tile_rows(int tile) const {
  return std::min(plan_.numeric.head_vocab_tile, config_.vocab_size - tile_begin(tile));
}

Tensor HeadTrainer::max_sum(const Rows& rows) const {
  return Tensor(rows_f32_.data() + rows.at * 8, DType::f32, {rows.end - rows.begin, 2});
}

Tensor HeadTrainer::target_logit(const Rows& rows) const {
  return Tensor(rows_f32_.data() + (2 * step_rows_ + rows.at) * 4, DType::f32, {rows.end - rows.begin});
}

Tensor HeadTrainer::d_h(const Rows& rows) const {
  const std::int64_t width = config_.hidden_size;
  std::byte* first = rows_f32_.data() + (3 * step_rows_ + plan_.numeric.head_token_tile) * 4;
  const std::int64_t at = plan_.head_in_one_pass ? 0 : rows.at;
  return Tensor(first + at * width * 4, DType::f32, {rows.end - rows.begin, width});
}

void HeadTrainer::fetch(int tile, const Weights& weights) {
  if (in_place_) return;
  ring_->fetch(tile, weights.version, [&](SlotRing::Bytes slot, Stream& up) {
    const std::int64_t at = tile_begin(tile) * config_.hidden_size;
    const auto bytes = std::size_t(tile_rows(tile) * config_.hidden_size) * 2;
    up.copy(slot.data(), weights.hi + at, bytes);
    if (exact_) up.copy(slot.data() + bytes, weights.lo + at, bytes);
  });
}

Tensor HeadTrainer::acquire(int tile, const Weights& weights) {
  const std::int64_t rows = tile_rows(tile), width = config_.hidden_size, n = rows * width;
  const std::int64_t at = tile_begin(tile) * width;
  const SlotRing::Bytes slot = in_place_ ? SlotRing::Bytes() : ring_->acquire(tile);
  const Tensor hi(in_place_ ? static_cast<void*>(weights.hi + at) : slot.data(), DType::bf16, {rows, width});
  if (!exact_) return hi;
  const Tensor lo(in_place_ ? static_cast<void*>(weights.lo + at) : slot.data() + n * 2, DType::i16,
                  {rows, width});
  const Tensor w(joined_.data() + (plan_.head_in_one_pass ? at * 4 : 0), DType::f32, {rows, width});
  on_.ops.join(w, hi, lo);
  return w;
}

void HeadTrainer::release(int tile) {
  if (!in_place_) ring_->release(tile);
}

Tensor HeadTrainer::norm_tile(const Rows& rows, const Weights& weights) {
  const Tensor h = h_tile_.rows(0, rows.end - rows.begin);
  on_.ops.rms_norm(h, rstd_.rows(0, rows.end - rows.begin), rows.part->x.rows(rows.begin, rows.end),
                   weights.norm, config_.rms_norm_eps);
  return h;
}

Tensor HeadTrainer::logits_tile(const Rows& rows, int tile, Tensor h, Tensor w) {
  const std::int64_t each = plan_.numeric.head_token_tile * plan_.numeric.head_vocab_tile;
  const Tensor logits(logits_.data() + (plan_.head_in_one_pass ? tile * each * 4 : 0), DType::f32,
                      {rows.end - rows.begin, tile_rows(tile)});
  on_.ops.linear(logits, h, w, Tensor());
  return logits;
}

void HeadTrainer::gradient_tile(const Rows& rows, int tile, Tensor h, Tensor w, Tensor logits, Tensor d_w,
                                float weight) {
  const Tensor d_logits =
      act_ == DType::f32 ? logits : Tensor(d_logits_.data(), act_, {logits.size(0), logits.size(1)});
  on_.ops.cross_entropy_backward(d_logits, logits, max_sum(rows),
                                 rows.part->targets.rows(rows.begin, rows.end), tile_begin(tile), weight);
  on_.ops.linear_backward_input(d_h(rows), d_logits, w, tile > 0);
  if (d_w) on_.ops.linear_backward_weight(d_w, Tensor(), d_logits, h);
}

void HeadTrainer::finish_tile(const Rows& rows, const Weights& weights) {
  const std::int64_t n = rows.end - rows.begin;
  const Tensor x = rows.part->x.rows(rows.begin, rows.end), d_x = rows.part->d_x.rows(rows.begin, rows.end);
  on_.ops.convert(d_h_act_.rows(0, n), d_h(rows));
  on_.ops.fill_zero(d_x);
  on_.ops.rms_norm_backward(d_x, weights.d_norm, d_h_act_.rows(0, n), x, weights.norm, rstd_.rows(0, n));
}

void HeadTrainer::run(std::span<const Part> parts, const Weights& weights, float weight) {
  std::vector<Rows> rows;
  std::int64_t at = 0;
  for (const Part& part : parts)
    for (std::int64_t begin = 0; begin < part.x.size(0); begin += plan_.numeric.head_token_tile) {
      const std::int64_t end = std::min(begin + plan_.numeric.head_token_tile, part.x.size(0));
      rows.push_back({&part, begin, end, at});
      at += end - begin;
    }
  CHECK(at <= step_rows_, "the plan reserved ", step_rows_, " rows, the step has ", at);
  if (plan_.head_in_one_pass) {
    one_pass(rows, weights, weight);
  } else {
    two_passes(rows, weights, weight);
  }
}

void HeadTrainer::one_pass(std::span<const Rows> rows, const Weights& weights, float weight) {
  const std::int64_t width = config_.hidden_size;
  std::vector<Tensor> w, d_w;
  for (int tile = 0; tile < tiles_; ++tile) fetch(tile, weights);
  float* sums = trained_ && in_place_ ? weights.d_head.f32() : reinterpret_cast<float*>(d_w_.data());
  for (int tile = 0; tile < tiles_; ++tile) {
    w.push_back(acquire(tile, weights));
    d_w.push_back(trained_ ? Tensor(sums + tile_begin(tile) * width, DType::f32, {tile_rows(tile), width})
                           : Tensor());
  }
  if (trained_) {
    if (!in_place_ && weights.d_head.dtype() == DType::f32) on_.compute.wait(*d_w_copied_, d_w_turns_);
    on_.ops.fill_zero(Tensor(sums, DType::f32, {config_.vocab_size, width}));
  }
  for (const Rows& tile_of_rows : rows) {
    const Tensor h = norm_tile(tile_of_rows, weights);
    const Tensor targets = tile_of_rows.part->targets.rows(tile_of_rows.begin, tile_of_rows.end);
    std::vector<Tensor> logits;
    for (int tile = 0; tile < tiles_; ++tile) {
      logits.push_back(logits_tile(tile_of_rows, tile, h, w[std::size_t(tile)]));
      on_.ops.cross_entropy_tile(max_sum(tile_of_rows), target_logit(tile_of_rows), logits.back(), targets,
                                 tile_begin(tile));
    }
    on_.ops.cross_entropy_loss(tile_of_rows.part->losses.rows(tile_of_rows.begin, tile_of_rows.end),
                               max_sum(tile_of_rows), target_logit(tile_of_rows), targets);
    for (int tile = 0; tile < tiles_; ++tile)
      gradient_tile(tile_of_rows, tile, h, w[std::size_t(tile)], logits[std::size_t(tile)],
                    d_w[std::size_t(tile)], weight);
    finish_tile(tile_of_rows, weights);
  }
  for (int tile = 0; tile < tiles_; ++tile) release(tile);
  if (!trained_ || in_place_) return;
  if (weights.d_head.dtype() == DType::f32)
    return send_d_w(0, Tensor(sums, DType::f32, {config_.vocab_size, width}), weights);
  for (int tile = 0; tile < tiles_; ++tile) send_d_w(tile_begin(tile), d_w[std::size_t(tile)], weights);
}

void HeadTrainer::two_passes(std::span<const Rows> rows, const Weights& weights, float weight) {
  for (int pass = 0; pass < 2; ++pass) {
    fetch(0, weights);
    for (int tile = 0; tile < tiles_; ++tile) {
      const Tensor w = acquire(tile, weights);
      if (tile + 1 < tiles_) fetch(tile + 1, weights);
      const Tensor d_w = pass == 1 && trained_ ? begin_d_w(tile, weights) : Tensor();
      for (const Rows& tile_of_rows : rows) {
        const Tensor targets = tile_of_rows.part->targets.rows(tile_of_rows.begin, tile_of_rows.end);
        const Tensor h = norm_tile(tile_of_rows, weights);
        const Tensor logits = logits_tile(tile_of_rows, tile, h, w);
        if (pass == 0) {
          on_.ops.cross_entropy_tile(max_sum(tile_of_rows), target_logit(tile_of_rows), logits, targets,
                                     tile_begin(tile));
        } else {
          gradient_tile(tile_of_rows, tile, h, w, logits, d_w, weight);
        }
      }
      release(tile);
      if (d_w && !in_place_) send_d_w(tile_begin(tile), d_w, weights);
    }
    for (const Rows& tile_of_rows : rows) {
      if (pass == 0) {
        on_.ops.cross_entropy_loss(tile_of_rows.part->losses.rows(tile_of_rows.begin, tile_of_rows.end),
                                   max_sum(tile_of_rows), target_logit(tile_of_rows),
                                   tile_of_rows.part->targets.rows(tile_of_rows.begin, tile_of_rows.end));
      } else {
        norm_tile(tile_of_rows, weights);  // for rstd
        finish_tile(tile_of_rows, weights);
      }
    }
  }
}

Tensor HeadTrainer::begin_d_w(int tile, const Weights& weights) {
  const std::int64_t width = config_.hidden_size, each = plan_.numeric.head_vocab_tile * width;
  float* at = in_place_ ? weights.d_head.f32() + tile_begin(tile) * width
                        : reinterpret_cast<float*>(d_w_.data()) + (d_w_turns_ % kTurns) * std::uint64_t(each);
  if (!in_place_ && weights.d_head.dtype() == DType::f32 && d_w_turns_ >= kTurns)
    on_.compute.wait(*d_w_copied_, d_w_turns_ + 1 - kTurns);
  const Tensor d_w(at, DType::f32, {tile_rows(tile), width});
  on_.ops.fill_zero(d_w);
  return d_w;
}

// Rounded on the way where d_head is.
void HeadTrainer::send_d_w(std::int64_t begin, Tensor d_w, const Weights& weights) {
  const Tensor to = weights.d_head.rows(begin, begin + d_w.size(0));
  Tensor from = d_w;
  if (to.dtype() != DType::f32) {
    from = Tensor(rounded_.data() + (d_w_turns_ % kTurns) * (rounded_.bytes() / kTurns), to.dtype(),
                  {d_w.size(0), d_w.size(1)});
    if (d_w_turns_ >= kTurns) on_.compute.wait(*d_w_copied_, d_w_turns_ + 1 - kTurns);
    on_.ops.convert(from, d_w);
  }
  on_.compute.signal(*d_w_ready_, ++d_w_turns_);
  on_.down.wait(*d_w_ready_, d_w_turns_);
  on_.down.copy(to.data(), from.data(), from.bytes());
  on_.down.signal(*d_w_copied_, d_w_turns_);
}

}  // namespace slideway
