// What an adapter may hold beside A and B: DoRA's magnitudes, biases, and changes at the embedding and the head.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "lora/merge.h"
#include "lora/small_model.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace slideway {
namespace {

const char* const kQ0 = "model.layers.0.self_attn.q_proj";
const std::string kEmbed = "base_model.model.model.embed_tokens", kHead = "base_model.model.lm_head";

class AdapterKindsTest : public testing::Test {
 protected:
  // The base's weights: element i of every tensor is 0.125 · (i mod 5 + 1).
  static void base(const TensorSpec&, std::span<float> out) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = 0.125f * float(i % 5 + 1);
  }
  Adapter load(const std::string& fields, const std::vector<TestTensor>& tensors) {
    write_adapter(folder_.path(), R"({"peft_type":"LORA","r":2,"lora_alpha":4,)" + fields + "}", tensors);
    return load_adapter(folder_.path(), layout_, base);
  }
  void expect_refused(const std::string& fields, const std::vector<TestTensor>& tensors,
                      std::initializer_list<std::string> texts, ErrorKind kind = ErrorKind::corrupt) {
    expect_error(kind, texts, [&] { load(fields, tensors); });
  }
  static std::vector<TestTensor> one(const std::string& name, std::vector<std::int64_t> shape,
                                     std::vector<float> values = {}) {
    return {{name, "F32", std::move(shape), std::move(values)}};
  }
  static std::vector<TestTensor> q0() { return module_tensors(kQ0, 8, 8, 2); }
  static std::string name(const char* ending) { return "base_model.model." + std::string(kQ0) + ending; }
  std::vector<float> numbers(const TensorSpec& spec) const {
    std::vector<float> out(std::size_t(spec.elements()));
    base(spec, out);
    return out;
  }

  static constexpr const char* kTarget = R"("target_modules":["layers.0.self_attn.q_proj"])";
  std::string with(const std::string& more) const { return kTarget + ("," + more); }
  TemporaryFolder folder_;
  ModelConfig config_ = small_config();
  ModelLayout layout_ = make_layout(config_);
  Threads threads_{1};
};

// W = [3 4], A = [1 0], B = [0], magnitude 10: y = 10 / 5 · W x.
TEST_F(AdapterKindsTest, DoraScalesEachOutputToItsMagnitude) {
  std::vector<TestTensor> tensors = q0();
  tensors[1].values.assign(16, 0.0f);  // B
  tensors.push_back(one(name(".lora_magnitude_vector"), {8}, std::vector<float>(8, 10.0f))[0]);
  write_adapter(folder_.path(),
                R"({"peft_type":"LORA","r":2,"lora_alpha":4,"use_dora":true,)" + std::string(kTarget) + "}",
                tensors);
  const Adapter adapter = load_adapter(folder_.path(), layout_, [](const TensorSpec&, std::span<float> out) {
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = i % 8 == 0 ? 3.0f : i % 8 == 5 ? 4.0f : 0.0f;
  });
  const AdapterModule& module = adapter.modules_of(0)[0];
  for (int n = 0; n < 8; ++n) {
    EXPECT_FLOAT_EQ(module.factor.f32()[n], 2.0f);
    EXPECT_FLOAT_EQ(module.shift.f32()[n], 0.0f);
  }
}

TEST_F(AdapterKindsTest, DoraMergesIntoRowsOfItsMagnitude) {
  const std::vector<float> magnitude = {1, 2, 3, 4, 5, 6, 7, 8};
  const Adapter adapter =
      load(with(R"("use_dora":true)"), q0() + one(name(".lora_magnitude_vector"), {8}, magnitude));
  const TensorSpec& spec = *layout_.layers[0].find(Role::q_proj);
  std::vector<float> weight = numbers(spec);
  merge_adapter(adapter, spec, weight, threads_);
  for (std::size_t n = 0; n < 8; ++n) {
    double sum = 0;
    for (std::size_t c = 0; c < 8; ++c) sum += double(weight[n * 8 + c]) * weight[n * 8 + c];
    EXPECT_NEAR(std::sqrt(sum), magnitude[n], 1e-5);
  }
}

TEST_F(AdapterKindsTest, DoraAndItsMagnitudesComeTogether) {
  const auto magnitude = one(name(".lora_magnitude_vector"), {8});
  expect_refused(kTarget, q0() + magnitude, {"lora_magnitude_vector", "use_dora"});
  expect_refused(with(R"("use_dora":true)"), q0(), {"use_dora", "lora_magnitude_vector", kQ0});
  expect_refused(with(R"("use_dora":true)"), q0() + one(name(".lora_magnitude_vector"), {7}),
                 {"[8]", "found [7]"});
}

TEST_F(AdapterKindsTest, BiasesNeedABaseThatHasThem) {
  expect_refused(with(R"("bias":"all")"), q0() + one(name(".bias"), {8}), {"q_proj.bias"},
                 ErrorKind::unsupported);
  expect_refused(with(R"("lora_bias":true)"), q0() + one(name(".lora_B.bias"), {8}), {"lora_bias", kQ0},
                 ErrorKind::unsupported);
}

