#include "lora/lora_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "lora/small_model.h"
#include "support/expect_error.h"
#include "support/golden.h"
#include "support/temporary_folder.h"

namespace slideway {
namespace {

class LoraLayoutTest : public testing::Test {
 protected:
  ModelConfig config_ = small_config();
  ModelLayout layout_ = make_layout(config_);
};

AdapterConfig all_linear(std::int64_t r) {
  return {.r = r, .lora_alpha = 16, .target_modules = choose_modules(std::string("all-linear"))};
}

TEST_F(LoraLayoutTest, LaysEveryLinearLayerIntoOneBlock) {
  const LoraLayout lora = make_lora_layout(layout_, all_linear(2));
  ASSERT_EQ(lora.layers.size(), 2u);
  const LoraBlock& block = lora.layers[1];
  ASSERT_EQ(block.modules.size(), 7u);
  EXPECT_EQ(block.modules[0].name, "model.layers.1.self_attn.q_proj");
  EXPECT_EQ(block.modules[6].name, "model.layers.1.mlp.down_proj");
  EXPECT_EQ(block.modules[6].inputs, 12);
  std::int64_t end = 0;
  for (const LoraModule& m : block.modules) {
    EXPECT_EQ(m.a_offset, end);
    EXPECT_EQ(m.a_offset % kTensorAlign, 0);
    EXPECT_GE(m.b_offset, m.a_offset + m.rank * m.inputs);
    EXPECT_EQ(m.b_offset % kTensorAlign, 0);
    end = m.b_offset + (m.rank * m.outputs + kTensorAlign - 1) / kTensorAlign * kTensorAlign;
    EXPECT_EQ(m.scale, 8.0f);
  }
  EXPECT_EQ(block.elements, end);
  EXPECT_EQ(lora.parameters(), 2 * 2 * ((8 + 8) + 2 * (8 + 4) + (8 + 8) + 2 * (8 + 12) + (12 + 8)));
}

TEST_F(LoraLayoutTest, LeavesLayersThatAreNotChosenEmpty) {
  auto config = all_linear(2);
  config.layers_to_transform = {1};
  const LoraLayout lora = make_lora_layout(layout_, config);
  EXPECT_EQ(lora.layers[0].elements, 0);
  EXPECT_GT(lora.layers[1].elements, 0);
}

TEST_F(LoraLayoutTest, RefusesChoicesThatWouldTrainNothing) {
  const auto refused = [&](const ModuleChoice& choice, const std::string& text) {
    expect_error(ErrorKind::invalid_input, {text},
                 [&] { make_lora_layout(layout_, {.target_modules = choice}); });
  };
  refused({}, "needs target_modules");
  refused(choose_modules(std::vector<std::string>{"q_proj", "c_attn"}), "\"c_attn\"");
  refused(choose_modules(std::string("q_proj")), "regular expression");
}

TEST_F(LoraLayoutTest, StartsFromUniformAAndZeroB) {
  ModelConfig wide = small_config();
  wide.hidden_size = 1024;
  const ModelLayout layout = make_layout(wide);
  const LoraLayout lora = make_lora_layout(layout, all_linear(8));
  std::vector<float> values(std::size_t(lora.layers[0].elements), 7.0f), other(values), again(values);
  init_lora_block(lora.layers[0], 1, values);
  init_lora_block(lora.layers[0], 1, again);
  init_lora_block(lora.layers[1], 1, other);
  EXPECT_EQ(values, again);
  EXPECT_NE(values, other) << "layers differ";
  const LoraModule& q = lora.layers[0].modules[0];
  const std::span<const float> a(values.data() + q.a_offset, 8 * 1024), b(values.data() + q.b_offset, 8 * 8);
  double sum = 0, squares = 0;
  for (const float x : a) sum += x, squares += double(x) * x;
  const double bound = 1 / std::sqrt(1024.0);
  EXPECT_LE(*std::max_element(a.begin(), a.end()), bound);
  EXPECT_GE(*std::min_element(a.begin(), a.end()), -bound);
  EXPECT_GT(*std::max_element(a.begin(), a.end()), 0.999 * bound);
  EXPECT_NEAR(sum / double(a.size()), 0, 0.02 * bound);
  EXPECT_NEAR(squares / double(a.size()), bound * bound / 3, 0.02 * bound * bound);
  EXPECT_TRUE(std::all_of(b.begin(), b.end(), [](float x) { return x == 0; }));
}

TEST_F(LoraLayoutTest, BindsModulesToTheirPlacesInFusedProjections) {
  const LoraLayout lora = make_lora_layout(layout_, all_linear(2));
  const LoraBlock& block = lora.layers[0];
  std::vector<float> values(std::size_t(block.elements)), gradients(values);
  LayerParts parts;
  bind_lora(parts, layout_.layers[0], block, values.data(), DType::f32, gradients.data(), 5);
  const LayerLora bound = parts.lora();
  ASSERT_EQ(bound.qkv.parts.size(), 3u);
  EXPECT_EQ(bound.qkv.v_width, 6);
  EXPECT_EQ(bound.qkv.parts[1].out_column, 8);
  EXPECT_EQ(bound.qkv.parts[2].out_column, 12);
  EXPECT_EQ(bound.qkv.parts[2].v_column, 4);
  EXPECT_EQ(bound.qkv.parts[2].row_end, 5);
  EXPECT_EQ(bound.gate_up.parts[1].out_column, 12);
  EXPECT_EQ(bound.down.parts[0].b.f32(), values.data() + block.modules[6].b_offset);
  EXPECT_EQ(bound.down.parts[0].d_a.f32(), gradients.data() + block.modules[6].a_offset);
  bind_lora(parts, layout_.layers[0], block, values.data(), DType::f32, nullptr, 5);
  EXPECT_FALSE(parts.lora().down.parts[0].d_a);
}

TEST_F(LoraLayoutTest, IsLoadedAsItWasSaved) {
  TemporaryFolder folder;
  auto config = all_linear(2);
  config.rank_pattern = {{"v_proj", 3}};
  config.base_model_name_or_path = "org/base";
  const LoraLayout lora = make_lora_layout(layout_, config);
  std::vector<std::vector<float>> blocks;
  for (const LoraBlock& block : lora.layers) {
    blocks.emplace_back(std::size_t(block.elements));
    for (std::size_t i = 0; i < blocks.back().size(); ++i)
      blocks.back()[i] = float(i) + 0.5f * float(blocks.size());
  }
  const auto fetch = [&](int layer, std::span<float> out) {
    std::copy(blocks[std::size_t(layer)].begin(), blocks[std::size_t(layer)].end(), out.begin());
  };
  save_adapter(folder / "out", lora, fetch);
  const Adapter adapter = load_adapter(folder / "out", layout_);
  EXPECT_EQ(adapter.config().base_model_name_or_path, "org/base");
  ASSERT_EQ(adapter.modules().size(), 14u);
  for (const LoraBlock& block : lora.layers)
    for (std::size_t i = 0; i < block.modules.size(); ++i) {
      const LoraModule& saved = block.modules[i];
      const AdapterModule& read = adapter.modules_of(saved.layer)[i];
      EXPECT_EQ(read.name, saved.name);
      EXPECT_EQ(read.scale, saved.scale);
      const float* from = blocks[std::size_t(saved.layer)].data();
      EXPECT_EQ(0, std::memcmp(read.a.f32(), from + saved.a_offset, read.a.bytes()));
      EXPECT_EQ(0, std::memcmp(read.b.f32(), from + saved.b_offset, read.b.bytes()));
    }
}

// Adapters made by peft, saved again: into SLIDEWAY_SAVED_ADAPTERS, where tests/python/test_adapter.py gives them to peft.
TEST(SaveAdapter, WritesAnAdapterOfPeftAgainUnchanged) {
  const TemporaryFolder temporary;
  const char* kept = std::getenv("SLIDEWAY_SAVED_ADAPTERS");
  for (const std::string& family : kGoldenFamilies) {
    const Golden golden(family);
    const ModelLayout layout = make_layout(load_config(golden.folder()));
    const Adapter adapter = load_adapter(golden.adapter(), layout);
    const LoraLayout lora = make_lora_layout(layout, adapter.config());
    const fs::path folder = (kept ? fs::path(kept) : temporary.path()) / family;
    save_adapter(folder, lora, [&](int layer, std::span<float> out) {
      const auto& modules = lora.layers[std::size_t(layer)].modules;
      ASSERT_EQ(modules.size(), adapter.modules_of(layer).size());
      for (std::size_t i = 0; i < modules.size(); ++i) {
        const AdapterModule& from = adapter.modules_of(layer)[i];
        std::copy_n(from.a.f32(), from.a.elements(), out.begin() + modules[i].a_offset);
        std::copy_n(from.b.f32(), from.b.elements(), out.begin() + modules[i].b_offset);
      }
    });
    EXPECT_EQ(load_adapter(folder, layout).digest(), adapter.digest()) << family;
  }
}

TEST_F(LoraLayoutTest, FailsLoudlyWhenTheFileIsNotWhatWasTrained) {
  TemporaryFolder folder;
  const LoraLayout lora = make_lora_layout(layout_, all_linear(2));
  int calls = 0;
  const auto unsteady = [&](int, std::span<float> out) { std::fill(out.begin(), out.end(), float(++calls)); };
  expect_error(ErrorKind::internal, {"not what was saved"},
               [&] { save_adapter(folder / "out", lora, unsteady); });
  EXPECT_FALSE(fs::exists(folder / "out"));
}

}  // namespace
}  // namespace slideway
