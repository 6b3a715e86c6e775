#include "serve/tool_calls.h"

#include <algorithm>
#include <cstdio>
#include <random>
#include <utility>

#include "serve/fields.h"

namespace slideway {
namespace {

constexpr std::string_view kOpen = "<tool_call>", kClose = "</tool_call>", kPythonTag = "<|python_tag|>";

std::string call_id() {
  thread_local std::mt19937_64 numbers{std::random_device()()};
  char text[40];
  std::snprintf(text, sizeof text, "call_%016llx", static_cast<unsigned long long>(numbers()));
  return text;
}

std::optional<ToolCall> call_of(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("name") || !json["name"].is_string()) return {};
  const char* key = json.contains("arguments") ? "arguments" : "parameters";
  if (!json.contains(key) || !json[key].is_object()) return {};
  return ToolCall{.id = call_id(), .name = json["name"], .arguments = dump(json[key])};
}

// Bytes at the end of text with which marker may begin.
std::size_t beginning_of(std::string_view marker, std::string_view text) {
  for (std::size_t length = std::min(marker.size() - 1, text.size()); length > 0; --length)
    if (text.ends_with(marker.substr(0, length))) return length;
  return 0;
}

// The JSON objects of a text, one after another with ";" or blanks between; nothing where it is anything else.
std::vector<std::string> objects_of(std::string_view text) {
  std::vector<std::string> out;
  int depth = 0;
  bool quoted = false;
  std::size_t begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        quoted = false;
    } else if (c == '{') {
      if (depth++ == 0) begin = i;
    } else if (depth == 0) {
      if (c != ';' && c != ' ' && c != '\n' && c != '\r' && c != '\t') return {};
    } else if (c == '"') {
      quoted = true;
    } else if (c == '}' && --depth == 0) {
      out.emplace_back(text.substr(begin, i + 1 - begin));
    }
  }
  if (depth > 0) out.clear();
  return out;
}

}  // namespace

std::optional<ToolCallForm> tool_call_form(std::string_view name) {
  if (name == "hermes") return ToolCallForm::hermes;
  if (name == "llama3_json") return ToolCallForm::llama3_json;
  return {};
}

ToolCallReader::Found ToolCallReader::push(std::string_view text, bool last) {
  Found found;
  waiting_ += text;
  if (form_ == ToolCallForm::hermes)
    read_hermes(last, found);
  else if (form_ == ToolCallForm::llama3_json && !plain_)
    read_llama(last, found);
  else
    found.text = std::exchange(waiting_, {});
  calls_ += found.calls.size();
  return found;
}

void ToolCallReader::read_hermes(bool last, Found& found) {
  for (;;) {
    const std::size_t open = waiting_.find(kOpen);
    if (open == std::string::npos) break;
    const std::size_t close = waiting_.find(kClose, open);
    if (close == std::string::npos && !last) {
      found.text += waiting_.substr(0, open);
      waiting_.erase(0, open);
      return;
    }
    const std::size_t end = close == std::string::npos ? waiting_.size() : close + kClose.size();
    const std::size_t inner = open + kOpen.size();
    const auto call = call_of(waiting_.substr(inner, std::min(close, waiting_.size()) - inner));
    found.text += waiting_.substr(0, call ? open : end);
    if (call) found.calls.push_back(*call);
    waiting_.erase(0, end);
  }
  const std::size_t held = last ? 0 : beginning_of(kOpen, waiting_);
  found.text += waiting_.substr(0, waiting_.size() - held);
  waiting_.erase(0, waiting_.size() - held);
}

void ToolCallReader::read_llama(bool last, Found& found) {
  std::string_view text = waiting_;
  if (text.starts_with(kPythonTag)) text.remove_prefix(kPythonTag.size());
  const std::size_t first = text.find_first_not_of(" \n\r\t");
  const bool may_be =
      first == std::string_view::npos || text[first] == '{' || kPythonTag.starts_with(text.substr(first));
  if (may_be && !last) return;
  if (may_be && first != std::string_view::npos)
    for (const std::string& object : objects_of(text)) {
      const auto call = call_of(object);
      if (!call) {
        found.calls.clear();
        break;
      }
      found.calls.push_back(*call);
    }
  plain_ = true;
  if (found.calls.empty()) found.text = waiting_;
  waiting_.clear();
}

}  // namespace slideway
