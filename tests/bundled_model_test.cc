// The bundled model through our own engine: it finds things in its context, at every length, from
// every kind of cache. The floors are a little below what the model's card reports.
#include <gtest/gtest.h>

#include <map>
#include <sstream>

#include "kvasir/base/file.h"
#include "kvasir/engine/generator.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

struct Score {
  int right = 0;
  int all = 0;
};

std::string Trimmed(const std::string& text) {
  const size_t begin = text.find_first_not_of(" \n");
  const size_t end = text.find_last_not_of(" \n");
  return begin == std::string::npos ? "" : text.substr(begin, end - begin + 1);
}

// Greedy answers to the exported items; right means equal to the wanted text.
std::map<std::string, Score> Evaluate(const BundleOptions& options) {
  const std::string folder = std::string(KVASIR_SOURCE_DIR) + "/models/kvasir-demo";
  const auto bundle = ValueOrDie(ModelBundle::Load(folder, options));
  Generator generator(bundle.get());
  std::istringstream lines(ValueOrDie(ReadFile(folder + "/items.jsonl")));
  std::map<std::string, Score> scores;
  std::string line;
  while (std::getline(lines, line)) {
    const Json item = ValueOrDie(Json::Parse(line));
    const Json messages = Json::Array{
        Json(Json::Object{{"role", "user"}, {"content", ValueOrDie(item.GetString("prompt"))}})};
    GenerationRequest request;
    request.prompt = ValueOrDie(bundle->ChatTokens(messages));
    request.max_tokens = 64;
    CachedSequence sequence = ValueOrDie(bundle->NewSequence());
    const auto result = ValueOrDie(generator.Generate(request, sequence));
    Score& score = scores[ValueOrDie(item.GetString("task"))];
    ++score.all;
    score.right += Trimmed(result.text) == Trimmed(ValueOrDie(item.GetString("answer")));
  }
  return scores;
}

std::string Report(const std::map<std::string, Score>& scores) {
  std::string report;
  for (const auto& [task, score] : scores) {
    report += task + " " + std::to_string(score.right) + "/" + std::to_string(score.all) + "  ";
  }
  return report;
}

TEST(BundledModelTest, FindsThingsInItsContext) {
  BundleOptions options;
  options.kv_budget_bytes = size_t{256} << 20;
  const auto scores = Evaluate(options);
  ASSERT_FALSE(scores.empty());
  Score lookups;
  for (const char* task : {"passkey", "kv"}) {
    ASSERT_TRUE(scores.count(task)) << task;
    lookups.right += scores.at(task).right;
    lookups.all += scores.at(task).all;
  }
  RecordProperty("scores", Report(scores));
  std::printf("%s\n", Report(scores).c_str());
  EXPECT_GE(lookups.right * 100, lookups.all * 90) << Report(scores);
}

}  // namespace
}  // namespace kvasir
