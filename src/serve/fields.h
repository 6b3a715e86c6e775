// Fields: the fields of a request's JSON object, read one by one; null counts as absent.
//
//   Fields fields(parse_body(request.body));
//   const auto n = fields.integer("n", 1, 128).value_or(1);
//   fields.accept("store", {false});   // this program has no other way
//   fields.finish();                   // 400 for any field that nobody has read
//
// Errors   ApiError 400 with the field as param
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "formats/json.h"

namespace slideway {

class Fields {
 public:
  // path: of the object in the body, for messages; empty: the body itself.
  explicit Fields(Json object, std::string path = {});

  const Json* find(const std::string& name);  // null where absent
  std::optional<std::string> text(const std::string& name);
  std::optional<bool> flag(const std::string& name);
  std::optional<std::int64_t> integer(const std::string& name, std::int64_t low, std::int64_t high);
  std::optional<double> number(const std::string& name, double low, double high);
  std::vector<std::int32_t> ids(const std::string& name);  // none where absent
  std::string required_text(const std::string& name);

  // A field with which one may only ask for what happens anyway.
  void accept(const std::string& name, std::initializer_list<Json> values);
  // Fields that change no answer: names of users, tags.
  void ignore(std::initializer_list<const char*> names);
  void finish() const;

  std::string path_of(const std::string& name) const;

 private:
  Json object_;
  std::string path_;
  std::set<std::string> read_;
};

Fields parse_body(const std::string& body);
// A short form of a value for messages.
std::string shown(const Json& value);
std::string dump(const Json& value);  // bytes that are no UTF-8 become U+FFFD

}  // namespace slideway
