// What drafts that are right with probability p bring on the shape of a published model, by number
// of streams: an upper bound for drafters that cost nothing, and what the planner makes of it.
// Deliberately also a check: drafts that change a token of an answer end the program.
//
//   oracle_bench SHAPE [rounds] [tokens] [measure] [streams] [ASSISTANT]
//
// SHAPE is a folder with a config.json (testdata/shapes/qwen3-0.6b); weights are made up and have 8
// bits. Each round asks other prompts. An engine that is not timed answers them first; some of the
// others draft its answers, every token of them wrong with probability 1 - p. Two engines have no
// drafts: the second is the control, what it differs from the first by is noise. All go on in
// turn, and behind each ratio stand how far it is uncertain and the least and the most of all
// rounds. Measures are those of MeasureFromName; 0 streams are all numbers of them. With ASSISTANT,
// the folder of one for that shape, or "own" for the shape's own layer (mtp; "own-whole": with
// logits of the whole vocabulary), drafts are not free: its passes are made for them and what they
// guess is thrown away; one more engine takes their guesses.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "bench/bench_util.h"
#include "bench/draft_side.h"
#include "bench/paid_oracle.h"
#include "kvasir/speculative/pair_drafter.h"
#include "tests/support/oracle_drafter.h"

namespace kvasir {
namespace {

constexpr int64_t kPromptTokens = 32;
constexpr size_t kAnswersPerStream = 3;  // in a round, one after the other
constexpr uint32_t kRightPercents[] = {0, 30, 60, 80, 95};

std::vector<EngineRequest> Requests(size_t count, int64_t tokens, int64_t vocab_size,
                                    uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<EngineRequest> requests(count);
  for (EngineRequest& request : requests) {
    for (int64_t i = 0; i < kPromptTokens; ++i) {
      request.prompt.push_back(static_cast<Token>(random() % static_cast<uint64_t>(vocab_size)));
    }
    request.max_tokens = tokens;
    request.ignore_stop_tokens = true;
    request.sampling.temperature = 0;
  }
  return requests;
}

// The shape's own layer (mtp), made up. Answers of made-up weights have tokens of all of the
// vocabulary, so that drafts are looked for in all of it; `is_text`: in an eighth, as if they were.
class OwnLayer {
 public:
  OwnLayer(const ModelBundle& bundle, bool is_text)
      : is_text_(is_text),
        model_(bundle.model()),
        head_(
            Must(MakeRandomMtpHead(bundle.config(), model_, bundle.backend(), WeightFormat::kQ8))),
        spec_(
            std::make_shared<const KvCacheSpec>(head_->CacheSpec({.kind = KvCodec::Kind::kF16}))) {}

  std::unique_ptr<Drafter> NewDrafter() {
    KvPool& pool = pools_.emplace_back(KvPoolOptions{.budget_bytes = kSidePoolBytes});
    return Must(PairDrafter::Create({.head = head_.get(),
                                     .pool = &pool,
                                     .spec = spec_,
                                     .sampleable_tokens = model_.vocab_size(),
                                     .text_tokens = is_text_ ? 1 : 0}));
  }
  // What a pass for one pair takes.
  void Measure() {
    KvPool pool({.budget_bytes = kSidePoolBytes});
    KvSequence cache = Must(KvSequence::Create(&pool, spec_));
    Workspace workspace;
    const int64_t size = model_.hidden_size();
    const std::vector<float> state(static_cast<size_t>(size), 0.5f);
    const Token token = 7;
    const PairRun run = {&cache, std::span(&token, 1), {state.data(), 1, size, size}};
    const auto ms = [&](int64_t tokens) {
      const auto pass = [&](int) {
        (void)Must(head_->Forward(std::span(&run, 1), tokens, workspace));
      };
      return MedianMicroseconds(
                 30, [](int) {}, pass) /
             1000;
    };
    const int64_t eighth = model_.vocab_size() / 8 / kPanelOutputs * kPanelOutputs;
    std::printf("a pass of the layer: %.2f ms, with an eighth of the vocabulary %.2f ms\n",
                ms(model_.vocab_size()), ms(eighth));
  }

