// POST /tokenize, POST /detokenize, as vLLM has them.
#include "serve/answer_start.h"
#include "serve/api_error.h"
#include "serve/chat_prompt.h"

namespace slideway {

HttpReply tokenize(const ApiCall& call) {
  const ServedModel& model = call.model;
  Fields body = parse_body(call.http.body);
  const ModelNames::Found named = model.names->find(body.text("model").value_or(""), call.key);
  const auto prompt = body.text("prompt");
  const bool with_strings = body.flag("return_token_strs").value_or(false);
  TokenIds ids;
  if (prompt) {
    ids = plain_ids(model, *prompt, body.flag("add_special_tokens").value_or(true));
  } else {
    ids = chat_prompt(body, model, named.chat ? named.chat.get() : model.chat.get());
    body.accept("add_special_tokens", {false});
  }
  body.finish();
  Json out = {
      {"count", ids.size()}, {"max_model_len", model.context}, {"tokens", ids}, {"token_strs", nullptr}};
  if (with_strings) {
    out["token_strs"] = Json::array();
    for (const std::int32_t id : ids) out["token_strs"].push_back(model.tokenizer->token(id));
  }
  return {.body = dump(out)};
}

HttpReply detokenize(const ApiCall& call) {
  const ServedModel& model = call.model;
  Fields body = parse_body(call.http.body);
  model.names->find(body.text("model").value_or(""), call.key);
  const TokenIds ids = body.ids("tokens");
  body.finish();
  for (const std::int32_t id : ids)
    if (id >= model.vocab_size)
      fail_field("tokens", "tokens: ", id, " is not in the vocabulary of ", model.vocab_size);
  return {.body = dump({{"prompt", model.tokenizer->decode(ids, false)}})};
}

}  // namespace slideway
