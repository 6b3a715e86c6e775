#include "text/chat_messages.h"

#include <algorithm>
#include <set>

#include "core/error.h"

namespace slideway {
namespace {

using Kind = JinjaValue::Kind;
using Entries = std::vector<std::pair<JinjaValue, JinjaValue>>;

constexpr const char* kRoles[] = {"system", "developer", "user", "assistant", "tool", "function"};

class Reader {
 public:
  Reader(JinjaHeap& heap, std::string_view source) : heap_(heap), source_(source) {}

  std::vector<ChatMessage> read(const JinjaValue& list) {
    if (!list.is(Kind::list))
      fail(ErrorKind::invalid_input, "messages: expected a list, found a ", list.type_name());
    std::vector<ChatMessage> messages;
    for (const JinjaValue& item : list.list().items) {
      index_ = messages.size();
      messages.push_back(message(item));
      follow(messages.back());
    }
    return messages;
  }

 private:
  template <class... Parts>
  [[noreturn]] void error(const Parts&... parts) const {
    fail(ErrorKind::invalid_input, "messages[", index_, "]", parts...);
  }

  JinjaValue name(const char* text) const { return JinjaValue::of(text, {std::int32_t(index_)}); }

  ChatMessage message(const JinjaValue& item) {
    if (!item.is(Kind::dict)) error(": expected an object, found a ", item.type_name());
    const JinjaDict& given = item.dict();
    ChatMessage out;
    out.role = role(given);
    const JinjaValue* calls = given.find("tool_calls");
    if (calls && calls->is(Kind::list) && calls->list().items.empty()) calls = nullptr;
    if (calls && calls->is(Kind::none)) calls = nullptr;
    Entries entries;
    bool has_content = false;
    for (const auto& [key, value] : given.entries) {
      const std::string& field = key.text().bytes();
      if (field == "role") {
        entries.emplace_back(key, trusted_role(value));
      } else if (field == "content") {
        has_content = true;
        entries.emplace_back(key, content(value));
      } else if (field == "tool_calls") {
        if (calls) entries.emplace_back(key, tool_calls(*calls, out));
      } else if (!value.is(Kind::none)) {
        entries.emplace_back(key, value);
      }
    }
    if (!has_content && !calls) error(" has no content");
    if (!has_content) entries.emplace_back(name("content"), JinjaValue::blank());
    if (calls && out.role != "assistant")
      error(": only an assistant's message has tool_calls, this is of ", out.role);
    out.value = JinjaValue::of(heap_.dict(std::move(entries)));
    out.trained = out.role == "assistant" && weight(given) != 0;
    return out;
  }

  std::string role(const JinjaDict& given) const {
    const JinjaValue* role = given.find("role");
    if (!role || !role->is(Kind::string)) error(" has no role");
    const std::string& text = role->text().bytes();
    if (is_known(text)) return text;
    const bool named = !text.empty() && (source_.find("'" + text + "'") != std::string_view::npos ||
                                         source_.find("\"" + text + "\"") != std::string_view::npos);
    if (!named) error(": unknown role '", text, "'; known are system, developer, user, assistant, tool");
    return text;
  }

  static bool is_known(const std::string& role) {
    return std::find(std::begin(kRoles), std::end(kRoles), role) != std::end(kRoles);
  }

  // Templates build control tokens from roles ("<|" ~ role ~ "|>"); any other text stays the user's.
  JinjaValue trusted_role(const JinjaValue& role) const {
    return is_known(role.text().bytes()) ? JinjaValue::of(role.text().bytes()) : role;
  }

  double weight(const JinjaDict& given) const {
    const JinjaValue* weight = given.find("weight");
    if (!weight || weight->is(Kind::none)) return 1;
    if (!weight->is_number() || (weight->real() != 0 && weight->real() != 1))
      error(".weight: expected 0 or 1");
    return weight->real();
  }

