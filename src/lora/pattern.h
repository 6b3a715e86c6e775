// Regular expressions of adapter configs: Python's, as peft applies them, run by PCRE2 within limits.
//
// Errors   corrupt: not a regular expression (what and where), or one that takes too long
#pragma once

#include <optional>
#include <string>

namespace slideway {

// Fails with where in front when pattern is not a regular expression.
void check_pattern(const std::string& pattern, const std::string& where);
bool matches_whole(const std::string& pattern, const std::string& text);
// What the group took in a match that begins where the text begins.
std::optional<std::string> named_group(const std::string& pattern, const char* group,
                                       const std::string& text);

}  // namespace slideway
