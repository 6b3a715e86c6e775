// WholeModel: a model with all its weights and gradients in place, put together from Decoder and Ops alone. The plainest
// forward and backward there is; what slides, streams and pages is held against it.
//
// Owns     device, weights, gradients and one pass's activations
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/threads.h"
#include "device/device.h"
#include "model/decoder.h"
#include "model/weights.h"

namespace slideway {

// Rows of one micro-batch.
struct Packed {
  std::vector<std::int32_t> ids, targets, positions;  // [T]
  std::vector<std::int32_t> starts;                   // [N + 1]
};

// Sequences [first, last) of rows laid end to end.
inline Packed packed(std::span<const std::int32_t> ids, std::span<const std::int32_t> targets,
                     std::span<const std::int32_t> starts, std::size_t first, std::size_t last) {
  Packed out;
  for (std::size_t n = first; n < last; ++n) {
    out.starts.push_back(std::int32_t(out.ids.size()));
    for (std::int32_t t = starts[n]; t < starts[n + 1]; ++t) {
      out.ids.push_back(ids[std::size_t(t)]);
      out.targets.push_back(targets[std::size_t(t)]);
      out.positions.push_back(t - starts[n]);
    }
  }
  out.starts.push_back(std::int32_t(out.ids.size()));
  return out;
}

class WholeModel {
 public:
  // Weights are held as type, activations too.
  WholeModel(const WeightFiles& files, DType type, bool trains_base = true, const OpsOptions& options = {})
      : files_(files),
        type_(type),
        stream_(device_->make_stream("compute")),
        ops_(make_cpu_ops(*stream_, threads_, options)) {
    for (const BlockLayout* layout : files.layout().blocks()) {
      weights_[layout] = load(*layout);
      if (trains_base) grads_[layout] = device_->allocate(std::size_t(layout->elements) * sizeof(float));
    }
    for (const RopeConfig& rope : files.config().ropes) {
      ropes_.push_back(device_->allocate(rope.inv_freq.size() * sizeof(float)));
      std::memcpy(ropes_.back().data(), rope.inv_freq.data(), ropes_.back().bytes());
    }
    loras_.resize(files.layout().layers.size());
  }

  // Additions to layer l; null: none. They must outlive the model.
  void set_lora(std::size_t layer, const LayerLora* lora) { loras_[layer] = lora; }
  // Backward keeps the layers' inputs only and computes the rest again.
  void set_redo(bool redo) { redo_ = redo; }

  // [T, V]
  std::vector<float> logits(const Packed& rows) {
    begin(rows);
    const Tensor hidden = forward();
    stream_->synchronize();
    return {hidden.f32(), hidden.f32() + hidden.elements()};
  }

  // Adds weight · the sum of the rows' losses to the gradients; returns that sum.
  double loss_backward(const Packed& rows, float weight) {
    begin(rows);
    const Tensor z = forward();
    const std::int64_t T = z.size(0);
    const Tensor max_sum = take(DType::f32, {T, 2}), at_target = take(DType::f32, {T});
    const Tensor losses = take(DType::f32, {T}), targets = ids_of(rows.targets);
    for (std::int64_t t = 0; t < T; ++t) {
      max_sum.f32()[2 * t] = -INFINITY;
      max_sum.f32()[2 * t + 1] = 0;
    }
    ops_->cross_entropy_tile(max_sum, at_target, z, targets, 0);
    ops_->cross_entropy_loss(losses, max_sum, at_target, targets);
    const Tensor d_z = type_ == DType::f32 ? z : take(type_, {T, z.size(1)});
    ops_->cross_entropy_backward(d_z, z, max_sum, targets, 0, weight);
    backward(d_z);
    stream_->synchronize();
    double sum = 0;
    for (std::int64_t t = 0; t < T; ++t) sum += losses.f32()[t];
    return sum;
  }

  // The gradient of a parameter, by its Hugging Face name.
  std::vector<float> gradient(const std::string& name) const {
    for (const auto& [layout, buffer] : grads_) {
      for (const TensorSpec& spec : layout->tensors) {
        if (spec.name != name) continue;
        const Tensor g = view(spec, buffer.data(), DType::f32);
        return {g.f32(), g.f32() + g.elements()};
      }
    }
    return {};
  }

  void embed(Tensor x /*[T, D]*/, Tensor ids /*[T] i32*/) {
    ops_->embed(x, weight(files_.layout().embed), ids);
  }
  // z = logits of x; hidden may be x's memory.
  void head(Tensor z /*[T, V] f32*/, Tensor hidden /*[T, D]*/, Tensor rstd /*[T] f32*/, Tensor x /*[T, D]*/) {
    ops_->rms_norm(hidden, rstd, x, weight(files_.layout().norm), files_.config().rms_norm_eps);
    ops_->linear(z, hidden, weight(head_layout()), {});
  }
  Decoder& decoder() { return decoder_; }
  Stream& stream() { return *stream_; }
  Device& device() { return *device_; }
  LayerWeights layer_weights_of(std::size_t l) const {
    const BlockLayout& layout = files_.layout().layers[l];
    return layer_weights(layout, weights_.at(&layout).data(), type_);
  }
  Tensor inv_freq(std::size_t l) const {
    const Buffer& rope = ropes_[std::size_t(files_.config().layers[l].rope)];
    return Tensor(rope.data(), DType::f32, {std::int64_t(rope.bytes() / sizeof(float))});
  }
  std::size_t forward_scratch_used() const { return forward_scratch_.high_water(); }
  std::size_t backward_scratch_used() const { return backward_scratch_.high_water(); }

