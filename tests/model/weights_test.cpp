#include "model/weights.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "support/tiny_model.h"

namespace slideway {
namespace {

std::vector<float> read(const WeightFiles& files, const TensorSpec& spec) {
  std::vector<float> out(std::size_t(spec.elements()));
  files.read(spec, out);
  return out;
}

class Weights : public testing::Test {
 protected:
  std::unique_ptr<WeightFiles> open() { return WeightFiles::open(folder_.path()); }
  void refuse(ErrorKind kind, std::initializer_list<std::string> texts) {
    expect_error(kind, texts, [&] { open(); });
  }
  void expect_tiny_values(const WeightFiles& files) {
    for (const TensorSpec* spec : all_tensors(files.layout()))
      EXPECT_EQ(read(files, *spec), tiny_values(*spec)) << spec->name;
  }

  // Layer 0 and the rest in the first shard, layer 1 in the second.
  void write_shards(const std::function<void(Json& weight_map)>& change = {}) {
    write_config(folder_.path(), tiny_config());
    const ModelLayout layout = make_layout(load_config(folder_.path()));
    std::vector<NamedValues> shards[2];
    Json weight_map;
    for (const TensorSpec* spec : all_tensors(layout)) {
      const bool second = spec->name.starts_with("model.layers.1.");
      shards[second].push_back(tiny_tensor(*spec));
      weight_map[spec->name] = second ? kSecond : kFirst;
    }
    write_shard(folder_ / kFirst, shards[0]);
    write_shard(folder_ / kSecond, shards[1], DType::bf16);
    if (change) change(weight_map);
    write_file(folder_ / "model.safetensors.index.json",
               Json{{"metadata", Json::object()}, {"weight_map", weight_map}}.dump());
  }

