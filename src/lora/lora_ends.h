// LoraEnds: what adapters do outside the layers, at the token embedding and at the head.
//
//   ends.embed(x, ids, rows, scratch);            // after the base's embedding
//   ends.head(logits, h, weight, rows, scratch);  // the base's head included
//
// Each range of rows is worked on alone, in the ops that the layers use, so that a row's bits are the same in any company
// and rows without an adapter cost nothing. A head that an adapter replaces is computed in place of the base's.
//
// Scratch  v: [T, max_rank] f32 for as many rows as one adapter has
// Threads  one at a time; what a call made must stay until its work is done: begin() of the next step forgets it
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "lora/lora_batch.h"
#include "memory/arena.h"

namespace slideway {

class LoraEnds {
 public:
  LoraEnds(Ops& ops, std::int64_t max_rank) : ops_(ops), max_rank_(max_rank) {}

  void begin();
  // x[t] becomes what the row's adapter makes of its token.
  void embed(Tensor x /*[T, D] act*/, std::span<const std::int32_t> ids /*[T]*/,
             std::span<const AdapterRows> rows, Arena& scratch);
  // logits = h weightᵀ, each row as its adapter has it
  void head(Tensor logits /*[T, V] f32*/, Tensor h /*[T, D] act*/, Tensor weight /*[V, D]*/,
            std::span<const AdapterRows> rows, Arena& scratch);

 private:
  void embed_rows(const AdapterEnd& end, Tensor x, std::span<const std::int32_t> ids, Arena& scratch);
  void add_to_logits(const AdapterEnd& end, Tensor logits, Tensor h, Arena& scratch);
  void add_parts(std::vector<LoraPart> parts, Tensor logits, Tensor h, Arena& scratch);
  Tensor kept_ids(std::span<const std::int32_t> ids);

  Ops& ops_;
  std::int64_t max_rank_;
  std::deque<std::vector<LoraPart>> parts_;
  std::deque<std::vector<std::int32_t>> ids_;
  std::deque<float> numbers_;
};

}  // namespace slideway
