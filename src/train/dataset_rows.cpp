#include "train/dataset_rows.h"

#include <simdjson.h>

#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "core/file.h"

namespace slideway {
namespace {

using simdjson::dom::element;
using simdjson::dom::object;

// Where a text stands in a file, for messages.
struct Place {
  const fs::path& path;
  std::int64_t line;
  std::uint64_t offset;
  std::string text() const { return path.string() + ":" + std::to_string(line); }
};

// simdjson says what is wrong but not where; a slower parser finds the place in the one bad text.
[[noreturn]] void fail_json(const Place& place, std::string_view json, simdjson::error_code error) {
  std::string what = simdjson::error_message(error);
  std::uint64_t offset = place.offset;
  try {
    [[maybe_unused]] const auto parsed = nlohmann::json::parse(json);
  } catch (const nlohmann::json::parse_error& found) {
    offset += found.byte > 0 ? found.byte - 1 : 0;
    what = found.what();
    if (const std::size_t colon = what.rfind(": "); colon != std::string::npos) what = what.substr(colon + 2);
  }
  fail(ErrorKind::invalid_input, place.text(), " (byte ", offset, "): not a JSON row: ", what);
}

std::string string_of(const element& value, const std::string& where, const char* key) {
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS)
    fail(ErrorKind::invalid_input, where, ": '", key, "' must be text, found ", simdjson::minify(value));
  return std::string(text);
}

// One message: role known, content or tool calls there, a tool's answer preceded by its call.
void check_message(const object& message, const std::string& where, std::size_t index,
                   std::set<std::string>& calls, bool& any_call) {
  const auto refuse = [&](const std::string& why) {
    fail(ErrorKind::invalid_input, where, ": message ", index + 1, ": ", why);
  };
  std::string_view role;
  if (message["role"].get(role) != simdjson::SUCCESS) refuse("it has no role");
  static const std::set<std::string_view> kRoles{"system", "developer", "user", "assistant", "tool"};
  if (!kRoles.contains(role)) refuse("unknown role '" + std::string(role) + "'");
  simdjson::dom::array tool_calls;
  const bool has_calls = message["tool_calls"].get(tool_calls) == simdjson::SUCCESS;
  if (has_calls)
    for (const element call : tool_calls) {
      any_call = true;
      std::string_view id;
      if (call["id"].get(id) == simdjson::SUCCESS) calls.emplace(id);
    }
  element content;
  const bool has_content = message["content"].get(content) == simdjson::SUCCESS;
  if (!has_content && !has_calls) refuse("it has neither content nor tool_calls");
  if (has_content && !content.is_string() && !content.is_null() && !content.is_array())
    refuse("content must be text, null or a list of parts");
  if (has_content && content.is_null() && !has_calls && role != "assistant") refuse("content is null");
  if (role != "tool") return;
  std::string_view id;
  const bool named = message["tool_call_id"].get(id) == simdjson::SUCCESS;
  if (!any_call || (named && !calls.empty() && !calls.contains(std::string(id))))
    refuse("a tool's result without the call it answers");
}

void read_messages(DataRow& row, const simdjson::dom::array& messages) {
  std::set<std::string> calls;
  bool any_call = false;
  for (const element item : messages) {
    object message;
    if (item.get(message) != simdjson::SUCCESS)
      fail(ErrorKind::invalid_input, row.where, ": message ", row.messages.size() + 1, " is not an object");
    check_message(message, row.where, row.messages.size(), calls, any_call);
    double weight = 1;
    if (message["weight"].get(weight) != simdjson::SUCCESS) weight = 1;
    row.answers.push_back(std::string_view(message["role"]) == "assistant" && weight != 0);
    row.messages.push_back(simdjson::minify(item));
  }
  if (row.messages.empty()) fail(ErrorKind::invalid_input, row.where, ": 'messages' is empty");
}

DataRow row_of(const element& json, const std::string& where) {
  DataRow row{.where = where};
  object fields;
  if (json.get(fields) != simdjson::SUCCESS)
    fail(ErrorKind::invalid_input, where, ": a row must be an object, found ", simdjson::minify(json));
  element found, completion;
  simdjson::dom::array list;
  if (fields["messages"].get(found) == simdjson::SUCCESS) {
    row.kind = DataRow::Kind::messages;
    if (found.get(list) != simdjson::SUCCESS)
      fail(ErrorKind::invalid_input, where, ": 'messages' must be a list");
    read_messages(row, list);
    if (fields["tools"].get(found) == simdjson::SUCCESS && !found.is_null())
      row.tools = simdjson::minify(found);
  } else if (fields["prompt"].get(found) == simdjson::SUCCESS &&
             fields["completion"].get(completion) == simdjson::SUCCESS) {
    row.kind = DataRow::Kind::completion;
    row.text = string_of(found, where, "prompt");
    row.completion = string_of(completion, where, "completion");
  } else if (fields["text"].get(found) == simdjson::SUCCESS) {
    row.text = string_of(found, where, "text");
  } else {
    std::string keys;
    for (const auto field : fields) keys += (keys.empty() ? "" : ", ") + std::string(field.key);
    fail(ErrorKind::invalid_input, where,
         ": a row has 'messages', or 'prompt' and 'completion', or 'text'; this one has ",
         keys.empty() ? "no keys" : keys);
  }
  return row;
}

bool blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

element parse(simdjson::dom::parser& parser, const Place& place, std::string_view json) {
  element parsed;
  if (const auto error = parser.parse(json.data(), json.size()).get(parsed)) fail_json(place, json, error);
  return parsed;
}

}  // namespace

void read_rows(const fs::path& path, const std::function<void(DataRow&&)>& take) {
  const MappedFile file(path);
  std::string_view all(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  std::uint64_t offset = 0;
  if (all.starts_with("\xef\xbb\xbf")) offset = 3;
  simdjson::dom::parser parser;
  if (const std::size_t first = all.find_first_not_of(" \t\r\n", offset);
      first != std::string_view::npos && all[first] == '[') {
    simdjson::dom::array rows;
    const Place whole{path, 1, offset};
    if (parse(parser, whole, all.substr(offset)).get(rows) != simdjson::SUCCESS)
      fail(ErrorKind::invalid_input, path.string(), ": expected a list of rows");
    std::int64_t index = 0;
    for (const element row : rows) take(row_of(row, path.string() + ": row " + std::to_string(++index)));
    return;
  }
  for (std::int64_t line = 1; offset < all.size(); ++line) {
    const std::size_t end = std::min(all.find('\n', offset), all.size());
    const std::string_view text = all.substr(offset, end - offset);
    const Place place{path, line, offset};
    if (!blank(text)) take(row_of(parse(parser, place, text), place.text()));
    offset = end + 1;
  }
}

}  // namespace slideway
