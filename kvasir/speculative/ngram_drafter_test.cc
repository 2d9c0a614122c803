#include "kvasir/speculative/ngram_drafter.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvasir {
namespace {

using Tokens = std::vector<Token>;

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
