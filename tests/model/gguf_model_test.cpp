// Models of every family, written as GGUF and read back.
#include <gtest/gtest.h>

#include <cmath>

#include "model/weights.h"
#include "support/expect_error.h"
#include "support/project_path.h"
#include "support/temporary_folder.h"
#include "support/tiny_gguf.h"
#include "support/tiny_model.h"

namespace slideway {
namespace {

class GgufModel : public testing::Test {
 protected:
  // A tiny model of these fields as a folder; its GGUF is for the test to finish.
  GgufBytes make(const char* changes) {
    write_tiny_model(folder_ / "hf", tiny_config(changes));
    return as_gguf(*WeightFiles::open(folder_ / "hf"));
  }
  std::unique_ptr<WeightFiles> open(const GgufBytes& gguf) {
    gguf.write(folder_ / "m.gguf");
    return WeightFiles::open(folder_ / "m.gguf");
  }
  void refuse(ErrorKind kind, std::initializer_list<std::string> texts, const GgufBytes& gguf) {
    expect_error(kind, texts, [&] { open(gguf); });
  }

  TemporaryFolder folder_;
};

TEST_F(GgufModel, EqualsItsFolderForEveryGoldenFamily) {
  for (const char* name : {"llama", "llama_tied", "qwen2", "qwen3"}) {
    const auto folder = WeightFiles::open(project_path("tests/golden") / name);
    GgufBytes gguf;
    add_metadata(gguf, folder->config());
    add_tensors(gguf, *folder);
    const auto file = open(gguf);
    EXPECT_TRUE(file->is_gguf());
    EXPECT_EQ(file->config().family, folder->config().family);
    EXPECT_EQ(file->config().tie_word_embeddings, folder->config().tie_word_embeddings);
    const auto specs = all_tensors(folder->layout());
    ASSERT_EQ(specs.size(), all_tensors(file->layout()).size()) << name;
    for (const TensorSpec* spec : specs) {
      std::vector<float> a(std::size_t(spec->elements())), b(a.size());
      folder->read(*spec, a);
      file->read(*spec, b);
      EXPECT_EQ(a, b) << name << " " << spec->name;
    }
  }
}

TEST_F(GgufModel, FindsBiasesByTheirTensors) {
  const auto file = open(make(R"({"attention_bias":true,"mlp_bias":true})"));
  EXPECT_TRUE(file->config().qkv_bias && file->config().o_bias && file->config().mlp_bias);
  for (const TensorSpec* spec : all_tensors(file->layout())) {
    std::vector<float> values(std::size_t(spec->elements()));
    file->read(*spec, values);
    EXPECT_EQ(values, tiny_values(*spec)) << spec->name;
  }
}

TEST_F(GgufModel, OpensInAFolderThatHoldsNothingElse) {
  fs::create_directories(folder_ / "alone");
  make("{}").write(folder_ / "alone/m.gguf");
  EXPECT_TRUE(WeightFiles::open(folder_ / "alone")->is_gguf());
  make("{}").write(folder_ / "alone/n.gguf");
  expect_error(ErrorKind::not_found, {"2 .gguf files"}, [&] { WeightFiles::open(folder_ / "alone"); });
}

TEST_F(GgufModel, RecognisesLlama3RopeByItsDivisors) {
  const GgufBytes gguf =
      make(R"({"head_dim":128,"rope_theta":500000,"rope_scaling":{"rope_type":"llama3","factor":8.0,
      "low_freq_factor":1.0,"high_freq_factor":4.0,"original_max_position_embeddings":8192}})");
  const auto file = open(gguf), folder = WeightFiles::open(folder_ / "hf");
  EXPECT_EQ(file->config().ropes[0].parameters, folder->config().ropes[0].parameters);
  EXPECT_EQ(file->config().ropes[0].inv_freq, folder->config().ropes[0].inv_freq);
}

TEST_F(GgufModel, RefusesDivisorsThatAreNotLlama3s) {
  refuse(ErrorKind::unsupported, {"rope_freqs.weight"},
         make(R"({"head_dim":8})").floats("rope_freqs.weight", {4}, {1, 5, 2, 3}));
  refuse(ErrorKind::corrupt, {"rope_freqs.weight", "3 numbers"},
         make(R"({"head_dim":8})").floats("rope_freqs.weight", {3}, {1, 5, 2}));
  refuse(ErrorKind::corrupt, {"rope_freqs.weight"},
         make(R"({"head_dim":8})").floats("rope_freqs.weight", {4}, {0, 0, 0, 0}));
}

