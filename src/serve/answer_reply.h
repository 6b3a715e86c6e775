// AnswerReply: sequences on their way to a client, as one JSON object or as server-sent events.
//
// What completions and chat completions write differently is a form.
//
//   stream    data: {chunk}, one or more an event of the engine · data: {"choices": [], "usage"} where it was asked for ·
//             data: [DONE]
//   errors    before anything was sent: an HTTP status; after: data: {"error": …}, and the stream ends
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "serve/answer_text.h"
#include "serve/engine_thread.h"
#include "serve/fields.h"
#include "serve/http.h"
#include "serve/metrics.h"

namespace slideway {

// One choice of an answer, and what of it has come so far.
struct AnswerChoice {
  std::size_t index = 0;
  AnswerText text;
  std::vector<std::int32_t> stop_token_ids = {};  // that the request named
  AnswerText::Piece whole = {};                   // where it is not streamed
  std::vector<TokenLogprobs> prompt = {};         // of the prompt, where they are wanted

  // null while it goes on; stop_reason also where the model ended by itself
  Json finish_reason() const;
  Json stop_reason() const;
};

// How choices are written. Stateful where a form must be: one object an answer.
class AnswerForm {
 public:
  virtual ~AnswerForm() = default;
  virtual const char* object(bool chunk) const = 0;
  // Appends choices of chunks: usually one, none where there is nothing to say yet.
  virtual void chunks(AnswerChoice& choice, const AnswerText::Piece& piece, std::vector<Json>& out) = 0;
  virtual Json whole(AnswerChoice& choice) = 0;
};

struct AnswerHead {
  std::string id, model;
  std::int64_t created = 0;  // seconds since 1970
  std::int64_t prompt_tokens = 0;
  bool stream = false, include_usage = false;
  std::string served_by = {};  // the adapter's or the base's name, for metrics
  Metrics* metrics = nullptr;
};

class AnswerReply final : public LaterReply {
 public:
  AnswerReply(AnswerHead head, std::unique_ptr<AnswerForm> form, std::vector<AnswerChoice> choices,
              std::unique_ptr<Generation> generation);
  ~AnswerReply() override;
  State advance(HttpReply& reply) override;

 private:
  State refuse(HttpReply& reply, const GenerationEvent& event);
  void take(const GenerationEvent& event, std::string& out);
  void write_chunk(Json choices, std::string& out);
  Json frame(bool chunk) const;
  Json usage() const;
  double seconds() const;  // since arrival

  AnswerHead head_;
  std::unique_ptr<AnswerForm> form_;
  std::vector<AnswerChoice> choices_;
  std::unique_ptr<Generation> generation_;
  std::vector<GenerationEvent> events_;
  std::vector<Json> pieces_;
  std::size_t going_;  // choices that have not ended
  bool streaming_ = false, failed_ = false;
  std::chrono::steady_clock::time_point arrival_ = std::chrono::steady_clock::now();
  double first_token_ = 0;  // seconds from arrival; 0: none yet
};

// Log-probabilities as JSON has them: −∞ as −9999, as others write it.
double json_logprob(float logprob);
// Bytes as text, and as text with what is no UTF-8 spelled out ("bytes:\\xf0\\x9f").
std::string text_of_bytes(const std::string& bytes);
std::string spelled_bytes(const std::string& bytes);

}  // namespace slideway