  static constexpr const char* kFirst = "model-00001-of-00002.safetensors";
  static constexpr const char* kSecond = "model-00002-of-00002.safetensors";
  TemporaryFolder folder_;
};

TEST_F(Weights, ReadEveryStoredTypeExactly) {
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    write_tiny_model(folder_.path(), tiny_config(), type);
    expect_tiny_values(*open());
  }
  EXPECT_EQ(open()->stored_type(open()->layout().embed.tensors[0]), "F16");
}

TEST_F(Weights, ReadABlockWithItsGapsZero) {
  write_tiny_model(folder_.path(), tiny_config());
  const auto files = open();
  const BlockLayout& layer = files->layout().layers[0];
  std::vector<float> block(std::size_t(layer.elements), NAN);
  read_block(*files, layer, block);
  const TensorSpec& norm = *layer.find(Role::input_norm);
  ASSERT_LT(norm.elements(), kTensorAlign);
  for (std::int64_t i = norm.elements(); i < kTensorAlign; ++i) EXPECT_EQ(block[std::size_t(i)], 0) << i;
  for (const float x : block) EXPECT_FALSE(std::isnan(x));
  for (const TensorSpec& spec : layer.tensors)
    EXPECT_EQ(block[std::size_t(spec.offset + 1)], tiny_value(spec, 1)) << spec.name;
}

TEST_F(Weights, ReadShardsByTheIndexAndIgnoreAStrayFile) {
  write_shards();
  expect_tiny_values(*open());
  write_shard(folder_ / "model.safetensors", {{"model.norm.weight", {8}, std::vector<float>(8, 9.0f)}});
  expect_tiny_values(*open());
  EXPECT_EQ(open()->stored_type(*open()->layout().layers[1].find(Role::q_proj)), "BF16");
}

TEST_F(Weights, NameTheShardThatIsMissing) {
  write_shards();
  fs::remove(folder_ / kSecond);
  refuse(ErrorKind::not_found, {kSecond, "not there"});
}

TEST_F(Weights, NameATensorThatTheIndexPromisesInVain) {
  write_shards([](Json& map) { map["model.layers.1.mlp.up_proj.weight"] = kFirst; });
  refuse(ErrorKind::corrupt, {kFirst, "model.layers.1.mlp.up_proj.weight"});
  write_shards([](Json& map) { map["model.extra"] = kFirst; });
  refuse(ErrorKind::corrupt, {kFirst, "model.extra"});
}

TEST_F(Weights, RefuseAnIndexThatLeavesTheFolder) {
  for (const char* name : {"../model.safetensors", "/etc/passwd", "..", "", "a/b.safetensors"}) {
    write_shards([&](Json& map) { map["model.norm.weight"] = name; });
    refuse(ErrorKind::corrupt, {"model.norm.weight", "beside the index"});
  }
  write_file(folder_ / "model.safetensors.index.json", R"({"metadata":{}})");
  refuse(ErrorKind::corrupt, {"weight_map"});
}

TEST_F(Weights, RefuseATensorThatIsInTwoShards) {
  write_shards();
  const ModelLayout layout = make_layout(load_config(folder_.path()));
  std::vector<NamedValues> second = {tiny_tensor(layout.norm.tensors[0])};
  for (const TensorSpec& spec : layout.layers[1].tensors) second.push_back(tiny_tensor(spec));
  write_shard(folder_ / kSecond, second);
  refuse(ErrorKind::corrupt, {"model.norm.weight", kFirst, kSecond});
}

TEST_F(Weights, NameATensorOfWrongShapeWithBothShapes) {
  write_tiny_model(folder_.path(), tiny_config(), DType::f32,
                   [](auto& tensors) { tensors[1].shape = {4, 2}; });
  refuse(ErrorKind::corrupt, {"model.layers.0.input_layernorm.weight", "[4, 2]", "[8]"});
}

TEST_F(Weights, NameAMissingTensorAndOneWithoutAPlace) {
  write_tiny_model(folder_.path(), tiny_config(), DType::f32,
                   [](auto& tensors) { tensors.erase(tensors.begin() + 2); });
  refuse(ErrorKind::not_found, {"model.layers.0.self_attn.q_proj.weight", "[8, 8]", "missing"});
  write_tiny_model(folder_.path(), tiny_config(), DType::f32, [](auto& tensors) {
    tensors.push_back({"model.layers.0.self_attn.q_proj.bias", {8}, std::vector<float>(8)});
  });
  refuse(ErrorKind::unsupported, {"model.layers.0.self_attn.q_proj.bias", "no place"});
}

TEST_F(Weights, LeaveOutTensorsThatTheModelComputes) {
  write_tiny_model(folder_.path(), tiny_config(), DType::f32, [](auto& tensors) {
    tensors.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", {2}, std::vector<float>(2)});
  });
  expect_tiny_values(*open());
}

TEST_F(Weights, NameANumberThatIsNotFinite) {
  for (const float bad : {NAN, INFINITY, -INFINITY})
    for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
      write_tiny_model(folder_.path(), tiny_config(), type,
                       [&](auto& tensors) { tensors[2].values[13] = bad; });
      const auto files = open();  // headers only: the fault is found when the tensor is read
      expect_error(ErrorKind::corrupt,
                   {"model.safetensors", "model.layers.0.self_attn.q_proj.weight", "[1, 5]"},
                   [&] { read(*files, *files->layout().layers[0].find(Role::q_proj)); });
    }
  write_tiny_model(folder_.path(), tiny_config(), DType::f32,
                   [&](auto& tensors) { tensors[1].values[3] = NAN; });
  const auto files = open();
  expect_error(ErrorKind::corrupt, {"input_layernorm", "[3]"},
               [&] { read(*files, files->layout().layers[0].tensors[0]); });
}

TEST_F(Weights, TieTheHeadOnlyWhereTheConfigSaysSo) {
  const std::string head = "lm_head.weight";
  const auto drop_head = [&](auto& tensors) { tensors.pop_back(); };
  write_tiny_model(folder_.path(), tiny_config(R"({"tie_word_embeddings":true})"));
  EXPECT_TRUE(open()->config().tie_word_embeddings);
  EXPECT_EQ(open()->layout().head.elements, 0);
  write_tiny_model(folder_.path(), tiny_config(R"({"tie_word_embeddings":false})"), DType::f32, drop_head);
  refuse(ErrorKind::not_found, {head, "tie_word_embeddings"});
  write_tiny_model(folder_.path(), tiny_config());  // this family's default: not tied, the stored head counts
  EXPECT_EQ(read(*open(), *open()->layout().head.find(Role::lm_head))[5],
            tiny_value(open()->layout().head.tensors[0], 5));
}

