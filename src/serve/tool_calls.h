// ToolCallReader: finds a model's tool calls in its text, as the text grows.
//
//   hermes       <tool_call>{"name": …, "arguments": {…}}</tool_call>, any number, text around them (Qwen, Hermes)
//   llama3_json  the whole answer is {"name": …, "parameters": {…}}, several separated by ";" (Llama 3.1 and later)
//
// What looks like a call and is none (no JSON, no name, cut off) is text. No byte is lost.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace slideway {

enum class ToolCallForm { none, hermes, llama3_json };
std::optional<ToolCallForm> tool_call_form(std::string_view name);

struct ToolCall {
  std::string id;  // ours
  std::string name;
  std::string arguments;  // JSON
};

class ToolCallReader {
 public:
  struct Found {
    std::string text;
    std::vector<ToolCall> calls;
    bool empty() const { return text.empty() && calls.empty(); }
  };
  explicit ToolCallReader(ToolCallForm form) : form_(form) {}

  Found push(std::string_view text, bool last);  // last: the answer ends with this text
  std::size_t calls() const { return calls_; }

 private:
  void read_hermes(bool last, Found& found);
  void read_llama(bool last, Found& found);

  ToolCallForm form_;
  std::string waiting_;
  bool plain_ = false;  // llama3_json: the answer is text
  std::size_t calls_ = 0;
};

}  // namespace slideway
