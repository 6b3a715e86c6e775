#include "train/dataset_rows.h"

#include <simdjson.h>

#include <algorithm>
#include <nlohmann/json.hpp>

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

DataRow row_of(const element& json, const std::string& where) {
  DataRow row{.where = where};
  object fields;
  if (json.get(fields) != simdjson::SUCCESS)
    fail(ErrorKind::invalid_input, where, ": a row must be an object, found ", simdjson::minify(json));
  element found, completion;
  if (fields["messages"].get(found) == simdjson::SUCCESS) {
    row.kind = DataRow::Kind::messages;
    if (!found.is_array()) fail(ErrorKind::invalid_input, where, ": 'messages' must be a list");
    if (simdjson::dom::array(found).size() == 0)
      fail(ErrorKind::invalid_input, where, ": 'messages' is empty");
    row.messages = simdjson::minify(found);
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
