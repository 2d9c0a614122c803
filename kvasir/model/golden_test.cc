// Logits and greedy tokens of tiny checkpoints against recordings of other implementations.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

// Relative to the repository: the tiny checkpoints, and the bundled models.
std::vector<std::string> GoldenFolders() {
  std::vector<std::string> folders;
  for (const std::string root : {"testdata/models", "models"}) {
    for (const auto& entry :
         std::filesystem::directory_iterator(std::string(KVASIR_SOURCE_DIR) + "/" + root)) {
      if (std::filesystem::exists(entry.path() / "golden.json")) {
        folders.push_back(root + "/" + entry.path().filename().string());
      }
    }
  }
  std::sort(folders.begin(), folders.end());
  return folders;
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

// The rows of `logits` that the recording holds: those of logit_positions, or all.
std::vector<float> RecordedRows(const Json& golden, const std::vector<float>& logits,
                                size_t vocab) {
  const Json* positions = golden.Find("logit_positions");
  if (positions == nullptr) return logits;
  std::vector<float> rows;
  for (const Json& position : positions->as_array()) {
    const auto row = logits.begin() + position.as_int() * static_cast<int64_t>(vocab);
    rows.insert(rows.end(), row, row + static_cast<int64_t>(vocab));
  }
  return rows;
}

TEST_P(GoldenTest, LogitsAndGreedyTokensMatch) {
  const std::string folder = std::string(KVASIR_SOURCE_DIR) + "/" + GetParam();
  const Json golden = ValueOrDie(Json::ParseFile(folder + "/golden.json"));
  // The recording's own: agreement between two schedules of the recording engine is 2e-5.
  const double tolerance = *golden.GetDouble("tolerance");
  // All weights are widened to f32 exactly, as they were in the recordings: kept as codes or bf16
  // they would have their activations quantized or rounded, which is another function.
  TinyModel tiny({.folder = GetParam(), .threads = 1, .isa = {}, .weights = WeightFormat::kF32});
  const std::vector<Token> prompt = Tokens(*golden.Find("tokens"));
  const size_t vocab = static_cast<size_t>(tiny.model().vocab_size());
  KvSequence sequence = tiny.NewSequence();
  const std::vector<float> logits = tiny.Feed(sequence, prompt);
  ExpectClose(RecordedRows(golden, logits, vocab), golden.Find("logits")->Find("data")->as_array(),
              tolerance);

  const std::vector<Token> greedy = Tokens(*golden.Find("greedy")->Find("tokens"));
  std::vector<float> last(logits.end() - static_cast<int64_t>(vocab), logits.end());
  for (size_t i = 0; i < greedy.size(); ++i) {
    const Token best =
        static_cast<Token>(std::max_element(last.begin(), last.end()) - last.begin());
    ASSERT_EQ(best, greedy[i]) << "greedy token " << i;
    last = tiny.Feed(sequence, {best});
  }
  ExpectClose(last, golden.Find("logits_after_greedy")->as_array(), tolerance);
}

INSTANTIATE_TEST_SUITE_P(Recorded, GoldenTest, testing::ValuesIn(GoldenFolders()),
                         [](const auto& info) {
                           std::string name = info.param.substr(info.param.rfind('/') + 1);
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace kvasir
