// What a pass of an assistant costs beside a step of its target, on the shapes of published models.
// Deliberately without drafts that are verified: oracle_bench says what those bring.
//
//   assistant_bench SHAPE ASSISTANT [weights] [tokens] [repeats]
//
// Folders with a config.json each (testdata/shapes/gemma-4-e2b, .../gemma-4-e2b-assistant). The
// target's weights are made up in the form `weights` (q8), the assistant's are bf16. By number of
// sequences, each of `tokens` tokens: milliseconds of the target's step of one row each, of its
// step of five rows each, and of the assistant's pass, measured in turn, the medians.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>
#include <vector>

#include "bench/bench_util.h"
#include "bench/draft_side.h"
#include "kvasir/model/model_loader.h"

namespace kvasir {
namespace {

constexpr int64_t kVerifiedRows = 5;
constexpr int64_t kChunkTokens = 256;

class Pair {
 public:
  Pair(ModelBundle& bundle, const AssistantModel& assistant)
      : bundle_(bundle), assistant_(assistant) {}

  void Measure(size_t streams, int64_t tokens, int repeats) {
    std::vector<KvSequence> sequences;
    for (size_t i = 0; i < streams; ++i) {
      sequences.push_back(Must(KvSequence::Create(&bundle_.pool(), bundle_.cache_spec())));
    }
    for (int64_t read = 0; read < tokens; read += kChunkTokens) {
      (void)Step(sequences, std::min(kChunkTokens, tokens - read));
    }
    std::vector<double> one, many, pass;
    for (int i = -1; i < repeats; ++i) {
      const double one_ms = Step(sequences, 1);
      const double many_ms = Step(sequences, kVerifiedRows);
      const double pass_ms = Pass(sequences);
      if (i < 0) continue;  // buffers grow in the first round
      one.push_back(one_ms);
      many.push_back(many_ms);
      pass.push_back(pass_ms);
    }
    std::printf("%7zu %10.2f %10.2f %10.3f %6.1f %%\n", streams, Median(one), Median(many),
                Median(pass), 100 * Median(pass) / Median(one));
    std::fflush(stdout);
  }

 private:
  template <typename Work>
  static double Milliseconds(const Work& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start)
        .count();
  }
  Token AnyToken() {
    next_ = (next_ * 7919 + 13) % bundle_.model().vocab_size();
    return static_cast<Token>(next_);
  }

  // `rows` more tokens of each, all with logits where they would be verified.
  double Step(std::vector<KvSequence>& sequences, int64_t rows) {
    const int64_t logits_rows = rows > kVerifiedRows ? 0 : rows;
    std::vector<std::vector<Token>> tokens(sequences.size());
    std::vector<SequenceRun> runs;
    for (size_t i = 0; i < sequences.size(); ++i) {
      for (int64_t row = 0; row < rows; ++row) tokens[i].push_back(AnyToken());
      runs.push_back({&sequences[i], tokens[i], logits_rows, 1});
    }
    const double ms = Milliseconds([&] { (void)Must(bundle_.model().Forward(runs, workspace_)); });
    const ConstFloatRows states = workspace_.HiddenStates();
    states_.assign(states.row(0), states.row(0) + states.rows * states.cols);
    return ms;
  }

  double Pass(const std::vector<KvSequence>& sequences) {
    const auto width = static_cast<size_t>(assistant_.target_hidden_size());
    std::vector<AssistantQuery> queries;
    for (size_t i = 0; i < sequences.size(); ++i) {
      queries.push_back({.cache = &sequences[i],
                         .position = sequences[i].position(),
                         .token = AnyToken(),
                         .state = std::span(states_).subspan(i * width, width)});
    }
    return Milliseconds(
        [&] { (void)assistant_.Forward(bundle_.model(), queries, draft_workspace_); });
  }

  ModelBundle& bundle_;
  const AssistantModel& assistant_;
  Workspace workspace_;
  Workspace draft_workspace_;
  std::vector<float> states_;  // [sequences, hidden_size] of the last tokens
  int64_t next_ = 1;
};

int Main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: assistant_bench SHAPE ASSISTANT [weights] [tokens] [repeats]\n");
    return 2;
  }
  BundleOptions options;
  options.weight_format = Must(WeightFormatFromName(argc > 3 ? argv[3] : "q8"));
  const int64_t tokens = argc > 4 ? std::max(1, std::atoi(argv[4])) : 512;
  const int repeats = argc > 5 ? std::max(1, std::atoi(argv[5])) : 15;
  options.kv_budget_bytes = size_t{1} << 30;
  options.random_weights = true;
  const auto bundle = Must(ModelBundle::Load(argv[1], options));
  const auto assistant =
      Must(MakeRandomAssistant(argv[2], bundle->config(), bundle->backend(), WeightFormat::kBf16));
  std::printf("%s: %.0f MB of weights; %s: %.0f MB; %s\ncache: %s\n", argv[1],
              static_cast<double>(bundle->model().weight_bytes()) / 1e6, argv[2],
              static_cast<double>(assistant.model->weight_bytes()) / 1e6,
              bundle->backend().Describe().c_str(), bundle->DescribeCache().c_str());
  std::printf("streams    step ms  of 5 rows    pass ms   share\n");
  Pair pair(*bundle, *assistant.model);
  for (const size_t streams : {1, 2, 4, 8}) pair.Measure(streams, tokens, repeats);
  return 0;
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) { return kvasir::Main(argc, argv); }
