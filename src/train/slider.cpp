#include "train/slider.h"

#include <algorithm>
#include <cstring>

#include "train/slider_sizes.h"

namespace slideway {

BaseBlocks base_blocks(const ModelLayout& layout) {
  const int layers = int(layout.layers.size());
  return {
      .embed = 0, .first_layer = 1, .norm = 1 + layers, .head = layout.head.elements > 0 ? 2 + layers : 0};
}

Slider::Slider(const SliderParts& parts)
    : parts_(parts),
      config_(parts.config),
      plan_(parts.plan),
      blocks_(base_blocks(parts.layout)),
      act_(parts.plan.numeric.precision.activations),
      exact_(parts.plan.numeric.precision.weights == DType::f32),
      in_place_(!parts.device.copies()) {
  Device& device = parts.device;
  allocate();
  for (const auto& [event, name] : {std::pair{&gathered_, "embedding rows gathered"},
                                    {&x0_up_, "embedding rows up"},
                                    {&x0_used_, "embedding rows used"},
                                    {&adapter_joined_, "adapter joined"},
                                    {&adapter_up_, "adapter up"},
                                    {&gradient_ready_, "gradient ready"},
                                    {&gradient_copied_, "gradient copied"},
                                    {&d_x0_down_, "d_x0 down"},
                                    {&losses_ready_, "losses ready"},
                                    {&losses_down_, "losses down"}})
    *event = device.make_event(name);
  compute_ = device.make_stream("compute");
  up_ = device.make_stream("up");
  down_ = device.make_stream("down");
  updates_ = device.make_worker("updates");
  gathers_ = device.make_worker("gathers");
  ops_ = make_ops(device, *compute_, parts.threads, slider_ops_options(config_, plan_, parts.lora));
  update_ops_ = make_cpu_ops(*updates_, parts.threads);
  decoder_ = std::make_unique<Decoder>(config_, *ops_, act_);

  OptimizerOptions options = parts.optimizer;
  options.kinds = optimizer_kinds(parts.layout, parts.lora, !in_place_);
  options.gradients = full() ? plan_.numeric.precision.gradients : DType::f32;
  optimizer_ = std::make_unique<Optimizer>(full() ? parts.base : *parts.adapter, device, *updates_,
                                           *update_ops_, parts.threads, options);
  const TrainStreams streams{device, *ops_, *compute_, *up_, *down_};
  head_ = std::make_unique<HeadTrainer>(config_, plan_, streams, full());
  if (!in_place_) {
    std::vector<SlotRing::Bytes> slots;
    const std::size_t each = slots_.bytes() / std::size_t(plan_.slots);
    for (int i = 0; i < plan_.slots; ++i) slots.push_back(slots_.span().subspan(std::size_t(i) * each, each));
    ring_ = std::make_unique<SlotRing>(device, std::move(slots), *up_, *compute_);
  }
  fill_tables();
  if (!full()) adapter_views_.resize(std::size_t(2 * config_.num_layers() * plan_.micro_batches));
}

Slider::~Slider() {
  // After an error some queues still hold work on the buffers below; nothing may run once these are gone.
  for (Stream* stream : {compute_.get(), up_.get(), down_.get(), static_cast<Stream*>(updates_.get()),
                         static_cast<Stream*>(gathers_.get())})
    try {
      stream->synchronize();
    } catch (const Error&) {
      // The error that brought us here is already on its way.
    }
}

void Slider::fill_tables() {
  const Buffer staging = parts_.device.allocate_pinned(tables_.bytes());
  float* table = reinterpret_cast<float*>(staging.data());
  for (const RopeConfig& rope : config_.ropes)
    table = std::copy(rope.inv_freq.begin(), rope.inv_freq.end(), table);
  compute_->copy(tables_.data(), staging.data(), tables_.bytes());
  compute_->synchronize();
}

void Slider::allocate() {
  const SliderSizes s = slider_sizes(config_, parts_.layout, plan_, parts_.lora, !in_place_);
  const auto device = [&](Buffer& buffer, std::uint64_t bytes) {
    if (bytes) buffer = parts_.device.allocate(bytes);
  };
  const auto pinned = [&](Buffer& buffer, std::uint64_t bytes) {
    if (bytes) buffer = parts_.device.allocate_pinned(bytes);
  };
  device(slots_, s.slots);
  device(joined_layer_, s.joined_layer);
  device(gradient_, s.gradient);
  device(rounded_, s.rounded);
  device(squares_, s.squares);
  device(boundaries_, s.boundaries);
  device(kept_, s.kept);
  device(recomputed_, s.recomputed);
  device(scratch_bytes_, s.scratch);
  device(d_x_, s.d_x);
  device(tables_, s.tables);
  device(indices_, s.indices);
  device(losses_, s.losses);
  device(norm_slot_, s.norm_slot);
  device(joined_norm_, s.joined_norm);
  device(d_norm_, s.d_norm);
  device(adapter_values_, s.adapter_values);
  pinned(x0_staging_, s.x0_staging);
  pinned(d_x0_staging_, s.d_x0_staging);
  pinned(indices_host_, s.indices_host);
  pinned(losses_host_, s.losses_host);
  pinned(adapter_image_, s.adapter_image);
  scratch_.emplace(scratch_bytes_.span());
}

void Slider::launch(std::shared_ptr<const StepBatch> batch, double lr) {
  CHECK(pending_.size() < 2, "two steps are under way");
  CHECK(std::int64_t(batch->micro_batches.size()) <= plan_.micro_batches);
  optimizer_->begin_step(optimizer_->steps() + 1, lr);
  ++step_;
  begin(*batch);
  embed(*batch);
  if (!full()) {
    bind_adapter(*batch);
    adapter_up();
  }
  norm_up();
  forward(*batch);
  head(*batch);
  sum_losses(*batch);
  backward(*batch);
  optimizer_->end_step();
  pending_.push_back({std::move(batch), optimizer_->steps()});
}

std::optional<StepResult> Slider::wait() {
  if (pending_.empty()) return std::nullopt;
  const Pending oldest = pending_.front();
  pending_.pop_front();
  optimizer_->norms_known().wait(std::uint64_t(oldest.step));
  const Optimizer::Norms& norms = optimizer_->norms(oldest.step);
  StepResult result{oldest.step, losses_of_step_[oldest.step % 2], norms.total, "", norms.known_at};
  if (norms.first_bad_block >= 0)
    result.bad_block = (full() ? parts_.base : *parts_.adapter).block(norms.first_bad_block).layout->name;
  return result;
}

void Slider::flush() {
  optimizer_->flush();
}

// Streams wait only for what no other wait implies; a test leaves each out in turn. The step's embedding rows, norm and
// adapter go up before its first layer, so compute, which waits for that layer (and the adapter), waits for them all.
// They were made after the updates of the step before, and those after all that went down in it: so d_x, the losses,
// the norm's slot and the staging places need no waits of their own.

// --- what a step needs on the device before its first layer

void Slider::begin(const StepBatch& batch) {
  micro_.clear();
  const std::size_t half = indices_.bytes() * (step_ % 2);  // the step before may still be on its way
  std::byte* const from = in_place_ ? indices_.data() : indices_host_.data() + half;
  auto* index = reinterpret_cast<std::int32_t*>(indices_.data());
  auto* staged = reinterpret_cast<std::int32_t*>(from);
  std::int64_t at = 0;
  for (const MicroBatch& micro : batch.micro_batches) {
    const auto rows = std::int64_t(micro.ids.size());
    CHECK(rows <= plan_.micro_batch_rows, "the plan reserved ", plan_.micro_batch_rows, " rows");
    MicroRows on_device{.rows = rows, .at = at};
    on_device.positions = Tensor(index + 2 * at, DType::i32, {rows});
    on_device.targets = Tensor(index + 2 * at + rows, DType::i32, {rows});
    on_device.losses = Tensor(reinterpret_cast<float*>(losses_.data()) + at, DType::f32, {rows});
    staged = std::copy(micro.positions.begin(), micro.positions.end(), staged);
    staged = std::copy(micro.targets.begin(), micro.targets.end(), staged);
    micro_.push_back(on_device);
    at += rows;
  }
  if (!in_place_) compute_->copy(indices_.data(), from, std::size_t(2 * at) * sizeof(std::int32_t));
}

// The embedding's rows are gathered on the host: only those that the batch names travel.
void Slider::embed(const StepBatch& batch) {
  if (full()) optimizer_->wait_for_weights(blocks_.embed, *gathers_);
  if (in_place_) {
    if (step_ > 1) gathers_->wait(*x0_used_, step_ - 1);
    gathers_->run([this, &batch] { gather(batch, boundaries_.data()); });
    gathers_->signal(*x0_up_, step_);
  } else {
    if (step_ > 1) gathers_->wait(*x0_up_, step_ - 1);
    gathers_->run([this, &batch] { gather(batch, x0_staging_.data()); });
    gathers_->signal(*gathered_, step_);
    up_->wait(*gathered_, step_);
    if (step_ > 1) up_->wait(*x0_used_, step_ - 1);
    up_->copy(boundaries_.data(), x0_staging_.data(),
              std::size_t((micro_.back().at + micro_.back().rows) * config_.hidden_size) * bytes_of(act_));
    up_->signal(*x0_up_, step_);
  }
  if (in_place_) compute_->wait(*x0_up_, step_);
}

void Slider::gather(const StepBatch& batch, std::byte* out) const {
  const LayerStore::Block& table = parts_.base.block(blocks_.embed);
  const std::int64_t width = config_.hidden_size;
  const std::size_t row_bytes = std::size_t(width) * bytes_of(act_);
  for (const MicroBatch& micro : batch.micro_batches)
    for (const std::int32_t id : micro.ids) {
      const bf16_t* hi = table.hi + id * width;
      if (act_ == DType::bf16) {
        std::memcpy(out, hi, row_bytes);
      } else if (exact_) {
        join_range(reinterpret_cast<float*>(out), hi, table.lo + id * width, width);
      } else {
        widen_range(reinterpret_cast<float*>(out), hi, width);
      }
      out += row_bytes;
    }
}

// The adapter is small and stays on the device; its FP32 values come anew once a step.
void Slider::adapter_up() {
  LayerStore& adapter = *parts_.adapter;
  float* image = reinterpret_cast<float*>(adapter_image_.data());
  updates_->run([&adapter, image] {
    float* at = image;
    for (int b = 0; b < adapter.count(); ++b) {
      const LayerStore::Block& block = adapter.block(b);
      join_range(at, block.hi, block.lo, block.elements);
      at += block.elements;
    }
  });
  updates_->signal(*adapter_joined_, step_);
  if (in_place_) return compute_->wait(*adapter_joined_, step_);
  up_->wait(*adapter_joined_, step_);
  up_->copy(adapter_values_.data(), image, adapter_values_.bytes());
  up_->signal(*adapter_up_, step_);
  compute_->wait(*adapter_up_, step_);
}

void Slider::norm_up() {
  if (full()) optimizer_->wait_for_weights(blocks_.norm, in_place_ ? *compute_ : *up_);
  if (in_place_) return;
  const LayerStore::Block& norm = parts_.base.block(blocks_.norm);
  const std::size_t half = std::size_t(norm.elements) * 2;
  up_->copy(norm_slot_.data(), norm.hi, half);
  if (exact_) up_->copy(norm_slot_.data() + half, norm.lo, half);
}

// --- a layer's turn on the device

void Slider::fetch(int layer) {
  const int block = blocks_.first_layer + layer;
  if (in_place_) {
    if (full()) optimizer_->wait_for_weights(block, *compute_);
    return;
  }
  const std::uint64_t version = full() ? optimizer_->version(block) : 0;
  ring_->fetch(layer, version, [&](SlotRing::Bytes slot, Stream& up) {
    const LayerStore::Block& from = parts_.base.block(block);
    if (full()) optimizer_->wait_for_weights(block, up);
    const std::size_t half = std::size_t(from.elements) * 2;
    up.copy(slot.data(), from.hi, half);
    if (exact_) up.copy(slot.data() + half, from.lo, half);
  });
}

LayerWeights Slider::acquire(int layer) {
  const LayerStore::Block& from = parts_.base.block(blocks_.first_layer + layer);
  const SlotRing::Bytes slot = in_place_ ? SlotRing::Bytes() : ring_->acquire(layer);
  const std::int64_t n = from.elements;
  const Tensor hi(in_place_ ? static_cast<void*>(from.hi) : slot.data(), DType::bf16, {n});
  if (!exact_) return layer_weights(*from.layout, hi.data(), DType::bf16);
  const Tensor lo(in_place_ ? static_cast<void*>(from.lo) : slot.data() + n * 2, DType::i16, {n});
  return layer_weights(*from.layout, joined(hi, lo, joined_layer_).data(), DType::f32);
}

Tensor Slider::joined(Tensor hi, Tensor lo, Buffer& into) {
  const Tensor exact(into.data(), DType::f32, {hi.elements()});
  ops_->join(exact, hi, lo);
  return exact;
}

void Slider::release(int layer) {
  if (!in_place_) ring_->release(layer);
}

Rows Slider::rows_of(const StepBatch& batch, int micro_batch) const {
  const MicroBatch& micro = batch.micro_batches[std::size_t(micro_batch)];
  return {.positions = micro_[std::size_t(micro_batch)].positions, .sequences = {.starts = micro.starts}};
}

// The ops hold views of these structs until their work is done: two steps' worth are kept.
void Slider::bind_adapter(const StepBatch& batch) {
  const int layers = config_.num_layers();
  float* const gradients = reinterpret_cast<float*>(gradient_.data());
  const std::uint64_t seed = parts_.seed * 0x9E3779B97F4A7C15u + std::uint64_t(optimizer_->steps());
  float* values = reinterpret_cast<float*>((in_place_ ? adapter_image_ : adapter_values_).data());
  for (int l = 0; l < layers; ++l) {
    const LoraBlock& block = parts_.lora->layers[std::size_t(l)];
    for (int b = 0; b < int(micro_.size()); ++b) {
      AdapterView& view = adapter_view(l, b);
      bind_lora(view.parts, parts_.layout.layers[std::size_t(l)], block, values, DType::f32, gradients,
                micro_[std::size_t(b)].rows);
      view.lora = view.parts.lora({.p = float(parts_.lora_dropout),
                                   .seed = seed,
                                   .tokens = batch.micro_batches[std::size_t(b)].tokens});
    }
    values += block.elements;
  }
}

Slider::AdapterView& Slider::adapter_view(int layer, int micro_batch) {
  const std::int64_t turn = std::int64_t(step_ % 2) * config_.num_layers() + layer;
  return adapter_views_[std::size_t(turn * plan_.micro_batches + micro_batch)];
}

const LayerLora* Slider::lora_of(int layer, int micro_batch) {
  if (full() || parts_.lora->layers[std::size_t(layer)].modules.empty()) return nullptr;
  return &adapter_view(layer, micro_batch).lora;
}

LayerSaved Slider::saved_of(int layer, int micro_batch, const LayerLora* lora) {
  const int first_kept = config_.num_layers() - plan_.kept_layers;
  const std::size_t place =
      std::size_t(((layer - first_kept) * plan_.micro_batches + micro_batch)) * plan_.saved_bytes;
  Arena arena(keeps(layer) ? kept_.span().subspan(place, plan_.saved_bytes) : recomputed_.span());
  return take_saved(arena, config_, micro_[std::size_t(micro_batch)].rows, act_, lora,
                    boundary(layer, micro_batch));
}

Tensor Slider::inv_freq_of(int layer) const {
  const std::int64_t half = config_.head_dim / 2;
  return Tensor(tables_.data() + config_.layers[std::size_t(layer)].rope * half * 4, DType::f32, {half});
}

Tensor Slider::boundary(int layer, int micro_batch) const {
  const MicroRows& micro = micro_[std::size_t(micro_batch)];
  const std::int64_t before = layer * plan_.micro_batches * plan_.micro_batch_rows + micro.at;
  return Tensor(boundaries_.data() + std::size_t(before * config_.hidden_size) * bytes_of(act_), act_,
                {micro.rows, config_.hidden_size});
}

Tensor Slider::d_x(int micro_batch) const {
  const MicroRows& micro = micro_[std::size_t(micro_batch)];
  return Tensor(d_x_.data() + std::size_t(micro.at * config_.hidden_size) * bytes_of(act_), act_,
                {micro.rows, config_.hidden_size});
}

// --- the passes

void Slider::forward(const StepBatch& batch) {
  const int layers = config_.num_layers();
  fetch(0);
  for (int l = 0; l < layers; ++l) {
    const LayerWeights weights = acquire(l);
    if (l + 1 < layers) fetch(l + 1);
    for (int b = 0; b < int(micro_.size()); ++b) {
      const LayerLora* lora = lora_of(l, b);
      decoder_->forward(l, weights, rows_of(batch, b), inv_freq_of(l), saved_of(l, b, lora),
                        boundary(l + 1, b), lora, *scratch_);
    }
    release(l);
  }
}

void Slider::head(const StepBatch& batch) {
  const LayerStore::Block& norm = parts_.base.block(blocks_.norm);
  const LayerStore::Block& table = parts_.base.block(blocks_.head);
  Tensor hi(norm.hi, DType::bf16, {norm.elements}), lo;
  if (exact_) lo = Tensor(norm.lo, DType::i16, {norm.elements});
  if (!in_place_) {
    hi = Tensor(norm_slot_.data(), DType::bf16, {norm.elements});
    if (exact_) lo = Tensor(norm_slot_.data() + hi.bytes(), DType::i16, {norm.elements});
  }
  const std::int64_t width = config_.hidden_size;
  HeadTrainer::Weights weights{
      .norm = (exact_ ? joined(hi, lo, joined_norm_) : hi).rows(0, width), .hi = table.hi, .lo = table.lo};
  if (full()) {
    const Tensor d_norm(d_norm_.data(), DType::f32, {norm.elements});
    ops_->fill_zero(d_norm);
    weights.d_norm = d_norm.rows(0, width);
    weights.version = optimizer_->version(blocks_.head);
    weights.d_head = optimizer_->landing(blocks_.head, downward())
                         .rows(0, config_.vocab_size * width)
                         .reshaped({config_.vocab_size, width});
    optimizer_->wait_for_weights(blocks_.head, in_place_ ? *compute_ : *up_);
  }
  std::vector<HeadTrainer::Part> parts;
  for (int b = 0; b < int(micro_.size()); ++b)
    parts.push_back({boundary(config_.num_layers(), b), micro_[std::size_t(b)].targets,
                     micro_[std::size_t(b)].losses, d_x(b)});
  head_->run(parts, weights, float(1.0 / double(batch.trained_tokens)));
  compute_->signal(*losses_ready_, step_);
  if (!full()) return;
  gradient_down(blocks_.norm, norm.elements, Tensor(d_norm_.data(), DType::f32, {norm.elements}));
  if (blocks_.head != blocks_.embed) optimizer_->landed(blocks_.head, downward());
}

void Slider::backward(const StepBatch& batch) {
  const int layers = config_.num_layers();
  fetch(layers - 1);
  for (int l = layers - 1; l >= 0; --l) {
    const LayerWeights weights = acquire(l);
    if (l > 0) fetch(l - 1);
    const int block = full() ? blocks_.first_layer + l : l;
    const std::int64_t elements = (full() ? parts_.base : *parts_.adapter).block(block).elements;
    const Tensor sum(gradient_.data(), DType::f32, {elements});
    LayerWeights grads;
    if (elements > 0) ops_->fill_zero(sum);
    if (full()) grads = layer_weights(parts_.layout.layers[std::size_t(l)], sum.data(), DType::f32);
    for (int b = 0; b < int(micro_.size()); ++b) {
      const LayerLora* lora = lora_of(l, b);
      const LayerSaved saved = saved_of(l, b, lora);
      const Rows rows = rows_of(batch, b);
      if (!keeps(l)) decoder_->forward(l, weights, rows, inv_freq_of(l), saved, Tensor(), lora, *scratch_);
      decoder_->backward(l, weights, grads, rows, inv_freq_of(l), saved, d_x(b), lora, *scratch_);
    }
    release(l);
    if (elements > 0) gradient_down(block, elements, sum);
  }
  compute_->signal(*x0_used_, step_);
  if (full()) embed_gradient(batch);
}

// Rounds a block's summed gradient and sends it to the host, where the optimizer takes over.
void Slider::gradient_down(int block, std::int64_t elements, Tensor sum) {
  const DType type = optimizer_->gradient_type(block);
  if (in_place_) {
    ops_->convert(optimizer_->landing(block, *compute_), sum);
    return optimizer_->landed(block, *compute_);
  }
  const std::size_t each = rounded_.bytes() / kRounded;
  const Tensor rounded(rounded_.data() + (gradients_ % kRounded) * each, type, {elements});
  if (gradients_ >= kRounded) compute_->wait(*gradient_copied_, gradients_ + 1 - kRounded);
  ops_->convert(rounded, sum);
  const Tensor squares = sum_squares(block, rounded);
  compute_->signal(*gradient_ready_, ++gradients_);
  const Tensor landing = optimizer_->landing(block, *down_);
  down_->wait(*gradient_ready_, gradients_);
  down_->copy(landing.data(), rounded.data(), rounded.bytes());
  down_->copy(optimizer_->squares(block).data(), squares.data(), squares.bytes());
  down_->signal(*gradient_copied_, gradients_);
  optimizer_->landed(block, *down_, true);
}

// Of each tensor of a rounded gradient, while it is on the device.
Tensor Slider::sum_squares(int block, Tensor rounded) {
  const auto& tensors = (full() ? parts_.base : *parts_.adapter).block(block).layout->tensors;
  const std::size_t each = squares_.bytes() / kRounded;
  const Tensor squares(squares_.data() + (gradients_ % kRounded) * each, DType::f64,
                       {std::int64_t(tensors.size())});
  CHECK(squares.bytes() <= each);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const std::int64_t begin = tensors[i].offset, at = std::int64_t(i);
    ops_->sum_of_squares(squares.rows(at, at + 1), rounded.rows(begin, begin + tensors[i].elements()));
  }
  return squares;
}

