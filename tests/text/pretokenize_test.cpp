#include "text/pretokenize.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"

namespace slideway {
namespace {

using Texts = std::vector<std::string>;

Texts words(const std::vector<PreTokenizerStep>& steps, std::string_view in, bool at_start = true) {
  const PreTokenizer pre_tokenizer(steps);
  PreTokenizer::Scratch scratch;
  AlignedText text(in, 0, true);
  std::vector<Span> spans;
  pre_tokenizer.run(text, at_start, scratch, spans);
  Texts out;
  for (const Span span : spans) out.emplace_back(text.bytes().substr(span.begin, span.end - span.begin));
  return out;
}

PreTokenizerStep split(const char* regex, SplitBehavior behavior, bool invert = false) {
  return {.kind = PreTokenizerStep::split, .pattern = {regex, true}, .behavior = behavior, .invert = invert};
}
PreTokenizerStep bytes(bool prefix, bool use_regex) {
  return {.kind = PreTokenizerStep::byte_level, .add_prefix_space = prefix, .use_regex = use_regex};
}

TEST(PreTokenizer, KeepsDelimitersAsEachBehaviorSays) {
  const char* text = "-a--b-";
  EXPECT_EQ(words({split("-", SplitBehavior::removed)}, text), (Texts{"a", "b"}));
  EXPECT_EQ(words({split("-", SplitBehavior::isolated)}, text), (Texts{"-", "a", "-", "-", "b", "-"}));
  EXPECT_EQ(words({split("-", SplitBehavior::merged_with_previous)}, text), (Texts{"-", "a-", "-", "b-"}));
  EXPECT_EQ(words({split("-", SplitBehavior::merged_with_next)}, text), (Texts{"-a", "-", "-b", "-"}));
  EXPECT_EQ(words({split("-", SplitBehavior::contiguous)}, text), (Texts{"-", "a", "--", "b", "-"}));
}

TEST(PreTokenizer, TakesWhatDoesNotMatchAsTheDelimiterIfInverted) {
  EXPECT_EQ(words({split("[ab]", SplitBehavior::removed, true)}, "-a--b-"), (Texts{"a", "b"}));
  EXPECT_EQ(words({split("[ab]+", SplitBehavior::merged_with_next, true)}, "-ab--b-"),
            (Texts{"-ab", "--b", "-"}));
}

TEST(PreTokenizer, RunsItsStepsOneAfterAnother) {
  EXPECT_EQ(words({{.kind = PreTokenizerStep::digits, .individual_digits = true}, bytes(false, true)},
                  "in  1984 x²"),
            (Texts{"in", "  ", "1", "9", "8", "4", " x", "²"}));
  EXPECT_EQ(words({{.kind = PreTokenizerStep::digits}}, "a12b3"), (Texts{"a", "12", "b", "3"}));
  EXPECT_EQ(words({{.kind = PreTokenizerStep::punctuation, .behavior = SplitBehavior::isolated}}, "a+b。$"),
            (Texts{"a", "+", "b", "。", "$"}));
}

TEST(PreTokenizer, PutsASpaceBeforeEachWordThatLacksOneIfAsked) {
  EXPECT_EQ(words({split(",", SplitBehavior::isolated), bytes(true, false)}, "a, b"),
            (Texts{" a", " ,", " b"}));
}

TEST(PreTokenizer, PutsMetaspacesWhereTheirSchemeSays) {
  const auto meta = [](PrependScheme scheme, bool split_words) {
    return PreTokenizerStep{.kind = PreTokenizerStep::metaspace,
                            .replacement = "▁",
                            .prepend_scheme = scheme,
                            .split_words = split_words};
  };
  EXPECT_EQ(words({meta(PrependScheme::always, true)}, "a  b"), (Texts{"▁a", "▁", "▁b"}));
  EXPECT_EQ(words({meta(PrependScheme::always, true)}, " a"), (Texts{"▁a"}));
  EXPECT_EQ(words({meta(PrependScheme::never, false)}, "a b"), (Texts{"a▁b"}));
  EXPECT_EQ(words({meta(PrependScheme::first, false)}, "a b"), (Texts{"▁a▁b"}));
  EXPECT_EQ(words({meta(PrependScheme::first, false)}, "a b", false), (Texts{"a▁b"}))
      << "after an added token";
}

TEST(PreTokenizer, RefusesAStepAfterByteLevel) {
  expect_error(ErrorKind::unsupported, {"ByteLevel must be the last"},
               [] { words({bytes(false, true), split("a", SplitBehavior::isolated)}, "a"); });
}

}  // namespace
}  // namespace slideway
