#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/program.h"
#include "cli/tiny_model.h"

namespace slideway {
namespace {

using testing::HasSubstr;

class GenerateTest : public testing::Test {
 protected:
  Ran generate(std::vector<std::string> more, const std::string& input = "") const {
    std::vector<std::string> arguments = {"generate", model_.text(), "--max-tokens", "12"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, input);
  }
  void expect_failed(const Ran& ran, int exit_code, const std::string& text) const {
    EXPECT_EQ(ran.exit_code, exit_code);
    EXPECT_THAT(ran.err, HasSubstr(text));
    EXPECT_EQ(ran.out, "");
  }
  TinyModel model_;
};

TEST_F(GenerateTest, PrintsTheAnswerAloneAndEndsItsLine) {
  const Ran ran = generate({"hello", "--ignore-eos"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_EQ(ran.err, "") << "it is no terminal";
  ASSERT_FALSE(ran.out.empty());
  EXPECT_EQ(ran.out.back(), '\n');
  EXPECT_GT(ran.out.size(), 6u);
}

TEST_F(GenerateTest, ReadsThePromptFromStandardInput) {
  EXPECT_EQ(generate({"-"}, "hello").out, generate({"hello"}).out);
  EXPECT_NE(generate({"-"}, "hello").out, generate({"-"}, "other").out);
}

TEST_F(GenerateTest, ChangesTheAnswerByAnAdapter) {
  EXPECT_NE(generate({"hello", "--ignore-eos", "--adapter", model_.text() + "/adapter"}).out,
            generate({"hello", "--ignore-eos"}).out);
}

TEST_F(GenerateTest, RepeatsADrawUnderItsSeed) {
  const auto draw = [&](const char* seed) {
    return generate({"hello", "--ignore-eos", "--temperature", "1", "--seed", seed, "--threads", "1"}).out;
  };
  EXPECT_EQ(draw("5"), draw("5"));
  EXPECT_NE(draw("5"), draw("6"));
}

TEST_F(GenerateTest, SaysHowFastItWasWhenAsked) {
  const Ran ran = generate({"hello", "--verbose", "--ignore-eos"});
  EXPECT_THAT(ran.err, HasSubstr("answer 12 tokens"));
  EXPECT_THAT(ran.err, HasSubstr("GB/s"));
}

TEST_F(GenerateTest, AppliesTheChatTemplateUnlessRaw) {
  write_text_atomically(model_.path() / "chat_template.jinja",
                        "{% for m in messages %}{{ m.role }}:{{ m.content }}|{% endfor %}");
  const std::string chat = generate({"hello", "--ignore-eos"}).out;
  EXPECT_EQ(chat, generate({"user:hello|", "--raw", "--ignore-eos"}).out);
  EXPECT_EQ(generate({"hello", "--system", "be brief", "--ignore-eos"}).out,
            generate({"system:be brief|user:hello|", "--raw", "--ignore-eos"}).out);
  expect_failed(generate({"hello", "--system", "be brief", "--raw"}), 2, "--system");
}

TEST_F(GenerateTest, BeginsAnEmptyPromptWithBosWhereThereIsOne) {
  expect_failed(generate({""}), 2, "no tokens");
  write_text_atomically(model_.path() / "tokenizer_config.json",
                        R"({"eos_token":"<end>","bos_token":"<1>"})");
  const Ran ran = generate({"", "--ignore-eos"});
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_NE(ran.out, "\n");
}

TEST_F(GenerateTest, NamesAModelThatIsNotThere) {
  expect_failed(run({"generate", "/nowhere/model", "hi"}), 1, "/nowhere/model");
}

TEST_F(GenerateTest, NamesAFolderThatHoldsNoModel) {
  const TemporaryFolder empty;
  expect_failed(run({"generate", empty.path(), "hi"}), 1, empty.path());
}

TEST_F(GenerateTest, NamesATruncatedFile) {
  fs::resize_file(model_.path() / "model.safetensors", 50'000);
  expect_failed(generate({"hello"}), 1, "model.safetensors");
}

TEST_F(GenerateTest, NamesWhatIsWrongWithAnAdapter) {
  expect_failed(generate({"hello", "--adapter", "/nowhere/adapter"}), 1, "adapter_config.json");
  const fs::path adapter = model_.path() / "adapter";
  write_text_atomically(adapter / "adapter_config.json", R"({"peft_type":"LORA","r":4,"use_qalora":true})");
  expect_failed(generate({"hello", "--adapter", adapter}), 1, "use_qalora");
}

TEST_F(GenerateTest, RefusesMoreThanTheContextHolds) {
  expect_failed(run({"generate", model_.text(), std::string(250, 'a'), "--max-tokens", "20"}), 2,
                "context is 256");
}

}  // namespace
}  // namespace slideway
