#include "model/config.h"

#include <gtest/gtest.h>

#include "support/expect_error.h"
#include "support/temporary_folder.h"
#include "support/tiny_model.h"

namespace slideway {
namespace {

class Config : public testing::Test {
 protected:
  ModelConfig load(const Json& json) {
    write_config(folder_.path(), json);
    return load_config(folder_.path());
  }
  ModelConfig load(const char* changes) { return load(tiny_config(changes)); }
  void refuse(ErrorKind kind, std::initializer_list<std::string> texts, const char* changes) {
    expect_error(kind, texts, [&] { load(changes); });
  }
  std::vector<int> windows(const char* changes) {
    std::vector<int> found;
    for (const LayerConfig& layer : load(changes).layers) found.push_back(layer.sliding_window);
    return found;
  }

  TemporaryFolder folder_;
};

TEST_F(Config, ReadsALlama) {
  const ModelConfig config = load("{}");
  EXPECT_EQ(config.family, "llama");
  EXPECT_EQ(config.num_layers(), 2);
  EXPECT_EQ(config.head_dim, 4);
  EXPECT_EQ(config.attention_scale(), 0.5f);
  EXPECT_EQ(config.rms_norm_eps, 1e-5f);
  EXPECT_FALSE(config.tie_word_embeddings || config.qkv_bias || config.o_bias || config.mlp_bias ||
               config.qk_norm);
  EXPECT_EQ(config.torch_dtype, "float32");
  EXPECT_EQ(load(R"({"dtype":"bfloat16"})").torch_dtype, "bfloat16");
}

TEST_F(Config, TakesTheHeadSizeFromTheConfigBeforeDerivingIt) {
  EXPECT_EQ(load(R"({"num_attention_heads":3,"num_key_value_heads":1,"head_dim":4})").head_dim, 4);
  EXPECT_EQ(load(R"({"head_dim":null})").head_dim, 4);
  EXPECT_EQ(load(R"({"hidden_size":4096,"num_attention_heads":48,"num_key_value_heads":8,"head_dim":128})")
                .head_dim,
            128);
  EXPECT_EQ(load(R"({"model_type":"qwen3"})").head_dim, 128);  // this family's own default
  refuse(ErrorKind::corrupt, {"hidden_size 8", "num_attention_heads 3"}, R"({"num_attention_heads":3})");
  refuse(ErrorKind::corrupt, {"head size is 3"}, R"({"head_dim":3})");
}

TEST_F(Config, KnowsWhatEachFamilyAssumesOfAbsentKeys) {
  Json json = tiny_config(R"({"num_attention_heads":32,"head_dim":4})");
  json.erase("num_key_value_heads");
  EXPECT_EQ(load(json).num_key_value_heads, 32);
  json["model_type"] = "mistral";
  json.erase("architectures");
  EXPECT_EQ(load(json).num_key_value_heads, 8);
  json["num_key_value_heads"] = nullptr;
  EXPECT_EQ(load(json).num_key_value_heads, 32);
  json = tiny_config();
  json.erase("rms_norm_eps");
  json.erase("eos_token_id");
  json.erase("bos_token_id");
  EXPECT_EQ(load(json).rms_norm_eps, 1e-6f);
  EXPECT_EQ(load(json).eos_token_ids, std::vector<int>{2});
  EXPECT_EQ(load(json).bos_token_id, 1);
  json["model_type"] = "qwen2";
  json.erase("architectures");
  EXPECT_TRUE(load(json).eos_token_ids.empty());
  EXPECT_EQ(load(json).bos_token_id, -1);
}

TEST_F(Config, KnowsTheBiasesAndNormsOfEachFamily) {
  const ModelConfig llama = load(R"({"attention_bias":true,"mlp_bias":true})");
  EXPECT_TRUE(llama.qkv_bias && llama.o_bias && llama.mlp_bias && !llama.qk_norm);
  const ModelConfig qwen2 = load(R"({"model_type":"qwen2"})");
  EXPECT_TRUE(qwen2.qkv_bias && !qwen2.o_bias && !qwen2.mlp_bias && !qwen2.qk_norm);
  const ModelConfig qwen3 = load(R"({"model_type":"qwen3","head_dim":4})");
  EXPECT_TRUE(!qwen3.qkv_bias && !qwen3.o_bias && !qwen3.mlp_bias && qwen3.qk_norm);
  EXPECT_TRUE(load(R"({"model_type":"qwen3","head_dim":4,"attention_bias":true})").o_bias);
  EXPECT_FALSE(load(R"({"model_type":"mistral"})").qkv_bias);
  refuse(ErrorKind::unsupported, {"attention_bias is true", "mistral"},
         R"({"model_type":"mistral","attention_bias":true})");
  refuse(ErrorKind::unsupported, {"attention_bias is false", "qwen2"},
         R"({"model_type":"qwen2","attention_bias":false})");
  refuse(ErrorKind::unsupported, {"mlp_bias", "qwen3"}, R"({"model_type":"qwen3","mlp_bias":true})");
}

TEST_F(Config, SlidesTheLayersThatEachFamilySlides) {
  using Windows = std::vector<int>;
  EXPECT_EQ(windows(R"({"model_type":"mistral"})"), (Windows{4096, 4096}));
  EXPECT_EQ(windows(R"({"model_type":"mistral","sliding_window":null})"), (Windows{0, 0}));
  EXPECT_EQ(windows(R"({"model_type":"mistral","sliding_window":7})"), (Windows{7, 7}));
  EXPECT_EQ(
      windows(
          R"({"model_type":"mistral","sliding_window":7,"layer_types":["full_attention","sliding_attention"]})"),
      (Windows{0, 7}));
  EXPECT_EQ(windows(R"({"model_type":"qwen2","sliding_window":7})"), (Windows{0, 0}));
  EXPECT_EQ(windows(R"({"model_type":"qwen2","sliding_window":7,"use_sliding_window":true})"),
            (Windows{0, 0}));  // from layer 28
  EXPECT_EQ(
      windows(R"({"model_type":"qwen2","sliding_window":7,"use_sliding_window":true,"max_window_layers":1})"),
      (Windows{0, 7}));
  EXPECT_EQ(windows(R"({"model_type":"qwen3","head_dim":4,"use_sliding_window":true,"max_window_layers":0})"),
            (Windows{4096, 4096}));
  EXPECT_EQ(
      windows(
          R"({"model_type":"qwen3","head_dim":4,"sliding_window":7,"use_sliding_window":true,"max_window_layers":2,
      "layer_types":["sliding_attention","full_attention"]})"),
      (Windows{7, 0}));
  EXPECT_EQ(windows(R"({"sliding_window":7,"use_sliding_window":false})"), (Windows{0, 0}));
}

TEST_F(Config, RefusesWindowsThatContradictThemselves) {
  refuse(ErrorKind::corrupt, {"layer_types[1]", "no window"},
         R"({"model_type":"qwen2","layer_types":["full_attention","sliding_attention"]})");
  refuse(ErrorKind::corrupt, {"layer_types must list 2"},
         R"({"model_type":"qwen2","layer_types":["full_attention"]})");
  refuse(ErrorKind::unsupported, {"layer_types[0]", "chunked_attention"},
         R"({"model_type":"qwen2","layer_types":["chunked_attention","full_attention"]})");
  refuse(ErrorKind::unsupported, {"sliding_window is 7", "llama"}, R"({"sliding_window":7})");
  refuse(ErrorKind::unsupported, {"layer_types"},
         R"({"layer_types":["full_attention","sliding_attention"]})");
  refuse(ErrorKind::unsupported, {"sliding_window"},
         R"({"model_type":"mistral","sliding_window":7,"use_sliding_window":false})");
  refuse(ErrorKind::corrupt, {"sliding_window is 0"}, R"({"model_type":"mistral","sliding_window":0})");
}

TEST_F(Config, JoinsTheEndTokensOfBothFiles) {
  write_file(folder_ / "generation_config.json", R"({"eos_token_id":[15,9],"temperature":0.6})");
  EXPECT_EQ(load(R"({"eos_token_id":9})").eos_token_ids, (std::vector<int>{9, 15}));
  write_file(folder_ / "generation_config.json", R"({"eos_token_id":15})");
  EXPECT_EQ(load(R"({"eos_token_id":[9,3]})").eos_token_ids, (std::vector<int>{9, 3, 15}));
  EXPECT_EQ(load(R"({"eos_token_id":null})").eos_token_ids, std::vector<int>{15});
  refuse(ErrorKind::corrupt, {"eos_token_id"}, R"({"eos_token_id":"</s>"})");
}

TEST_F(Config, RefusesFieldsThatChangeTheMathematicsByName) {
  const char* refused[] = {R"({"hidden_act":"gelu"})",
                           R"({"partial_rotary_factor":0.5})",
                           R"({"logit_scale":0.0625})",
                           R"({"num_local_experts":8})",
                           R"({"quantization_config":{"bits":4}})",
                           R"({"attn_logit_softcapping":50.0})",
                           R"({"query_pre_attn_scalar":256})",
                           R"({"embedding_multiplier":12})",
                           R"({"use_qk_norm":true})",
                           R"({"rope_interleaved":true})",
                           R"({"clip_qkv":8})"};
  for (const char* changes : refused) {
    const std::string key = parse_json(changes, "").begin().key();
    refuse(ErrorKind::unsupported, {"config.json", key + " is"}, changes);
  }
  refuse(ErrorKind::unsupported, {"auto_map"}, R"({"auto_map":{"AutoModelForCausalLM":"m.M"}})");
  refuse(ErrorKind::unsupported, {"LlamaForSequenceClassification"},
         R"({"architectures":["LlamaForSequenceClassification"]})");
  refuse(ErrorKind::unsupported, {"model_type is \"gemma3\"", "llama", "qwen3"},
         R"({"model_type":"gemma3"})");
}

TEST_F(Config, AcceptsNeutralAndUnknownFields) {
  EXPECT_EQ(
      load(R"({"hidden_act":"silu","partial_rotary_factor":1.0,"num_experts":0,"quantization_config":null,
      "logit_scale":1,"attention_dropout":0.1,"is_llama_config":true,"rope_interleaved":false,"zz_future":{"on":true},
      "layer_types":["full_attention","full_attention"],"pretraining_tp":2})")
          .num_layers(),
      2);
}

