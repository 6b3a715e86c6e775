#include "serve/answer_reply.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "serve/api_error.h"

namespace slideway {
namespace {

constexpr float kLeastLogprob = -9999;
constexpr const char* kEventStream = "text/event-stream; charset=utf-8";

bool is_utf8(const std::string& bytes) {
  try {
    (void)Json(bytes).dump();
    return true;
  } catch (const Json::type_error&) {
    return false;
  }
}

}  // namespace

double json_logprob(float logprob) {
  return double(std::max(logprob, kLeastLogprob));
}

std::string text_of_bytes(const std::string& bytes) {
  return is_utf8(bytes) ? bytes : Json::parse(dump(bytes)).get<std::string>();
}

std::string spelled_bytes(const std::string& bytes) {
  if (is_utf8(bytes)) return bytes;
  std::string out = "bytes:";
  for (const char byte : bytes) {
    char code[8];
    std::snprintf(code, sizeof code, "\\x%02x", unsigned(static_cast<unsigned char>(byte)));
    out += code;
  }
  return out;
}

Json AnswerChoice::finish_reason() const {
  return text.ended() ? Json(text.finish_reason()) : Json();
}

Json AnswerChoice::stop_reason() const {
  if (!text.stop_string().empty()) return text.stop_string();
  const auto token = text.stop_token();
  const bool asked =
      token && std::find(stop_token_ids.begin(), stop_token_ids.end(), *token) != stop_token_ids.end();
  return asked ? Json(*token) : Json();
}

AnswerReply::AnswerReply(AnswerHead head, std::unique_ptr<AnswerForm> form, std::vector<AnswerChoice> choices,
                         std::unique_ptr<Generation> generation)
    : head_(std::move(head)),
      form_(std::move(form)),
      choices_(std::move(choices)),
      generation_(std::move(generation)),
      going_(choices_.size()) {}

AnswerReply::~AnswerReply() {
  generation_ = nullptr;
  std::int64_t made = 0;
  for (const AnswerChoice& choice : choices_) made += choice.text.tokens();
  head_.metrics->ended({.model = head_.served_by,
                        .finish = failed_      ? "error"
                                  : going_ > 0 ? "cancelled"
                                               : choices_.front().text.finish_reason(),
                        .prompt_tokens = head_.prompt_tokens,
                        .answer_tokens = made,
                        .first_token = first_token_,
                        .whole = seconds()});
}

double AnswerReply::seconds() const {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - arrival_).count();
}

LaterReply::State AnswerReply::advance(HttpReply& reply) {
  generation_->take(events_);
  std::string out;
  for (const GenerationEvent& event : events_) {
    if (event.event.finish == FinishReason::error) {
      reply.body = std::move(out);
      return refuse(reply, event);
    }
    take(event, out);
  }
  if (!head_.stream) {
    if (going_ > 0) return State::waiting;
    Json whole = frame(false);
    for (AnswerChoice& choice : choices_) whole["choices"].push_back(form_->whole(choice));
    whole["usage"] = usage();
    reply.body = dump(whole);
    return State::done;
  }
  if (!streaming_ && out.empty() && going_ > 0) return State::waiting;
  if (!std::exchange(streaming_, true)) {
    reply.type = kEventStream;
    reply.headers.emplace_back("Cache-Control", "no-cache");
  }
  if (going_ == 0) {
    if (head_.include_usage) write_chunk(Json::array(), out);
    out += "data: [DONE]\n\n";
  }
  reply.body = std::move(out);
  return going_ == 0 ? State::done : State::streaming;
}

LaterReply::State AnswerReply::refuse(HttpReply& reply, const GenerationEvent& event) {
  generation_ = nullptr;
  failed_ = true;
  const int status = status_of(event.kind);
  if (streaming_ || !reply.body.empty()) {
    reply.type = kEventStream;
    reply.body += "data: " + error_body({.status = status}, event.event.error) + "\n\n";
    return State::done;
  }
  HttpReply error = error_reply({.status = status}, event.event.error);
  reply.status = error.status;
  reply.headers = std::move(error.headers);
  reply.body = std::move(error.body);
  return State::done;
}

void AnswerReply::take(const GenerationEvent& event, std::string& out) {
  AnswerChoice& choice = choices_[event.sequence];
  if (choice.text.ended()) return;
  if (first_token_ == 0) first_token_ = seconds();
  if (!event.event.prompt.empty()) choice.prompt = event.event.prompt;
  AnswerText::Piece piece = choice.text.push(event.event);
  if (choice.text.ended()) --going_;
  if (choice.text.stopped_by_text() && !event.event.finish) generation_->cancel(event.sequence);
  if (!head_.stream) {
    choice.whole.text += piece.text;
    std::move(piece.logprobs.begin(), piece.logprobs.end(), std::back_inserter(choice.whole.logprobs));
    return;
  }
  pieces_.clear();
  form_->chunks(choice, piece, pieces_);
  for (Json& chunk : pieces_) write_chunk(Json::array({std::move(chunk)}), out);
}

Json AnswerReply::frame(bool chunk) const {
  return {{"id", head_.id},
          {"object", form_->object(chunk)},
          {"created", head_.created},
          {"model", head_.model},
          {"choices", Json::array()}};
}

Json AnswerReply::usage() const {
  std::int64_t made = 0;
  for (const AnswerChoice& choice : choices_) made += choice.text.tokens();
  return {{"prompt_tokens", head_.prompt_tokens},
          {"completion_tokens", made},
          {"total_tokens", head_.prompt_tokens + made}};
}

void AnswerReply::write_chunk(Json choices, std::string& out) {
  Json chunk = frame(true);
  const bool last = choices.empty();
  chunk["choices"] = std::move(choices);
  if (head_.include_usage) chunk["usage"] = last ? usage() : Json();
  out += "data: " + dump(chunk) + "\n\n";
}

}  // namespace slideway