 private:
  Buffer load(const BlockLayout& layout) {
    std::vector<float> values(std::size_t(layout.elements));
    read_block(files_, layout, values);
    Buffer buffer = device_->allocate(values.size() * bytes_of(type_));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (type_ == DType::f32) reinterpret_cast<float*>(buffer.data())[i] = values[i];
      if (type_ == DType::bf16) reinterpret_cast<bf16_t*>(buffer.data())[i] = to_bf16(values[i]);
    }
    return buffer;
  }

  Tensor take(DType type, std::initializer_list<std::int64_t> shape) {
    return arena_.take("test", type, shape);
  }
  Tensor ids_of(const std::vector<std::int32_t>& ids) {
    const Tensor out = take(DType::i32, {std::int64_t(ids.size())});
    std::memcpy(out.data(), ids.data(), out.bytes());
    return out;
  }
  Tensor weight(const BlockLayout& layout) {
    return view(layout.tensors[0], weights_.at(&layout).data(), type_);
  }
  Tensor grad(const BlockLayout& layout) {
    return grads_.empty() ? Tensor() : view(layout.tensors[0], grads_.at(&layout).data(), DType::f32);
  }
  const BlockLayout& head_layout() const {
    return files_.config().tie_word_embeddings ? files_.layout().embed : files_.layout().head;
  }
  void begin(const Packed& rows) {
    arena_ = Arena(memory_.span());
    saved_.clear();
    starts_ = rows.starts;
    ids_ = ids_of(rows.ids);
    rows_ = {.positions = ids_of(rows.positions), .sequences = {.starts = starts_}};
  }

  void forward_layer(std::size_t l, Tensor out) {
    decoder_.forward(int(l), layer_weights_of(l), rows_, inv_freq(l), saved_[l], out, loras_[l],
                     forward_scratch_);
  }

  // Overwrites everything but the layer's input.
  void forget(const LayerSaved& saved) {
    for (const Tensor& tensor : {saved.qkv, saved.attention, saved.lse, saved.x_mid, saved.gate_up,
                                 saved.v_qkv, saved.v_o, saved.v_gate_up, saved.v_down}) {
      if (tensor) ops_->fill_zero(tensor);
    }
  }

  // Logits [T, V] f32; leaves everything that backward needs.
  Tensor forward() {
    const ModelConfig& config = files_.config();
    const std::int64_t T = ids_.size(0), D = config.hidden_size;
    Tensor x = take(type_, {T, D});
    embed(x, ids_);
    for (std::size_t l = 0; l < loras_.size(); ++l) {
      saved_.push_back(take_saved(arena_, config, T, type_, loras_[l], x));
      x = take(type_, {T, D});
      forward_layer(l, x);
      if (redo_) forget(saved_.back());
    }
    x_ = x;
    hidden_ = take(type_, {T, D});
    rstd_ = take(DType::f32, {T});
    const Tensor z = take(DType::f32, {T, config.vocab_size});
    head(z, hidden_, rstd_, x);
    return z;
  }

  void backward(Tensor d_z) {
    const std::int64_t T = ids_.size(0), D = files_.config().hidden_size;
    const bool trains_base = !grads_.empty();
    const Tensor d_hidden = take(type_, {T, D}), d_x = take(type_, {T, D});
    if (trains_base) ops_->linear_backward_weight(grad(head_layout()), {}, d_z, hidden_);
    ops_->linear_backward_input(d_hidden, d_z, weight(head_layout()), false);
    ops_->fill_zero(d_x);
    ops_->rms_norm_backward(d_x, grad(files_.layout().norm), d_hidden, x_, weight(files_.layout().norm),
                            rstd_);
    for (std::size_t l = loras_.size(); l-- > 0;) {
      const BlockLayout& layout = files_.layout().layers[l];
      const LayerWeights grads =
          trains_base ? layer_weights(layout, grads_.at(&layout).data(), DType::f32) : LayerWeights{};
      if (redo_) forward_layer(l, {});
      decoder_.backward(int(l), layer_weights_of(l), grads, rows_, inv_freq(l), saved_[l], d_x, loras_[l],
                        backward_scratch_);
    }
    if (trains_base) ops_->embed_backward(grad(files_.layout().embed), d_x, ids_);
  }

  const WeightFiles& files_;
  DType type_;
  std::unique_ptr<Device> device_ = make_host_device();
  std::unique_ptr<Stream> stream_;
  Threads threads_;
  std::unique_ptr<Ops> ops_;
  Decoder decoder_{files_.config(), *ops_, type_};
  std::map<const BlockLayout*, Buffer> weights_, grads_;
  std::vector<Buffer> ropes_;
  std::vector<const LayerLora*> loras_;

  static constexpr std::size_t kBytes = std::size_t(16) << 20;
  Buffer memory_ = device_->allocate(kBytes), forward_memory_ = device_->allocate(kBytes),
         backward_memory_ = device_->allocate(kBytes);
  Arena arena_{memory_.span()}, forward_scratch_{forward_memory_.span()},
      backward_scratch_{backward_memory_.span()};
  bool redo_ = false;
  Tensor ids_, x_, hidden_, rstd_;
  std::vector<std::int32_t> starts_;
  Rows rows_;
  std::vector<LayerSaved> saved_;
};

}  // namespace slideway
