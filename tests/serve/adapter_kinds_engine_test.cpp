// Adapters that change more than projections, side by side in one engine.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "lora/small_model.h"
#include "serve/engine.h"
#include "support/golden.h"
#include "support/temporary_folder.h"

namespace slideway {
namespace {

using Tensors = std::vector<TestTensor>;

class AdapterKindsEngineTest : public testing::Test {
 protected:
  Engine make_engine(std::int64_t sequences, std::int64_t chunk) {
    return Engine(*device_, threads_, *files_,
                  {.weights = DType::f32,
                   .context = 64,
                   .max_sequences = sequences,
                   .chunk = chunk,
                   .max_lora_rank = 4});
  }

  TestTensor random(const std::string& name, std::vector<std::int64_t> shape) {
    std::int64_t n = 1;
    for (const auto size : shape) n *= size;
    std::vector<float> values;
    for (std::int64_t i = 0; i < n; ++i)
      values.push_back(std::normal_distribution<float>(0, 0.3f)(generator_));
    return {"base_model.model." + name, "F32", std::move(shape), std::move(values)};
  }
  Tensors lora(const std::string& module, std::int64_t n, std::int64_t c) {
    return {random(module + ".lora_A.weight", {4, c}), random(module + ".lora_B.weight", {n, 4})};
  }

  void add(Engine& engine, const std::string& fields, const Tensors& tensors) {
    const TemporaryFolder folder;
    write_adapter(folder.path(), R"({"peft_type":"LORA","r":4,"lora_alpha":4,)" + fields + "}", tensors);
    const TokenIds prompt = {3, 5, 60, 9, 5, 100, std::int32_t(10 + requests_.size()), 9};
    requests_.push_back({.prompt = prompt,
                         .adapter = std::make_shared<const Adapter>(
                             load_adapter(folder.path(), engine.layout(), engine.base())),
                         .sampling = {.temperature = 0},
                         .max_tokens = 6});
  }

  // One adapter of every kind, and one row of the base between them.
  void add_all(Engine& engine) {
    const std::string q = "model.layers.0.self_attn.q_proj", v = "model.layers.1.self_attn.v_proj";
    Tensors dora = lora(q, 32, 32);
    dora.push_back(random(q + ".lora_magnitude_vector", {32}));
    dora.push_back(random(q + ".base_layer.bias", {32}));
    add(engine, R"("use_dora":true,"bias":"lora_only","target_modules":["layers.0.self_attn.q_proj"])", dora);
    Tensors biases = lora(v, 16, 32);
    for (const char* layer : {"0", "1"})
      for (const char* module : {"q", "k", "v"})
        biases.push_back(random("model.layers." + std::string(layer) + ".self_attn." + module + "_proj.bias",
                                {module[0] == 'q' ? 32 : 16}));
    add(engine, R"("bias":"all","target_modules":["layers.1.self_attn.v_proj"])", biases);
    requests_.push_back({.prompt = {3, 5, 60, 9}, .sampling = {.temperature = 0}, .max_tokens = 6});
    const std::string e = "model.embed_tokens";
    Tensors ends = lora("lm_head", 128, 32);
    ends.push_back(random(e + ".lora_embedding_A", {4, 128}));
    ends.push_back(random(e + ".lora_embedding_B", {32, 4}));
    add(engine, R"("target_modules":["embed_tokens","lm_head"])", ends);
    Tensors saved = lora(q, 32, 32);
    saved.push_back(random(e + ".weight", {128, 32}));
    saved.push_back(random("lm_head.weight", {128, 32}));
    add(engine,
        R"("modules_to_save":["embed_tokens","lm_head"],"target_modules":["layers.0.self_attn.q_proj"])",
        saved);
    // More tokens than a part's rank may be.
    Tensors tokens = {random(e + ".token_adapter.trainable_tokens_delta", {6, 32})};
    add(engine, R"("trainable_token_indices":[9,5,100,0,127,64])", tokens);
  }

  std::vector<std::vector<float>> logits(Engine& engine, const std::vector<Request>& requests) {
    std::map<RequestId, std::vector<float>> seen;
    engine.watch_logits(
        [&](RequestId id, std::span<const float> z) { seen[id].insert(seen[id].end(), z.begin(), z.end()); });
    for (const Request& request : requests) engine.add(request);
    while (!engine.idle()) engine.step();
    std::vector<std::vector<float>> out;
    for (auto& [id, z] : seen) out.push_back(std::move(z));
    return out;
  }

  const std::unique_ptr<Device> device_ = make_host_device();
  Threads threads_{2};
  const std::unique_ptr<WeightFiles> files_ = WeightFiles::open(Golden("qwen2").folder());
  std::mt19937 generator_{7};
  std::vector<Request> requests_;
};

TEST_F(AdapterKindsEngineTest, EachGivesItsLogitsBatchedAsAlone) {
  Engine one = make_engine(1, 64);
  add_all(one);
  std::vector<std::vector<float>> alone;
  for (const Request& request : requests_) alone.push_back(logits(one, {request}).front());
  for (const std::int64_t chunk : {1, 5, 64}) {
    Engine many = make_engine(8, chunk);
    const auto together = logits(many, requests_);
    ASSERT_EQ(together.size(), alone.size());
    for (std::size_t i = 0; i < alone.size(); ++i) EXPECT_EQ(together[i], alone[i]) << "request " << i;
  }
}

TEST_F(AdapterKindsEngineTest, ARowWithoutAnAdapterHasTheBasesBits) {
  Engine one = make_engine(1, 64), many = make_engine(8, 64);
  add_all(one);
  const Request base = requests_[2];
  ASSERT_EQ(base.adapter, nullptr);
  EXPECT_EQ(logits(many, requests_)[2], logits(one, {base})[0]);
}

TEST_F(AdapterKindsEngineTest, TrainedTokensOfATiedModelChangeTheirLogitsAlone) {
  Engine engine = make_engine(1, 64);
  add_all(engine);
  Request with = requests_.back(), without = with;
  with.prompt = without.prompt = {3, 60, 11};  // none of the trained tokens
  without.adapter = nullptr;
  with.max_tokens = without.max_tokens = 1;
  const auto found = logits(engine, {with})[0], base = logits(engine, {without})[0];
  const auto& trained = with.adapter->head().tokens;
  for (std::size_t v = 0; v < found.size(); ++v) {
    const bool is_trained = std::find(trained.begin(), trained.end(), std::int32_t(v)) != trained.end();
    EXPECT_EQ(found[v] != base[v], is_trained) << "token " << v;
  }
}

}  // namespace
}  // namespace slideway
