#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/program.h"
#include "cli/tiny_model.h"

namespace slideway {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(Inspect, ShowsWhatAModelIs) {
  const TinyModel model;
  const Ran ran = run({"inspect", model.text()});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  for (const char* text :
       {"llama", "2 layers", "4 heads and 2 key-value heads of 8", "23,712", "F32 × 21",
        "llama3, theta 100, factor 8", "256 tokens", "ends at 7 <end>", "template    none"})
    EXPECT_THAT(ran.out, HasSubstr(text));
  EXPECT_THAT(ran.out, Not(HasSubstr("model.layers.1.mlp.down_proj.weight")));
  EXPECT_THAT(run({"inspect", model.text(), "--tensors"}).out,
              HasSubstr("model.layers.1.mlp.down_proj.weight"));
}

TEST(Inspect, ShowsAModelWithoutATokenizer) {
  const Ran ran = run({"inspect", project_path("tests/golden/qwen3")});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("query and key heads normed"));
  EXPECT_THAT(ran.out, HasSubstr("tokenizer   none"));
}

TEST(Inspect, ShowsWhatAnAdapterIs) {
  const Ran ran = run({"inspect", project_path("tests/golden/llama/adapter"), "--tensors"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("rank        4"));
  EXPECT_THAT(ran.out, HasSubstr("alpha 8 / rank"));
  EXPECT_THAT(ran.out, HasSubstr("q_proj.lora_A.weight"));
}

TEST(Inspect, NamesWhatIsNotThere) {
  const Ran ran = run({"inspect", "/nowhere/model"});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.err, HasSubstr("/nowhere/model"));
}

}  // namespace
}  // namespace slideway
