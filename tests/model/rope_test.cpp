#include "model/rope.h"

#include <gtest/gtest.h>

#include <cmath>

#include "formats/json.h"
#include "model/config.h"
#include "support/expect_error.h"
#include "support/project_path.h"
#include "support/temporary_folder.h"
#include "support/tiny_model.h"

namespace slideway {
namespace {

ModelConfig config_of(const Json& json) {
  const TemporaryFolder folder;
  write_config(folder.path(), json);
  return load_config(folder.path());
}

TEST(Rope, EveryTableEqualsTransformersWithinFloatRounding) {
  for (const Json& golden : load_json(project_path("tests/golden/rope.json"))) {
    const auto name = golden["name"].get<std::string>();
    const ModelConfig config = config_of(golden["config"]);
    ASSERT_EQ(config.layers.size(), std::max<std::size_t>(golden["layers"].size(), 1)) << name;
    for (std::size_t layer = 0; layer < config.layers.size(); ++layer) {
      const RopeConfig& rope = config.ropes[std::size_t(config.layers[layer].rope)];
      const auto wanted = golden["layers"][layer]["inv_freq"].get<std::vector<float>>();
      ASSERT_EQ(rope.inv_freq.size(), wanted.size()) << name;
      for (std::size_t i = 0; i < wanted.size(); ++i)
        EXPECT_NEAR(rope.inv_freq[i], wanted[i], 3e-7 * wanted[i]) << name << " [" << i << "]";
      EXPECT_NEAR(rope.attention_factor, golden["layers"][layer]["attention_factor"].get<double>(), 1e-7)
          << name;
    }
  }
}

TEST(Rope, TakesThetaFromEitherSpelling) {
  const char* spellings[] = {
      R"({"model_type":"qwen3","head_dim":128,"rope_parameters":{"rope_type":"default","rope_theta":1000000.0}})",
      R"({"model_type":"qwen3","head_dim":128,"rope_theta":1000000.0,"rope_scaling":null})"};
  for (const char* spelling : spellings) {
    const ModelConfig config = config_of(tiny_config(spelling));
    EXPECT_NEAR(config.ropes.front().inv_freq[1], 0.8058421878, 1e-7);
  }
}

TEST(Rope, ScalesLlama3InThreeBandsUnderEitherKey) {
  for (const char* key : {"rope_type", "type"}) {
    Json scaling = {{"factor", 8.0},
                    {"low_freq_factor", 1.0},
                    {"high_freq_factor", 4.0},
                    {"original_max_position_embeddings", 8192}};
    scaling[key] = "llama3";
    Json json = tiny_config(R"({"rope_theta":500000, "head_dim":128})");
    json["rope_scaling"] = scaling;
    const std::vector<float> table = config_of(json).ropes.front().inv_freq;
    EXPECT_NEAR(table[28], 0.003211446, 1e-9);
    EXPECT_NEAR(table[32], 0.000524846, 1e-9);
    EXPECT_NEAR(table[63], 3.068926e-07, 1e-12);
  }
}

TEST(Rope, MakesOneTablePerLayerTypeOfTheNestedForm) {
  const ModelConfig config =
      config_of(tiny_config(R"({"model_type":"qwen3","head_dim":8,"use_sliding_window":true,
      "sliding_window":16,"layer_types":["sliding_attention","full_attention"],"rope_parameters":{
        "full_attention":{"rope_type":"default","rope_theta":1000000.0},
        "sliding_attention":{"rope_type":"default","rope_theta":10000.0}}})"));
  ASSERT_EQ(config.ropes.size(), 2u);
  EXPECT_NEAR(config.ropes[std::size_t(config.layers[0].rope)].inv_freq[1], 0.1, 1e-8);
  EXPECT_NEAR(config.ropes[std::size_t(config.layers[1].rope)].inv_freq[1], std::pow(1e6, -0.25), 1e-8);
  EXPECT_EQ(config.layers[0].sliding_window, 16);
  EXPECT_EQ(config.layers[1].sliding_window, 0);
}

TEST(Rope, RefusesWhatItDoesNotUnderstandByName) {
  const auto refuse = [](ErrorKind kind, std::initializer_list<std::string> texts, const char* changes) {
    expect_error(kind, texts, [&] { config_of(tiny_config(changes)); });
  };
  refuse(ErrorKind::unsupported, {"config.json", "the type dynamic"},
         R"({"rope_scaling":{"type":"dynamic","factor":2.0}})");
  refuse(ErrorKind::unsupported, {"rope_parameters", "mrope_section"},
         R"({"rope_parameters":{"rope_type":"default","mrope_section":[1,2]}})");
  refuse(ErrorKind::corrupt, {"mrope", "default"},
         R"({"rope_scaling":{"type":"mrope","rope_type":"default"}})");
  refuse(ErrorKind::unsupported, {"partial_rotary_factor"},
         R"({"rope_parameters":{"rope_type":"default","partial_rotary_factor":0.5}})");
  refuse(ErrorKind::corrupt, {"low_freq_factor", "missing"},
         R"({"rope_scaling":{"rope_type":"llama3","factor":8.0}})");
  refuse(ErrorKind::corrupt, {"factor", "missing"}, R"({"rope_scaling":{"type":"linear"}})");
  refuse(ErrorKind::corrupt, {"factor is 0"}, R"({"rope_scaling":{"type":"linear","factor":0}})");
  refuse(ErrorKind::corrupt, {"rope_theta is -5"}, R"({"rope_theta":-5})");
  refuse(ErrorKind::corrupt, {"rope_scaling", "object"}, R"({"rope_scaling":"linear"})");
  refuse(ErrorKind::corrupt, {"both given"},
         R"({"rope_scaling":{"type":"linear","factor":2},"rope_parameters":{"rope_type":"default"}})");
  refuse(ErrorKind::corrupt, {"no entry for full_attention"},
         R"({"rope_parameters":{"sliding_attention":{"rope_type":"default"}}})");
}

}  // namespace
}  // namespace slideway
