// Chat: a model's template turns messages into the text that the model was trained on.
//
// Source   transformers' apply_chat_template: trim_blocks, lstrip_blocks, its globals and filters
// Threads  const calls from any number of threads
// Errors   corrupt (template: line and column, at load), invalid_input (messages: which one, why)
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace slideway {

struct ChatOptions {
  bool add_generation_prompt = false;
  std::string tools_json;  // a JSON array, or empty
  std::string extra_json;  // an object of further template variables (chat_template_kwargs), or empty
};

class ChatTemplate {
 public:
  // From a model folder (chat_template.jinja, chat_template.json, tokenizer_config.json) or GGUF metadata; null where
  // the model has none.
  static std::unique_ptr<ChatTemplate> load(const std::filesystem::path& model);
  ChatTemplate(const std::string& source, const std::string& bos_token, const std::string& eos_token);
  ~ChatTemplate();

  // messages_json: an array of {"role", "content", …} as the OpenAI API has it; null content acts as "".
  std::vector<TextPiece> render(const std::string& messages_json, const ChatOptions& options = {}) const;
  bool marks_generation() const;  // the template has {% generation %} blocks
  const std::string& source() const;

 private:
  struct Parsed;
  std::unique_ptr<Parsed> parsed_;
};

std::string text_of(const std::vector<TextPiece>& pieces);

}  // namespace slideway
