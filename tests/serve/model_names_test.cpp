#include "serve/model_names.h"

#include <gtest/gtest.h>

#include "lora/small_model.h"
#include "serve/api_error.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace slideway {
namespace {

const char* const kConfig =
    R"({"peft_type":"LORA","r":2,"lora_alpha":4,"target_modules":["q_proj"],"layers_to_transform":[0]})";

const char* const kTokenizer =
    R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2},"merges":["a b"]},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":true},"decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,"use_regex":true}})";

class ModelNamesTest : public testing::Test {
 protected:
  std::vector<std::string> adapters() {
    names_.rescan();
    std::vector<std::string> out;
    for (const ModelNames::Card& card : names_.cards(nullptr))
      if (card.adapter) out.push_back(card.name);
    return out;
  }
  fs::path subfolder(const std::string& name) {
    fs::create_directories(folder_.path() / name);
    return folder_.path() / name;
  }
  void write(const std::string& name, float first = 0.25f) {
    auto tensors = module_tensors("model.layers.0.self_attn.q_proj", 8, 8, 2);
    tensors[0].values.assign(16, first);
    write_adapter(subfolder(name), kConfig, tensors);
  }
  // Writes the weights' first bytes alone, at another time than before.
  void cut(const std::string& name, std::size_t bytes) {
    const fs::path weights = folder_.path() / name / "adapter_model.safetensors";
    const std::string whole = read_text(weights);
    write_text_atomically(weights, std::string_view(whole).substr(0, bytes));
    touch(weights);
  }
  void touch(const fs::path& path) { fs::last_write_time(path, time_ += std::chrono::seconds(1)); }

  TemporaryFolder folder_;
  fs::file_time_type time_ = fs::file_time_type::clock::now();
  ModelConfig config_ = small_config();
  ModelLayout layout_ = make_layout(config_);
  std::unique_ptr<Tokenizer> tokenizer_ = Tokenizer::from_json(kTokenizer);
  ChatTemplate chat_{"{{ bos_token }}{{ messages[0].content }}", "<s>", "</s>"};
  ModelNames names_{{"base"}, "/models/base", layout_, {}, *tokenizer_, &chat_, folder_.path()};
};

using Names = std::vector<std::string>;

TEST_F(ModelNamesTest, AnAdapterIsSeenOnceItsFilesAreWhole) {
  write_text_atomically(subfolder("a") / "adapter_config.json", kConfig);
  EXPECT_EQ(adapters(), Names{});
  write("a");
  touch(folder_.path() / "a" / "adapter_config.json");
  EXPECT_EQ(adapters(), Names{"a"});
  write("b");
  cut("b", 100);
  EXPECT_EQ(adapters(), Names{"a"});
  EXPECT_THROW(names_.find("b", nullptr), ApiError);
  write("b");
  touch(folder_.path() / "b" / "adapter_config.json");
  EXPECT_EQ(adapters(), (Names{"a", "b"}));
  EXPECT_TRUE(names_.find("b", nullptr).adapter);
}

TEST_F(ModelNamesTest, WhatIsBeingWrittenAnewServesOnAsItWas) {
  write("a");
  ASSERT_EQ(adapters(), Names{"a"});
  const auto before = names_.find("a", nullptr).adapter;
  write("a", 0.5f);
  cut("a", 100);
  EXPECT_EQ(adapters(), Names{"a"});
  EXPECT_EQ(names_.find("a", nullptr).adapter, before);
  write("a", 0.5f);
  touch(folder_.path() / "a" / "adapter_config.json");
  EXPECT_EQ(adapters(), Names{"a"});
  EXPECT_NE(names_.find("a", nullptr).adapter->digest(), before->digest());
}

TEST_F(ModelNamesTest, AnAdaptersOwnTemplateIsUsedForItWithTheModelsTokens) {
  write("plain");
  write("own");
  write_text_atomically(subfolder("own") / "chat_template.jinja",
                        "{{ bos_token }}>>{{ messages[0].content }}");
  ASSERT_EQ(adapters(), (Names{"own", "plain"}));
  EXPECT_EQ(names_.find("plain", nullptr).chat, nullptr);
  const auto found = names_.find("own", nullptr);
  ASSERT_TRUE(found.chat);
  EXPECT_EQ(text_of(found.chat->render(R"([{"role":"user","content":"hi"}])")), "<s>>>hi");
}

TEST_F(ModelNamesTest, AnAdapterOfAnotherTokenizerIsRefusedByTheToken) {
  write("a");
  write_text_atomically(subfolder("a") / "tokenizer.json", kTokenizer);
  std::string other = kTokenizer;
  other.replace(other.find("\"b\":1,\"ab\":2"), 12, "\"ab\":1,\"b\":2");
  write("b");
  write_text_atomically(subfolder("b") / "tokenizer.json", other);
  ASSERT_EQ(adapters(), (Names{"a", "b"}));
  EXPECT_TRUE(names_.find("a", nullptr).adapter);
  expect_error(ErrorKind::unsupported, {"tokenizer", "token 1", "ab"}, [&] { names_.find("b", nullptr); });
}

TEST_F(ModelNamesTest, AWholeAdapterThatCannotBeAppliedIsListedAndSaysWhy) {
  write_adapter(subfolder("odd"), kConfig, module_tensors("model.layers.9.self_attn.q_proj", 8, 8, 2));
  EXPECT_EQ(adapters(), Names{"odd"});
  EXPECT_THROW(names_.find("odd", nullptr), Error);
}

}  // namespace
}  // namespace slideway
