#include "serve/answer_text.h"

#include <gtest/gtest.h>

#include "text/small_tokenizer.h"

namespace slideway {
namespace {

class AnswerTextTest : public testing::Test {
 protected:
  // One token a byte.
  static TokenEvent token(std::int32_t id, std::optional<FinishReason> finish = {}) {
    return {.token = id, .finish = finish};
  }

  // The pieces of an answer whose tokens are the bytes of text, the last of them ending it for that reason.
  std::vector<std::string> pieces(const std::string& text, const AnswerTextOptions& options,
                                  FinishReason reason) {
    AnswerText answer(*tokenizer_, options);
    std::vector<std::string> out;
    for (std::size_t i = 0; i < text.size() && !answer.ended(); ++i) {
      const bool last = i + 1 == text.size();
      out.push_back(
          answer.push(token(static_cast<unsigned char>(text[i]), last ? std::optional(reason) : std::nullopt))
              .text);
    }
    finish_ = answer.finish_reason();
    tokens_ = answer.tokens();
    return out;
  }
  static std::string joined(const std::vector<std::string>& pieces) {
    std::string out;
    for (const std::string& piece : pieces) out += piece;
    return out;
  }

  const std::unique_ptr<Tokenizer> tokenizer_ = SmallTokenizer::of_bytes().make();
  std::string finish_;
  std::int64_t tokens_ = 0;
};

TEST_F(AnswerTextTest, NeverSendsHalfACharacter) {
  const auto out = pieces("a🌶b", {}, FinishReason::length);
  EXPECT_EQ(out, (std::vector<std::string>{"a", "", "", "", "🌶", "b"}));
  EXPECT_EQ(finish_, "length");
}

TEST_F(AnswerTextTest, SaysThatACharacterWasCutByTheEndInTheSameWordsStreamedOrNot) {
  EXPECT_EQ(joined(pieces("a\xF0\x9F\x8C", {}, FinishReason::length)), "a\uFFFD");
}

TEST_F(AnswerTextTest, LeavesOutTheTokenThatEndsIt) {
  EXPECT_EQ(joined(pieces("ab$", {}, FinishReason::stop)), "ab");
  EXPECT_EQ(finish_, "stop");
  EXPECT_EQ(tokens_, 3);
  EXPECT_EQ(joined(pieces("ab$", {.include_stop = true}, FinishReason::stop)), "ab$");
}

TEST_F(AnswerTextTest, EndsAtAStopStringAndLooksForNoneBeforeMinTokens) {
  EXPECT_EQ(joined(pieces("one, two, three", {.stops = {", "}}, FinishReason::length)), "one");
  EXPECT_EQ(finish_, "stop");
  EXPECT_EQ(joined(pieces("one, two, three", {.stops = {", "}, .min_tokens = 6}, FinishReason::length)),
            "one, two");
  EXPECT_EQ(joined(pieces("one,", {.stops = {", "}}, FinishReason::length)), "one,");
  EXPECT_EQ(finish_, "length");
}

}  // namespace
}  // namespace slideway
