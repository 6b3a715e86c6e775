// Engine: the one decode loop of this program. Many requests run side by side, each as if it were alone.
//
//   Engine engine(device, threads, *WeightFiles::open(path), {});
//   engine.add({.prompt = ids, .max_tokens = 100, .end_ids = {2}});
//   while (!engine.idle())
//     for (const TokenEvent& event : engine.step()) …
//
// A step takes every running sequence one token further, or reads the next chunk of its prompt. A request's tokens
// depend on its own prompt, adapter, sampling and weights alone: on the CPU they are the same to the last bit whatever
// else runs, however prompts are cut, on any number of threads.
//
// A request begins when the cache has room for its prompt, not for all that it may come to. Where pages run out later,
// the latest to arrive gives back its own, waits, and has its tokens read again: it is slower, its answer the same. The
// oldest always goes on.
//
// Units    tokens, bytes
// Owns     the weights, the KV cache, its workspace: all taken at construction
// Threads  one at a time
// Errors   add: invalid_input for a request that cannot be served, which touches no other. step: device, internal. A
//          sequence whose logits are not numbers ends alone, with FinishReason::error.
// Source   docs/design.md, "Serving"
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/threads.h"
#include "device/device.h"
#include "lora/lora_ends.h"
#include "memory/arena.h"
#include "ops/ops.h"
#include "serve/batch.h"
#include "serve/kv_cache.h"
#include "serve/logit_rules.h"
#include "serve/request.h"
#include "serve/resident_model.h"
#include "serve/sampler.h"
#include "serve/scheduler.h"

namespace slideway {

struct EngineOptions {
  DType weights = DType::bf16;     // f32: exact, twice the memory
  std::int64_t context = 0;        // tokens a sequence may come to; 0: what the model was made for
  std::int64_t max_sequences = 1;  // running side by side
  std::int64_t chunk = 256;        // rows of prompt in one step, at most
  std::uint64_t kv_bytes = 0;      // 0: one sequence of `context` tokens for each of max_sequences
  std::int64_t max_lora_rank = 512;
};

class Engine {
 public:
  Engine(Device& device, Threads& threads, const WeightFiles& files, const EngineOptions& options);
  ~Engine();

  RequestId add(Request request);
  // False when it has ended already. Its last event is not sent.
  bool cancel(RequestId id);
  // One step. The events are valid until the next call.
  std::span<const TokenEvent> step();
  // Shows the logits [V] from which each token is about to be drawn, until it is told otherwise.
  using SeeLogits = std::function<void(RequestId, std::span<const float>)>;
  void watch_logits(SeeLogits see) { see_logits_ = std::move(see); }
  bool idle() const { return waiting_.empty() && running_.empty(); }

  const ModelConfig& config() const { return model_.config(); }
  const ModelLayout& layout() const { return model_.layout(); }
  std::int64_t context() const { return context_; }
  // The base's numbers as they are served, for loading adapters. Any thread.
  FetchTensor base() const;
  const KvCache& cache() const { return cache_; }
  std::uint64_t weight_bytes() const { return model_.bytes(); }
  bool running(RequestId id) const;  // takes part in steps; false: it waits, or is no more
  std::int64_t preemptions() const { return preemptions_; }  // since the start

 private:
  struct Sequence;
  void validate(const Request& request) const;
  std::int64_t end_of(const Request& request) const;
  void admit();
  void plan();
  void preempt_latest();
  void fill_batch();
  void compute();
  void read_logits(Tensor logits, std::int64_t first);
  void draw(Sequence& sequence, std::span<const float> logits);
  std::optional<std::int32_t> draw_by_rules(Sequence& sequence, std::span<const float> logits,
                                            TokenEvent& event);
  void finish_ended();

  std::int64_t context_;
  EngineOptions options_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Ops> ops_;
  ResidentModel model_;
  Decoder decoder_;
  LoraEnds ends_;
  KvCache cache_;
  StepBatch batch_;
  Buffer workspace_;
  Sampler sampler_;
  LogitRules rules_;
  SeeLogits see_logits_;

  std::deque<std::unique_ptr<Sequence>> waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;  // in order of arrival
  RequestId next_id_ = 1;
  std::int64_t preemptions_ = 0;

  // Of the step under way; kept so that a step allocates nothing of size.
  std::vector<SequenceProgress> progress_;
  std::vector<StepShare> shares_;
  std::vector<BatchItem> items_;
  struct LogitsRow {
    Sequence* sequence;
    std::int64_t position;  // of the token that they follow
  };
  std::vector<LogitsRow> logits_rows_;  // as batch_.sampled_rows()
  std::vector<float> changed_;          // [V]
  std::vector<std::uint32_t> allowed_;  // [⌈V / 32⌉]
  std::vector<TokenEvent> events_;
};

}  // namespace slideway
