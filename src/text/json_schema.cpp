#include "text/json_schema.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <ranges>
#include <span>

#include "core/error.h"

namespace slideway {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kMostBytes = 256 * 1024;
constexpr int kMostDepth = 64;

// Formats that xgrammar has a pattern for; others it would take for any string.
constexpr const char* kFormats[] = {
    "email", "date",     "time", "date-time",     "duration",     "ipv4",         "ipv6",
    "uuid",  "hostname", "uri",  "uri-reference", "uri-template", "json-pointer", "relative-json-pointer"};

using Names = std::span<const char* const>;

bool is_among(const std::string& key, Names names) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return key == name; });
}

// Keywords under which the members are a user's own names.
constexpr const char* kHoldNames[] = {"properties", "patternProperties", "$defs", "definitions"};
// Keywords under which lie values, not schemas.
constexpr const char* kHoldValues[] = {"enum", "const", "default", "examples", "required"};
// What JSON Schema has and xgrammar passes over.
constexpr const char* kUnsupported[] = {"not",
                                        "if",
                                        "then",
                                        "else",
                                        "dependencies",
                                        "dependentRequired",
                                        "dependentSchemas",
                                        "uniqueItems",
                                        "contains",
                                        "minContains",
                                        "maxContains",
                                        "$dynamicRef",
                                        "$recursiveRef",
                                        "additionalItems"};
// The first of these that a schema has decides in xgrammar what it means, and nothing beside it counts.
constexpr const char* kDecide[] = {"$ref", "const", "enum", "anyOf", "oneOf", "allOf"};
constexpr const char* kConstrain[] = {"$ref",
                                      "const",
                                      "enum",
                                      "anyOf",
                                      "oneOf",
                                      "allOf",
                                      "type",
                                      "properties",
                                      "required",
                                      "patternProperties",
                                      "additionalProperties",
                                      "unevaluatedProperties",
                                      "propertyNames",
                                      "minProperties",
                                      "maxProperties",
                                      "items",
                                      "prefixItems",
                                      "unevaluatedItems",
                                      "minItems",
                                      "maxItems",
                                      "minimum",
                                      "maximum",
                                      "exclusiveMinimum",
                                      "exclusiveMaximum",
                                      "multipleOf",
                                      "minLength",
                                      "maxLength",
                                      "pattern",
                                      "format"};

bool is_of_type(const Json& value, const std::string& type) {
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  return type == value.type_name();  // string, boolean, null, array, object
}

void check_values(const Json& schema, const std::string& key) {
  const Json& type = schema.at("type");
  const auto one_of_types = [&](const Json& value) {
    if (!type.is_array()) return type.is_string() && is_of_type(value, type.get<std::string>());
    return std::any_of(type.begin(), type.end(), [&](const Json& t) {
      return t.is_string() && is_of_type(value, t.get<std::string>());
    });
  };
  const Json& given = schema.at(key);
  for (const Json& value : key == "enum" ? given : Json::array({given}))
    if (!one_of_types(value))
      fail(ErrorKind::invalid_input, "the schema's ", key, " ", value.dump(), " is not of its type, ",
           type.dump());
}

void check_keywords(const Json& schema) {
  for (const auto& [key, value] : schema.items())
    if (is_among(key, kUnsupported))
      fail(ErrorKind::unsupported, "the schema's \"", key, "\" is not supported");
  if (const auto format = schema.find("format"); format != schema.end())
    if (!format->is_string() || !is_among(format->get<std::string>(), kFormats))
      fail(ErrorKind::unsupported, "the schema's \"format\": ", format->dump(), " is not supported");
  const char* decides = "type";
  for (const char* key : std::views::reverse(kDecide))
    if (schema.contains(key)) decides = key;
  const bool values = std::string(decides) == "enum" || std::string(decides) == "const";
  for (const auto& [key, value] : schema.items()) {
    if (key == decides || !is_among(key, kConstrain)) continue;
    if (values && key == "type") {
      check_values(schema, decides);
    } else if (std::string(decides) != "type") {
      fail(ErrorKind::unsupported, "the schema's \"", key, "\" beside \"", decides, "\" is not supported");
    } else if (!schema.contains("type")) {
      fail(ErrorKind::unsupported, "the schema's \"", key, "\" needs a \"type\" beside it");
    }
  }
}

// named: the members of json are names, not keywords.
void check_schema(const Json& json, bool named) {
  if (json.is_array())
    for (const Json& item : json) check_schema(item, false);
  if (!json.is_object()) return;
  if (!named) check_keywords(json);
  for (const auto& [key, value] : json.items())
    if (named || !is_among(key, kHoldValues)) check_schema(value, !named && is_among(key, kHoldNames));
}

}  // namespace

std::string checked_json_schema(std::string_view text) {
  if (text.size() > kMostBytes)
    fail(ErrorKind::invalid_input, "the schema has ", text.size(), " bytes; at most ", kMostBytes,
         " are read");
  int depth = 0;
  // Depth is limited while parsing, before anything recursive sees the text.
  const auto within = [&](int, Json::parse_event_t event, Json&) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) ++depth;
    if (event == Event::object_end || event == Event::array_end) --depth;
    if (depth > kMostDepth)
      fail(ErrorKind::unsupported, "the schema is nested more than ", kMostDepth, " levels deep");
    return true;
  };
  Json json = Json::parse(text, within, false);
  if (json.is_discarded()) fail(ErrorKind::invalid_input, "the schema is not JSON");
  if (!json.is_object())
    fail(ErrorKind::invalid_input, "the schema should be an object, found ", json.type_name());
  check_schema(json, false);
  return json.dump();
}

}  // namespace slideway
