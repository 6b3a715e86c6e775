// Request: what a user asked of the engine, and what comes back, a token at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lora/adapter.h"
#include "text/tokenizer.h"

namespace slideway {

// How the next token is drawn from the logits: temperature first, then the k most likely, then the fewest of those
// whose probabilities reach top_p.
struct SamplingOptions {
  float temperature = 1;   // 0: the most likely token, of equals the first
  float top_p = 1;         // in (0, 1]
  std::int32_t top_k = 0;  // 0: all
  std::uint64_t seed = 0;
};

struct Request {
  TokenIds prompt;                         // at least one token
  std::shared_ptr<const Adapter> adapter;  // null: the base model
  SamplingOptions sampling;
  std::uint64_t choice = 0;           // tells several answers to one prompt apart in the random numbers
  std::int64_t max_tokens = 0;        // 0: until the context is full
  std::vector<std::int32_t> end_ids;  // any of these ends the answer
};

// The ids that end a model's answers: those that config.json and generation_config.json name; the tokenizer's own where
// they name none.
std::vector<std::int32_t> end_ids_of(const ModelConfig& config, const Tokenizer& tokenizer);

// The ids of a prompt that is continued as it stands. An empty one begins with the model's BOS, where it has one.
TokenIds prompt_ids_of(std::string_view text, const Tokenizer& tokenizer);

using RequestId = std::uint64_t;

enum class FinishReason {
  stop,    // the token is one of end_ids
  length,  // max_tokens, or the context is full
  error,   // see TokenEvent::error
};

struct TokenEvent {
  RequestId request = 0;
  std::int32_t token = -1;             // −1: none came
  std::optional<FinishReason> finish;  // set with a request's last event
  std::string error;
};

}  // namespace slideway
