#include "serve/answer_text.h"

namespace slideway {

AnswerText::AnswerText(const Tokenizer& tokenizer, const AnswerTextOptions& options)
    : decoder_(tokenizer, options.skip_special_tokens),
      stops_(options.stops, options.include_stop),
      options_(options) {}

AnswerText::Piece AnswerText::push(const TokenEvent& event) {
  if (ended()) return {};
  if (options_.nothing) {
    finish_reason_ = "length";
    return {};
  }
  std::string text;
  const bool ends_it = event.finish == FinishReason::stop;
  if (event.token >= 0) {
    ++tokens_;
    if (ends_it) stop_token_ = event.token;
    if (!ends_it || options_.include_stop) {
      if (event.logprobs) waiting_.push_back({decoded_, *event.logprobs});
      text = decoder_.push(event.token);
    }
  }
  if (event.finish) {
    text += decoder_.finish();
    finish_reason_ = ends_it ? "stop" : "length";
  }
  decoded_ += text.size();
  if (tokens_ <= options_.min_tokens) return release(std::move(text));
  std::string certain = stops_.push(text);
  if (stops_.stopped()) {
    finish_reason_ = "stop";
    stop_token_ = {};
  } else if (ended()) {
    certain += stops_.finish();
  }
  return release(std::move(certain));
}

// What may be shown now: this text, and the tokens that it, or nothing, is made of.
AnswerText::Piece AnswerText::release(std::string text) {
  Piece piece;
  released_ += text.size();
  piece.text = std::move(text);
  const bool all = !stops_.stopped() && stops_.held() == 0;
  while (!waiting_.empty() && (all || waiting_.front().begin < released_)) {
    piece.logprobs.push_back(std::move(waiting_.front().logprobs));
    waiting_.pop_front();
  }
  return piece;
}

}  // namespace slideway
