#include "lora/adapter_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "lora/small_model.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace slideway {
namespace {

using testing::HasSubstr;

AdapterConfig parse(const std::string& json) {
  return parse_adapter_config(json, "adapter_config.json");
}
void expect_refused(const std::string& json, ErrorKind kind, std::initializer_list<std::string> texts) {
  expect_error(kind, texts, [&] { parse(json); });
}

TEST(AdapterConfig, ScalesByTheRootOfTheRankWhenAsked) {
  const auto config =
      parse(R"({"peft_type":"LORA","r":64,"lora_alpha":16,"use_rslora":true,"target_modules":["q_proj"]})");
  EXPECT_EQ(scale_of(config, "model.layers.0.self_attn.q_proj"), 2.0f);
}

TEST(AdapterConfig, TakesTheFirstPatternThatMatchesTheEndOfAPath) {
  const auto config = parse(R"({"peft_type":"LORA","r":8,"lora_alpha":16,"target_modules":["q_proj","v_proj"],
    "rank_pattern":{"layers.0.self_attn.q_proj":4,"q_proj":2},"alpha_pattern":{".*\\.1\\..*v_proj":32}})");
  EXPECT_EQ(rank_of(config, "model.layers.0.self_attn.q_proj"), 4);
  EXPECT_EQ(rank_of(config, "model.layers.1.self_attn.q_proj"), 2);
  EXPECT_EQ(rank_of(config, "model.layers.1.self_attn.v_proj"), 8);
  EXPECT_EQ(scale_of(config, "model.layers.0.self_attn.q_proj"), 4.0f);
  EXPECT_EQ(scale_of(config, "model.layers.1.self_attn.v_proj"), 4.0f);
}

TEST(AdapterConfig, DoesNotTakeAPatternForTheEndOfALongerName) {
  const auto config =
      parse(R"({"peft_type":"LORA","r":8,"target_modules":["proj"],"rank_pattern":{"proj":4}})");
  EXPECT_EQ(rank_of(config, "model.layers.0.self_attn.q_proj"), 8);
  EXPECT_FALSE(selects(config, "model.layers.0.self_attn.q_proj"));
}

TEST(AdapterConfig, TakesAStringOfModulesForARegularExpressionOfTheWholePath) {
  const auto config =
      parse(R"({"peft_type":"LORA","target_modules":"model\\.layers\\.[01]\\.self_attn\\.(q|v)_proj"})");
  EXPECT_TRUE(selects(config, "model.layers.1.self_attn.v_proj"));
  EXPECT_FALSE(selects(config, "model.layers.2.self_attn.v_proj"));
  EXPECT_FALSE(selects(config, "model.layers.1.self_attn.k_proj"));
}

TEST(AdapterConfig, AppliesExclusionsAndChosenLayers) {
  const auto config =
      parse(R"({"peft_type":"LORA","target_modules":"all-linear","exclude_modules":["down_proj"],
    "layers_to_transform":[1,11]})");
  EXPECT_TRUE(selects(config, "model.layers.1.mlp.up_proj"));
  EXPECT_TRUE(selects(config, "model.layers.11.mlp.up_proj"));
  EXPECT_FALSE(selects(config, "model.layers.0.mlp.up_proj"));
  EXPECT_FALSE(selects(config, "model.layers.1.mlp.down_proj"));
  const auto single = parse(R"({"peft_type":"LORA","target_modules":["up_proj"],"layers_to_transform":3,
    "layers_pattern":"layers"})");
  EXPECT_TRUE(selects(single, "model.layers.3.mlp.up_proj"));
  EXPECT_FALSE(selects(single, "model.layers.4.mlp.up_proj"));
}

