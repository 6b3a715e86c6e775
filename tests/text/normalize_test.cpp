#include "text/normalize.h"

#include <gtest/gtest.h>

namespace slideway {
namespace {

std::string run(const std::vector<NormalizerStep>& steps, std::string_view text) {
  PatternScratch scratch;
  return Normalizer(steps).run(text, scratch);
}

TEST(Normalizer, WritesTheFourForms) {
  const char* text = "e\u0301 \u212b ﬁ ½ \u1112\u1161\u11ab 한";
  EXPECT_EQ(run({{.kind = NormalizerStep::nfc}}, text), "é Å ﬁ ½ 한 한");
  EXPECT_EQ(run({{.kind = NormalizerStep::nfd}}, text),
            "e\u0301 A\u030a ﬁ ½ \u1112\u1161\u11ab \u1112\u1161\u11ab");
  EXPECT_EQ(run({{.kind = NormalizerStep::nfkc}}, text), "é Å fi 1\u20442 한 한");
  EXPECT_EQ(run({{.kind = NormalizerStep::nfkd}}, "ｶﾞé"), "カ\u3099e\u0301");
  EXPECT_EQ(run({{.kind = NormalizerStep::nfkc}}, "ｶﾞ"), "ガ") << "the halfwidth mark joins its letter";
  EXPECT_EQ(run({{.kind = NormalizerStep::nfc}}, "a\u0323\u0307\u0301x"), "ạ\u0307\u0301x");
  EXPECT_EQ(run({{.kind = NormalizerStep::nfc}}, "a\u0301\u0323"), "ạ\u0301") << "marks come in their order";
}

TEST(Normalizer, RewritesAsTheFileSays) {
  EXPECT_EQ(run({{.kind = NormalizerStep::lowercase}}, "ÀİẞΣ"), "ài\u0307ßσ");
  EXPECT_EQ(run({{.kind = NormalizerStep::prepend, .content = "▁"}}, "a"), "▁a");
  EXPECT_EQ(run({{.kind = NormalizerStep::prepend, .content = "▁"}}, ""), "");
  EXPECT_EQ(run({{.kind = NormalizerStep::replace, .pattern = {" ", false}, .content = "▁"}}, " a b"),
            "▁a▁b");
  EXPECT_EQ(run({{.kind = NormalizerStep::replace, .pattern = {" {2,}", true}, .content = " "}}, "a   b"),
            "a b");
  EXPECT_EQ(run({{.kind = NormalizerStep::strip, .left = true, .right = true}}, "\t a b\u3000"), "a b");
  EXPECT_EQ(run({{.kind = NormalizerStep::strip, .right = true}}, " a "), " a");
  EXPECT_EQ(run({{.kind = NormalizerStep::strip, .left = true}}, "  "), "");
  EXPECT_EQ(run({{.kind = NormalizerStep::lowercase}, {.kind = NormalizerStep::nfd}}, "É"), "e\u0301");
}

TEST(Normalizer, KnowsWhereEachByteCameFrom) {
  const std::string in = "x e\u0301y";  // bytes: x 0, space 1, e 2, acute 3–4, y 5
  AlignedText text(in, 10, true);
  PatternScratch scratch;
  Normalizer({{.kind = NormalizerStep::prepend, .content = "▁"},
              {.kind = NormalizerStep::replace, .pattern = {" ", false}, .content = "▁"},
              {.kind = NormalizerStep::nfc}})
      .run(text, scratch);
  ASSERT_EQ(text.bytes(), "▁x▁éy");
  std::vector<std::uint32_t> origins;
  for (std::size_t i = 0; i <= text.bytes().size(); ++i) origins.push_back(text.origin(i));
  EXPECT_EQ(origins, (std::vector<std::uint32_t>{10, 10, 10, 10, 11, 11, 11, 12, 12, 15, 16}));
}

}  // namespace
}  // namespace slideway
