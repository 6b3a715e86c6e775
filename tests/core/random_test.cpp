#include "core/random.h"

#include <gtest/gtest.h>

namespace slideway {
namespace {

// The known answers that come with Random123 (kat_vectors, philox4x32, 10 rounds).
TEST(Random, GivesThePublishedBlocksOfPhilox) {
  EXPECT_EQ(philox(0, {0, 0, 0, 0}), (PhiloxBlock{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox(~0ull, {~0u, ~0u, ~0u, ~0u}),
            (PhiloxBlock{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox(0x299f31d0a4093822, {0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}),
            (PhiloxBlock{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, TakesTwoWideCoordinates) {
  EXPECT_EQ(philox(7, 0x1'0000'0002, 0x3'0000'0004), philox(7, PhiloxBlock{4, 3, 2, 1}));
}

TEST(Random, StaysBelowOneAndReachesZero) {
  EXPECT_EQ(uniform_float(0), 0.0f);
  EXPECT_LT(uniform_float(~0u), 1.0f);
  EXPECT_EQ(uniform_double(0, 0), 0.0);
  EXPECT_LT(uniform_double(~0u, ~0u), 1.0);
}

}  // namespace
}  // namespace slideway
