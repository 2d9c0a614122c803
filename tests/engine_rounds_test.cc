// What may befall a request in the middle of a round of drafts: it is cancelled, it is preempted,
// its cache goes to disk and comes back. Every drafter: whoever stays is answered as alone, and
// nothing is left. Deliberately few ways to store a cache: engine_soak_test.cc goes through all of
// them.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/speculative/model_drafter.h"
#include "kvasir/speculative/mtp_drafter.h"
#include "kvasir/speculative/ngram_drafter.h"
#include "kvasir/speculative/pair_drafter.h"
#include "tests/support/engine_bench.h"
#include "tests/support/oracle_drafter.h"
#include "tests/support/swap_folder.h"
#include "tests/support/synthetic_head.h"
#include "tests/support/tiny_assistant.h"

namespace kvasir {
namespace {

enum class Kind { kOracle, kNgram, kModel, kMtp, kPairs, kOwnLayer };

struct RoundCase {
  Kind kind;
  TinyPolicy policy;
  friend std::ostream& operator<<(std::ostream& out, const RoundCase& c) { return out << c.policy; }
};

std::vector<RoundCase> Cases() {
  return {{Kind::kOracle, {"oracle", kTinyFull, "f32", "f32"}},
          {Kind::kOracle, {"oracle_qwen_f16", kTinyQwen, "f16", "f16"}},
          {Kind::kOracle, {"oracle_turbo", kTinyFull, "turbo3", "turbo4"}},
          {Kind::kNgram, {"ngram", kTinyFull, "f32", "f32"}},
          {Kind::kModel, {"model", kTinyFull, "f32", "f32"}},
          {Kind::kMtp, {"mtp", kTinyShared, "f32", "f32"}},
          {Kind::kPairs, {"pairs", kTinyFull, "f32", "f32"}},
          {Kind::kOwnLayer, {"own_layer", kTinyStates, "f32", "f32"}},
          {Kind::kOwnLayer, {"own_layer_latent", kTinyLatent, "f16", "f16"}}};
}

// A bench with a drafter.
class RoundBench {
 public:
  explicit RoundBench(const RoundCase& round)
      : kind_(round.kind),
        folder_(round.policy.folder),
        draft_pool_({.budget_bytes = size_t{64} << 20}),
        bench_(round.policy) {}
  ~RoundBench() { bench_.Start(); }  // what drafts goes before what it drafts with

  Bench& bench() { return bench_; }
  Engine& engine() { return bench_.engine(); }
  // Drafts are right whenever the model is asked the same.
  bool is_always_right() const { return kind_ == Kind::kOracle || kind_ == Kind::kModel; }
  // From those of requests before.
  bool learns_answers() const { return kind_ == Kind::kNgram; }

  void Start(size_t budget_bytes, SwapOptions swap, const std::vector<EngineRequest>& requests) {
    EngineOptions options = bench_.FlatCosts();
    options.scheduler = {64, 64};
    options.swap = std::move(swap);
    bench_.Start(budget_bytes, std::move(options));
    engine().UseDrafter(NewDrafter(requests));
  }
  // Answers of all steps so far that were given drafts to verify.
  int64_t rounds() {
    int64_t sum = 0;
    const auto depths = engine().Stats().draft_depths;
    for (size_t depth = 1; depth < depths.size(); ++depth) sum += depths[depth];
    return sum;
  }
  void ExpectNothingLeft() {
    EXPECT_EQ(bench_.LiveBytes(), 0u);
    engine().prefix_tree().Clear();
    EXPECT_EQ(bench_.pool().used_bytes(), 0u);
    EXPECT_EQ(engine().Stats().swap_bytes, 0u);
    engine().UseDrafter(nullptr);
    EXPECT_EQ(draft_pool_.used_bytes(), 0u);
  }

