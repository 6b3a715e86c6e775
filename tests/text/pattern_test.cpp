#include "text/pattern.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace slideway {
namespace {

std::vector<std::string> matches_of(const Pattern& pattern, std::string_view text) {
  PatternScratch scratch;
  std::vector<Span> spans;
  pattern.find_all(text, scratch, spans);
  std::vector<std::string> out;
  for (const Span span : spans) out.emplace_back(text.substr(span.begin, span.end - span.begin));
  return out;
}
std::vector<std::string> matches(std::string_view pattern, std::string_view text) {
  return matches_of(Pattern::regex(pattern, "test"), text);
}
using Texts = std::vector<std::string>;

TEST(Pattern, FindsMatchesFromLeftToRight) {
  EXPECT_EQ(matches("\\p{N}{1,3}|\\p{L}+", "abc12345é"), (Texts{"abc", "123", "45", "é"}));
  EXPECT_EQ(matches("\\s+(?!\\S)|\\s+", "a   b"), (Texts{"  ", " "}));
  EXPECT_EQ(matches("(?i:'s|'ll)", "It'S we'LL 'ſ"), (Texts{"'S", "'LL", "'ſ"}));
  EXPECT_EQ(matches_of(Pattern::literal("a.b"), "a.baxba.b"), (Texts{"a.b", "a.b"}));
  EXPECT_TRUE(matches_of(Pattern::literal(""), "abc").empty());
}

TEST(Pattern, MeansByWhiteSpaceWhatOnigurumaMeans) {
  EXPECT_EQ(matches("\\s", "\u00a0\u180e\u2028\u0085\x1c").size(), 3u) << "neither U+180E nor U+001C";
  EXPECT_EQ(matches("[^\\s]+", " a\u180e "), (Texts{"a\u180e"}));
  EXPECT_EQ(matches("[\\Sx]+", "a\u3000b"), (Texts{"a", "b"}));
  EXPECT_EQ(matches("\\S+", "a\u3000b"), (Texts{"a", "b"}));
}

TEST(Pattern, EndsLinesWhereOnigurumaDoes) {
  EXPECT_EQ(matches("\\s+$", "a  \nb \n\nc  "), (Texts{"  ", " \n", "  "}));
  EXPECT_EQ(matches("a$", "a\na\r\na"), (Texts{"a", "a"}));
  EXPECT_EQ(matches("^.", "ab\ncd\n"), (Texts{"a", "c"}));
}

TEST(Pattern, GoesOnAfterAnEmptyMatch) {
  EXPECT_EQ(matches("x*", "aéxx"), (Texts{"", "", "xx"}));
}

TEST(Pattern, RefusesWhatPcre2WouldReadDifferently) {
  for (const char* part :
       {"\\w+", "\\bx", "\\h", "[\\w]", "[[:alpha:]]", "[a[bc]]", "[a&&b]", "a{,3}", "a{2}+", "\\1(a)",
        "(?<name>a)", "(?m:.)", "(*COMMIT)a", "\\xFF", "[]a]", "\\pL", "\\Qa\\E", "\\R"}) {
    expect_error(ErrorKind::unsupported, {"here", part}, [&] { Pattern::regex(part, "here"); });
  }
}

TEST(Pattern, SaysWhereAPatternIsNone) {
  expect_error(ErrorKind::corrupt, {"here", "(a", "byte 2"}, [] { Pattern::regex("(a", "here"); });
  expect_error(ErrorKind::corrupt, {"\\p{Nope}"}, [] { Pattern::regex("\\p{Nope}", "here"); });
  expect_error(ErrorKind::unsupported, {"not closed"}, [] { Pattern::regex("[a", "here"); });
  expect_error(ErrorKind::corrupt, {"UTF-8"}, [] { Pattern::regex("\xFF", "here"); });
}

TEST(Pattern, GivesUpOnAnExponentialPatternInsteadOfHanging) {
  expect_error(ErrorKind::invalid_input, {"too many attempts"},
               [] { matches("(?:a|a)*[bc]", std::string(4000, 'a')); });
}

}  // namespace
}  // namespace slideway
