#include "serve/batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace slideway {
namespace {

using testing::ElementsAre;

std::vector<std::int32_t> numbers(const Tensor& tensor) {
  return {tensor.i32(), tensor.i32() + tensor.elements()};
}

class StepBatchTest : public testing::Test {
 protected:
  static ModelLayout two_layers() {
    ModelLayout layout;
    layout.layers.resize(2);
    return layout;
  }
  const KvShape shape_{.layers = 2, .page_tokens = 4, .page_bytes = 64};
  const std::unique_ptr<Device> device_ = make_host_device();
  const ModelLayout layout_ = two_layers();
  KvCache cache_{*device_, shape_, 64 * 20};
  StepBatch batch_{layout_, cache_, 16};
};

TEST_F(StepBatchTest, MakesTheTablesOfChunksAndSingleTokens) {
  const TokenIds prompt = {10, 11, 12}, next = {7};
  KvPages one, two;
  ASSERT_TRUE(cache_.try_extend(one, 8));
  ASSERT_TRUE(cache_.try_extend(two, 12));
  const BatchItem items[] = {{.tokens = prompt, .position = 3, .pages = &one},
                             {.tokens = next, .position = 8, .pages = &two, .sampled = true}};
  batch_.set(items);
  EXPECT_EQ(batch_.count(), 4);
  EXPECT_THAT(numbers(batch_.ids()), ElementsAre(10, 11, 12, 7));
  EXPECT_THAT(numbers(batch_.sampled_rows()), ElementsAre(3));
  const Rows rows = batch_.rows(1);
  EXPECT_THAT(numbers(rows.positions), ElementsAre(3, 4, 5, 8));
  EXPECT_THAT(rows.kv->starts, ElementsAre(0, 3, 4));
  EXPECT_THAT(rows.kv->lengths, ElementsAre(6, 9));
  EXPECT_EQ(rows.kv->max_pages, 3);
  const auto& a = one.of_layer[1];
  const auto& b = two.of_layer[1];
  EXPECT_THAT(rows.kv->pages, ElementsAre(a[0], a[1], -1, b[0], b[1], b[2]));
  EXPECT_EQ(batch_.lora(0), nullptr);
}

TEST_F(StepBatchTest, HasNoSampledRowsInTheMiddleOfAPrompt) {
  const TokenIds prompt = {10, 11};
  KvPages pages;
  ASSERT_TRUE(cache_.try_extend(pages, 8));
  const BatchItem items[] = {{.tokens = prompt, .position = 0, .pages = &pages}};
  batch_.set(items);
  EXPECT_FALSE(batch_.sampled_rows());
}

}  // namespace
}  // namespace slideway
