// StepBatch: the tables of one step, as the ops take them.
//
// Sequences stand in the order given, one adapter's together; each has its next rows. Whoever has no token left to read
// after this step gets a row of logits: sampled_rows says which row of the step it is made from.
//
// Owns     its tables, made once at their largest
// Threads  one at a time; the tables must not change until the step's work is done
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lora/lora_batch.h"
#include "model/decoder.h"
#include "serve/kv_cache.h"
#include "serve/request.h"

namespace slideway {

// One sequence's part in a step.
struct BatchItem {
  std::span<const std::int32_t> tokens;  // its rows' ids
  std::int64_t position = 0;             // of the first of them
  const KvPages* pages = nullptr;        // with room for all of them
  const Adapter* adapter = nullptr;
  bool sampled = false;   // the last row's logits are wanted
  bool all_rows = false;  // every row's are
};

class StepBatch {
 public:
  StepBatch(const ModelLayout& layout, const KvCache& cache, std::int64_t max_rows);

  void set(std::span<const BatchItem> items);

  Tensor ids();           // [T] i32
  Tensor sampled_rows();  // [S] i32, rows of the step; empty where S is 0
  std::int64_t count() const { return std::int64_t(ids_.size()); }
  Rows rows(int layer);  // valid until the next call
  const LayerLora* lora(int layer) const { return lora_.layer(layer); }
  std::span<const std::int32_t> host_ids() const { return ids_; }              // [T]
  std::span<const AdapterRows> adapter_rows() const { return adapter_rows_; }  // of the step's rows
  // Of the rows of logits [begin, end), counted from begin; valid until the next call.
  std::span<const AdapterRows> sampled_adapters(std::int64_t begin, std::int64_t end);

 private:
  void set_pages(std::span<const BatchItem> items);

  const KvCache& cache_;
  std::vector<std::int32_t> ids_, positions_, sampled_rows_;
  std::vector<std::int32_t> starts_, lengths_;  // [N + 1], [N]
  std::vector<std::int32_t> pages_;             // [L, N, max_pages]
  std::size_t max_pages_ = 0;
  std::vector<AdapterRows> adapter_rows_, sampled_adapters_, some_sampled_;
  LoraBatch lora_;
  PagedKv kv_;
};

}  // namespace slideway
