#include "text/chat.h"

#include <algorithm>

#include "core/error.h"
#include "core/file.h"
#include "formats/gguf.h"
#include "formats/json.h"
#include "text/chat_messages.h"
#include "text/chat_turns.h"
#include "text/jinja.h"

namespace slideway {

struct ChatTemplate::Parsed {
  Parsed(const std::string& source, const SpecialTokens& special_tokens, const std::string& tool_source)
      : plain(source), tokens(special_tokens) {
    if (!tool_source.empty()) with_tools.emplace(tool_source);
  }

  const JinjaTemplate& chosen(const ChatOptions& options) const {
    return with_tools && !options.tools_json.empty() ? *with_tools : plain;
  }

  JinjaTemplate plain;
  std::optional<JinjaTemplate> with_tools;
  SpecialTokens tokens;
};

namespace {

// One chat's values, and its renderings.
class Rendering {
 public:
  Rendering(const JinjaTemplate& jinja, const ChatTemplate::SpecialTokens& tokens,
            const std::string& messages_json, const ChatOptions& options)
      : jinja_(jinja), messages_(chat_messages(heap_, messages_json, jinja.source())) {
    const std::time_t now = options.now.value_or(std::time(nullptr));
    clock_ = [now] { return now; };
    limits_.text_bytes = std::max(limits_.text_bytes, 4 * messages_json.size());
    limits_.steps = std::max(limits_.steps, std::int64_t(messages_json.size()));
    for (const auto& [name, text] : tokens) variables_.emplace_back(name, JinjaValue::of(text));
    variables_.emplace_back("documents", JinjaValue());
    variables_.emplace_back("tools", tools(options.tools_json));
    add_extra(options.extra_json);
  }

  const std::vector<ChatMessage>& messages() const { return messages_; }

  TracedText render(std::size_t count, bool generation_prompt) {
    std::vector<JinjaValue> list;
    for (std::size_t i = 0; i < count; ++i) list.push_back(messages_[i].value);
    JinjaTemplate::Variables variables = variables_;
    variables.emplace_back("messages", JinjaValue::of(heap_.list(std::move(list))));
    variables.emplace_back("add_generation_prompt", JinjaValue::of(generation_prompt));
    return jinja_.render(heap_, variables, limits_, clock_);
  }

  // Every call's name must stand in the text, or the call was dropped.
  void check_calls(const TracedText& text) const {
    for (std::size_t i = 0; i < messages_.size(); ++i) {
      if (messages_[i].call_names.empty()) continue;
      std::string written;
      std::size_t begin = 0;
      for (const TracedText::Run& run : text.runs()) {
        if (run.origin.source == std::int32_t(i))
          written += text.bytes().substr(begin, run.end - begin) + '\n';
        begin = run.end;
      }
      for (const std::string& name : messages_[i].call_names)
        if (written.find(name) == std::string::npos)
          fail(ErrorKind::unsupported, "messages[", i,
               "].tool_calls: the chat template does not write the call of '", name, "'");
    }
  }

 private:
  JinjaValue tools(const std::string& json) {
    if (json.empty()) return {};
    const JinjaValue list = value_from_json(heap_, json, Origin::kGiven);
    if (list.is(JinjaValue::Kind::none)) return {};
    if (!list.is(JinjaValue::Kind::list))
      fail(ErrorKind::invalid_input, "tools: expected a list, found a ", list.type_name());
    if (list.list().items.empty()) return {};
    if (jinja_.source().find("tools") == std::string::npos)
      fail(ErrorKind::unsupported, "tools: the model's chat template has no place for them");
    return list;
  }

  void add_extra(const std::string& json) {
    if (json.empty()) return;
    const JinjaValue extra = value_from_json(heap_, json, Origin::kGiven);
    if (!extra.is(JinjaValue::Kind::dict))
      fail(ErrorKind::invalid_input, "chat_template_kwargs: expected an object, found a ", extra.type_name());
    for (const auto& [name, value] : extra.dict().entries) {
      const std::string& text = name.text().bytes();
      for (const char* taken : {"messages", "tools", "add_generation_prompt"})
        if (text == taken)
          fail(ErrorKind::invalid_input, "chat_template_kwargs: '", text, "' has a place of its own");
      variables_.emplace_back(text, value);
    }
  }

  const JinjaTemplate& jinja_;
  JinjaHeap heap_;
  std::vector<ChatMessage> messages_;
  JinjaTemplate::Variables variables_;
  JinjaLimits limits_;
  JinjaInterpreter::Clock clock_;
};

std::vector<TextPiece> pieces_of(const TracedText& text) {
  std::vector<TextPiece> pieces;
  std::size_t begin = 0;
  for (const TracedText::Run& run : text.runs()) {
    const bool literal = run.origin.source != Origin::kTemplate;
    const std::string_view bytes = std::string_view(text.bytes()).substr(begin, run.end - begin);
    if (!pieces.empty() && pieces.back().literal == literal && pieces.back().trained == run.origin.trained)
      pieces.back().text += bytes;
    else
      pieces.push_back({std::string(bytes), literal, run.origin.trained});
    begin = run.end;
  }
  return pieces;
}

ChatTemplate::SpecialTokens tokens_of(const std::string& bos, const std::string& eos) {
  ChatTemplate::SpecialTokens tokens;
  if (!bos.empty()) tokens["bos_token"] = bos;
  if (!eos.empty()) tokens["eos_token"] = eos;
  return tokens;
}

}  // namespace

ChatTemplate::ChatTemplate(const std::string& source, const SpecialTokens& tokens,
                           const std::string& tool_source)
    : parsed_(std::make_unique<Parsed>(source, tokens, tool_source)) {}

ChatTemplate::ChatTemplate(const std::string& source, const std::string& bos_token,
                           const std::string& eos_token)
    : ChatTemplate(source, tokens_of(bos_token, eos_token)) {}

ChatTemplate::~ChatTemplate() = default;

std::unique_ptr<ChatTemplate> ChatTemplate::with_source(const std::string& source) const {
  return std::make_unique<ChatTemplate>(source, parsed_->tokens);
}

std::vector<TextPiece> ChatTemplate::render(const std::string& messages_json,
                                            const ChatOptions& options) const {
  Rendering rendering(parsed_->chosen(options), parsed_->tokens, messages_json, options);
  const TracedText text = rendering.render(rendering.messages().size(), options.add_generation_prompt);
  rendering.check_calls(text);
  return pieces_of(text);
}

std::vector<TextPiece> ChatTemplate::render_turns(const std::string& messages_json,
                                                  const ChatOptions& options) const {
  const JinjaTemplate& jinja = parsed_->chosen(options);
  Rendering rendering(jinja, parsed_->tokens, messages_json, options);
  const TracedText text = rendering.render(rendering.messages().size(), options.add_generation_prompt);
  rendering.check_calls(text);
  if (jinja.has_generation()) return pieces_of(unmark_turns(text, rendering.messages()));
  return pieces_of(mark_turns(text, rendering.messages(), [&](std::size_t count, bool prompt) {
    return rendering.render(count, prompt);
  }));
}

bool ChatTemplate::marks_generation() const {
  return parsed_->plain.has_generation();
}
bool ChatTemplate::asks_the_time() const {
  return source().find("strftime_now") != std::string::npos;
}
const std::string& ChatTemplate::source() const {
  return parsed_->plain.source();
}

std::string text_of(const std::vector<TextPiece>& pieces) {
  std::string text;
  for (const TextPiece& piece : pieces) text += piece.text;
  return text;
}

}  // namespace slideway
