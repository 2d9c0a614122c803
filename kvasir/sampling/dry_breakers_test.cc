// Breakers found in a small vocabulary, and where they end a repetition.
// Deliberately no tokenizer: the vocabulary is a list of texts.
#include "kvasir/sampling/dry_breakers.h"

#include <gtest/gtest.h>

#include "kvasir/sampling/sampler.h"

namespace kvasir {
namespace {

const std::vector<std::string> kTexts = {"a", "b", "\n", "x\ny", "ab", "q", "c", "<e", "nd>", "e"};

// The longest token at every place.
std::vector<Token> Encode(std::string_view text) {
  std::vector<Token> tokens;
  while (!text.empty()) {
    size_t best = kTexts.size();
    for (size_t i = 0; i < kTexts.size(); ++i) {
      if (text.starts_with(kTexts[i]) &&
          (best == kTexts.size() || kTexts[i].size() > kTexts[best].size())) {
        best = i;
      }
    }
    if (best == kTexts.size()) return {};
    tokens.push_back(static_cast<Token>(best));
    text.remove_prefix(kTexts[best].size());
  }
  return tokens;
}

DryBreakers Make(const std::vector<std::string>& texts) {
  return DryBreakers(texts, {.size = static_cast<int64_t>(kTexts.size()),
                             .bytes = [](Token token) { return kTexts[token]; },
                             .encode = Encode});
}

TEST(DryBreakers, TokensThatContainTheTextAreSingle) {
  const DryBreakers breakers = Make({"\n", ""});
  for (Token token = 0; token < 10; ++token) {
    EXPECT_EQ(breakers.IsSingle(token), token == 2 || token == 3) << token;
  }
  EXPECT_FALSE(breakers.IsSingle(-1));
  EXPECT_FALSE(breakers.IsSingle(1000));
  EXPECT_EQ(breakers.TailAfterLast(std::vector<Token>{0, 2, 1, 3, 5, 6}), 2u);
  EXPECT_EQ(breakers.TailAfterLast(std::vector<Token>{0, 1, 5}), 3u);
  EXPECT_EQ(breakers.TailAfterLast(std::vector<Token>{0, 2}), 0u);
  EXPECT_EQ(breakers.TailAfterLast({}), 0u);
}

TEST(DryBreakers, TextsOfSeveralTokensAreFoundWhereverTheyAreCut) {
  const DryBreakers breakers = Make({"<end>"});
  EXPECT_FALSE(breakers.IsSingle(7));
  EXPECT_EQ(breakers.TailAfterLast(std::vector<Token>{0, 7, 8, 1, 1, 1}), 3u);
  EXPECT_EQ(breakers.TailAfterLast(std::vector<Token>{0, 7, 8}), 0u);
  // The beginning without the rest is no breaker.
  EXPECT_EQ(breakers.TailAfterLast(std::vector<Token>{0, 7, 1}), 3u);
  EXPECT_EQ(breakers.TailAfterLast(std::vector<Token>{0, 7}), 2u);
  // "abq" may begin in the middle of a token: "ab" + "q", "a" + "b" + "q".
  const DryBreakers cut = Make({"bq"});
  EXPECT_EQ(cut.TailAfterLast(std::vector<Token>{4, 5, 0}), 1u);
  EXPECT_EQ(cut.TailAfterLast(std::vector<Token>{0, 1, 5, 0, 0}), 2u);
}

TEST(Dry, RepetitionsCostMoreTheLongerTheyAre) {
  SamplingOptions options;
  options.dry = {.multiplier = 1.0, .base = 2.0, .allowed_length = 2};
  Sampler sampler;
  // "1 2 3 4 | 1 2 3": 4 would continue three tokens: 1 * 2^(3 - 2).
  const std::vector<Token> output = {1, 2, 3, 4, 9, 1, 2, 3};
  std::vector<float> logits(10, 0.0f);
  logits[4] = 2.1f;
  logits[5] = 0.2f;
  EXPECT_EQ(sampler.Sample(logits, options, 0, {{}, output}), 5);
  logits[4] = 2.3f;
  EXPECT_EQ(sampler.Sample(logits, options, 0, {{}, output}), 4);
  // A breaker in between: token 2 is a line break, so the repetition is "3" alone.
  const DryBreakers breakers = Make({"\n"});
  logits[4] = 0.3f;
  EXPECT_EQ(sampler.Sample(logits, options, 0, {{}, output, {}, &breakers}), 4);
}

TEST(Dry, EndlessRepetitionIsFiniteAndFast) {
  SamplingOptions options;
  options.dry = {.multiplier = 1.0, .base = 100.0, .allowed_length = 1};
  Sampler sampler;
  const std::vector<Token> output(100'000, 3);
  EXPECT_EQ(sampler.Sample(std::vector<float>{1, 2, 3, 1000}, options, 0, {{}, output}), 2);
  // Nothing else is possible: the penalty bans nothing.
  const float ban = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(sampler.Sample(std::vector<float>{ban, ban, ban, 0}, options, 0, {{}, output}), 3);
}

}  // namespace
}  // namespace kvasir
