#include "train/optimizer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace slideway {
namespace {

constexpr int kRing = 2;  // landing places for decoder layers without clipping

DType landed_type(const OptimizerOptions& options, std::size_t block) {
  return options.kinds[block].summed_on_host ? DType::f32 : options.gradients;
}

// In place, f32 to the nearest bf16.
void round_to_bf16(Threads& threads, Tensor x) {
  constexpr std::int64_t kPiece = 1 << 18;
  float* const all = x.f32();
  const std::int64_t n = x.elements();
  threads.for_each((n + kPiece - 1) / kPiece, [&](std::int64_t i) {
    const std::int64_t end = std::min(n, (i + 1) * kPiece);
    for (std::int64_t k = i * kPiece; k < end; ++k) all[k] = to_float(to_bf16(all[k]));
  });
}

// Bytes of every landing place, and which place each block uses.
struct Places {
  std::vector<std::uint64_t> bytes;
  std::vector<int> of_block;
};

Places cut_places(std::span<const BlockLayout* const> layouts, const OptimizerOptions& options) {
  Places places;
  std::vector<int> ring;
  int turn = 0;
  for (std::size_t b = 0; b < layouts.size(); ++b) {
    const std::uint64_t bytes = std::uint64_t(layouts[b]->elements) * bytes_of(landed_type(options, b));
    const bool shares = options.kinds[b].in_ring && options.max_grad_norm == 0;
    if (shares && int(ring.size()) == kRing) {
      const int place = ring[std::size_t(turn++ % kRing)];
      places.bytes[std::size_t(place)] = std::max(places.bytes[std::size_t(place)], bytes);
      places.of_block.push_back(place);
      continue;
    }
    if (shares) ring.push_back(int(places.bytes.size()));
    places.of_block.push_back(int(places.bytes.size()));
    places.bytes.push_back(bytes);
  }
  return places;
}

std::uint64_t squares_bytes(std::span<const BlockLayout* const> layouts) {
  std::uint64_t tensors = 0;
  for (const BlockLayout* layout : layouts) tensors += layout->tensors.size();
  return 2 * tensors * sizeof(double);
}

}  // namespace

Optimizer::Optimizer(LayerStore& store, Device& device, Worker& worker, Ops& host_ops, Threads& threads,
                     const OptimizerOptions& options)
    : store_(store),
      worker_(worker),
      host_ops_(host_ops),
      threads_(threads),
      options_(options),
      clips_(options.max_grad_norm > 0) {
  CHECK(int(options.kinds.size()) == store.count());
  std::vector<const BlockLayout*> layouts;
  first_square_.push_back(0);
  for (int b = 0; b < store.count(); ++b) {
    layouts.push_back(store.block(b).layout);
    first_square_.push_back(first_square_.back() + layouts.back()->tensors.size());
  }
  Places places = cut_places(layouts, options);
  for (std::uint64_t bytes : places.bytes) places_.push_back({device.allocate_pinned(bytes)});
  place_index_ = std::move(places.of_block);
  versions_.assign(layouts.size(), 0);
  tickets_.assign(layouts.size(), 0);
  squares_ = device.allocate_pinned(squares_bytes(layouts));
  landed_ = device.make_event("gradient landed");
  updated_ = device.make_event("block updated");
  norms_known_ = device.make_event("norms known");
}

std::vector<Demand> Optimizer::demands(std::span<const BlockLayout* const> layouts,
                                       const OptimizerOptions& options) {
  std::uint64_t bytes = squares_bytes(layouts);
  for (std::uint64_t place : cut_places(layouts, options).bytes) bytes += place;
  return {{Tier::pinned,
           options.max_grad_norm > 0 ? "gradients of all layers (clipping)" : "landing gradients", bytes}};
}

DType Optimizer::gradient_type(int block) const {
  return landed_type(options_, std::size_t(block));
}

Optimizer::Place& Optimizer::place_of(int block) {
  return places_[std::size_t(place_index_[std::size_t(block)])];
}

Tensor Optimizer::gradient(int block) {
  return Tensor(place_of(block).bytes.data(), gradient_type(block), {store_.block(block).elements});
}

