#include "formats/json.h"

#include <unordered_set>
#include <vector>

#include "core/error.h"
#include "core/file.h"

namespace slideway {
namespace {

constexpr int kMaxDepth = 64;

template <class AnyJson>
AnyJson parse(std::string_view text, const std::string& where) {
  std::vector<std::unordered_set<std::string>> keys;  // of the objects that are open
  const auto watch = [&](int depth, typename AnyJson::parse_event_t event, AnyJson& parsed) {
    if (depth > kMaxDepth) fail(ErrorKind::corrupt, where, ": JSON is nested deeper than ", kMaxDepth);
    if (event == AnyJson::parse_event_t::object_start) keys.emplace_back();
    if (event == AnyJson::parse_event_t::object_end) keys.pop_back();
    if (event == AnyJson::parse_event_t::key &&
        !keys.back().insert(parsed.template get_ref<const std::string&>()).second)
      fail(ErrorKind::corrupt, where, ": the key ", parsed.dump(), " comes twice");
    return true;
  };
  try {
    return AnyJson::parse(text.begin(), text.end(), watch);
  } catch (const nlohmann::json::exception& error) {
    const std::string_view what = error.what();
    const auto prefix = what.find("] ");  // the library's own number of the error
    fail(ErrorKind::corrupt, where, ": ", prefix == what.npos ? what : what.substr(prefix + 2));
  }
}

}  // namespace

Json parse_json(std::string_view text, const std::string& where) {
  return parse<Json>(text, where);
}

SortedJson parse_sorted_json(std::string_view text, const std::string& where) {
  return parse<SortedJson>(text, where);
}

Json load_json(const std::filesystem::path& path) {
  return parse_json(read_text(path), path.string());
}

}  // namespace slideway
