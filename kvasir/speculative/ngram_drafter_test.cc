#include "kvasir/speculative/ngram_drafter.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace kvasir {
namespace {

using Tokens = std::vector<Token>;

TEST(NgramTest, ContinuesTheLatestOfTheLongestMatches) {
  //              0  1  2  3  4  5  6  7  8  9 10 11
  const Tokens a = {1, 2, 3, 9, 5, 2, 3, 7, 8, 6, 2, 3};
  EXPECT_EQ(DraftFromRepetition(a, {}, 3), (Tokens{7, 8, 6}));
  const Tokens b = {1, 2, 3, 9, 5, 2, 3, 7, 8, 1, 2, 3};
  EXPECT_EQ(DraftFromRepetition(b, {}, 3), (Tokens{9, 5, 2}));
}

TEST(NgramTest, NothingWithoutAMatch) {
  EXPECT_TRUE(DraftFromRepetition(Tokens{}, {}, 4).empty());
  EXPECT_TRUE(DraftFromRepetition(Tokens{1}, {}, 4).empty());
  EXPECT_TRUE(DraftFromRepetition(Tokens{1, 2, 3, 4}, {}, 4).empty());
  EXPECT_TRUE(DraftFromRepetition(Tokens{5, 2, 9, 7, 2}, {}, 4).empty()) << "one token is too few";
  EXPECT_EQ(DraftFromRepetition(Tokens{5, 2, 9, 7, 2}, {.min_match = 1}, 4), (Tokens{9, 7, 2}));
}

TEST(NgramTest, ARunRepeatsItself) {
  EXPECT_EQ(DraftFromRepetition(Tokens{4, 4, 4, 4, 4}, {}, 3), (Tokens{4}));
  EXPECT_EQ(DraftFromRepetition(Tokens{1, 2, 1, 2, 1, 2}, {}, 8), (Tokens{1, 2}));
}

// Against every end and every length.
TEST(NgramTest, IsWhatALookAtEverythingFinds) {
  std::mt19937 random(3);
  for (int round = 0; round < 500; ++round) {
    Tokens known(1 + random() % 60);
    for (Token& token : known) token = static_cast<Token>(random() % 4);
    const NgramOptions options = {1 + static_cast<int64_t>(random() % 3),
                                  4 + static_cast<int64_t>(random() % 4)};
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
    Tokens expected;
    for (size_t i = best_end; best_end > 0 && i < known.size() && i < best_end + 5; ++i) {
      expected.push_back(known[i]);
    }
    ASSERT_EQ(DraftFromRepetition(known, options, 5), expected) << "round " << round;
  }
}

TEST(NgramTest, OptionsAreChecked) {
  EXPECT_TRUE(NgramOptions{}.Validate().ok());
  EXPECT_FALSE((NgramOptions{0, 4}).Validate().ok());
  EXPECT_FALSE((NgramOptions{5, 4}).Validate().ok());
}

TEST(NgramDrafterTest, GoesOnFromWhatItHasSeen) {
  NgramDrafter drafter;
  const auto state = drafter.NewState();
  const Tokens prompt = {1, 2, 3, 4, 5};
  const auto propose = [&](const Tokens& answer, int64_t most) {
    const DraftRequest request = {
        .state = state.get(), .known = {prompt, answer}, .max_drafts = most};
    return drafter.Propose(std::span(&request, 1))[0];
  };
  EXPECT_EQ(propose({9}, 4), Tokens{});
  EXPECT_EQ(propose({9, 2, 3}, 4), (Tokens{4, 5, 9, 2}));
  EXPECT_EQ(propose({9, 2, 3, 4, 5, 9}, 2), (Tokens{2, 3}));
}

}  // namespace
}  // namespace kvasir
