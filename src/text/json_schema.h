// What of JSON Schema an answer can be held to (text/grammar.h).
//
// The grammar library reads the first keyword that decides what a schema means and passes over the rest. So a schema is
// looked through first: a keyword, a format or a combination that would be passed over is refused by name.
//
// Errors   invalid_input: not JSON, not an object, an enum's value not of its type; unsupported: names what is not
// Source   JSON Schema, draft 2020-12
#pragma once

#include <string>
#include <string_view>

namespace slideway {

// The schema again, with its keys in their order.
std::string checked_json_schema(std::string_view text);

}  // namespace slideway
