// Request: what a user asked of the engine, and what comes back, a token at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lora/adapter.h"
#include "text/grammar.h"
#include "text/tokenizer.h"

namespace slideway {

// How the next token is drawn from the logits: changed by bias and penalties (logit_rules.h) and the temperature, then
// the k most likely, of those the ones at least min_p times as likely as the likeliest, then the fewest whose
// probabilities reach top_p.
struct SamplingOptions {
  float temperature = 1;   // 0: the most likely token, of equals the first
  float top_p = 1;         // in (0, 1]
  std::int32_t top_k = 0;  // 0: all
  float min_p = 0;         // in [0, 1]
  float presence_penalty = 0, frequency_penalty = 0;
  float repetition_penalty = 1;                            // above 0
  std::vector<std::pair<std::int32_t, float>> logit_bias;  // by token
  std::uint64_t seed = 0;
};

struct Request {
  TokenIds prompt;                         // at least one token
  std::shared_ptr<const Adapter> adapter;  // null: the base model
  SamplingOptions sampling;
  std::uint64_t choice = 0;                // tells several answers to one prompt apart in the random numbers
  std::int64_t max_tokens = 0;             // 0: until the context is full
  std::vector<std::int32_t> end_ids;       // any of these ends the answer …
  std::int64_t min_tokens = 0;             // … once it has so many
  std::optional<std::int64_t> logprobs;    // wanted with every token, and with so many of the likeliest
  bool prompt_logprobs = false;            // … and with the prompt's
  std::shared_ptr<const Grammar> grammar;  // what the answer must be; null: anything
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

struct TokenLogprob {
  std::int32_t token = 0;
  float logprob = 0;
};

// By the model's own distribution, before sampling options.
struct TokenLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // the likeliest first
};

struct TokenEvent {
  RequestId request = 0;
  std::int32_t token = -1;             // −1: none came
  std::optional<FinishReason> finish;  // set with a request's last event
  std::optional<TokenLogprobs> logprobs;
  std::vector<TokenLogprobs> prompt;  // with the first event: of the prompt's tokens but the first
  std::string error;
};

}  // namespace slideway
