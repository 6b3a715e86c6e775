#include <gtest/gtest.h>

#include "small_tokenizer.h"

namespace slideway {
namespace {

TEST(AddedTokens, FindTheLongestAtTheFirstPlace) {
  SmallTokenizer small = SmallTokenizer::of_bytes();
  small.add_token("<a>");
  small.add_token("<a>b");
  small.add_token("b<");
  EXPECT_EQ(cut(*small.make(), "<a>b<a>x<a"), "<a>b|<a>|x|<|a|");
}

TEST(AddedTokens, TakeTheWhiteSpaceBesideThem) {
  SmallTokenizer small = SmallTokenizer::of_bytes({"Ġ x"});
  const std::int32_t left = small.add_token("<l>", {{"lstrip", true}});
  const std::int32_t right = small.add_token("<r>", {{"rstrip", true}});
  const auto tokenizer = small.make();
  EXPECT_EQ(tokenizer->encode("x \n\u00a0<l> x"), (TokenIds{'x', left, 256}));
  EXPECT_EQ(tokenizer->encode(" x<r> \n x"), (TokenIds{256, right, 'x'}));
  EXPECT_EQ(tokenizer->encode("<r>  <l>"), (TokenIds{right, left})) << "white space is taken once";
  std::vector<bool> trained;
  tokenizer->encode(std::vector<TextPiece>{{"x  "}, {"<l>", false, true}}, &trained);
  EXPECT_EQ(trained, (std::vector<bool>{false, true})) << "a token begins with its own text";
}

TEST(AddedTokens, StandAloneIfTheyMustBeWords) {
  SmallTokenizer small = SmallTokenizer::of_bytes();
  const std::int32_t word = small.add_token("cat", {{"single_word", true}});
  const auto tokenizer = small.make();
  const auto count = [&](std::string_view text) {
    const TokenIds ids = tokenizer->encode(text);
    return std::count(ids.begin(), ids.end(), word);
  };
  EXPECT_EQ(count("cat, cat-cat (cat)"), 4);
  EXPECT_EQ(count("cats écat cat1 _cat catcat"), 0);
}

TEST(AddedTokens, AreFoundBeforeOrAfterNormalising) {
  SmallTokenizer small = SmallTokenizer::of_bytes();
  small.json["normalizer"] = {{"type", "Lowercase"}};
  const std::int32_t raw = small.add_token("[RAW]"),
                     normalized = small.add_token("[Norm]", {{"normalized", true}});
  const auto tokenizer = small.make();
  EXPECT_EQ(tokenizer->encode("[RAW][raw][NORM]"), (TokenIds{raw, '[', 'r', 'a', 'w', ']', normalized}));
  EXPECT_EQ(tokenizer->decode(TokenIds{raw, normalized}, false), "[RAW][norm]") << "as tokenizers has it";
  EXPECT_EQ(tokenizer->token(normalized), "[Norm]");
}

TEST(AddedTokens, OfWhiteSpaceAreFoundInLiteralTextToo) {
  SmallTokenizer small = SmallTokenizer::of_bytes();
  const std::int32_t blank = small.add_token("    ", {{"special", false}});
  EXPECT_EQ(small.make()->encode("    ", {.parse_special_tokens = false}), (TokenIds{blank}));
}

}  // namespace
}  // namespace slideway