 private:
  const bool is_text_;
  const Model& model_;
  const std::unique_ptr<const MtpHead> head_;
  const std::shared_ptr<const KvCacheSpec> spec_;
  std::deque<KvPool> pools_;
};

using NewDrafter = std::function<std::unique_ptr<Drafter>()>;

struct Workload {
  size_t streams = 1;
  int rounds = 1;
  int64_t tokens = 0;
};

// By one number of streams. `new_paid`, if not empty, makes what drafts cost. False if an answer
// changed.
bool MeasureStreams(ModelBundle& bundle, const NewDrafter& new_paid, const Measure& measure,
                    const Workload& workload) {
  const auto [streams, rounds, tokens] = workload;
  DraftSide teacher(bundle, measure);
  DraftSide* const teachers[] = {&teacher};
  DraftSide none(bundle, measure);
  std::vector<std::unique_ptr<DraftSide>> sides;  // the control, one by hit rate, assistant
  std::vector<DraftSide*> in_turn = {&none};
  std::vector<OracleDrafter*> oracles;
  sides.push_back(std::make_unique<DraftSide>(bundle, measure));
  for (const uint32_t right : kRightPercents) {
    auto oracle = std::make_unique<OracleDrafter>(
        OracleOptions{.wrong_percent = 100 - right, .is_cheap = true});
    oracles.push_back(oracle.get());
    sides.push_back(std::make_unique<DraftSide>(bundle, measure));
    if (!new_paid) {
      sides.back()->UseDrafter(std::move(oracle));
    } else {
      sides.back()->UseDrafter(std::make_unique<PaidOracle>(std::move(oracle), new_paid()));
    }
  }
  if (new_paid) {
    sides.push_back(std::make_unique<DraftSide>(bundle, measure));
    sides.back()->UseDrafter(new_paid());
  }
  for (const auto& side : sides) in_turn.push_back(side.get());
  for (int round = 0; round < rounds; ++round) {
    const auto salt = static_cast<uint64_t>(round) + 1;
    const auto requests = Requests(kAnswersPerStream * streams, tokens, bundle.sampleable_tokens(),
                                   static_cast<uint32_t>(100 * streams + salt));
    const Answers right = RunInTurn(teachers, requests, streams, salt)[0];
    for (OracleDrafter* oracle : oracles) {
      for (size_t i = 0; i < requests.size(); ++i) oracle->Learn(requests[i].prompt, right[i]);
    }
    for (const Answers& answers : RunInTurn(in_turn, requests, streams, salt)) {
      if (answers != right) return false;
    }
    for (DraftSide* const side : in_turn) side->EndRound();
  }
  const std::vector<double> control = sides[0]->RatiosTo(none);
  std::printf("%zu streams: none %.1f %s, control x%s (rounds %s)\n", streams,
              Median(none.tokens_per_second()), measure.unit.c_str(),
              sides[0]->RatioTo(none).Describe().c_str(), DescribeSpread(control).c_str());
  for (size_t i = 1; i < sides.size(); ++i) {
    const std::vector<double> ratios = sides[i]->RatiosTo(none);
    char name[16] = "itself";
    if (i <= std::size(kRightPercents)) {
      std::snprintf(name, sizeof(name), "p %.2f", kRightPercents[i - 1] / 100.0);
    }
    std::printf("  %s: x%s (rounds %s, first round %.3f), %s\n", name,
                sides[i]->RatioTo(none).Describe().c_str(), DescribeSpread(ratios).c_str(),
                ratios[0], sides[i]->DescribeDrafts().c_str());
  }
  std::fflush(stdout);
  return true;
}

int Main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: oracle_bench SHAPE [rounds] [tokens] [measure] [streams] [ASSISTANT]\n");
    return 2;
  }
  const int rounds = argc > 2 ? std::max(1, std::atoi(argv[2])) : 3;
  const int64_t tokens = argc > 3 ? std::max(1, std::atoi(argv[3])) : 48;
  const Measure measure = Must(MeasureFromName(argc > 4 ? argv[4] : ""));
  BundleOptions options;
  options.backend.threads = measure.threads;
  options.weight_format = WeightFormat::kQ8;
  options.kv_budget_bytes = kSidePoolBytes;  // each engine brings its own pool
  options.random_weights = true;
  const auto bundle = Must(ModelBundle::Load(argv[1], options));
  std::unique_ptr<DraftSource> assistant;
  std::optional<OwnLayer> own_layer;
  NewDrafter new_paid;
  const size_t wanted_streams = argc > 5 ? std::strtoul(argv[5], nullptr, 10) : 0;
  const std::string_view drafter = argc > 6 ? argv[6] : "";
  if (drafter == "own" || drafter == "own-whole") {
    own_layer.emplace(*bundle, drafter == "own");
    own_layer->Measure();
    new_paid = [&] { return own_layer->NewDrafter(); };
  } else if (argc > 6) {
    options.weight_format.reset();
    assistant = Must(DraftSource::Load({DraftKind::kMtp, argv[6], options}, *bundle));
    new_paid = [&] { return assistant->NewDrafter(nullptr); };
  }
  if (wanted_streams > 8 || (wanted_streams & (wanted_streams - 1)) != 0) {
    std::fprintf(stderr, "streams are 1, 2, 4 or 8; 0 is each of them\n");
    return 2;
  }
  std::printf("%s\n", kDraftFigures);
  for (const size_t streams : {1, 2, 4, 8}) {
    if (wanted_streams != 0 && streams != wanted_streams) continue;
    if (MeasureStreams(*bundle, new_paid, measure, {streams, rounds, tokens})) continue;
    std::fprintf(stderr, "drafts changed an answer\n");
    return 1;
  }
  return 0;
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) { return kvasir::Main(argc, argv); }
