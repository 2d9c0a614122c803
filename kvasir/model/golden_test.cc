// Logits and greedy tokens of tiny checkpoints against recordings of other implementations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

std::vector<std::string> GoldenFolders() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(TinyModel::Folder(""))) {
    if (entry.is_directory()) names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<Token> Tokens(const Json& array) {
  std::vector<Token> tokens;
  for (const Json& token : array.as_array()) tokens.push_back(static_cast<Token>(token.as_int()));
  return tokens;
}

void ExpectClose(std::span<const float> actual, const Json::Array& wanted, double tolerance) {
  ASSERT_EQ(actual.size(), wanted.size());
  double worst = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    worst = std::max(worst, std::fabs(actual[i] - wanted[i].as_double()));
  }
  EXPECT_LE(worst, tolerance);
}

class GoldenTest : public testing::TestWithParam<std::string> {};

TEST_P(GoldenTest, LogitsAndGreedyTokensMatch) {
  const Json golden =
      ValueOrDie(Json::ParseFile(TinyModel::Folder(GetParam()) + "/golden.json"));
  // The recording's own: agreement between two schedules of the recording engine is 2e-5.
  const double tolerance = *golden.GetDouble("tolerance");
  // Weights are widened to f32, as the recording did; bf16 checkpoints stay exact either way.
  TinyModel tiny({.folder = GetParam(), .threads = 1, .isa = {}, .weights = {}});
  const std::vector<Token> prompt = Tokens(*golden.Find("tokens"));
  KvSequence sequence = tiny.NewSequence();
  const std::vector<float> logits = tiny.Feed(sequence, prompt);
  ExpectClose(logits, golden.Find("logits")->Find("data")->as_array(), tolerance);

  const std::vector<Token> greedy = Tokens(*golden.Find("greedy")->Find("tokens"));
  const size_t vocab = static_cast<size_t>(tiny.model().vocab_size());
  std::vector<float> last(logits.end() - static_cast<int64_t>(vocab), logits.end());
  for (size_t i = 0; i < greedy.size(); ++i) {
    const Token best = static_cast<Token>(std::max_element(last.begin(), last.end()) - last.begin());
    ASSERT_EQ(best, greedy[i]) << "greedy token " << i;
    last = tiny.Feed(sequence, {best});
  }
  ExpectClose(last, golden.Find("logits_after_greedy")->as_array(), tolerance);
}

INSTANTIATE_TEST_SUITE_P(Recorded, GoldenTest, testing::ValuesIn(GoldenFolders()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace kvasir
