// Chat: a model's template turns messages into the text that the model was trained on.
//
// Messages are those of the OpenAI API: {"role", "content", …}. Before the template sees them,
//   content  null (or absent beside tool calls) stays none to a test, but reads as "" where text is needed;
//            a list of text parts becomes one text, its parts on lines of their own
//   tool_calls[].function.arguments  a string of JSON becomes a mapping that still reads as that string
//   null     fields other than content are left out, and so is an empty tool_calls
// and are held to what chat is: known roles (those of the API, and what the template names), a tool's result only after
// a call. A template that has no place for tools or tool calls that are given is an error: nothing is dropped.
//
// What came from messages, tools and options is literal and never becomes a control token; only the names of known
// roles count as the template's own words.
//
// Source   transformers' apply_chat_template: trim_blocks, lstrip_blocks, its globals and filters
// Threads  const calls from any number of threads
// Errors   corrupt (template: line and column, at load), invalid_input (messages: which one, why), unsupported
#pragma once

#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace slideway {

struct ChatOptions {
  bool add_generation_prompt = false;
  std::string tools_json;          // a JSON array, or empty
  std::string extra_json;          // an object of further template variables (chat_template_kwargs), or empty
  std::optional<std::time_t> now;  // for strftime_now; absent: the system's clock
};

class ChatTemplate {
 public:
  using SpecialTokens = std::map<std::string, std::string>;  // "bos_token" → "<s>", …

  // From a model folder (chat_template.jinja, chat_template.json, tokenizer_config.json) or GGUF metadata; null where
  // the model has none.
  static std::unique_ptr<ChatTemplate> load(const std::filesystem::path& model);
  // tool_source: the template used where tools are given, if another one.
  ChatTemplate(const std::string& source, const SpecialTokens& tokens, const std::string& tool_source = {});
  ChatTemplate(const std::string& source, const std::string& bos_token, const std::string& eos_token);
  ~ChatTemplate();

  // The same model's special tokens with another template.
  std::unique_ptr<ChatTemplate> with_source(const std::string& source) const;

  // messages_json: an array of messages. The pieces are trained where the template says so.
  std::vector<TextPiece> render(const std::string& messages_json, const ChatOptions& options = {}) const;
  // For training: exactly the assistant's turns are marked trained, each with what ends it. They are found by the
  // template's {% generation %} blocks where it has them. Otherwise the messages before a turn are rendered with a
  // generation prompt, and those up to its end without: both must be prefixes of the whole text, or agree with it
  // around the turn. "weight": 0 leaves a turn out. unsupported where a turn cannot be found.
  std::vector<TextPiece> render_turns(const std::string& messages_json,
                                      const ChatOptions& options = {}) const;

  bool marks_generation() const;  // the template has {% generation %} blocks
  bool asks_the_time() const;     // it calls strftime_now: its text differs from day to day
  const std::string& source() const;

 private:
  struct Parsed;
  std::unique_ptr<Parsed> parsed_;
};

std::string text_of(const std::vector<TextPiece>& pieces);

}  // namespace slideway
