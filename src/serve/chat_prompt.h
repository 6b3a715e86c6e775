// The ids of a chat's prompt, from the fields messages, tools, add_generation_prompt, chat_template_kwargs and, where the
// server takes it from requests, chat_template.
//
// Text of messages and tools that spells a control token stays text, unless the server was told otherwise.
#pragma once

#include "serve/fields.h"
#include "serve/served_model.h"

namespace slideway {

// chat: the template, or null where the model has none.
TokenIds chat_prompt(Fields& body, const ServedModel& model, const ChatTemplate* chat);

}  // namespace slideway
