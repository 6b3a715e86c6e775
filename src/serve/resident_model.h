// ResidentModel: all weights of a model on the device, once, in one type.
//
// Read from the files block by block, tensors side by side; BF16 is rounded to nearest even. The files may be closed
// afterwards.
//
// Owns     the weights and the tables of rotary frequencies
// Threads  const calls from any number of threads
// Errors   as WeightFiles::read; out_of_memory
#pragma once

#include <cstdint>
#include <vector>

#include "core/threads.h"
#include "device/device.h"
#include "model/layer.h"
#include "model/weights.h"

namespace slideway {

class ResidentModel {
 public:
  ResidentModel(Device& device, Stream& stream, Threads& threads, const WeightFiles& files, DType type);

  const ModelConfig& config() const { return config_; }
  const ModelLayout& layout() const { return layout_; }
  DType type() const { return type_; }
  std::uint64_t bytes() const { return memory_.bytes(); }

  // A tensor of the layout, widened. Errors: unsupported on a device whose memory the host cannot read.
  void read(const TensorSpec& spec, std::span<float> out) const;

  Tensor embed() const { return embed_; }  // [V, D]
  const LayerWeights& layer(int l) const { return layers_[std::size_t(l)]; }
  Tensor inv_freq(int l) const;                      // [E/2] f32, of layer l's rope
  Tensor final_norm() const { return final_norm_; }  // [D]
  Tensor head() const { return head_; }              // [V, D]

 private:
  ModelConfig config_;
  ModelLayout layout_;
  DType type_;
  bool on_host_;
  Buffer memory_, rope_memory_;
  Tensor embed_, final_norm_, head_;
  std::vector<LayerWeights> layers_;
  std::vector<Tensor> inv_freqs_;  // by rope
};

}  // namespace slideway
