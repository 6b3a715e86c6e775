// Fields of a JSON object with messages that name the place: file, path, what was expected and what stands there.
//
// A header of the readers in this room alone: it includes simdjson.
#pragma once

#include <simdjson.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

namespace slideway {

// An element and the path that leads to it, such as "tokenizer.json: model.vocab".
class JsonField {
 public:
  JsonField(simdjson::dom::element element, std::string path) : element_(element), path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  simdjson::dom::element json() const { return element_; }
  bool is_null() const { return element_.is_null(); }

  // An object's field; required, or none where it is absent or null.
  JsonField at(const char* key) const;
  std::optional<JsonField> find(const char* key) const;
  // Refuses an object with a field that is not among these.
  void only(std::initializer_list<std::string_view> keys) const;

  std::string_view text() const;
  std::int64_t integer() const;
  bool boolean() const;
  simdjson::dom::array array() const;
  simdjson::dom::object object() const;
  JsonField item(simdjson::dom::element element, std::size_t index) const;

  bool boolean_or(const char* key, bool absent) const;
  std::string text_or(const char* key, std::string_view absent) const;

 private:
  [[noreturn]] void wrong_type(const char* expected) const;
  simdjson::dom::element element_;
  std::string path_;
};

}  // namespace slideway