TEST_F(Config, RefusesSizesThatAreMissingOrAbsurd) {
  for (const char* key :
       {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"}) {
    Json json = tiny_config();
    json.erase(key);
    expect_error(ErrorKind::corrupt, {std::string(key) + " is missing"}, [&] { load(json); });
  }
  refuse(ErrorKind::corrupt, {"vocabulary is -1"}, R"({"vocab_size":-1})");
  refuse(ErrorKind::corrupt, {"vocab_size is 1e+30"}, R"({"vocab_size":1e30})");
  refuse(ErrorKind::corrupt, {"vocab_size is \"16\""}, R"({"vocab_size":"16"})");
  refuse(ErrorKind::corrupt, {"layers is 1000000000000"}, R"({"num_hidden_layers":1000000000000})");
  refuse(ErrorKind::corrupt, {"num_attention_heads is 0"}, R"({"num_attention_heads":0})");
  refuse(ErrorKind::corrupt, {"3 attention heads", "2 key-value"},
         R"({"num_attention_heads":3,"num_key_value_heads":2,"head_dim":4})");
  refuse(ErrorKind::corrupt, {"rms_norm_eps"}, R"({"rms_norm_eps":-1})");
}

TEST_F(Config, RefusesAFileThatIsNoJsonObject) {
  for (const char* text : {"", "[]", "{\"a\":1,\"a\":2}", "{\"model_type\": \"llama\"", "nonsense"}) {
    write_file(folder_ / "config.json", text);
    expect_error(ErrorKind::corrupt, {"config.json"}, [&] { load_config(folder_.path()); });
  }
  fs::remove(folder_ / "config.json");
  expect_error(ErrorKind::not_found, {"config.json"}, [&] { load_config(folder_.path()); });
}

TEST_F(Config, WritesAConfigThatReadsBackAsTheSameModel) {
  const char* models[] = {
      "{}",
      R"({"attention_bias":true,"mlp_bias":true,"tie_word_embeddings":true,"eos_token_id":[3,4],"bos_token_id":null})",
      R"({"model_type":"mistral","sliding_window":7,"rope_scaling":{"type":"linear","factor":2.5}})",
      R"({"model_type":"mistral","sliding_window":7,"layer_types":["full_attention","sliding_attention"]})",
      R"({"model_type":"qwen2","use_sliding_window":true,"sliding_window":7,"max_window_layers":1,"rope_theta":1000000.0,
          "rope_scaling":{"type":"yarn","factor":4.0,"original_max_position_embeddings":32,"truncate":false,"beta_fast":16}})",
      R"({"rope_theta":500000,"rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
          "original_max_position_embeddings":32}})",
      R"({"model_type":"qwen3","head_dim":8,"use_sliding_window":true,"sliding_window":9,
          "layer_types":["sliding_attention","full_attention"],"rope_parameters":{
          "full_attention":{"rope_type":"default","rope_theta":1000000.0},"sliding_attention":{"rope_type":"default","rope_theta":10000.0}}})"};
  for (const char* changes : models) {
    const ModelConfig config = load(changes);
    write_file(folder_ / "config.json", config_json(config));
    const ModelConfig again = load_config(folder_.path());
    EXPECT_EQ(config_json(again), config_json(config)) << changes;
    ASSERT_EQ(again.ropes.size(), config.ropes.size());
    for (std::size_t i = 0; i < again.ropes.size(); ++i) {
      EXPECT_EQ(again.ropes[i].parameters, config.ropes[i].parameters) << changes;
      EXPECT_EQ(again.ropes[i].inv_freq, config.ropes[i].inv_freq) << changes;
    }
    for (int i = 0; i < config.num_layers(); ++i)
      EXPECT_EQ(again.layers[std::size_t(i)].sliding_window, config.layers[std::size_t(i)].sliding_window)
          << changes;
    EXPECT_EQ(again.eos_token_ids, config.eos_token_ids);
    EXPECT_EQ(again.bos_token_id, config.bos_token_id);
    EXPECT_EQ(again.rms_norm_eps, config.rms_norm_eps);
  }
}

}  // namespace
}  // namespace slideway
