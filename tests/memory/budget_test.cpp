#include "memory/budget.h"

#include "support/expect_error.h"

namespace slideway {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t(1) << 30;

TEST(Budget, CountsReservationsByPurposeAndTakesThemBack) {
  Budget budget(Tier::device, 100);
  {
    const auto slots = budget.reserve("weight slots", 30);
    auto gradients = budget.reserve("gradients", 20);
    const auto more = budget.reserve("weight slots", 10);
    EXPECT_EQ(budget.taken(), 60u);
    ASSERT_EQ(budget.lines().size(), 2u);
    EXPECT_EQ(budget.lines()[0].purpose, "weight slots");
    EXPECT_EQ(budget.lines()[0].bytes, 40u);
    const auto moved = std::move(gradients);
    EXPECT_EQ(moved.bytes(), 20u);
    EXPECT_EQ(gradients.bytes(), 0u);
    EXPECT_EQ(budget.taken(), 60u);
    gradients = budget.reserve("more", 5);
    gradients = Budget::Reservation();
    EXPECT_EQ(budget.taken(), 60u);
  }
  EXPECT_EQ(budget.taken(), 0u);
  EXPECT_TRUE(budget.lines().empty());
  EXPECT_EQ(budget.reserve("all", 100).bytes(), 100u);
}

TEST(Budget, RefusesWhatDoesNotFitAndSaysWhatIsTaken) {
  Budget budget(Tier::pinned, 4 * kGiB);
  const auto states = budget.reserve("optimizer states", 3 * kGiB);
  expect_error(ErrorKind::out_of_memory,
               {"pinned memory", "gradients needs 1.00 GiB (1073741825 bytes)", "limit of 4.00 GiB",
                "1.00 GiB (1073741824 bytes) are left", "optimizer states 3.00 GiB"},
               [&] { budget.reserve("gradients", kGiB + 1); });
  EXPECT_EQ(budget.taken(), 3 * kGiB);
  EXPECT_EQ(budget.reserve("gradients", kGiB).bytes(), kGiB);
}

TEST(Budget, WithoutALimitRefusesOnlyWhatCannotBeCounted) {
  Budget budget(Tier::host, Budget::kUnlimited);
  const auto most = budget.reserve("most", Budget::kUnlimited - 5);
  expect_error(ErrorKind::out_of_memory, {"unlimited"}, [&] { budget.reserve("too much", 6); });
}

TEST(BytesText, HasThreeDigitsAndAUnit) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(3 * 1024), "3.00 KiB");
  EXPECT_EQ(bytes_text(kGiB * 3 / 2), "1.50 GiB");
  EXPECT_EQ(bytes_text(640 * kGiB / 1024), "640 MiB");
  EXPECT_EQ(bytes_text(kGiB * 205 / 10), "20.5 GiB");
  EXPECT_EQ(bytes_text(kGiB - 1), "1.00 GiB");
  EXPECT_EQ(bytes_text(10 * kGiB - 1), "10.0 GiB");
  EXPECT_EQ(bytes_text(Budget::kUnlimited), "unlimited");
}

TEST(ParseBytes, ReadsWhatPeopleWrite) {
  EXPECT_EQ(parse_bytes("24GiB"), 24 * kGiB);
  EXPECT_EQ(parse_bytes("24 GB"), 24'000'000'000u);
  EXPECT_EQ(parse_bytes("512M"), 512 * kGiB / 1024);
  EXPECT_EQ(parse_bytes("1.5TiB"), 1536 * kGiB);
  EXPECT_EQ(parse_bytes("0.5 gib"), kGiB / 2);
  EXPECT_EQ(parse_bytes("1048576"), 1048576u);
  EXPECT_EQ(parse_bytes("100 B"), 100u);
  EXPECT_EQ(parse_bytes("18446744073709551615"), ~std::uint64_t(0));
}

TEST(ParseBytes, RefusesWhatItDoesNotUnderstand) {
  for (const char* text : {"", "GiB", "-1", "1e9", "24 GiBs", "1.2.3", "nan", "inf", "24gX",
                           "99999999999 GiB", "0x10", "5 Ki B x"}) {
    expect_error(ErrorKind::invalid_input, {"'" + std::string(text) + "'", "24GiB"},
                 [&] { parse_bytes(text); });
  }
}

}  // namespace
}  // namespace slideway
