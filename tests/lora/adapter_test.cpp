#include "lora/adapter.h"

#include <gtest/gtest.h>

#include <limits>

#include "lora/small_model.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace slideway {
namespace {

const char* const kQ0 = "model.layers.0.self_attn.q_proj";
const char* const kQ1 = "model.layers.1.self_attn.q_proj";
const char* const kConfig = R"({"peft_type":"LORA","r":2,"lora_alpha":4,"target_modules":["q_proj"]})";

class AdapterTest : public testing::Test {
 protected:
  Adapter load(const std::string& config, const std::vector<TestTensor>& tensors) {
    write_adapter(folder_.path(), config, tensors);
    return load_adapter(folder_.path(), layout_);
  }
  void expect_refused(const std::vector<TestTensor>& tensors, std::initializer_list<std::string> texts,
                      ErrorKind kind = ErrorKind::corrupt) {
    expect_error(kind, texts, [&] { load(kConfig, tensors); });
  }
  std::vector<TestTensor> both() const { return module_tensors(kQ0, 8, 8, 2) + module_tensors(kQ1, 8, 8, 2); }

  TemporaryFolder folder_;
  ModelConfig config_ = small_config();
  ModelLayout layout_ = make_layout(config_);
};

TEST_F(AdapterTest, FindsAPlaceForEveryTensor) {
  const Adapter adapter = load(kConfig, both());
  ASSERT_EQ(adapter.modules().size(), 2u);
  ASSERT_EQ(adapter.modules_of(1).size(), 1u);
  const AdapterModule& q1 = adapter.modules_of(1)[0];
  EXPECT_EQ(q1.name, kQ1);
  EXPECT_EQ(q1.role, Role::q_proj);
  EXPECT_EQ(q1.scale, 2.0f);
  EXPECT_EQ(q1.rank(), 2);
  EXPECT_EQ(q1.a.f32()[1], 0.5f);
  EXPECT_EQ(shape_text(q1.b), "[8, 2]");
  EXPECT_EQ(adapter.parameters(), 2 * (2 * 8 + 8 * 2));
}

TEST_F(AdapterTest, KeepsBfloat16AndWidensHalf) {
  const Adapter adapter =
      load(kConfig, module_tensors(kQ0, 8, 8, 2, "BF16") + module_tensors(kQ1, 8, 8, 2, "F16"));
  EXPECT_EQ(adapter.modules_of(0)[0].a.dtype(), DType::bf16);
  EXPECT_EQ(to_float(adapter.modules_of(0)[0].a.bf16()[2]), 0.75f);
  EXPECT_EQ(adapter.modules_of(1)[0].a.dtype(), DType::f32);
  EXPECT_EQ(adapter.modules_of(1)[0].a.f32()[2], 0.75f);
}

TEST_F(AdapterTest, TakesEachModulesOwnRank) {
  const Adapter adapter = load(R"({"peft_type":"LORA","r":2,"lora_alpha":4,"use_rslora":true,
    "target_modules":["q_proj"],"rank_pattern":{"layers.1.self_attn.q_proj":4}})",
                               module_tensors(kQ0, 8, 8, 2) + module_tensors(kQ1, 8, 8, 4));
  EXPECT_EQ(adapter.modules_of(1)[0].rank(), 4);
  EXPECT_EQ(adapter.modules_of(1)[0].scale, 2.0f);
}

TEST_F(AdapterTest, ReadsNamesThatCarryTheAdaptersNameOrNoPrefix) {
  auto tensors = both();
  tensors[0].name = "base_model.model." + std::string(kQ0) + ".lora_A.default.weight";
  tensors[1].name = std::string(kQ0) + ".lora_B.weight";
  EXPECT_EQ(load(kConfig, tensors).modules().size(), 2u);
}

