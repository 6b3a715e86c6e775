#define PCRE2_CODE_UNIT_WIDTH 8
#include "lora/pattern.h"

#include <pcre2.h>

#include <memory>

#include "core/error.h"

namespace slideway {
namespace {

constexpr std::uint32_t kMatchLimit = 200'000;  // steps; a module's path takes some hundreds

struct Free {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, Free>;
using MatchData = std::unique_ptr<pcre2_match_data, Free>;

Code compile(const std::string& pattern, std::uint32_t options, const std::string& where) {
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | options,
                          &error, &offset, nullptr));
  if (!code) {
    PCRE2_UCHAR text[160];
    pcre2_get_error_message(error, text, sizeof text);
    fail(ErrorKind::corrupt, where, ": not a regular expression: ", pattern, " (",
         reinterpret_cast<const char*>(text), " at character ", offset, ")");
  }
  return code;
}

struct Match {
  Code code;  // the data refers to it
  MatchData data;
  explicit operator bool() const { return data != nullptr; }
};

Match match(const std::string& pattern, const std::string& text, std::uint32_t options) {
  Code code = compile(pattern, options, "a module pattern");
  MatchData data(pcre2_match_data_create_from_pattern(code.get(), nullptr));
  std::unique_ptr<pcre2_match_context, Free> context(pcre2_match_context_create(nullptr));
  pcre2_set_match_limit(context.get(), kMatchLimit);
  const int found = pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0,
                                data.get(), context.get());
  if (found == PCRE2_ERROR_NOMATCH) return {};
  if (found < 0)
    fail(ErrorKind::corrupt, "the pattern ", pattern, " takes too long to match ", text, " (PCRE2 error ",
         found, ")");
  return {std::move(code), std::move(data)};
}

}  // namespace

void check_pattern(const std::string& pattern, const std::string& where) {
  compile(pattern, 0, where);
}

bool matches_whole(const std::string& pattern, const std::string& text) {
  return bool(match(pattern, text, PCRE2_ANCHORED | PCRE2_ENDANCHORED));
}

std::optional<std::string> named_group(const std::string& pattern, const char* group,
                                       const std::string& text) {
  const Match found = match(pattern, text, PCRE2_ANCHORED);
  if (!found) return std::nullopt;
  PCRE2_UCHAR* taken = nullptr;
  PCRE2_SIZE length = 0;
  if (pcre2_substring_get_byname(found.data.get(), reinterpret_cast<PCRE2_SPTR>(group), &taken, &length) < 0)
    return std::nullopt;
  std::string out(reinterpret_cast<const char*>(taken), length);
  pcre2_substring_free(taken);
  return out;
}

}  // namespace slideway