TEST(AdapterConfig, WarnsOnceAndOnlyOfUnknownKeysThatSaySomething) {
  testing::internal::CaptureStderr();
  parse(R"({"peft_type":"LORA","r":4,"lora_alpha":8,"bias":"none",
    "target_modules":"model\\.layers\\.[01]\\.self_attn\\.(q|v)_proj","eva_config":null,"corda_config":null,
    "exclude_modules":null,"lora_bias":false,"modules_to_save":null,"rank_pattern":{},"zz_empty":[],
    "zz_future":{"on":true}})");
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr("zz_future"));
  EXPECT_THAT(said, testing::Not(HasSubstr("zz_empty")));
  EXPECT_THAT(said, testing::Not(HasSubstr("eva_config")));
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1);
}

TEST(AdapterConfig, RefusesByNameWhatItDoesNotApply) {
  const std::string head = R"({"peft_type":"LORA","target_modules":["q_proj"],)";
  for (const char* field :
       {R"("ensure_weight_tying":true)", R"("bias":"some")", R"("layer_replication":[[0,4],[2,5]])",
        R"("use_qalora":true)", R"("target_parameters":["experts"])", R"("alora_invocation_tokens":[5,6])",
        R"("use_new_trick":true)", R"("init_lora_weights":"pissa_niter_4")", R"("task_type":"SEQ_CLS")"}) {
    const std::string name(field + 1, std::strchr(field + 1, '"'));
    expect_refused(head + field + "}", ErrorKind::unsupported, {name, "adapter_config.json"});
  }
  expect_refused(R"({"peft_type":"IA3"})", ErrorKind::unsupported, {"IA3"});
  expect_refused(R"({"r":8})", ErrorKind::unsupported, {"peft_type"});
}

TEST(AdapterConfig, RefusesFieldsOfTheWrongKind) {
  const auto wrong = [](const std::string& fields, const std::string& text) {
    expect_refused(R"({"peft_type":"LORA",)" + fields + "}", ErrorKind::corrupt, {text});
  };
  wrong(R"("r":0)", "rank must be at least 1, found 0");
  wrong(R"("r":8.5)", "whole number");
  wrong(R"("use_rslora":"yes")", "use_rslora");
  wrong(R"("rank_pattern":{"q_proj":0})", "rank_pattern");
  wrong(R"("rank_pattern":{"(q_proj":4})", "regular expression");
  wrong(R"("target_modules":["q_proj",3])", "target_modules");
  expect_refused("[]", ErrorKind::corrupt, {"not a JSON object"});
  expect_refused("{", ErrorKind::corrupt, {"not a JSON object"});
}

TEST(AdapterConfig, GivesUpOnAPatternThatWouldRunForever) {
  const auto config = parse(R"({"peft_type":"LORA","target_modules":"(.)*(.)*(.)*(.)*(.)*[A-Z]"})");
  expect_error(ErrorKind::corrupt, {"too long"},
               [&] { selects(config, "model.layers.10.self_attn.q_proj"); });
}

TEST(AdapterConfig, ComesBackFromItsJson) {
  AdapterConfig config{.r = 4, .lora_alpha = 1.5, .use_rslora = true, .lora_dropout = 0.25};
  config.rank_pattern = {{"q_proj", 2}};
  config.alpha_pattern = {{"v_proj", 3}};
  config.target_modules = choose_modules(std::vector<std::string>{"q_proj", "v_proj"});
  config.exclude_modules = choose_modules(std::string(".*\\.0\\..*"));
  config.layers_to_transform = {0, 1};
  config.base_model_name_or_path = "org/base";
  const AdapterConfig back = parse(adapter_config_json(config));
  EXPECT_EQ(back.r, 4);
  EXPECT_EQ(back.lora_alpha, 1.5);
  EXPECT_TRUE(back.use_rslora);
  EXPECT_EQ(back.lora_dropout, 0.25);
  EXPECT_EQ(back.rank_pattern, config.rank_pattern);
  EXPECT_EQ(back.alpha_pattern, config.alpha_pattern);
  EXPECT_EQ(back.target_modules, config.target_modules);
  EXPECT_EQ(back.exclude_modules, config.exclude_modules);
  EXPECT_EQ(back.layers_to_transform, config.layers_to_transform);
  EXPECT_EQ(back.base_model_name_or_path, "org/base");
}

}  // namespace
}  // namespace slideway
