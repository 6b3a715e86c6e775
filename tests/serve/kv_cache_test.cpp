#include "serve/kv_cache.h"

#include <gtest/gtest.h>

#include <set>

namespace slideway {
namespace {

ModelConfig with_heads(int layers, int key_value_heads, int width) {
  ModelConfig config;
  config.layers.resize(std::size_t(layers));
  config.num_key_value_heads = key_value_heads;
  config.head_dim = width;
  return config;
}

TEST(KvCache, CutsPagesOfAtMost64KiBAnd64Tokens) {
  const KvShape smollm = kv_shape(with_heads(30, 3, 64), DType::f32);  // 1,536 bytes a token
  EXPECT_EQ(smollm.page_tokens, 32);
  EXPECT_EQ(smollm.page_bytes, 48u * 1024);
  const KvShape llama = kv_shape(with_heads(32, 8, 128), DType::f32);  // 8 KiB a token
  EXPECT_EQ(llama.page_tokens, 8);
  EXPECT_EQ(llama.page_bytes, 64u * 1024);
  EXPECT_EQ(kv_shape(with_heads(1, 1, 8), DType::f32).page_tokens, 64);
  EXPECT_EQ(kv_shape(with_heads(1, 64, 256), DType::f32).page_tokens, 1) << "a token larger than the block";
  EXPECT_EQ(smollm.bytes(33), 2 * 30 * 48u * 1024);
}

TEST(KvCache, GivesASequencePagesOfItsOwnInEveryLayer) {
  const auto device = make_host_device();
  const KvShape shape = kv_shape(with_heads(3, 1, 8), DType::f32);
  KvCache cache(*device, shape, shape.bytes(4 * 64));
  EXPECT_EQ(cache.pool().size(), 12);
  KvPages one, two;
  ASSERT_TRUE(cache.try_extend(one, 65));
  ASSERT_TRUE(cache.try_extend(two, 1));
  std::set<std::int32_t> ids;
  for (const KvPages* pages : {&one, &two})
    for (const auto& layer : pages->of_layer) ids.insert(layer.begin(), layer.end());
  EXPECT_EQ(ids.size(), 9u);
  ASSERT_TRUE(cache.try_extend(one, 128)) << "has room already";
  EXPECT_EQ(cache.pool().free(), 3);
  EXPECT_FALSE(cache.try_extend(one, 300));
  EXPECT_EQ(one.of_layer[0].size(), 2u) << "nothing was changed";
  cache.release(one);
  cache.release(two);
  EXPECT_EQ(cache.pool().free(), 12);
}

}  // namespace
}  // namespace slideway