 private:
  std::unique_ptr<Drafter> NewDrafter(const std::vector<EngineRequest>& requests) {
    const Model& model = bench_.model();
    switch (kind_) {
      case Kind::kOracle: {
        auto oracle = std::make_unique<OracleDrafter>(OracleOptions{});
        for (const EngineRequest& request : requests) {
          for (int i = 0; i < request.answers; ++i) {
            oracle->Learn(request.prompt, bench_.Alone(request, i));
          }
        }
        return oracle;
      }
      case Kind::kNgram:
        return std::make_unique<NgramDrafter>(NgramOptions{}, &engine().prefix_tree());
      case Kind::kModel: {
        const auto spec =
            std::make_shared<const KvCacheSpec>(model.CacheSpec({KvCodec::Kind::kF32}));
        return ValueOrDie(ModelDrafter::Create({&model, &draft_pool_, spec, model.vocab_size()}));
      }
      case Kind::kMtp:
        assistant_ = ValueOrDie(LoadAssistant(TinyAssistant::Folder(kTinyAssistants[0]),
                                              bench_.config(), bench_.backend()));
        return std::make_unique<MtpDrafter>(
            MtpDrafterParts{assistant_.model.get(), &model, model.vocab_size()});
      case Kind::kPairs:
        head_ = std::make_unique<SyntheticHead>(model.vocab_size(), model.hidden_size());
        return ValueOrDie(PairDrafter::Create(
            {head_.get(), &draft_pool_, SyntheticHead::Spec(), model.vocab_size()}));
      case Kind::kOwnLayer:
        own_layer_ = ValueOrDie(
            LoadMtpHead(TinyModel::Folder(folder_), bench_.config(), model, bench_.backend()));
        return ValueOrDie(PairDrafter::Create(
            {own_layer_.get(), &draft_pool_,
             std::make_shared<const KvCacheSpec>(own_layer_->CacheSpec({KvCodec::Kind::kF16})),
             model.vocab_size()}));
    }
    return nullptr;
  }

  const Kind kind_;
  const std::string folder_;
  KvPool draft_pool_;
  Bench bench_;
  LoadedAssistant assistant_;
  std::unique_ptr<SyntheticHead> head_;
  std::unique_ptr<const MtpHead> own_layer_;
};

class EngineRoundsTest : public testing::TestWithParam<RoundCase> {
 protected:
  EngineRoundsTest() : round_(GetParam()), bench_(round_.bench()) {
    for (uint64_t i = 0; i < 3; ++i) {
      requests_.push_back(
          Request(RandomTokens(30 + 10 * static_cast<int64_t>(i), vocab(), i + 1), 120));
    }
  }
  int64_t vocab() { return bench_.model().vocab_size(); }

  // Three requests run; while a round of drafts is open, where they are right one of all three, the
  // first calls `cancel` from its callback.
  void RunAndCancel(const std::function<void(const std::vector<RequestId>&)>& cancel) {
    round_.Start(size_t{64} << 20, {}, requests_);
    if (round_.learns_answers()) {
      for (const EngineRequest& request : requests_) bench_.Submit(request);
      bench_.Drain();
    }
    int64_t rounds = round_.rounds();  // before the step
    const int64_t wanted = round_.is_always_right() ? 3 : 1;
    const auto on_token = [&](int, Token, const TokenScores*) {
      if (is_cancelled_ || round_.rounds() - rounds < wanted) return;
      is_cancelled_ = true;
      cancel(ids_);
    };
    for (const EngineRequest& request : requests_) {
      EngineCallbacks callbacks;
      if (ids_.empty()) callbacks.on_token = on_token;
      ids_.push_back(bench_.Submit(request, std::move(callbacks)));
    }
    do {
      rounds = round_.rounds();
    } while (bench_.engine().Step() && !is_cancelled_);
    ASSERT_TRUE(is_cancelled_) << "never drafted";
  }
  // Of request i, which was cancelled in the step just made.
  void ExpectCancelled(size_t i) {
    ASSERT_TRUE(bench_.IsFinished(ids_[i]));
    const GenerationResult& answer = bench_.Answer(ids_[i]);
    EXPECT_EQ(answer.finish, FinishReason::kCancelled);
    const Tokens whole = bench_.Alone(requests_[i]);
    ASSERT_LT(answer.tokens.size(), whole.size());
    EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), whole.begin()));
  }
  void ExpectTheOthersAreRight(const std::vector<size_t>& others) {
    const int64_t drafted = bench_.engine().Stats().drafted_tokens;
    bench_.Drain();
    for (const size_t i : others) {
      EXPECT_EQ(bench_.Answer(ids_[i]).finish, FinishReason::kLength);
      EXPECT_EQ(bench_.Answer(ids_[i]).tokens, bench_.Alone(requests_[i])) << i;
    }
    if (!others.empty() && round_.is_always_right()) {
      EXPECT_GT(bench_.engine().Stats().drafted_tokens, drafted);
    }
    round_.ExpectNothingLeft();
  }

  RoundBench round_;
  Bench& bench_;
  std::vector<EngineRequest> requests_;
  std::vector<RequestId> ids_;
  bool is_cancelled_ = false;
};