void Optimizer::begin_step(std::int64_t t, double lr) {
  CHECK(t == step_ + 1, "step ", t, " after step ", step_);
  step_ = t;
  lr_ = lr;
  // What this step will leave in norms_ must not be mixed with the step before the last.
  worker_.run([this, t] { norms_[t % 2] = {}; });
}

Tensor Optimizer::landing(int block, Stream& copier) {
  if (&copier != &worker_) copier.wait(*updated_, place_of(block).free_at);
  return gradient(block);
}

std::span<double> Optimizer::squares(int block) {
  const std::size_t first = first_square_[std::size_t(block)], end = first_square_[std::size_t(block) + 1];
  double* const of_step =
      reinterpret_cast<double*>(squares_.data()) + std::size_t(step_ % 2) * first_square_.back();
  return {of_step + first, end - first};
}

void Optimizer::landed(int block, Stream& copier, bool with_squares) {
  if (&copier != &worker_) {
    copier.signal(*landed_, ++landings_);
    worker_.wait(*landed_, landings_);
  }
  if (!with_squares) sum_squares(block);
  check_squares(block);
  if (!clips_) update(block);
}

void Optimizer::sum_squares(int block) {
  const Tensor whole = gradient(block);
  if (options_.kinds[std::size_t(block)].summed_on_host && options_.gradients == DType::bf16)
    worker_.run([this, whole] { round_to_bf16(threads_, whole); });
  const std::span<double> sums = squares(block);
  const auto& tensors = store_.block(block).layout->tensors;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::int64_t begin = tensors[i].offset;
    host_ops_.sum_of_squares(Tensor(&sums[i], DType::f64, {1}),
                             whole.rows(begin, begin + tensors[i].elements()));
  }
}

void Optimizer::check_squares(int block) {
  worker_.run([this, block, sums = squares(block), t = step_] {
    if (std::isfinite(std::accumulate(sums.begin(), sums.end(), 0.0))) return;
    stopped_ = true;
    norms_[t % 2].first_bad_block = block;
  });
}

void Optimizer::end_step() {
  const std::span<double> squares(this->squares(0).data(), first_square_.back());
  worker_.run([this, squares, t = step_] {
    const double sum = std::accumulate(squares.begin(), squares.end(), 0.0);
    Norms& norms = norms_[t % 2];
    norms.total = std::sqrt(sum);
    norms.known_at = std::chrono::steady_clock::now();
    // torch.nn.utils.clip_grad_norm_: max_norm / (norm + 1e-6), never above 1.
    clip_ = clips_ ? float(std::min(1.0, options_.max_grad_norm / (norms.total + 1e-6))) : 1.0f;
  });
  worker_.signal(*norms_known_, std::uint64_t(step_));
  if (clips_)
    for (int b = 0; b < store_.count(); ++b) update(b);
}

void Optimizer::update(int block) {
  const LayerStore::Block& state = store_.block(block);
  const Tensor grad = gradient(block);
  worker_.run([this, &state, grad, t = step_, lr = lr_] {
    if (stopped_) return;
    for (const TensorSpec& tensor : state.layout->tensors) {
      const AdamwStep step = adamw_step(options_.adamw, lr, tensor.decays ? options_.weight_decay : 0.0,
                                        clips_ ? clip_ : 1.0, t);
      const std::int64_t at = tensor.offset;
      const AdamwRange range{state.hi + at,
                             state.lo + at,
                             state.m + at,
                             state.v + at,
                             grad.rows(at, at + tensor.elements()).data(),
                             grad.dtype(),
                             tensor.elements()};
      adamw(threads_, range, step);
    }
  });
  worker_.signal(*updated_, ++updates_);
  tickets_[std::size_t(block)] = updates_;
  place_of(block).free_at = updates_;
  ++versions_[std::size_t(block)];
}

void Optimizer::wait_for_weights(int block, Stream& stream) {
  stream.wait(*updated_, tickets_[std::size_t(block)]);
}

void Optimizer::flush() {
  worker_.synchronize();
}

}  // namespace slideway
