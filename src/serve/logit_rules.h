// LogitRules: what a request wants changed about its logits before a token is drawn, and what it wants to know of them.
//
//   bans       tokens that may not come (end tokens before min_tokens; what a grammar does not allow): −∞
//   bias       z += bias
//   penalties  repetition, of tokens in prompt or answer: z > 0 ? z / p : z · p
//              frequency and presence, of tokens in the answer: z −= f · count + p
//
// Log-probabilities are those of the model: of the logits as they come, whatever the request changes about them.
//
// Threads  one at a time (it keeps room for counting)
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "serve/request.h"

namespace slideway {

class LogitRules {
 public:
  static bool any(const SamplingOptions& options);  // that apply() would do something about

  // prompt, answer: tokens so far.
  void apply(std::span<float> logits, const SamplingOptions& options, std::span<const std::int32_t> prompt,
             std::span<const std::int32_t> answer);
  static void ban(std::span<float> logits, std::span<const std::int32_t> ids);
  // Bans all but the tokens whose bit is set (text/grammar.h).
  static void keep(std::span<float> logits, std::span<const std::uint32_t> allowed);

 private:
  std::vector<std::int32_t> in_prompt_, in_answer_;  // [V]: counts; all 0 between calls
};

// Of one token, and of the `top` likeliest, of equals the first.
TokenLogprobs token_logprobs(std::span<const float> logits, std::int32_t token, std::int64_t top);

}  // namespace slideway