// A sequence that leaves while a speculation is open on it ends the program.
TEST_P(EngineRoundsTest, CancelsItselfInARound) {
  RunAndCancel([&](const auto& ids) { bench_.engine().Cancel(ids[0]); });
  ExpectCancelled(0);
  ExpectTheOthersAreRight({1, 2});
}

// Whose rows of the round are yet to be sampled.
TEST_P(EngineRoundsTest, CancelsAnotherInARound) {
  RunAndCancel([&](const auto& ids) { bench_.engine().Cancel(ids[2]); });
  ExpectCancelled(2);
  ExpectTheOthersAreRight({0, 1});
}

TEST_P(EngineRoundsTest, CancelsAllInARound) {
  RunAndCancel([&](const auto&) { bench_.engine().CancelAll(); });
  for (size_t i = 0; i < requests_.size(); ++i) ExpectCancelled(i);
  EXPECT_FALSE(bench_.engine().has_work());
  ExpectTheOthersAreRight({});
}

// In its place comes another, in the middle of the round.
TEST_P(EngineRoundsTest, CancelsAndAsksAnewInARound) {
  RequestId anew = 0;
  RunAndCancel([&](const auto& ids) {
    bench_.engine().Cancel(ids[0]);
    anew = bench_.Submit(requests_[0]);
  });
  ExpectCancelled(0);
  ids_[0] = anew;
  ExpectTheOthersAreRight({0, 1, 2});
}

// Two requests that fit until their answers are long: the second is preempted in a step in which
// both have drafts, goes to disk and comes back.
TEST_P(EngineRoundsTest, PreemptedSwappedAndBack) {
  const Position prompts[] = {60, 100};
  requests_ = {Request(RandomTokens(prompts[0], vocab(), 1), 200),
               Request(RandomTokens(prompts[1], vocab(), 2), 150)};
  const KvCacheSpec& spec = bench_.spec();
  SwapFolder folder;
  round_.Start(spec.BytesAt(260) + 2 * spec.BytesAt(1),
               {.dir = folder.path(), .max_bytes = 64 << 20, .ignores_rates = true}, requests_);
  for (const EngineRequest& request : requests_) ids_.push_back(bench_.Submit(request));
  int64_t rounds = 0;
  while (bench_.engine().Stats().preemptions == 0) {
    rounds = round_.rounds();
    ASSERT_TRUE(bench_.engine().Step()) << "never preempted";
  }
  if (round_.is_always_right()) {
    EXPECT_EQ(round_.rounds() - rounds, 2);
  }
  bench_.Drain();
  for (size_t i = 0; i < requests_.size(); ++i) {
    EXPECT_EQ(bench_.Answer(ids_[i]).tokens, bench_.Alone(requests_[i])) << i;
  }
  const EngineStats stats = bench_.engine().Stats();
  EXPECT_GT(stats.swapped_in, 0);
  EXPECT_GT(bench_.Answer(ids_[1]).stats.drafted_tokens, 0);
  round_.ExpectNothingLeft();
}

INSTANTIATE_TEST_SUITE_P(Drafters, EngineRoundsTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return std::string(info.param.policy.name); });

}  // namespace
}  // namespace kvasir
