// The fields of a config.json: read with their types checked, and sorted into understood, harmless and refused.
//
// Errors   corrupt (missing, wrong type), unsupported (would change the mathematics): file, field and value
#pragma once

#include <cstdint>
#include <string>

#include "formats/json.h"
#include "model/families.h"

namespace slideway {

// A JSON object with the name of its file. null counts as absent, as in transformers.
class Fields {
 public:
  Fields(const Json& object, std::string where);

  bool has(const char* key) const;  // there and not null
  const Json& at(const char* key) const;
  std::int64_t integer(const char* key) const;
  std::int64_t integer_or(const char* key, std::int64_t fallback) const;
  double number_or(const char* key, double fallback) const;
  bool boolean_or(const char* key, bool fallback) const;
  std::string text_or(const char* key, const std::string& fallback) const;
  const std::string& where() const { return where_; }
  const Json& json() const { return object_; }
  [[noreturn]] void wrong(const char* key, const char* expected) const;

 private:
  const Json& object_;
  std::string where_;
};

// Refuses fields that change what the family computes and are not understood here; logs one warning that names
// the fields nobody here has heard of.
void check_fields(const Fields& config, const Family& family);

}  // namespace slideway
