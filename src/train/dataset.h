// Dataset: the user's JSONL rows as samples of token ids, each token marked as trained or not; BatchSampler:
// the samples as the batches of each update.
//
// Rows, one JSON object a line (or one of a JSON array), told apart by their keys (others are ignored):
//   {"text": …}                      trained on every token; the end token is appended unless it is there
//   {"prompt": …, "completion": …}   trained on the completion and the end token appended to it
//   {"messages": […], "tools": […]}  rendered by the chat template; trained on the assistant's turns, each
//                                    with what ends it (text/chat.h). "weight": 0 in an assistant's message
//                                    leaves its turn out
// Text, prompt and completion may spell control tokens, which then become them; the content of messages never
// does. A prompt is encoded apart from its completion, as it will be when the model answers it.
//
// A sample has at most sequence_len tokens: longer rows are cut at the end, dropped or refused (LongRows). A
// row without a trained token is dropped and counted. The first token of a sample is never a target.
//
// Units    tokens; lines are physical lines from 1
// Owns     4 bytes a token and 8 a sample
// Threads  const calls from any number of threads
// Errors   invalid_input with file:line (and byte offset for broken JSON or UTF-8); "0 trainable tokens"
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "text/chat.h"
#include "text/tokenizer.h"
#include "train/options.h"

namespace slideway {

class Threads;

class Dataset {
 public:
  struct Counts {
    std::int64_t rows = 0;            // read from the files
    std::int64_t samples = 0;         // kept
    std::int64_t tokens = 0;          // of the kept samples
    std::int64_t trained_tokens = 0;  // of those, targets
    std::int64_t truncated = 0;       // rows cut to sequence_len
    std::int64_t dropped_long = 0;    // rows longer than sequence_len, with LongRows::drop
    std::int64_t dropped_empty = 0;   // rows without a trained token (after cutting)
  };

  // chat may be null where the model has no template: rows with messages are then errors.
  static Dataset load(const std::vector<std::filesystem::path>& files, const TrainOptions& options,
                      const Tokenizer& tokenizer, const ChatTemplate* chat, Threads* threads = nullptr);

  std::int64_t size() const { return std::int64_t(ends_.size()); }  // samples
  std::int64_t length(std::int64_t sample) const { return std::int64_t(ends_[sample] - begin_of(sample)); }
  std::int32_t id(std::int64_t sample, std::int64_t t) const {
    return std::int32_t(words_[begin_of(sample) + t] & ~kTrained);
  }
  bool trained(std::int64_t sample, std::int64_t t) const { return words_[begin_of(sample) + t] & kTrained; }
  std::int64_t longest() const;  // tokens of the longest sample
  const Counts& counts() const { return counts_; }
  std::string summary() const;  // the counts in a line for the log
  // Of all ids and marks: a checkpoint keeps it, so that resuming over other data is noticed.
  std::uint64_t digest() const;

  void add(const TokenIds& ids, const std::vector<bool>& trained);  // a sample, as load does

 private:
  static constexpr std::uint32_t kTrained = 0x80000000u;
  std::uint64_t begin_of(std::int64_t sample) const { return sample == 0 ? 0 : ends_[sample - 1]; }
  std::vector<std::uint32_t> words_;  // id, and kTrained where the token is a target
  std::vector<std::uint64_t> ends_;   // [samples] where each ends in words_
  Counts counts_;
};

// Samples laid end to end, without padding; positions restart with each sample, and none sees another.
struct MicroBatch {
  TokenIds ids;                         // [T]
  std::vector<std::int32_t> targets;    // [T] the sample's next token where that is trained, else −1
  std::vector<std::int32_t> positions;  // [T] from 0 in each sample
  std::vector<std::int32_t> starts;     // [N + 1] where each sample begins; the last is T
  std::vector<std::int64_t>
      tokens;  // [T] index in the step's batch, the same for every cut into micro-batches
};

// The batch of one update.
struct StepBatch {
  std::vector<MicroBatch> micro_batches;  // at most gradient_accumulation_steps; fewer at the end of an epoch
  std::int64_t trained_tokens = 0;        // targets ≥ 0 in all of them: what the loss is divided by
  std::int64_t tokens = 0;
};

// Where the sampler stands; (0, 0) is the beginning. Kept in checkpoints.
struct DataPosition {
  std::int64_t epoch = 0;
  std::int64_t unit = 0;  // samples (or packs) already used in this epoch
  bool operator==(const DataPosition&) const = default;
};

// Draws every sample once an epoch, in an order that is a function of (seed, epoch) alone. An update takes
// micro_batch_size · gradient_accumulation_steps samples; the last one of an epoch takes what is left. With
// sample_packing the samples are first put into packs of at most sequence_len tokens, the same packs every
// epoch, and a pack takes the place of a sample.
//
// Threads  one at a time
class BatchSampler {
 public:
  BatchSampler(const Dataset& data, const TrainOptions& options);

  StepBatch next();
  DataPosition position() const { return position_; }  // before the next batch
  void seek(DataPosition position);
  std::int64_t steps_per_epoch() const;
  std::int64_t max_micro_batch_tokens() const;  // no micro-batch of any epoch has more

 private:
  void shuffle();  // order_ for position_.epoch
  void pack(int sequence_len);
  MicroBatch micro_batch(std::int64_t first, std::int64_t count, std::int64_t& tokens) const;

  const Dataset& data_;
  std::uint64_t seed_;
  std::int64_t micro_batch_size_;
  std::int64_t units_a_step_;
  std::vector<std::int64_t> members_;  // samples, unit after unit
  std::vector<std::int64_t> ends_;     // [units] where each unit ends in members_
  std::vector<std::int64_t> order_;    // [units] of the current epoch
  DataPosition position_;
};

}  // namespace slideway
