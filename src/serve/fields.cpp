#include "serve/fields.h"

#include <algorithm>
#include <cmath>

#include "serve/api_error.h"

namespace slideway {
namespace {

constexpr std::size_t kShownBytes = 80;

std::string range_text(double low, double high) {
  std::ostringstream out;
  if (std::isinf(high))
    out << low << " or more";
  else
    out << "from " << low << " to " << high;
  return out.str();
}

}  // namespace

std::string dump(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string shown(const Json& value) {
  std::string text = dump(value);
  if (text.size() <= kShownBytes) return text;
  std::size_t end = kShownBytes;  // not within a character
  while (end > 0 && (text[end] & 0xC0) == 0x80) --end;
  return text.substr(0, end) + "…";
}

Fields parse_body(const std::string& body) {
  Json json;
  try {
    json = parse_json(body, "the body");
  } catch (const Error& error) {
    fail_api({}, "The body is not JSON: ", error.what());
  }
  return Fields(std::move(json));
}

Fields::Fields(Json object, std::string path) : object_(std::move(object)), path_(std::move(path)) {
  if (!object_.is_object())
    fail_field(path_, path_.empty() ? "the body" : path_, " should be an object, found ", shown(object_));
}

std::string Fields::path_of(const std::string& name) const {
  return path_.empty() ? name : path_ + "." + name;
}

const Json* Fields::find(const std::string& name) {
  read_.insert(name);
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::string> Fields::text(const std::string& name) {
  const Json* value = find(name);
  if (!value) return {};
  if (!value->is_string())
    fail_field(path_of(name), path_of(name), " should be a text, found ", shown(*value));
  return value->get<std::string>();
}

std::string Fields::required_text(const std::string& name) {
  auto value = text(name);
  if (!value) fail_field(path_of(name), path_of(name), " is missing");
  return *value;
}

std::optional<bool> Fields::flag(const std::string& name) {
  const Json* value = find(name);
  if (!value) return {};
  if (!value->is_boolean())
    fail_field(path_of(name), path_of(name), " should be true or false, found ", shown(*value));
  return value->get<bool>();
}

std::optional<std::int64_t> Fields::integer(const std::string& name, std::int64_t low, std::int64_t high) {
  const Json* value = find(name);
  if (!value) return {};
  const auto wrong = [&] {
    fail_field(path_of(name), path_of(name), " should be a whole number ",
               range_text(double(low), double(high)), ", found ", shown(*value));
  };
  if (value->is_number_unsigned() && value->get<std::uint64_t>() > std::uint64_t(INT64_MAX)) wrong();
  if (!value->is_number_integer()) wrong();
  const auto number = value->get<std::int64_t>();
  if (number < low || number > high) wrong();
  return number;
}

std::optional<double> Fields::number(const std::string& name, double low, double high) {
  const Json* value = find(name);
  if (!value) return {};
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= low && number <= high))
    fail_field(path_of(name), path_of(name), " should be a number ", range_text(low, high), ", found ",
               shown(*value));
  return number;
}

std::vector<std::int32_t> Fields::ids(const std::string& name) {
  const Json* given = find(name);
  if (!given) return {};
  const auto wrong = [&](const Json& what) {
    fail_field(path_of(name), path_of(name), " should be a list of token ids, found ", shown(what));
  };
  if (!given->is_array()) wrong(*given);
  std::vector<std::int32_t> out;
  for (const Json& id : *given) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > INT32_MAX) wrong(id);
    out.push_back(id.get<std::int32_t>());
  }
  return out;
}

void Fields::accept(const std::string& name, std::initializer_list<Json> values) {
  const Json* value = find(name);
  if (!value || std::find(values.begin(), values.end(), *value) != values.end()) return;
  fail_field(path_of(name), path_of(name), " is not supported, found ", shown(*value));
}

void Fields::ignore(std::initializer_list<const char*> names) {
  read_.insert(names.begin(), names.end());
}

void Fields::finish() const {
  for (const auto& [name, value] : object_.items())
    if (!read_.contains(name))
      fail_field(path_of(name), "Unrecognized request argument supplied: ", path_of(name));
}

}  // namespace slideway
