// LoraBatch: which rows of a step carry which adapter, as the plain structs that the decoder takes.
//
//   LoraBatch batch(layout);
//   batch.set({{&adapter, 0, 5}, {&other, 5, 6}});      // once a step
//   decoder.forward(l, weights, rows, …, batch.layer(l), scratch);
//
// Rows without an adapter are simply not named and cost nothing; a layer that no adapter touches gives null.
//
// Threads  one at a time
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lora/adapter.h"
#include "model/decoder.h"

namespace slideway {

// The additions to one layer, sorted into its four fused projections.
class LayerParts {
 public:
  void clear();
  // Gives the part its place in the fused projection (out_column) and in v (v_column). part.a, b, scale,
  // rows, d_a, d_b, dropout_key are the caller's. Parts of one range of rows are added one after another:
  // only they stand side by side in v, since a row has one adapter.
  void add(const BlockLayout& layer, Role role, LoraPart part);
  bool empty() const;
  // Valid until the next clear or add.
  LayerLora lora(const Dropout& dropout = {}) const;

 private:
  struct Target {
    std::vector<LoraPart> parts;
    std::int64_t v_width = 0;
    LoraTarget view() const { return {parts, v_width}; }
  };
  Target qkv_, o_, gate_up_, down_;
};

struct AdapterRows {
  const Adapter* adapter = nullptr;
  std::int64_t row_begin = 0, row_end = 0;
};

class LoraBatch {
 public:
  explicit LoraBatch(const ModelLayout& layout);
  // Ranges do not overlap. The adapters must outlive the step.
  void set(std::span<const AdapterRows> rows);
  const LayerLora* layer(int layer) const;  // null: the base alone

 private:
  const ModelLayout& layout_;
  std::vector<LayerParts> parts_;  // [L]
  std::vector<LayerLora> loras_;   // [L]
};

}  // namespace slideway