// The embedding's gradient is summed on the host, on top of the head's where the two are one matrix.
void Slider::embed_gradient(const StepBatch& batch) {
  const bool tied = blocks_.head == blocks_.embed;
  // d_x is complete: the gradient of layer 0, which was issued after it, has been sent down or has landed.
  if (!in_place_) {
    down_->copy(d_x0_staging_.data(), d_x_.data(),
                std::size_t((micro_.back().at + micro_.back().rows) * config_.hidden_size) * bytes_of(act_));
    down_->signal(*d_x0_down_, step_);  // and, on this stream, the head's gradient before it
    updates_->wait(*d_x0_down_, step_);
  }
  const Tensor sum = optimizer_->landing(blocks_.embed, *updates_);
  if (!tied) update_ops_->fill_zero(sum);
  const Tensor d_table = sum.rows(0, config_.vocab_size * config_.hidden_size)
                             .reshaped({config_.vocab_size, config_.hidden_size});
  for (std::size_t b = 0; b < micro_.size(); ++b) {
    const std::int64_t rows = micro_[b].rows;
    std::byte* from = (in_place_ ? d_x_ : d_x0_staging_).data() +
                      std::size_t(micro_[b].at * config_.hidden_size) * bytes_of(act_);
    update_ops_->embed_backward(
        d_table, Tensor(from, act_, {rows, config_.hidden_size}),
        Tensor(const_cast<std::int32_t*>(batch.micro_batches[b].ids.data()), DType::i32, {rows}));
  }
  optimizer_->landed(blocks_.embed, *updates_);
}

void Slider::sum_losses(const StepBatch& batch) {
  const std::int64_t rows = micro_.back().at + micro_.back().rows;
  const float* losses = reinterpret_cast<const float*>((in_place_ ? losses_ : losses_host_).data());
  down_->wait(*losses_ready_, step_);
  if (!in_place_) down_->copy(losses_host_.data(), losses_.data(), std::size_t(rows) * sizeof(float));
  down_->signal(*losses_down_, step_);
  updates_->wait(*losses_down_, step_);
  updates_->run([this, losses, rows, trained = batch.trained_tokens, t = optimizer_->steps()] {
    double sum = 0;
    for (std::int64_t i = 0; i < rows; ++i) sum += losses[i];
    losses_of_step_[t % 2] = sum / double(trained);
  });
}

}  // namespace slideway
