#include "memory/block_pool.h"

#include <gtest/gtest.h>

#include <set>

#include "core/error.h"

namespace slideway {
namespace {

TEST(BlockPool, HandsOutEveryBlockOnceAndThenNone) {
  BlockPool pool(3);
  std::set<std::int32_t> ids;
  for (int i = 0; i < 3; ++i) ids.insert(pool.try_acquire().value());
  EXPECT_EQ(ids, (std::set<std::int32_t>{0, 1, 2}));
  EXPECT_EQ(pool.try_acquire(), std::nullopt);
  EXPECT_EQ(pool.free(), 0);
}

TEST(BlockPool, GivesAllOfAGroupOrNothing) {
  BlockPool pool(3);
  std::int32_t ids[4];
  EXPECT_FALSE(pool.try_acquire(std::span(ids, 4)));
  EXPECT_EQ(pool.free(), 3);
  EXPECT_TRUE(pool.try_acquire(std::span(ids, 3)));
  EXPECT_EQ(pool.free(), 0);
}

TEST(BlockPool, FreesASharedBlockWithItsLastReference) {
  BlockPool pool(2);
  const std::int32_t id = pool.try_acquire().value();
  pool.share(id);
  EXPECT_EQ(pool.references(id), 2);
  EXPECT_FALSE(pool.release(id));
  EXPECT_EQ(pool.free(), 1);
  EXPECT_TRUE(pool.release(id));
  EXPECT_EQ(pool.free(), 2);
  EXPECT_EQ(pool.try_acquire(), id) << "the warm block comes first";
}

TEST(BlockPool, NoticesABlockThatIsReleasedTwice) {
  BlockPool pool(1);
  const std::int32_t id = pool.try_acquire().value();
  pool.release(id);
  EXPECT_THROW(pool.release(id), Error);
  EXPECT_THROW(pool.share(id), Error);
}

}  // namespace
}  // namespace slideway