TEST_F(AdapterTest, HasADigestOfWhatItComputes) {
  const std::string digest = load(kConfig, both()).digest();
  EXPECT_EQ(digest.size(), 64u);
  EXPECT_EQ(load(kConfig, module_tensors(kQ1, 8, 8, 2) + module_tensors(kQ0, 8, 8, 2)).digest(), digest)
      << "the order of the file is no part of it";
  EXPECT_EQ(
      load(R"({"peft_type":"LORA","r":2,"lora_alpha":4,"lora_dropout":0.5,"target_modules":["q_proj"]})",
           both())
          .digest(),
      digest);
  EXPECT_NE(load(R"({"peft_type":"LORA","r":2,"lora_alpha":8,"target_modules":["q_proj"]})", both()).digest(),
            digest);
  auto other = both();
  other[3].values.assign(16, 0.5f);
  EXPECT_NE(load(kConfig, other).digest(), digest);
}

TEST_F(AdapterTest, RefusesTensorsThatFitNothingAndNamesThem) {
  const std::string deep = "model.language_model.layers.0.self_attn.q_proj", q0 = kQ0;
  expect_refused(
      module_tensors(deep, 8, 8, 2),
      {"base_model.model." + deep + ".lora_A.weight", "base_model.model." + deep + ".lora_B.weight"},
      ErrorKind::unsupported);
  expect_refused(both() + module_tensors("lm_head", 16, 8, 2), {": base_model.model.lm_head.lora_A.weight "});
  expect_refused(both() + std::vector<TestTensor>{{"base_model.model." + q0 + ".weight", "F32", {8, 8}, {}}},
                 {q0 + ".weight"}, ErrorKind::unsupported);
}

TEST_F(AdapterTest, RefusesAFileWithoutTensors) {
  expect_refused({}, {"no LoRA tensors"});
}

TEST_F(AdapterTest, RefusesAnEmptyTensorByNameAndShape) {
  auto tensors = both();
  tensors[0].shape = {0};
  expect_refused(tensors, {tensors[0].name, "[0]"});
}

TEST_F(AdapterTest, RefusesAnALackingItsB) {
  auto tensors = both();
  tensors.pop_back();
  expect_refused(tensors, {std::string(kQ1) + ".lora_A.weight has no lora_B"});
}

TEST_F(AdapterTest, RefusesShapesOfAnotherModelOrRank) {
  expect_refused(module_tensors(kQ0, 8, 8, 2) + module_tensors(kQ1, 8, 16, 2),
                 {"should be [2, 8]", "found [2, 16]"});
  expect_refused(module_tensors(kQ0, 8, 8, 2) + module_tensors(kQ1, 8, 8, 4), {"found [4, 8]"});
}

TEST_F(AdapterTest, RefusesModulesThatTheConfigDoesNotName) {
  expect_refused(both() + module_tensors("model.layers.0.mlp.down_proj", 8, 12, 2),
                 {"down_proj.lora_A.weight", "target_modules"});
}

TEST_F(AdapterTest, RefusesWhenANamedModuleHasNoTensors) {
  expect_refused(module_tensors(kQ0, 8, 8, 2), {kQ1});
}

TEST_F(AdapterTest, RefusesNumbersThatAreNotFinite) {
  for (const char* dtype : {"F32", "BF16", "F16"}) {
    auto tensors = module_tensors(kQ0, 8, 8, 2) + module_tensors(kQ1, 8, 8, 2, dtype);
    tensors[3].values.assign(16, 1.0f);
    tensors[3].values[5] = std::numeric_limits<float>::quiet_NaN();
    expect_refused(tensors, {tensors[3].name, "element 5"});
  }
}

TEST_F(AdapterTest, SaysWhatIsMissingInAFolder) {
  const auto load_it = [&] { load_adapter(folder_.path(), layout_); };
  expect_error(ErrorKind::not_found, {"adapter_config.json"}, load_it);
  write_text_atomically(folder_ / "adapter_config.json", kConfig);
  expect_error(ErrorKind::not_found, {"adapter_model.safetensors"}, load_it);
  write_text_atomically(folder_ / "adapter_model.bin", "x");
  expect_error(ErrorKind::unsupported, {"pickle"}, load_it);
}

}  // namespace
}  // namespace slideway