  JinjaValue content(const JinjaValue& value) {
    if (value.is(Kind::none)) return JinjaValue::blank();
    if (value.is(Kind::string)) return value;
    if (!value.is(Kind::list))
      error(".content: expected a text or a list of parts, found a ", value.type_name());
    TracedText text;
    for (const JinjaValue& part : value.list().items) {
      const JinjaValue* type = part.is(Kind::dict) ? part.dict().find("type") : nullptr;
      const JinjaValue* words = part.is(Kind::dict) ? part.dict().find("text") : nullptr;
      if (!type || !type->is(Kind::string)) error(".content: a part has no type");
      if (type->text().bytes() != "text")
        fail(ErrorKind::unsupported, "messages[", index_, "].content: parts of type '", type->text().bytes(),
             "' are not supported, only text");
      if (!words || !words->is(Kind::string)) error(".content: a part of type text has no text");
      if (!text.empty()) text.append("\n", {std::int32_t(index_)});
      text.append(words->text());
    }
    return JinjaValue::of(std::move(text));
  }

  JinjaValue tool_calls(const JinjaValue& calls, ChatMessage& message) {
    if (!calls.is(Kind::list)) error(".tool_calls: expected a list, found a ", calls.type_name());
    std::vector<JinjaValue> out;
    for (const JinjaValue& call : calls.list().items) {
      if (!call.is(Kind::dict)) error(".tool_calls: expected objects, found a ", call.type_name());
      Entries entries = call.dict().entries;
      const JinjaValue* function = call.dict().find("function");
      const JinjaDict& holder = function && function->is(Kind::dict) ? function->dict() : call.dict();
      const JinjaValue* name = holder.find("name");
      if (!name || !name->is(Kind::string)) error(".tool_calls: a call has no function name");
      message.call_names.push_back(name->text().bytes());
      const JinjaValue* id = call.dict().find("id");
      ids_.push_back(id && id->is(Kind::string) ? id->text().bytes() : "");
      for (auto& [key, value] : entries)
        if (function && &holder == &function->dict() && key.text().bytes() == "function")
          value = with_arguments(holder);
      out.push_back(function ? JinjaValue::of(heap_.dict(std::move(entries))) : with_arguments(call.dict()));
    }
    return JinjaValue::of(heap_.list(std::move(out)));
  }

  // The mapping with its "arguments" readable both as a mapping and as JSON text.
  JinjaValue with_arguments(const JinjaDict& holder) {
    Entries entries = holder.entries;
    for (auto& [key, value] : entries) {
      if (key.text().bytes() != "arguments") continue;
      TracedText spelling;
      JinjaValue parsed = value;
      if (value.is(Kind::string)) {
        spelling = value.text();
        try {
          parsed = value_from_json(heap_, spelling.bytes(), std::int32_t(index_));
        } catch (const Error&) {
          continue;  // a model may have answered with broken JSON: it stays text
        }
      } else if (value.is(Kind::dict)) {
        spelling = json_of(value);
      }
      if (parsed.is(Kind::dict))
        value = JinjaValue::of(heap_.spelled_dict(parsed.dict(), std::move(spelling)));
    }
    return JinjaValue::of(heap_.dict(std::move(entries)));
  }

  // Who may follow whom: a tool's result needs a call that has none yet.
  void follow(const ChatMessage& message) {
    if (message.role != "tool") {
      if (message.call_names.empty()) waiting_.clear();
      if (!ids_.empty()) waiting_ = std::exchange(ids_, {});
      return;
    }
    if (waiting_.empty()) error(": a tool's result without a tool call before it");
    const JinjaValue* id = message.value.dict().find("tool_call_id");
    auto answered = waiting_.begin();
    const bool by_id = id && id->is(Kind::string) && !waiting_.front().empty();
    if (by_id) answered = std::find(waiting_.begin(), waiting_.end(), id->text().bytes());
    if (answered == waiting_.end())
      error(".tool_call_id: no call before it has the id '", id->text().bytes(),
            "', or it is answered already");
    waiting_.erase(answered);
  }

  JinjaHeap& heap_;
  std::string_view source_;
  std::size_t index_ = 0;
  std::vector<std::string> ids_;      // of the current message's calls
  std::vector<std::string> waiting_;  // ids of calls that have no result yet
};

}  // namespace

std::vector<ChatMessage> chat_messages(JinjaHeap& heap, const std::string& messages_json,
                                       std::string_view template_source) {
  const JinjaValue list = value_from_json(heap, messages_json, 0, true);
  return Reader(heap, template_source).read(list);
}

}  // namespace slideway
