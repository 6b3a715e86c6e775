// save_model, alone and against transformers: tests/python/test_saved_models.py runs these tests with
// SLIDEWAY_SAVED_MODELS set to a folder, and loads what they leave in it.
#include <gtest/gtest.h>

#include <cstdlib>

#include "model/weights.h"
#include "support/expect_error.h"
#include "support/project_path.h"
#include "support/temporary_folder.h"
#include "support/tiny_gguf.h"
#include "support/tiny_model.h"

namespace slideway {
namespace {

FetchTensor all_of(const WeightFiles& files) {
  return [&files](const TensorSpec& spec, std::span<float> out) { files.read(spec, out); };
}

class SaveModel : public testing::Test {
 protected:
  // Where a test leaves its model: for transformers if it asked, else for nobody.
  fs::path saved(const std::string& name) const {
    const char* wanted = std::getenv("SLIDEWAY_SAVED_MODELS");
    return (wanted ? fs::path(wanted) : folder_.path()) / name;
  }
  void expect_equal(const WeightFiles& a, const WeightFiles& b) {
    for (const TensorSpec* spec : all_tensors(a.layout())) {
      std::vector<float> x(std::size_t(spec->elements())), y(x.size());
      a.read(*spec, x);
      b.read(*spec, y);
      EXPECT_EQ(x, y) << spec->name;
    }
  }

