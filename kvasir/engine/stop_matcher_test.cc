#include "kvasir/engine/stop_matcher.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

std::string Stream(StopMatcher& matcher, const std::string& text, size_t piece) {
  std::string shown;
  for (size_t i = 0; i < text.size(); i += piece) shown += matcher.Push(text.substr(i, piece));
  return shown + matcher.Finish();
}

TEST(StopMatcherTest, CutsAtTheFirstMatchWhateverThePieces) {
  for (size_t piece = 1; piece < 12; ++piece) {
    StopMatcher matcher({"END", "\n\n"});
    EXPECT_EQ(Stream(matcher, "one EN two END three", piece), "one EN two ");
    EXPECT_EQ(matcher.matched_string(), "END");
    StopMatcher other({"END", "\n\n"});
    EXPECT_EQ(Stream(other, "no match EN", piece), "no match EN");
    EXPECT_FALSE(other.matched());
  }
}

TEST(StopMatcherTest, HoldsBackOnlyWhatMayStillMatch) {
  StopMatcher matcher({"stop!"});
  EXPECT_EQ(matcher.Push("we sto"), "we ");
  EXPECT_EQ(matcher.Push("re"), "store");
  EXPECT_EQ(matcher.Push(" stop"), " ");
  EXPECT_EQ(matcher.Push("! more"), "");
  EXPECT_TRUE(matcher.matched());
  EXPECT_EQ(matcher.Push("even more"), "");
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcherTest, LongestOfThoseThatBeginTogether) {
  StopMatcher matcher({"ab", "abc", ""});
  EXPECT_EQ(matcher.Push("xabcd"), "x");
  EXPECT_EQ(matcher.matched_string(), "abc");
}

TEST(StopMatcherTest, SelfOverlappingStops) {
  StopMatcher matcher({"aab"});
  EXPECT_EQ(matcher.Push("aa"), "");
  EXPECT_EQ(matcher.Push("a"), "a");
  EXPECT_EQ(matcher.Push("b"), "");
  EXPECT_TRUE(matcher.matched());
}

}  // namespace
}  // namespace kvasir
