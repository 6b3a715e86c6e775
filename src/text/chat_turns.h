// Where the assistant's turns lie in a rendered chat.
//
// Errors   unsupported where a turn cannot be found for certain
#pragma once

#include <functional>

#include "text/chat_messages.h"
#include "text/traced_text.h"

namespace slideway {

// The first `count` messages rendered, with or without a generation prompt.
using RenderPrefix = std::function<TracedText(std::size_t count, bool generation_prompt)>;

// The whole text with exactly the turns of trained messages marked.
TracedText mark_turns(const TracedText& whole, const std::vector<ChatMessage>& messages,
                      const RenderPrefix& render);
// The same for a text whose generation blocks are marked: only turns of weight 0 lose their marks.
TracedText unmark_turns(const TracedText& whole, const std::vector<ChatMessage>& messages);

}  // namespace slideway
