#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/program.h"

namespace slideway {
namespace {

using testing::HasSubstr;

TEST(Program, ShowsItsVersionAndCommands) {
  const Ran version = run({"--version"});
  EXPECT_EQ(version.exit_code, 0);
  EXPECT_THAT(version.out, testing::MatchesRegex("slideway [0-9.]+\n"));
  const Ran help = run({"--help"});
  EXPECT_EQ(help.exit_code, 0);
  EXPECT_THAT(help.out, HasSubstr("generate"));
  EXPECT_THAT(help.out, HasSubstr("inspect"));
}

TEST(Program, EndsWith2WhenUsedWrongly) {
  for (const auto& [arguments, text] : std::vector<std::pair<std::vector<std::string>, std::string>>{
           {{}, "subcommand"},
           {{"fly"}, "fly"},
           {{"generate"}, "MODEL"},
           {{"generate", "model", "hi", "--colour", "red"}, "--colour"},
           {{"generate", "model", "hi", "--max-tokens", "0"}, "--max-tokens"},
           {{"generate", "model", "hi", "--temperature", "hot"}, "--temperature"},
           {{"generate", "model", "hi", "--temperature", "-1"}, "temperature"},
           {{"generate", "model", "hi", "--dtype", "int3"}, "int3"}}) {
    const Ran ran = run(arguments);
    EXPECT_EQ(ran.exit_code, 2) << ran.err;
    EXPECT_THAT(ran.err + ran.out, HasSubstr(text));
  }
}

}  // namespace
}  // namespace slideway