  TemporaryFolder folder_;
};

TEST_F(SaveModel, WritesEveryGoldenFamilyInShards) {
  for (const char* name : {"llama", "llama_tied", "qwen2", "qwen3", "mistral"}) {
    const auto source = WeightFiles::open(project_path("tests/golden") / name);
    const fs::path folder = saved(name);
    save_model(folder, *source, all_of(*source), {.type = DType::f32, .shard_bytes = 40'000});
    const auto again = WeightFiles::open(folder);
    EXPECT_TRUE(fs::exists(folder / "model.safetensors.index.json"));
    EXPECT_TRUE(fs::exists(folder / "model-00002-of-00003.safetensors") ||
                fs::exists(folder / "model-00002-of-00004.safetensors"))
        << name;
    expect_equal(*source, *again);
    ModelConfig wanted = source->config();
    wanted.torch_dtype = "float32";
    EXPECT_EQ(config_json(again->config()), config_json(wanted));
    EXPECT_EQ(read_text(folder / "generation_config.json"),
              read_text(source->path() / "generation_config.json"));
  }
}

TEST_F(SaveModel, WritesAGgufAsAFolderThatNeedsNoGguf) {
  for (const char* name : {"llama_tied", "qwen2", "qwen3"}) {
    const auto golden = WeightFiles::open(project_path("tests/golden") / name);
    GgufBytes gguf;
    add_metadata(gguf, golden->config());
    add_tensors(gguf, *golden);
    gguf.write(saved(std::string(name) + ".gguf"));
    const auto source = WeightFiles::open(saved(std::string(name) + ".gguf"));
    const fs::path folder = saved(std::string(name) + "_from_gguf");
    save_model(folder, *source, all_of(*source),
               {.type = DType::f32, .extra_files = {{"tokenizer.json", "{}"}}});
    expect_equal(*golden, *WeightFiles::open(folder));
    EXPECT_EQ(read_text(folder / "tokenizer.json"), "{}");
    EXPECT_FALSE(fs::exists(folder / "model.safetensors.index.json"));
    EXPECT_EQ(parse_json(read_text(folder / "generation_config.json"), "")["eos_token_id"], 2);
  }
}

TEST_F(SaveModel, RoundsToNearestEvenAndSaysTheTypeInTheConfig) {
  write_tiny_model(folder_ / "hf", tiny_config());
  const auto source = WeightFiles::open(folder_ / "hf");
  const float tie = 1.0f + 1.0f / 256;  // halfway between two BF16 numbers
  const FetchTensor fetch = [&](const TensorSpec&, std::span<float> out) {
    std::fill(out.begin(), out.end(), tie);
  };
  save_model(folder_ / "out", *source, fetch, {.type = DType::bf16});
  const auto again = WeightFiles::open(folder_ / "out");
  std::vector<float> values(8);
  again->read(again->layout().norm.tensors[0], values);
  EXPECT_EQ(values[0], 1.0f);
  EXPECT_EQ(again->stored_type(again->layout().norm.tensors[0]), "BF16");
  EXPECT_EQ(again->config().torch_dtype, "bfloat16");
}

TEST_F(SaveModel, CarriesOtherFilesAlongAndLetsTheCallersWin) {
  write_tiny_model(folder_ / "hf", tiny_config());
  write_file(folder_ / "hf/tokenizer.json", "old");
  write_file(folder_ / "hf/LICENSE", "licence");
  write_file(folder_ / "hf/stray.safetensors", "x");
  fs::create_directories(folder_ / "hf/additional_chat_templates");
  write_file(folder_ / "hf/additional_chat_templates/rag.jinja", "rag");
  const auto source = WeightFiles::open(folder_ / "hf");
  save_model(folder_ / "out", *source, all_of(*source),
             {.type = DType::f32, .extra_files = {{"tokenizer.json", "new"}}});
  EXPECT_EQ(read_text(folder_ / "out/tokenizer.json"), "new");
  EXPECT_EQ(read_text(folder_ / "out/LICENSE"), "licence");
  EXPECT_EQ(read_text(folder_ / "out/additional_chat_templates/rag.jinja"), "rag");
  EXPECT_EQ(read_text(folder_ / "out/config.json"), read_text(folder_ / "hf/config.json"));  // byte for byte
  EXPECT_FALSE(fs::exists(folder_ / "out/stray.safetensors"));
}

TEST_F(SaveModel, SaysOfAHeadThatWasTiedByMistakeThatItIsNot) {
  write_tiny_model(
      folder_ / "hf", tiny_config(R"({"tie_word_embeddings":true})"), DType::f32,
      [](auto& tensors) { tensors.push_back({"lm_head.weight", {16, 8}, std::vector<float>(128, 0.5f)}); });
  const auto source = WeightFiles::open(folder_ / "hf");
  save_model(folder_ / "out", *source, all_of(*source), {.type = DType::f32});
  EXPECT_FALSE(load_config(folder_ / "out").tie_word_embeddings);
}

TEST_F(SaveModel, RefusesANumberTooLargeForFloat16AndLeavesNothing) {
  write_tiny_model(folder_ / "hf", tiny_config());
  const auto source = WeightFiles::open(folder_ / "hf");
  const FetchTensor fetch = [](const TensorSpec&, std::span<float> out) {
    std::fill(out.begin(), out.end(), 70000.0f);
  };
  expect_error(ErrorKind::invalid_input, {"model.embed_tokens.weight", "70000", "float16"},
               [&] { save_model(folder_ / "out", *source, fetch, {.type = DType::f16}); });
  EXPECT_FALSE(fs::exists(folder_ / "out"));
}

TEST_F(SaveModel, KeepsTheOldFolderWhenTheDiskIsFull) {
  write_tiny_model(folder_ / "hf", tiny_config());
  const auto source = WeightFiles::open(folder_ / "hf");
  save_model(folder_ / "out", *source, all_of(*source), {.type = DType::f32});
  const std::string before = read_text(folder_ / "out/model.safetensors");
  for (int nth : {1, 3, 20}) {
    inject_write_fault(nth, ENOSPC);
    expect_error(ErrorKind::io, {"No space left"},
                 [&] { save_model(folder_ / "out", *source, all_of(*source), {.type = DType::bf16}); });
    inject_write_fault(0, 0);
    EXPECT_EQ(read_text(folder_ / "out/model.safetensors"), before);
  }
}

}  // namespace
}  // namespace slideway
