#include "serve/stop_strings.h"

#include <gtest/gtest.h>

namespace slideway {
namespace {

// What comes out when text goes in cut into pieces of `size` bytes.
std::string through(StopStrings stops, const std::string& text, std::size_t size) {
  std::string out;
  for (std::size_t at = 0; at < text.size(); at += size) out += stops.push(text.substr(at, size));
  return out + stops.finish();
}

TEST(StopStrings, FindsAStringWhereverThePiecesAreCut) {
  const std::string text = "one two END three";
  for (std::size_t size = 1; size <= text.size(); ++size) {
    EXPECT_EQ(through(StopStrings({"END"}), text, size), "one two ") << size;
    EXPECT_EQ(through(StopStrings({"END"}, true), text, size), "one two END") << size;
    EXPECT_EQ(through(StopStrings({"never"}), text, size), text) << size;
  }
}

TEST(StopStrings, StopsAtTheFirstOfSeveral) {
  EXPECT_EQ(through(StopStrings({"cd", "bc"}), "abcd", 4), "a");
  EXPECT_EQ(through(StopStrings({"bcd", "b"}), "abcd", 4), "a");
}

TEST(StopStrings, HoldsBackOnlyWhatMayBeABeginning) {
  StopStrings stops({"aab"});
  EXPECT_EQ(stops.push("xa"), "x");
  EXPECT_EQ(stops.push("a"), "");
  EXPECT_EQ(stops.push("a"), "a");  // "aaa": the last two may still begin it
  EXPECT_EQ(stops.held(), 2u);
  EXPECT_EQ(stops.push("b"), "");
  EXPECT_TRUE(stops.stopped());
  EXPECT_EQ(stops.found(), "aab");
  EXPECT_EQ(stops.push("more"), "");
  EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, GivesBackWhatItHeldWhenTheEndComesFirst) {
  StopStrings stops({"abc"});
  EXPECT_EQ(stops.push("xab"), "x");
  EXPECT_EQ(stops.finish(), "ab");
}

}  // namespace
}  // namespace slideway
