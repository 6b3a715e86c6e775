// JSON of other people: parsed whole, with a limit on depth, and never with a key that comes twice.
//
// Errors   corrupt: where (the file), the position, what is wrong
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace slideway {

using Json = nlohmann::ordered_json;  // keys keep the file's order; finding one looks at all before it
using SortedJson = nlohmann::json;    // for objects of any size

// where names the text in messages.
Json parse_json(std::string_view text, const std::string& where);
SortedJson parse_sorted_json(std::string_view text, const std::string& where);
Json load_json(const std::filesystem::path& path);

}  // namespace slideway