TEST_F(AdapterKindsTest, BiasesTakeThePlaceOfTheBases) {
  config_.qkv_bias = true;
  layout_ = make_layout(config_);
  const Adapter adapter = load(with(R"("bias":"lora_only")"), q0() + one(name(".base_layer.bias"), {8}));
  const TensorSpec& spec = *layout_.layers[0].find(Role::q_bias);
  std::vector<float> bias = numbers(spec);
  merge_adapter(adapter, spec, bias, threads_);
  for (std::size_t n = 0; n < 8; ++n) EXPECT_FLOAT_EQ(bias[n], 0.25f * float(n % 7 + 1));
  expect_refused(with(R"("bias":"lora_only")"), q0(), {std::string(kQ0) + ".bias"});
  expect_refused(kTarget, q0() + one(name(".base_layer.bias"), {8}), {"\"bias\": \"none\""});
}

TEST_F(AdapterKindsTest, SavedWeightsTakeThePlaceOfEmbeddingAndHead) {
  const std::string fields = with(R"("modules_to_save":["embed_tokens","lm_head"])");
  const Adapter adapter = load(fields, q0() + one(kEmbed + ".weight", {16, 8}) +
                                           one(kHead + ".modules_to_save.default.weight", {16, 8}));
  EXPECT_EQ(adapter.embedding().weight.f32()[1], 0.5f);
  EXPECT_TRUE(adapter.head().weight);
  expect_refused(fields, q0() + one(kEmbed + ".weight", {16, 8}), {"lm_head.weight"});
  expect_refused(fields, q0() + one(kEmbed + ".weight", {18, 8}) + one(kHead + ".weight", {16, 8}),
                 {"resized vocabulary", "18 tokens", "16"}, ErrorKind::unsupported);
}

TEST_F(AdapterKindsTest, OtherSavedModulesAreRefusedByName) {
  expect_refused(with(R"("modules_to_save":["norm"])"), q0(), {"modules_to_save", "norm"},
                 ErrorKind::unsupported);
  expect_refused(with(R"("modules_to_save":["norm"])"), q0() + one("base_model.model.model.norm.weight", {8}),
                 {"model.norm.weight"}, ErrorKind::unsupported);
}

TEST_F(AdapterKindsTest, CopiesOfTheBasesEmbeddingMustBeCopies) {
  const std::string fields = R"("target_modules":["embed_tokens"])";
  const auto lora = one(kEmbed + ".lora_embedding_A", {2, 16}) + one(kEmbed + ".lora_embedding_B", {8, 2});
  const Adapter adapter = load(fields, lora + one(kEmbed + ".base_layer.weight", {16, 8},
                                                  numbers(*layout_.embed.find(Role::embed_tokens))));
  EXPECT_EQ(shape_text(adapter.embedding().module->a), "[16, 2]");
  EXPECT_FALSE(adapter.embedding().weight);
  expect_refused(fields, lora + one(kEmbed + ".base_layer.weight", {16, 8}),
                 {"should be a copy of the base's"}, ErrorKind::unsupported);
}

TEST_F(AdapterKindsTest, TrainedTokensHaveARowEach) {
  const std::string delta = kEmbed + ".token_adapter.trainable_tokens_delta";
  const std::string fields = with(R"("trainable_token_indices":[3,7])");
  const Adapter adapter = load(fields, q0() + one(delta, {2, 8}));
  EXPECT_EQ(adapter.embedding().tokens, (std::vector<std::int32_t>{3, 7}));
  EXPECT_FALSE(adapter.head()) << "the head is a tensor of its own";
  expect_refused(fields, q0() + one(delta, {3, 8}), {"[2, 8]", "[3, 8]"});
  expect_refused(fields, q0(), {"embed_tokens.trainable_tokens_delta"});
  expect_refused(kTarget, q0() + one(delta, {2, 8}), {"trainable_token_indices"});
  expect_refused(with(R"("trainable_token_indices":[3,16])"), q0() + one(delta, {2, 8}),
                 {"16", "vocabulary"});
}

TEST_F(AdapterKindsTest, WhereTiedTrainedTokensAreTheHeadsToo) {
  config_.tie_word_embeddings = true;
  layout_ = make_layout(config_);
  const Adapter adapter = load(with(R"("trainable_token_indices":[3,7])"),
                               q0() + one(kEmbed + ".token_adapter.trainable_tokens_delta", {2, 8}));
  EXPECT_EQ(adapter.head().tokens, adapter.embedding().tokens);
  check_mergeable(adapter, layout_);
  const Adapter head = load(R"("target_modules":["lm_head"])", module_tensors("lm_head", 16, 8, 2));
  expect_error(ErrorKind::unsupported, {"tie_word_embeddings", "lm_head"},
               [&] { check_mergeable(head, layout_); });
}

TEST_F(AdapterKindsTest, EveryKindChangesTheDigest) {
  std::set<std::string> digests = {load(kTarget, q0()).digest()};
  const std::string delta = kEmbed + ".token_adapter.trainable_tokens_delta";
  for (const float value : {1.0f, 2.0f}) {
    digests.insert(load(with(R"("use_dora":true)"),
                        q0() + one(name(".lora_magnitude_vector"), {8}, std::vector<float>(8, value)))
                       .digest());
    digests.insert(load(with(R"("modules_to_save":["lm_head"])"),
                        q0() + one(kHead + ".weight", {16, 8}, std::vector<float>(128, value)))
                       .digest());
    for (const char* tokens : {"[3]", "[4]"})
      digests.insert(load(with(R"("trainable_token_indices":)" + std::string(tokens)),
                          q0() + one(delta, {1, 8}, std::vector<float>(8, value)))
                         .digest());
  }
  EXPECT_EQ(digests.size(), 9u);
}

}  // namespace
}  // namespace slideway
