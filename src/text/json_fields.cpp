#include "text/json_fields.h"

#include <algorithm>

#include "core/error.h"

namespace slideway {

using simdjson::dom::element;

void JsonField::wrong_type(const char* expected) const {
  std::string found = simdjson::minify(element_);
  if (found.size() > 60) found = found.substr(0, 60) + "…";
  fail(ErrorKind::corrupt, path_, ": expected ", expected, ", found ", found);
}

std::optional<JsonField> JsonField::find(const char* key) const {
  element value;
  if (object().at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  const char* separator = path_.find(": ") == path_.npos ? ": " : ".";  // the root's path is the file's name
  return JsonField(value, path_ + separator + key);
}

JsonField JsonField::at(const char* key) const {
  if (auto field = find(key)) return *field;
  fail(ErrorKind::corrupt, path_, ": the field ", key, " is missing");
}

void JsonField::only(std::initializer_list<std::string_view> keys) const {
  for (const auto [key, value] : object()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      fail(ErrorKind::unsupported, path_, ": the field ", key,
           " is not known, so what it does cannot be kept");
    }
  }
}

std::string_view JsonField::text() const {
  std::string_view value;
  if (element_.get(value) != simdjson::SUCCESS) wrong_type("a string");
  return value;
}

std::int64_t JsonField::integer() const {
  std::int64_t value = 0;
  if (element_.get(value) != simdjson::SUCCESS) wrong_type("an integer");
  return value;
}

bool JsonField::boolean() const {
  bool value = false;
  if (element_.get(value) != simdjson::SUCCESS) wrong_type("true or false");
  return value;
}

simdjson::dom::array JsonField::array() const {
  simdjson::dom::array value;
  if (element_.get(value) != simdjson::SUCCESS) wrong_type("an array");
  return value;
}

simdjson::dom::object JsonField::object() const {
  simdjson::dom::object value;
  if (element_.get(value) != simdjson::SUCCESS) wrong_type("an object");
  return value;
}

JsonField JsonField::item(element element, std::size_t index) const {
  return JsonField(element, path_ + "[" + std::to_string(index) + "]");
}

bool JsonField::boolean_or(const char* key, bool absent) const {
  const auto field = find(key);
  return field ? field->boolean() : absent;
}

std::string JsonField::text_or(const char* key, std::string_view absent) const {
  const auto field = find(key);
  return std::string(field ? field->text() : absent);
}

}  // namespace slideway
