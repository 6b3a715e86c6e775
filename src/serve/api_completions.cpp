// POST /v1/completions: a prompt is continued as it stands.
#include <algorithm>

#include "serve/answer_start.h"
#include "serve/api_error.h"
#include "serve/response_format.h"

namespace slideway {
namespace {

constexpr std::int64_t kDefaultTokens = 16;
constexpr std::size_t kMaxPrompts = 1024;

std::size_t characters(const std::string& text) {
  return std::size_t(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

// {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
class LegacyLogprobs {
 public:
  explicit LegacyLogprobs(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // offset: characters before the token; moved past it. A prompt's first token has no log-probability.
  void add_first(std::int32_t token, std::size_t& offset) { add(token, Json(), Json(), offset); }
  void add(const TokenLogprobs& token, std::size_t& offset) {
    Json top = Json::object();
    for (const TokenLogprob& other : token.top)
      top[spelled_bytes(tokenizer_.token_bytes(other.token))] = json_logprob(other.logprob);
    add(token.chosen.token, json_logprob(token.chosen.logprob), std::move(top), offset);
  }
  const Json& json() const { return json_; }

 private:
  void add(std::int32_t token, Json logprob, Json top, std::size_t& offset) {
    const std::string bytes = tokenizer_.token_bytes(token);
    json_["tokens"].push_back(spelled_bytes(bytes));
    json_["token_logprobs"].push_back(std::move(logprob));
    json_["top_logprobs"].push_back(std::move(top));
    json_["text_offset"].push_back(offset);
    if (!tokenizer_.is_special(token)) offset += characters(bytes);
  }

  const Tokenizer& tokenizer_;
  Json json_ = {{"tokens", Json::array()},
                {"token_logprobs", Json::array()},
                {"top_logprobs", Json::array()},
                {"text_offset", Json::array()}};
};

struct Echo {
  std::string text;
  std::int32_t first = 0;  // token
};

class CompletionForm final : public AnswerForm {
 public:
  CompletionForm(const Tokenizer& tokenizer, bool logprobs, std::vector<Echo> echoes, std::size_t choices,
                 std::size_t n)
      : tokenizer_(tokenizer),
        logprobs_(logprobs),
        echoes_(std::move(echoes)),
        n_(n),
        offsets_(choices),
        echo_due_(choices, !echoes_.empty()) {}

  const char* object(bool) const override { return "text_completion"; }

  void chunks(AnswerChoice& choice, const AnswerText::Piece& piece, std::vector<Json>& out) override {
    if (piece.empty() && !choice.text.ended() && !echo_due_[choice.index]) return;
    out.push_back(json(choice, piece));
  }

  Json whole(AnswerChoice& choice) override { return json(choice, choice.whole); }

 private:
  Json json(AnswerChoice& choice, const AnswerText::Piece& piece) {
    LegacyLogprobs logprobs(tokenizer_);
    std::size_t& offset = offsets_[choice.index];
    std::string text = piece.text;
    if (echo_due_[choice.index]) {
      echo_due_[choice.index] = false;
      const Echo& echo = echoes_[choice.index / n_];
      text = echo.text + text;
      if (logprobs_) logprobs.add_first(echo.first, offset);
      for (const TokenLogprobs& token : choice.prompt) logprobs.add(token, offset);
      offset = characters(echo.text);
    }
    for (const TokenLogprobs& token : piece.logprobs) logprobs.add(token, offset);
    return {{"index", choice.index},
            {"text", text},
            {"logprobs", logprobs_ ? logprobs.json() : Json()},
            {"finish_reason", choice.finish_reason()},
            {"stop_reason", choice.stop_reason()}};
  }

  const Tokenizer& tokenizer_;
  bool logprobs_;
  std::vector<Echo> echoes_;  // by prompt; none where it is not wanted
  std::size_t n_;
  std::vector<std::size_t> offsets_;  // by choice: characters sent
  std::vector<bool> echo_due_;        // by choice
};

bool is_id(const Json& value) {
  return value.is_number_integer();
}

// A prompt of ids as it was sent, or of text.
struct GivenPrompt {
  TokenIds ids;
  std::string text;
};

GivenPrompt read_prompt(const ServedModel& model, const Json& given, bool add_special_tokens) {
  GivenPrompt out;
  if (given.is_string()) {
    out.text = given;
    out.ids = plain_ids(model, out.text, add_special_tokens);
    if (out.ids.empty() && model.tokenizer->bos_token_id() >= 0) out.ids = {model.tokenizer->bos_token_id()};
    if (out.ids.empty())
      fail_field("prompt", "the prompt is empty, and the model has no token that begins a text");
    return out;
  }
  if (!given.is_array() || given.empty())
    fail_field("prompt", "a prompt should be a text or a list of token ids, not empty, found ", shown(given));
  for (const Json& id : given) {
    const bool known = is_id(id) && id >= 0 && id < model.vocab_size;
    if (!known)
      fail_field("prompt", "prompt: ", shown(id), " is not a token of the vocabulary of ", model.vocab_size);
    out.ids.push_back(id.get<std::int32_t>());
  }
  out.text = text_of_bytes(model.tokenizer->decode(out.ids, false));
  return out;
}

std::vector<GivenPrompt> read_prompts(Fields& fields, const ServedModel& model) {
  const Json* given = fields.find("prompt");
  const bool special = fields.flag("add_special_tokens").value_or(true);
  if (!given) fail_field("prompt", "prompt is missing");
  const bool list = given->is_array() && !given->empty() && !is_id(given->front());
  if (!list) return {read_prompt(model, *given, special)};
  if (given->size() > kMaxPrompts)
    fail_field("prompt", "prompt should have at most ", kMaxPrompts, " prompts, found ", given->size());
  std::vector<GivenPrompt> out;
  for (const Json& prompt : *given) out.push_back(read_prompt(model, prompt, special));
  return out;
}

}  // namespace

HttpReply complete(const ApiCall& call) {
  const ServedModel& model = call.model;
  Fields body = parse_body(call.http.body);
  AnswerFields fields = read_answer_fields(body, model.sampling);
  const bool echo = body.flag("echo").value_or(false);
  fields.max_tokens = body.integer("max_tokens", echo ? 0 : 1, INT64_MAX);
  fields.top_logprobs = body.integer("logprobs", 0, kMaxTopLogprobs);
  body.accept("suffix", {});
  fields.grammar = read_response_format(body, model);
  std::vector<GivenPrompt> given = read_prompts(body, model);
  body.finish();

  fields.prompt_logprobs = echo && fields.top_logprobs;
  fields.text.nothing = fields.max_tokens == 0;
  if (fields.text.nothing) fields.max_tokens = 1;  // the engine's least; it is dropped
  std::vector<AnswerPrompt> prompts;
  std::vector<Echo> echoes;
  for (GivenPrompt& prompt : given) {
    const std::int64_t tokens =
        answer_tokens(model, prompt.ids.size(), fields.max_tokens, kDefaultTokens, "prompt");
    if (echo) echoes.push_back({std::move(prompt.text), prompt.ids.front()});
    prompts.push_back({std::move(prompt.ids), tokens});
  }
  const std::size_t n = std::size_t(fields.n), choices = prompts.size() * n;
  auto form = std::make_unique<CompletionForm>(*model.tokenizer, fields.top_logprobs.has_value(),
                                               std::move(echoes), choices, n);
  return start_answer(call, fields, std::move(prompts), std::move(form), "cmpl-");
}

}  // namespace slideway
