// POST /v1/chat/completions: messages go through the model's template.
#include "serve/answer_start.h"
#include "serve/api_error.h"
#include "serve/chat_prompt.h"
#include "serve/response_format.h"
#include "serve/tool_calls.h"

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

Json call_json(const ToolCall& call) {
  return {{"id", call.id},
          {"type", "function"},
          {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
}

class ChatForm final : public AnswerForm {
 public:
  ChatForm(const Tokenizer& tokenizer, bool logprobs, ToolCallForm tools, std::size_t n)
      : tokenizer_(tokenizer), logprobs_(logprobs), begun_(n), tools_(n, ToolCallReader(tools)) {}

  const char* object(bool chunk) const override {
    return chunk ? "chat.completion.chunk" : "chat.completion";
  }

  void chunks(AnswerChoice& choice, const AnswerText::Piece& piece, std::vector<Json>& out) override {
    if (!begun_[choice.index]) {
      begun_[choice.index] = true;
      out.push_back(chunk(choice.index, {{"role", "assistant"}, {"content", ""}}, Json()));
    }
    ToolCallReader& tools = tools_[choice.index];
    std::size_t number = tools.calls();
    const ToolCallReader::Found found = tools.push(piece.text, choice.text.ended());
    if (!found.text.empty() || !piece.logprobs.empty())
      out.push_back(chunk(choice.index, {{"content", found.text}}, logprobs(piece)));
    for (const ToolCall& call : found.calls) {
      Json json = {{"index", number++}};
      json.update(call_json(call));
      out.push_back(chunk(choice.index, {{"tool_calls", Json::array({std::move(json)})}}, Json()));
    }
    if (!choice.text.ended()) return;
    out.push_back(chunk(choice.index, Json::object(), Json()));
    out.back()["finish_reason"] = finish_reason(choice);
    out.back()["stop_reason"] = choice.stop_reason();
  }

  Json whole(AnswerChoice& choice) override {
    const ToolCallReader::Found found = tools_[choice.index].push(choice.whole.text, true);
    const bool only_calls = found.text.empty() && !found.calls.empty();
    Json message = {
        {"role", "assistant"}, {"content", only_calls ? Json() : Json(found.text)}, {"refusal", nullptr}};
    for (const ToolCall& call : found.calls) message["tool_calls"].push_back(call_json(call));
    return {{"index", choice.index},
            {"message", std::move(message)},
            {"logprobs", logprobs(choice.whole)},
            {"finish_reason", finish_reason(choice)},
            {"stop_reason", choice.stop_reason()}};
  }

 private:
  static Json chunk(std::size_t index, Json delta, const Json& logprobs) {
    return {
        {"index", index}, {"delta", std::move(delta)}, {"logprobs", logprobs}, {"finish_reason", nullptr}};
  }
  Json logprobs(const AnswerText::Piece& piece) const {
    return logprobs_ ? logprobs_json(tokenizer_, piece.logprobs) : Json();
  }
  Json finish_reason(const AnswerChoice& choice) const {
    const bool called = tools_[choice.index].calls() > 0 && choice.text.finish_reason() == "stop";
    return called ? Json("tool_calls") : choice.finish_reason();
  }

  const Tokenizer& tokenizer_;
  bool logprobs_;
  std::vector<bool> begun_;            // by choice
  std::vector<ToolCallReader> tools_;  // by choice
};

// How the answer's tool calls are found: not at all without tools, or where tool_choice is none.
ToolCallForm read_tool_choice(Fields& body, const ServedModel& model) {
  const Json* given = body.find("tool_choice");
  const Json* tools = body.find("tools");
  const bool has_tools = tools && tools->is_array() && !tools->empty();
  if (given && *given != "none" && *given != "auto")
    fail_field("tool_choice", "tool_choice should be none or auto, found ", shown(*given));
  if (given && *given == "auto" && !has_tools)
    fail_field("tool_choice", "tool_choice is auto, but there are no tools");
  if (!has_tools || (given && *given == "none")) return ToolCallForm::none;
  if (model.options.tool_calls == ToolCallForm::none)
    fail_field("tool_choice",
               "the server was not told how this model writes tool calls (--tool-call-parser); tool_choice ",
               "none renders the tools alone");
  return model.options.tool_calls;
}

void read_unsupported_chat(Fields& body) {
  for (const char* name : {"audio", "function_call", "functions", "prediction", "reasoning_effort",
                           "verbosity", "web_search_options", "documents", "mm_processor_kwargs"})
    body.accept(name, {});
  body.accept("modalities", {Json::array({"text"})});
  body.accept("echo", {false});
  body.accept("continue_final_message", {false});
  body.accept("add_special_tokens", {false});
  body.accept("parallel_tool_calls", {true});
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
  fields.grammar = read_response_format(body, model);
  const ToolCallForm tools = read_tool_choice(body, model);
  const ModelNames::Found named = model.names->find(fields.model, call.key);
  TokenIds ids = chat_prompt(body, model, named.chat ? named.chat.get() : model.chat.get());
  body.finish();
  const std::int64_t tokens = answer_tokens(model, ids.size(), fields.max_tokens, 0, "messages");
  std::vector<AnswerPrompt> prompts;
  prompts.push_back({std::move(ids), tokens});
  auto form = std::make_unique<ChatForm>(*model.tokenizer, fields.top_logprobs.has_value(), tools,
                                         std::size_t(fields.n));
  return start_answer(call, fields, std::move(prompts), std::move(form), "chatcmpl-");
}

}  // namespace slideway
