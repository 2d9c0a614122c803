#include "kvasir/speculative/ngram_index.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace kvasir {
namespace {

using Tokens = std::vector<Token>;

NgramIndex IndexOf(const Tokens& known, const NgramOptions& options) {
  NgramIndex index(options);
  for (const Token token : known) index.Append(token);
  return index;
}

Tokens Draft(const Tokens& known, const NgramOptions& options, int64_t count) {
  const NgramIndex index = IndexOf(known, options);
  const NgramIndex::Match match = index.Find();
  return match.end == 0 ? Tokens() : index.Continue(match, count);
}

TEST(NgramIndexTest, ContinuesTheLatestOfTheLongestMatches) {
  //                0  1  2  3  4  5  6  7  8  9 10 11
  EXPECT_EQ(Draft({1, 2, 3, 9, 5, 2, 3, 7, 8, 6, 2, 3}, {}, 3), (Tokens{7, 8, 6}));
  EXPECT_EQ(Draft({1, 2, 3, 9, 5, 2, 3, 7, 8, 1, 2, 3}, {}, 3), (Tokens{9, 5, 2}));
}

TEST(NgramIndexTest, NothingWithoutAMatch) {
  EXPECT_TRUE(Draft({}, {}, 4).empty());
  EXPECT_TRUE(Draft({1}, {}, 4).empty());
  EXPECT_TRUE(Draft({1, 2, 3, 4}, {}, 4).empty());
  EXPECT_TRUE(Draft({5, 2, 9, 7, 2}, {}, 4).empty()) << "one token is too few";
  EXPECT_EQ(Draft({5, 2, 9, 7, 2}, {.min_match = 1}, 3), (Tokens{9, 7, 2}));
}

TEST(NgramIndexTest, WhatRepeatsItselfGoesOn) {
  EXPECT_EQ(Draft({4, 4, 4, 4, 4}, {}, 3), (Tokens{4, 4, 4}));
  EXPECT_EQ(Draft({7, 1, 2, 1, 2, 1, 2}, {}, 5), (Tokens{1, 2, 1, 2, 1}));
}

TEST(NgramIndexTest, ManyEqualPlacesCostABoundedLook) {
  // "1 2" everywhere, each time after and before something else; the longest match is the first.
  Tokens known = {9, 1, 2, 8};
  for (Token token = 10; token < 1000; ++token) known.insert(known.end(), {token, 1, 2, 7});
  known.insert(known.end(), {9, 1, 2});
  EXPECT_EQ(Draft(known, {.max_places = 5000}, 1), Tokens{8});
  EXPECT_EQ(Draft(known, {.max_places = 100}, 1), Tokens{7});
}

// Against every end and every length.
TEST(NgramIndexTest, IsWhatALookAtEverythingFinds) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    Tokens known(1 + random() % (round % 10 == 0 ? 1000 : 60));
    for (Token& token : known) token = static_cast<Token>(random() % 4);
    const NgramOptions options = {.min_match = 1 + static_cast<int64_t>(random() % 3),
                                  .max_match = 4 + static_cast<int64_t>(random() % 4),
                                  .max_places = 1000};
    size_t best_end = 0;
    int64_t best = options.min_match - 1;
    for (size_t end = 1; end < known.size(); ++end) {
      int64_t length = 0;
      while (length < options.max_match && length < static_cast<int64_t>(end) &&
             known[end - 1 - static_cast<size_t>(length)] ==
                 known[known.size() - 1 - static_cast<size_t>(length)]) {
        ++length;
      }
      if (length >= options.min_match && length >= best) {
        best = length;
        best_end = end;
      }
    }
    const NgramIndex::Match match = IndexOf(known, options).Find();
    ASSERT_EQ(match.end, static_cast<int64_t>(best_end)) << "round " << round;
    if (best_end > 0) {
      ASSERT_EQ(match.length, best) << "round " << round;
    }
  }
}

TEST(NgramIndexTest, OptionsAreChecked) {
  EXPECT_TRUE(NgramOptions{}.Validate().ok());
  EXPECT_FALSE((NgramOptions{.min_match = 0, .max_match = 4}).Validate().ok());
  EXPECT_FALSE((NgramOptions{.min_match = 5, .max_match = 4}).Validate().ok());
  EXPECT_FALSE((NgramOptions{.max_places = 0}).Validate().ok());
}

}  // namespace
}  // namespace kvasir
