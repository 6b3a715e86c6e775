// SmolLM2-135M-Instruct as its GGUF holds it, against the folder that transformers made from the same file.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>

#include "core/file.h"
#include "model/weights.h"
#include "support/project_path.h"

namespace slideway {
namespace {

const auto kGguf = project_path(".cache/models/SmolLM2-135M-Instruct.Q4_1.gguf");
const auto kFolder = project_path(".cache/models/smollm2-hf");

TEST(SmolLM2, OpensFromGgufAsTheConfigThatTransformersMakesOfIt) {
  if (!fs::exists(kGguf) || !fs::exists(kFolder)) GTEST_SKIP() << "SmolLM2 is not in .cache/models";
  const auto gguf = WeightFiles::open(kGguf), folder = WeightFiles::open(kFolder);
  const ModelConfig &a = gguf->config(), &b = folder->config();
  EXPECT_EQ(a.family, "llama");
  EXPECT_EQ(b.family, "llama");
  EXPECT_EQ(a.vocab_size, 49152);
  EXPECT_EQ(a.hidden_size, b.hidden_size);
  EXPECT_EQ(a.intermediate_size, b.intermediate_size);
  EXPECT_EQ(a.num_attention_heads, 9);
  EXPECT_EQ(a.num_key_value_heads, 3);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.rms_norm_eps, b.rms_norm_eps);
  EXPECT_EQ(a.num_layers(), 30);
  EXPECT_TRUE(a.tie_word_embeddings);
  EXPECT_EQ(a.ropes.front().inv_freq, b.ropes.front().inv_freq);
  EXPECT_EQ(a.bos_token_id, 1);
  EXPECT_EQ(a.eos_token_ids, std::vector<int>{2});
  EXPECT_EQ(gguf->layout().parameters(), 134'515'008);
  EXPECT_EQ(gguf->stored_type(gguf->layout().embed.tensors.front()), "Q8_0");
  EXPECT_EQ(gguf->stored_type(*gguf->layout().layers[3].find(Role::q_proj)), "Q4_1");
  EXPECT_EQ(folder->stored_type(*folder->layout().layers[3].find(Role::q_proj)), "F32");
}

TEST(SmolLM2, ReadsFromGgufTheSameBitsAsFromTheFolder) {
  if (!fs::exists(kGguf) || !fs::exists(kFolder)) GTEST_SKIP() << "SmolLM2 is not in .cache/models";
  const auto gguf = WeightFiles::open(kGguf), folder = WeightFiles::open(kFolder);
  const auto blocks = gguf->layout().blocks(), others = folder->layout().blocks();
  ASSERT_EQ(blocks.size(), others.size());
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    std::vector<float> a(std::size_t(blocks[i]->elements), -1.0f),
        b(std::size_t(others[i] -> elements), -2.0f);
    read_block(*gguf, *blocks[i], a);
    read_block(*folder, *others[i], b);
    ASSERT_EQ(a.size(), b.size());
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0) << blocks[i]->name;
  }
}

// A line of /proc/self/status, in bytes.
std::size_t status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (std::size_t kilobytes = 0; word == name + ":" && status >> kilobytes) return kilobytes * 1024;
  return 0;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;  // sanitizers keep freed memory
#else
constexpr bool kSanitized = false;
#endif

TEST(SmolLM2, ReadsWithNoMoreMemoryThanItsLargestTensor) {
  if (!fs::exists(kGguf) || !fs::exists(kFolder)) GTEST_SKIP() << "SmolLM2 is not in .cache/models";
  if (kSanitized) GTEST_SKIP() << "a sanitizer's memory is not ours";
  for (const auto& path : {kGguf, kFolder}) {
    const auto files = WeightFiles::open(path);
    if (!(std::ofstream("/proc/self/clear_refs") << 5).flush())
      GTEST_SKIP() << "the peak cannot be reset here";
    const std::size_t before = status_bytes("VmRSS");
    ASSERT_GT(before, std::size_t(1) << 20);
    std::size_t largest = 0;
    for (const BlockLayout* block : files->layout().blocks())
      for (const TensorSpec& spec : block->tensors) {
        std::vector<float> values(std::size_t(spec.elements()));
        files->read(spec, values);
        largest = std::max(largest, values.size() * sizeof(float));
      }
    EXPECT_LT(status_bytes("VmHWM"), before + largest + (40 << 20)) << path;
    RecordProperty("over_kib", int((status_bytes("VmHWM") - before - largest) >> 10));
  }
}

}  // namespace
}  // namespace slideway
