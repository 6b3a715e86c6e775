// The messages of a chat as values for a template: checked, and with the forms of the API that templates stumble over
// made into those they expect (chat.h says which).
//
// Errors   invalid_input, unsupported: the message by its index, and why
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/jinja_value.h"

namespace slideway {

struct ChatMessage {
  JinjaValue value;  // what the template sees
  std::string role;
  bool trained = false;                 // an assistant's, with no "weight" of 0
  std::vector<std::string> call_names;  // of its tool calls
};

// template_source: roles that are not the API's are known if the template names them in quotes.
std::vector<ChatMessage> chat_messages(JinjaHeap& heap, const std::string& messages_json,
                                       std::string_view template_source);

}  // namespace slideway
