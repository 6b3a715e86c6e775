#include "serve/resident_model.h"

#include <algorithm>
#include <cstring>

namespace slideway {
namespace {

std::size_t block_bytes(const BlockLayout& block, DType type) {
  return std::size_t(block.elements) * bytes_of(type);
}

// The block's tensors, side by side, into host memory in the wanted type; gaps are zero.
void read_tensors(const WeightFiles& files, const BlockLayout& block, DType type, Threads& threads,
                  std::vector<std::byte>& out) {
  out.assign(block_bytes(block, type), std::byte{0});
  threads.for_each(std::int64_t(block.tensors.size()), [&](std::int64_t i) {
    const TensorSpec& spec = block.tensors[std::size_t(i)];
    const Tensor to = view(spec, out.data(), type);
    const auto n = std::size_t(spec.elements());
    if (type == DType::f32) return files.read(spec, {to.f32(), n});
    std::vector<float> values(n);
    files.read(spec, values);
    std::transform(values.begin(), values.end(), to.bf16(), to_bf16);
  });
}

Tensor only(const BlockLayout& block, std::byte* memory, DType type) {
  return view(block.tensors.front(), memory, type);
}

}  // namespace

ResidentModel::ResidentModel(Device& device, Stream& stream, Threads& threads, const WeightFiles& files,
                             DType type)
    : config_(files.config()),
      layout_(files.layout()),
      type_(type),
      on_host_(device.kind() == DeviceKind::host) {
  CHECK(type == DType::f32 || type == DType::bf16);
  std::size_t bytes = 0;
  for (const BlockLayout* block : layout_.blocks()) bytes += block_bytes(*block, type);
  memory_ = device.allocate(bytes);

  std::byte* at = memory_.data();
  std::vector<std::byte> staged;
  for (const BlockLayout* block : layout_.blocks()) {
    read_tensors(files, *block, type, threads, staged);
    stream.copy(at, staged.data(), staged.size());
    stream.synchronize();  // staged is used again
    if (block == &layout_.embed)
      embed_ = only(*block, at, type);
    else if (block == &layout_.norm)
      final_norm_ = only(*block, at, type);
    else if (block == &layout_.head)
      head_ = only(*block, at, type);
    else
      layers_.push_back(layer_weights(*block, at, type));
    at += block_bytes(*block, type);
  }
  if (config_.tie_word_embeddings) head_ = embed_;
  CHECK(embed_ && final_norm_ && head_ && layers_.size() == layout_.layers.size());

  const std::size_t half = std::size_t(config_.head_dim) / 2;
  rope_memory_ = device.allocate(config_.ropes.size() * half * sizeof(float));
  for (std::size_t i = 0; i < config_.ropes.size(); ++i) {
    auto* table = reinterpret_cast<float*>(rope_memory_.data()) + i * half;
    stream.copy(table, config_.ropes[i].inv_freq.data(), half * sizeof(float));
    inv_freqs_.emplace_back(table, DType::f32, std::initializer_list<std::int64_t>{std::int64_t(half)});
  }
  stream.synchronize();
}

void ResidentModel::read(const TensorSpec& spec, std::span<float> out) const {
  if (!on_host_)
    fail(ErrorKind::unsupported,
         "adapters that need the base's numbers (DoRA, biases) are not supported on CUDA yet");
  std::byte* at = memory_.data();
  for (const BlockLayout* block : layout_.blocks()) {
    for (const TensorSpec& mine : block->tensors) {
      if (mine.name != spec.name) continue;
      const Tensor tensor = view(mine, at, type_);
      CHECK(std::int64_t(out.size()) == tensor.elements(), spec.name);
      if (type_ == DType::f32) return void(std::copy_n(tensor.f32(), out.size(), out.begin()));
      std::transform(tensor.bf16(), tensor.bf16() + out.size(), out.begin(),
                     [](bf16_t bits) { return to_float(bits); });
      return;
    }
    at += block_bytes(*block, type_);
  }
  CHECK(false, "the model has no tensor ", spec.name);
}

Tensor ResidentModel::inv_freq(int l) const {
  return inv_freqs_.at(std::size_t(config_.layers.at(std::size_t(l)).rope));
}

}  // namespace slideway