TEST_F(Weights, SettleATiedModelThatStoresAHeadAsTransformersDoes) {
  const Json tied = tiny_config(R"({"tie_word_embeddings":true})");
  write_tiny_model(folder_.path(), tied, DType::f32,
                   [](auto& tensors) { tensors.push_back({"lm_head.weight", {16, 8}, tensors[0].values}); });
  EXPECT_TRUE(open()->config().tie_word_embeddings);
  write_tiny_model(folder_.path(), tied, DType::f32, [](auto& tensors) {
    tensors.push_back({"lm_head.weight", {16, 8}, std::vector<float>(128, 0.5f)});
  });
  EXPECT_FALSE(open()->config().tie_word_embeddings);
  EXPECT_EQ(read(*open(), open()->layout().head.tensors[0])[7], 0.5f);
  write_tiny_model(folder_.path(), tied, DType::f32,
                   [](auto& tensors) { tensors[0].name = "lm_head.weight"; });
  EXPECT_TRUE(open()->config().tie_word_embeddings);
  EXPECT_EQ(read(*open(), open()->layout().embed.tensors[0])[9],
            tiny_value(open()->layout().embed.tensors[0], 9));
}

TEST_F(Weights, RefuseATypeThatIsNotRead) {
  write_tiny_model(folder_.path(), tiny_config());
  std::string bytes = read_text(folder_ / "model.safetensors");
  bytes.replace(bytes.find("\"F32\""), 5, "\"I32\"");
  write_file(folder_ / "model.safetensors", bytes);
  refuse(ErrorKind::unsupported, {"model.embed_tokens.weight", "I32"});
}

TEST_F(Weights, RefuseATruncatedFile) {
  write_tiny_model(folder_.path(), tiny_config());
  const std::string bytes = read_text(folder_ / "model.safetensors");
  write_file(folder_ / "model.safetensors", bytes.substr(0, bytes.size() - 1));
  refuse(ErrorKind::corrupt, {"model.safetensors", "cut short"});
}

TEST_F(Weights, SayWhatIsNotAModel) {
  expect_error(ErrorKind::not_found, {"nowhere"}, [&] { WeightFiles::open(folder_ / "nowhere"); });
  refuse(ErrorKind::not_found, {"config.json", "0 .gguf files"});
  write_config(folder_.path(), tiny_config());
  refuse(ErrorKind::not_found, {"model.safetensors", "model.safetensors.index.json"});
  write_file(folder_ / "pytorch_model.bin", "");
  refuse(ErrorKind::unsupported, {"pytorch_model.bin"});
  expect_error(ErrorKind::unsupported, {"pytorch_model.bin"},
               [&] { WeightFiles::open(folder_ / "pytorch_model.bin"); });
}

TEST_F(Weights, ListTheFilesThatGoAlong) {
  write_tiny_model(folder_.path(), tiny_config());
  for (const char* name : {"tokenizer.json", "README.md", "LICENSE", "pytorch_model.bin",
                           "model.fp16.safetensors", ".gitattributes"})
    write_file(folder_ / name, name);
  fs::create_directories(folder_ / "additional_chat_templates");
  write_file(folder_ / "additional_chat_templates/rag.jinja", "x");
  fs::create_directories(folder_ / "onnx");
  write_file(folder_ / "onnx/model.json", "x");
  EXPECT_EQ(open()->other_files(), (std::vector<fs::path>{folder_ / "LICENSE", folder_ / "README.md",
                                                          folder_ / "additional_chat_templates/rag.jinja",
                                                          folder_ / "tokenizer.json"}));
}

}  // namespace
}  // namespace slideway