TEST_F(GgufModel, ReadsRopeScaling) {
  const auto rope = [&](const GgufBytes& gguf) { return open(gguf)->config().ropes[0].parameters; };
  EXPECT_EQ(rope(make("{}")).type, "default");
  EXPECT_EQ(rope(make("{}").text("llama.rope.scaling.type", "none")).type, "default");
  EXPECT_EQ(rope(make("{}").f32("llama.rope.scale_linear", 4)).factor, 4);
  const RopeParameters linear =
      rope(make("{}").text("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 2));
  EXPECT_EQ(linear.type, "linear");
  EXPECT_EQ(linear.factor, 2);
  const GgufBytes yarn = make(R"({"model_type":"qwen2"})")
                             .text("qwen2.rope.scaling.type", "yarn")
                             .f32("qwen2.rope.scaling.factor", 4)
                             .u32("qwen2.rope.scaling.original_context_length", 32);
  EXPECT_EQ(rope(yarn).original_max_position_embeddings, 32);
  EXPECT_NEAR(open(yarn)->config().ropes[0].attention_factor, 0.1 * std::log(4.0) + 1, 1e-6);
  refuse(ErrorKind::unsupported, {"longrope"}, make("{}").text("llama.rope.scaling.type", "longrope"));
}

TEST_F(GgufModel, TakesASlidingLlamaForAMistral) {
  const auto file = open(make("{}").u32("llama.attention.sliding_window", 7));
  EXPECT_EQ(file->config().family, "mistral");
  EXPECT_EQ(file->config().layers[1].sliding_window, 7);
  refuse(ErrorKind::unsupported, {"qwen2.attention.sliding_window"},
         make(R"({"model_type":"qwen2"})").u32("qwen2.attention.sliding_window", 7));
}

TEST_F(GgufModel, JoinsTheEndTokens) {
  EXPECT_EQ(open(make("{}").u32("tokenizer.ggml.eot_token_id", 9))->config().eos_token_ids,
            (std::vector<int>{2, 9}));
  EXPECT_EQ(open(make("{}"))->config().bos_token_id, 1);
}

TEST_F(GgufModel, RefusesWhatChangesTheMathematicsByName) {
  refuse(ErrorKind::unsupported, {"llama.expert_count"}, make("{}").u32("llama.expert_count", 8));
  EXPECT_TRUE(open(make("{}").u32("llama.expert_count", 0)));
  refuse(ErrorKind::unsupported, {"llama.logit_scale"}, make("{}").f32("llama.logit_scale", 0.5f));
  refuse(ErrorKind::unsupported, {"llama.rope.dimension_count is 2"},
         make("{}").u32("llama.rope.dimension_count", 2));
  refuse(ErrorKind::unsupported, {"llama.attention.causal"},
         make("{}").key("llama.attention.causal", 7, std::string(1, '\0')));
  GgufBytes other;
  refuse(ErrorKind::unsupported, {"\"gemma3\"", "llama", "qwen3"},
         other.text("general.architecture", "gemma3"));
  refuse(ErrorKind::unsupported, {"one part of 3"}, make("{}").u32("split.count", 3));
}

TEST_F(GgufModel, NamesTensorsThatAreMissingWrongOrWithoutAPlace) {
  refuse(ErrorKind::unsupported, {"blk.0.attn_sinks", "no place"},
         make("{}").floats("blk.0.attn_sinks", {2}, {1, 2}));
  refuse(ErrorKind::corrupt, {"llama.vocab_size is 99", "[16, 8]"}, make("{}").u32("llama.vocab_size", 99));
  GgufBytes without;
  write_tiny_model(folder_ / "hf", tiny_config());
  add_metadata(without, WeightFiles::open(folder_ / "hf")->config());
  refuse(ErrorKind::not_found, {"token_embd.weight"}, without);
  without.floats("token_embd.weight", {16, 8}, std::vector<float>(128));
  refuse(ErrorKind::not_found, {"blk.0.attn_norm.weight", "[8]", "missing"}, without);
  without.floats("blk.0.attn_norm.weight", {9}, std::vector<float>(9));
  refuse(ErrorKind::corrupt, {"blk.0.attn_norm.weight", "[9]", "[8]"}, without);
}

TEST_F(GgufModel, NamesANumberThatIsNotFinite) {
  GgufBytes gguf;
  write_tiny_model(folder_ / "hf", tiny_config(R"({"tie_word_embeddings":true})"));
  const auto model = WeightFiles::open(folder_ / "hf");
  add_metadata(gguf, model->config());
  add_tensors(gguf, *model);
  std::string bytes = gguf.bytes();
  const float bad = NAN;
  bytes.replace(bytes.size() - 8, 4, raw_bytes(bad));  // the last tensor is the final norm [8]
  write_file(folder_ / "m.gguf", bytes);
  const auto file = WeightFiles::open(folder_ / "m.gguf");
  std::vector<float> out(8);
  expect_error(ErrorKind::corrupt, {"m.gguf", "model.norm.weight", "nan", "[6]"},
               [&] { file->read(file->layout().norm.tensors[0], out); });
}

}  // namespace
}  // namespace slideway
