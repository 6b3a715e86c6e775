// POST /v1/chat/completions: messages go through the model's template.
#include "serve/answer_start.h"
#include "serve/api_error.h"
#include "serve/chat_prompt.h"

namespace slideway {
namespace {

Json token_json(const Tokenizer& tokenizer, const TokenLogprob& token) {
  const std::string bytes = tokenizer.token_bytes(token.token);
  Json numbers = Json::array();
  for (const char byte : bytes) numbers.push_back(static_cast<unsigned char>(byte));
  return {{"token", text_of_bytes(bytes)},
          {"logprob", json_logprob(token.logprob)},
          {"bytes", std::move(numbers)}};
}

Json logprobs_json(const Tokenizer& tokenizer, const std::vector<TokenLogprobs>& tokens) {
  Json content = Json::array();
  for (const TokenLogprobs& token : tokens) {
    Json item = token_json(tokenizer, token.chosen);
    item["top_logprobs"] = Json::array();
    for (const TokenLogprob& other : token.top) item["top_logprobs"].push_back(token_json(tokenizer, other));
    content.push_back(std::move(item));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

class ChatForm final : public AnswerForm {
 public:
  ChatForm(const Tokenizer& tokenizer, bool logprobs) : tokenizer_(tokenizer), logprobs_(logprobs) {}

  const char* object(bool chunk) const override {
    return chunk ? "chat.completion.chunk" : "chat.completion";
  }

  void chunks(AnswerChoice& choice, const AnswerText::Piece& piece, std::vector<Json>& out) override {
    if (begun_.size() <= choice.index) begun_.resize(choice.index + 1);
    if (!begun_[choice.index]) {
      begun_[choice.index] = true;
      out.push_back(chunk(choice.index, {{"role", "assistant"}, {"content", ""}}, Json()));
    }
    if (!piece.empty()) {
      const Json logprobs = logprobs_ ? logprobs_json(tokenizer_, piece.logprobs) : Json();
      out.push_back(chunk(choice.index, {{"content", piece.text}}, logprobs));
    }
    if (!choice.text.ended()) return;
    out.push_back(chunk(choice.index, Json::object(), Json()));
    out.back()["finish_reason"] = choice.finish_reason();
    out.back()["stop_reason"] = choice.stop_reason();
  }

  Json whole(AnswerChoice& choice) override {
    const Json logprobs = logprobs_ ? logprobs_json(tokenizer_, choice.whole.logprobs) : Json();
    return {{"index", choice.index},
            {"message", {{"role", "assistant"}, {"content", choice.whole.text}, {"refusal", nullptr}}},
            {"logprobs", logprobs},
            {"finish_reason", choice.finish_reason()},
            {"stop_reason", choice.stop_reason()}};
  }

 private:
  static Json chunk(std::size_t index, Json delta, const Json& logprobs) {
    return {
        {"index", index}, {"delta", std::move(delta)}, {"logprobs", logprobs}, {"finish_reason", nullptr}};
  }

  const Tokenizer& tokenizer_;
  bool logprobs_;
  std::vector<bool> begun_;  // by choice
};

void read_unsupported_chat(Fields& body) {
  for (const char* name : {"audio", "function_call", "functions", "prediction", "reasoning_effort",
                           "verbosity", "web_search_options", "documents", "mm_processor_kwargs"})
    body.accept(name, {});
  body.accept("modalities", {Json::array({"text"})});
  body.accept("echo", {false});
  body.accept("continue_final_message", {false});
  body.accept("add_special_tokens", {false});
  body.accept("parallel_tool_calls", {true});
  body.accept("response_format", {Json{{"type", "text"}}});
}

std::optional<std::int64_t> read_max_tokens(Fields& body) {
  const auto now = body.integer("max_completion_tokens", 1, INT64_MAX);
  const auto before = body.integer("max_tokens", 1, INT64_MAX);
  if (now && before && *now != *before)
    fail_field("max_completion_tokens", "max_tokens and max_completion_tokens differ; give one of them");
  return now ? now : before;
}

std::optional<std::int64_t> read_logprobs(Fields& body) {
  const bool wanted = body.flag("logprobs").value_or(false);
  const auto top = body.integer("top_logprobs", 0, kMaxTopLogprobs);
  if (top && *top > 0 && !wanted)
    fail_field("top_logprobs", "top_logprobs may only be given where logprobs is true");
  return wanted ? std::optional(top.value_or(0)) : std::nullopt;
}

}  // namespace

HttpReply chat(const ApiCall& call) {
  const ServedModel& model = call.model;
  Fields body = parse_body(call.http.body);
  AnswerFields fields = read_answer_fields(body, model.sampling);
  fields.max_tokens = read_max_tokens(body);
  fields.top_logprobs = read_logprobs(body);
  read_unsupported_chat(body);
  TokenIds ids = chat_prompt(body, model);
  body.finish();
  if (fields.top_logprobs) fail_field("logprobs", "logprobs is not supported");
  const std::int64_t tokens = answer_tokens(model, ids.size(), fields.max_tokens, 0, "messages");
  std::vector<AnswerPrompt> prompts;
  prompts.push_back({std::move(ids), tokens});
  return start_answer(call, fields, std::move(prompts),
                      std::make_unique<ChatForm>(*model.tokenizer, fields.top_logprobs.has_value()),
                      "chatcmpl-");
}

}  // namespace slideway
