#include "train/layer_store.h"

#include "ops/adamw.h"

namespace slideway {
namespace {

std::int64_t total_elements(std::span<const BlockLayout* const> layouts) {
  std::int64_t total = 0;
  for (const BlockLayout* layout : layouts) total += layout->elements;
  return total;
}

}  // namespace

LayerStore::LayerStore(Device& device, std::vector<const BlockLayout*> layouts,
                       const LayerStoreOptions& options)
    : options_(options) {
  const auto total = std::size_t(total_elements(layouts));
  hi_ = device.allocate_pinned(total * sizeof(bf16_t));
  const std::size_t lo_bytes = total * sizeof(std::int16_t);
  if (options_.remainder()) lo_ = options_.exact ? device.allocate_pinned(lo_bytes) : allocate_host(lo_bytes);
  if (options_.trained) {
    m_ = allocate_host(total * sizeof(float));
    v_ = allocate_host(total * sizeof(float));
  }
  std::int64_t at = 0;
  for (const BlockLayout* layout : layouts) {
    Block block{.layout = layout, .elements = layout->elements};
    block.hi = reinterpret_cast<bf16_t*>(hi_.data()) + at;
    if (options_.remainder()) block.lo = reinterpret_cast<std::int16_t*>(lo_.data()) + at;
    if (options_.trained) {
      block.m = reinterpret_cast<float*>(m_.data()) + at;
      block.v = reinterpret_cast<float*>(v_.data()) + at;
    }
    blocks_.push_back(block);
    at += layout->elements;
  }
}

std::vector<Demand> LayerStore::demands(std::span<const BlockLayout* const> layouts,
                                        const LayerStoreOptions& options, const std::string& whose) {
  const auto n = std::uint64_t(total_elements(layouts));
  std::vector<Demand> demands{{Tier::pinned, whose + " weights, BF16", n * 2}};
  if (options.remainder())
    demands.push_back(
        {options.exact ? Tier::pinned : Tier::host, whose + " weights, 16-bit remainder", n * 2});
  if (options.trained) demands.push_back({Tier::host, whose + " AdamW moments, FP32", n * 8});
  return demands;
}

void LayerStore::write(int index, const TensorSpec& spec, std::span<const float> values) {
  const Block& to = block(index);
  CHECK(std::int64_t(values.size()) == spec.elements(), spec.name);
  if (to.lo) {
    split_range(to.hi + spec.offset, to.lo + spec.offset, values.data(), spec.elements());
  } else {
    for (std::size_t i = 0; i < values.size(); ++i) to.hi[std::size_t(spec.offset) + i] = to_bf16(values[i]);
  }
}

void LayerStore::read(int index, const TensorSpec& spec, std::span<float> out) const {
  const Block& from = block(index);
  CHECK(std::int64_t(out.size()) == spec.elements(), spec.name);
  if (from.lo) {
    join_range(out.data(), from.hi + spec.offset, from.lo + spec.offset, spec.elements());
  } else {
    widen_range(out.data(), from.hi + spec.offset, spec.elements());
  }
}

}  // namespace slideway
