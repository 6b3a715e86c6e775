#include "lora/lora_batch.h"

#include <gtest/gtest.h>

#include "lora/small_model.h"
#include "support/expect_error.h"
#include "support/temporary_folder.h"

namespace slideway {
namespace {

class LoraBatchTest : public testing::Test {
 protected:
  Adapter adapter(const std::string& targets, const std::vector<TestTensor>& tensors) {
    write_adapter(
        folder_.path(),
        R"({"peft_type":"LORA","r":2,"lora_alpha":2,"rank_pattern":{"v_proj":3},"target_modules":)" +
            targets + "}",
        tensors);
    return load_adapter(folder_.path(), layout_);
  }
  TemporaryFolder folder_;
  ModelConfig config_ = small_config();
  ModelLayout layout_ = make_layout(config_);
};

TEST_F(LoraBatchTest, GivesEachRangeOfRowsItsAdapter) {
  const std::string q = "model.layers.0.self_attn.q_proj", v = "model.layers.0.self_attn.v_proj";
  const Adapter one =
      adapter(R"([")" + q + R"(",")" + v + R"("])", module_tensors(q, 8, 8, 2) + module_tensors(v, 4, 8, 3));
  const Adapter two = adapter(R"([")" + v + R"("])", module_tensors(v, 4, 8, 3));
  LoraBatch batch(layout_);
  const AdapterRows rows[] = {{&one, 0, 2}, {nullptr, 2, 3}, {&two, 3, 7}};
  batch.set(rows);
  EXPECT_EQ(batch.layer(1), nullptr) << "no adapter touches the second layer";
  const LayerLora* lora = batch.layer(0);
  ASSERT_NE(lora, nullptr);
  EXPECT_FALSE(lora->o);
  EXPECT_FALSE(lora->down);
  ASSERT_EQ(lora->qkv.parts.size(), 3u);
  EXPECT_EQ(lora->qkv.v_width, 5);
  const LoraPart& first = lora->qkv.parts[0];
  const LoraPart& second = lora->qkv.parts[1];
  const LoraPart& third = lora->qkv.parts[2];
  EXPECT_EQ(first.v_column, 0);
  EXPECT_EQ(second.v_column, 2);
  EXPECT_EQ(second.out_column, 12);
  EXPECT_EQ(second.row_end, 2);
  EXPECT_EQ(third.v_column, 0) << "other rows, so the same columns of v";
  EXPECT_EQ(third.row_begin, 3);
  EXPECT_EQ(third.row_end, 7);
  EXPECT_EQ(third.a.data(), two.modules()[0].a.data());
}

TEST_F(LoraBatchTest, IsTheBaseAloneWhenNoRowHasAnAdapter) {
  LoraBatch batch(layout_);
  batch.set({});
  EXPECT_EQ(batch.layer(0), nullptr);
}

}  // namespace
}  // namespace slideway
