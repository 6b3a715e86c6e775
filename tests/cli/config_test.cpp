#include "cli/config.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "support/expect_error.h"

namespace slideway {
namespace {

const char* const kSmallest = "base_model: m\ndatasets: d.jsonl\noutput_dir: out\n";

TrainOptions parse(const std::string& more, const std::vector<std::string>& overrides = {}) {
  return parse_train_options(kSmallest + more, "c.yml", overrides);
}

std::string refusal(const std::string& more, const std::vector<std::string>& overrides = {}) {
  try {
    parse(more, overrides);
  } catch (const Error& error) {
    EXPECT_TRUE(error.kind() == ErrorKind::invalid_input || error.kind() == ErrorKind::unsupported);
    return error.what();
  }
  return "";
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(Config, ReadsAxolotlAndHuggingFaceNamesForTheSameKey) {
  EXPECT_EQ(parse("per_device_train_batch_size: 7\n").micro_batch_size, 7);
  EXPECT_EQ(parse("cutoff_len: 99\nlr: 2e-4\nlr_scheduler_type: linear\n").sequence_len, 99);
  EXPECT_DOUBLE_EQ(parse("lr: 2e-4\n").learning_rate, 2e-4);
  EXPECT_EQ(parse("adapter: lora\nlora_target_modules: [q_proj, v_proj]\n").lora_target_modules.size(), 2u);
  EXPECT_EQ(parse("gpu_memory: 24GiB\n").gpu_memory, std::uint64_t(24) << 30);
  EXPECT_EQ(parse("bf16: auto\n").compute, ComputeType::automatic);
  EXPECT_EQ(parse_train_options(
                "base_model: m\noutput_dir: o\ndatasets:\n  - path: a\n    type: chat_template\n  - b\n", "c")
                .datasets,
            (std::vector<std::string>{"a", "b"}));
}

TEST(Config, AWordWinsOverTheEnvironmentAndThatOverTheFile) {
  ASSERT_EQ(setenv("SLIDEWAY_LORA_R", "5", 1), 0);
  EXPECT_EQ(parse("lora_r: 4\n").lora_r, 5);
  EXPECT_EQ(parse("lora_r: 4\n", {"lora_r=6"}).lora_r, 6);
  EXPECT_EQ(parse("lora_r: 4\n", {"--lora-rank=6"}).lora_r, 6);
  unsetenv("SLIDEWAY_LORA_R");
}

TEST(Config, NamesTheNearestKeyForAnUnknownOne) {
  const std::string text = refusal("learning_rat: 1\n");
  EXPECT_TRUE(contains(text, "c.yml:4")) << text;
  EXPECT_TRUE(contains(text, "did you mean 'learning_rate'")) << text;
  EXPECT_TRUE(contains(refusal("", {"max_stepz=3"}), "did you mean 'max_steps'"));
}

TEST(Config, RefusesKeysGivenTwiceMergeKeysAndWrongTypes) {
  EXPECT_TRUE(contains(refusal("lora_r: 1\nlora_r: 2\n"), "given twice"));
  EXPECT_TRUE(contains(refusal("lora_r: 1\nlora_rank: 1\n"), "before as 'lora_r'"));
  EXPECT_TRUE(contains(refusal("x: &x {a: 1}\n"), "unknown key 'x'"));
  EXPECT_TRUE(contains(refusal("<<: {lora_r: 2}\n"), "merge keys"));
  EXPECT_TRUE(contains(refusal("lora_r: four\n"), "c.yml:4: lora_r: expected a whole number, found 'four'"));
  EXPECT_TRUE(contains(refusal("lora_r: 4.5\n"), "whole number"));
  EXPECT_TRUE(contains(refusal("lora_r: [4]\n"), "found a list"));
  EXPECT_TRUE(contains(refusal("lr_scheduler: wsd\n"), "one of constant"));
  EXPECT_TRUE(contains(refusal("load_in_4bit: true\n"), "not supported"));
  EXPECT_TRUE(contains(refusal("a: [\n"), "not YAML"));
}

TEST(Config, RefusesValuesThatCannotTrain) {
  EXPECT_TRUE(contains(refusal("micro_batch_size: 0\n"), "at least 1"));
  EXPECT_TRUE(contains(refusal("max_grad_norm: -1\n"), "0: no clipping"));
  EXPECT_TRUE(contains(refusal("learning_rate: .nan\n"), "learning_rate"));
  EXPECT_TRUE(contains(refusal("warmup_steps: 3\nwarmup_ratio: 0.1\n"), "give one"));
  EXPECT_TRUE(contains(refusal("lora_target_modules: [q_proj]\n"), "adapter: lora"));
}

TEST(Config, TheResolvedConfigurationReadsBackToItself) {
  const TrainOptions options = parse(
      "adapter: lora\nlora_target_modules: [q_proj]\nlearning_rate: 0.1\nram: 3GB\nseed: "
      "18446744073709551615\n");
  const std::string yaml = config_yaml(options);
  EXPECT_EQ(config_yaml(parse_train_options(yaml, "resolved")), yaml);
  EXPECT_TRUE(contains(yaml, "learning_rate: 0.1\n")) << yaml;
}

}  // namespace
}  // namespace slideway
