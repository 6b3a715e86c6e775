#include "serve/chat_prompt.h"

#include "serve/api_error.h"

namespace slideway {
namespace {

std::string array_of(Fields& body, const std::string& name) {
  const Json* given = body.find(name);
  if (!given) return {};
  if (!given->is_array()) fail_field(name, name, " should be a list, found ", shown(*given));
  return given->empty() ? std::string() : dump(*given);
}

}  // namespace

TokenIds chat_prompt(Fields& body, const ServedModel& model, const ChatTemplate* chat) {
  ChatOptions options{.add_generation_prompt = body.flag("add_generation_prompt").value_or(true)};
  const std::string messages = array_of(body, "messages");
  if (messages.empty()) fail_field("messages", "messages should be a list of at least one message");
  options.tools_json = array_of(body, "tools");
  if (const Json* extra = body.find("chat_template_kwargs")) {
    if (!extra->is_object()) fail_field("chat_template_kwargs", "chat_template_kwargs should be an object");
    options.extra_json = dump(*extra);
  }
  const auto source = body.text("chat_template");
  if (source && !model.options.request_template)
    fail_field("chat_template",
               "this server takes no chat_template from requests (--trust-request-chat-template)");
  if (!chat && !source) fail_field("messages", "the model has no chat template; use /v1/completions");
  std::unique_ptr<ChatTemplate> own;
  if (source) own = chat ? chat->with_source(*source) : std::make_unique<ChatTemplate>(*source, "", "");
  std::vector<TextPiece> pieces = (own ? *own : *chat).render(messages, options);
  if (model.options.special_text)
    for (TextPiece& piece : pieces) piece.literal = false;
  return model.tokenizer->encode(pieces);
}

}  // namespace slideway
