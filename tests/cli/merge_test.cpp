#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/program.h"
#include "cli/tiny_model.h"

namespace slideway {
namespace {

TEST(MergeCommand, MakesAModelThatAnswersAsTheAdapterDoes) {
  const TinyModel model;
  const std::string adapter = model.text() + "/adapter", out = model.text() + "-merged";
  const Ran ran = run({"merge", model.text(), adapter, out, "--dtype", "float32"});
  ASSERT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.out, "");
  const auto answer = [](std::vector<std::string> arguments) {
    for (const char* more : {"hello", "--max-tokens", "12", "--ignore-eos", "--dtype", "float32"})
      arguments.push_back(more);
    return run(arguments).out;
  };
  const std::string merged = answer({"generate", out});
  EXPECT_EQ(merged, answer({"generate", model.text(), "--adapter", adapter}));
  EXPECT_NE(merged, answer({"generate", model.text()}));
}

TEST(MergeCommand, RefusesATypeItCannotWrite) {
  const TinyModel model;
  const Ran ran =
      run({"merge", model.text(), model.text() + "/adapter", model.text() + "-out", "--dtype", "int4"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, testing::HasSubstr("int4"));
}

}  // namespace
}  // namespace slideway
