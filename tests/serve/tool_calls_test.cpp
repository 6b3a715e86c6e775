#include "serve/tool_calls.h"

#include <gtest/gtest.h>

namespace slideway {
namespace {

struct Read {
  std::string text, calls;  // calls: "name(arguments)" one after another
};

// What a reader finds in text that comes in pieces of `size` bytes.
Read read(ToolCallForm form, const std::string& text, std::size_t size) {
  ToolCallReader reader(form);
  Read out;
  for (std::size_t at = 0; at < text.size(); at += size) {
    const auto found = reader.push(std::string_view(text).substr(at, size), at + size >= text.size());
    out.text += found.text;
    for (const ToolCall& call : found.calls) out.calls += call.name + "(" + call.arguments + ")";
  }
  return out;
}

void expect(ToolCallForm form, const std::string& text, const std::string& rest, const std::string& calls) {
  for (std::size_t size = 1; size <= text.size(); ++size) {
    const Read got = read(form, text, size);
    EXPECT_EQ(got.text, rest) << text << " in pieces of " << size;
    EXPECT_EQ(got.calls, calls) << text << " in pieces of " << size;
  }
}

TEST(ToolCalls, HermesFindsCallsAndKeepsTheTextAround) {
  const auto form = ToolCallForm::hermes;
  expect(form,
         "Let me look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": [1, \"}\"]}}\n</tool_call>",
         "Let me look.\n", "f({\"x\":[1,\"}\"]})");
  expect(form,
         "<tool_call>{\"name\":\"f\",\"arguments\":{}}</tool_call> "
         "<tool_call>{\"name\":\"g\",\"arguments\":{}}</tool_call>",
         " ", "f({})g({})");
  expect(form, "<tool_call>{\"name\":\"f\",\"arguments\":{}}", "", "f({})");  // ended by its end token alone
}

TEST(ToolCalls, HermesLeavesWhatIsNoCallAsText) {
  for (const char* text :
       {"plain", "a < b <tool", "<tool_call>no json</tool_call> after",
        "<tool_call>{\"name\": 3}</tool_call>", "<tool_call>{\"name\": \"f\", \"arguments\": {",
        "<tool_call>{\"name\":\"f\",\"arguments\":\"text\"}</tool_call>"})
    expect(ToolCallForm::hermes, text, text, "");
}

TEST(ToolCalls, LlamaAnswersWithCallsOrWithText) {
  const auto form = ToolCallForm::llama3_json;
  expect(form, "{\"name\": \"f\", \"parameters\": {\"x\": \"a}b\\\"\"}}", "", "f({\"x\":\"a}b\\\"\"})");
  expect(form, "<|python_tag|>{\"name\":\"f\",\"parameters\":{}}; {\"name\":\"g\",\"parameters\":{}}", "",
         "f({})g({})");
  for (const char* text : {"Hello {", "{\"name\": \"f\"}", "{\"name\":\"f\",\"parameters\":{}} and text",
                           "{\"a", "<|python", " "})
    expect(form, text, text, "");
}

}  // namespace
}  // namespace slideway
