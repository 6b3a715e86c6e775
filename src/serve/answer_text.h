// AnswerText: one sequence's tokens on their way to a client: text without half characters, cut at stop strings, and the
// log-probabilities of the tokens whose text has gone out.
//
//   AnswerText answer(tokenizer, {.stops = {"\n\n"}});
//   for (…) send(answer.push(event));
//   if (answer.ended()) … answer.finish_reason()
//
// A token that ends the answer has no text. A stop string is found wherever the borders of tokens lie; what is its
// beginning waits. Of tokens with log-probabilities exactly those are shown whose text, or its beginning, is.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "serve/engine_thread.h"
#include "serve/stop_strings.h"
#include "text/tokenizer.h"

namespace slideway {

struct AnswerTextOptions {
  std::vector<std::string> stops;
  bool include_stop = false;  // the stop string, or the token that ends it, is part of the text
  bool skip_special_tokens = true;
  std::int64_t min_tokens = 0;  // before, no stop string counts
  bool nothing = false;         // only the prompt was wanted: the engine's one token is dropped
};

class AnswerText {
 public:
  struct Piece {
    std::string text;
    std::vector<TokenLogprobs> logprobs;
    bool empty() const { return text.empty() && logprobs.empty(); }
  };

  AnswerText(const Tokenizer& tokenizer, const AnswerTextOptions& options);

  Piece push(const TokenEvent& event);

  bool ended() const { return !finish_reason_.empty(); }
  bool stopped_by_text() const { return stops_.stopped(); }            // the engine knows nothing of it
  const std::string& finish_reason() const { return finish_reason_; }  // "stop", "length"; empty: not yet
  const std::string& stop_string() const { return stops_.found(); }
  std::optional<std::int32_t> stop_token() const { return stop_token_; }
  std::int64_t tokens() const { return tokens_; }  // that were made, the one that ended it too

 private:
  struct Waiting {
    std::size_t begin;  // bytes of text before it
    TokenLogprobs logprobs;
  };
  Piece release(std::string text);

  StreamDecoder decoder_;
  StopStrings stops_;
  AnswerTextOptions options_;
  std::deque<Waiting> waiting_;
  std::size_t decoded_ = 0, released_ = 0;  // bytes
  std::int64_t tokens_ = 0;
  std::string finish_reason_;
  std::optional<std::int32_t> stop_token_;
};

}  // namespace slideway
