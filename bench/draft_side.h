// DraftSide: one engine with its own cache and drafter, timed beside others on the same requests,
// a few steps each in turn, so that whatever else the machine does hits all of them alike.
// Deliberately without workloads: programs bring them, and compare.
#ifndef KVASIR_BENCH_DRAFT_SIDE_H_
#define KVASIR_BENCH_DRAFT_SIDE_H_

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "bench/bench_util.h"
#include "bench/draft_measure.h"
#include "kvasir/engine/draft_source.h"
#include "kvasir/engine/engine.h"

namespace kvasir {

inline constexpr size_t kSidePoolBytes = size_t{1} << 30;

// A ratio, and half of the interval that holds it nineteen times of twenty.
struct Ratio {
  double value = 0;
  double off = 0;
  // "1.432 +-0.021"
  std::string Describe() const;
};

using Answers = std::vector<std::vector<Token>>;

class DraftSide {
 public:
  // Without drafts. The bundle outlives it.
  DraftSide(ModelBundle& bundle, const Measure& measure);

  void UseDrafter(std::unique_ptr<Drafter> drafter) { engine_->UseDrafter(std::move(drafter)); }
  void UseSource(std::unique_ptr<DraftSource> source);

  // These requests under `salt` (their own tells those apart that ask the same: what one was
  // answered is no draft for the other), `streams` at a time: where an answer ends the next one
  // begins. All prompts are read before any clock starts.
  void Begin(std::span<const EngineRequest> requests, size_t streams, uint64_t salt);
  // Goes on, timed, until it has said so many tokens since Begin or everything. Whether work is
  // left.
  bool RunTo(int64_t tokens);
  // What the requests were answered, in their order. REQUIRES: no work is left.
  Answers End();
  void EndRound();

  const std::vector<double>& tokens_per_second() const { return rates_; }  // by round
  // Tokens per second over those of another one that answered the same in turn, of all rounds
  // together, but for the tenth of the turns in which it is lowest and the tenth in which it is
  // highest: what a machine does beside hits single turns hard. Uncertain by 200 draws with
  // replacement of as many turns as there were.
  Ratio RatioTo(const DraftSide& other) const;
  // The same by round.
  std::vector<double> RatiosTo(const DraftSide& other) const;
  // "73 % right, 2.11 kept, depths 50/0/1/36/1/12" of all rounds: see kDraftFigures.
  std::string DescribeDrafts() const;

 private:
  struct Turn {
    double tokens = 0;
    double seconds = 0;
  };

  static double MiddleRatio(std::vector<std::pair<Turn, Turn>> turns);
  void Submit(const EngineRequest& request, std::vector<Token>* answer);
  // As many as there may be at a time.
  void SubmitNext();
  int64_t said_tokens() const;  // since Begin
  void Add(const EngineStats& before, const EngineStats& after);

  KvPool pool_;
  const std::function<EngineClock::time_point()> now_;
  std::unique_ptr<DraftSource> source_;
  std::unique_ptr<Engine> engine_;
  std::span<const EngineRequest> requests_;  // from Begin to End
  uint64_t salt_ = 0;
  size_t streams_ = 0;
  size_t begun_ = 0;           // of the requests
  size_t ended_ = 0;           // of them
  Answers answers_;            // being made
  EngineStats before_;         // them
  EngineStats stats_;          // of all rounds, timed part
  std::vector<Turn> turns_;    // one by RunTo
  std::vector<double> rates_;  // by round
  size_t round_begin_ = 0;     // its first turn
};

// All sides answer the same requests, `streams` at a time, in turn, each a few tokens, so that all
// stand at about the same one whenever the machine is slow for a while. Answers by side.
std::vector<Answers> RunInTurn(std::span<DraftSide* const> sides,
                               std::span<const EngineRequest> requests, size_t streams,
                               uint64_t salt);

// "0.990-1.004": least and most, of ratios for instance.
std::string DescribeSpread(const std::vector<double>& values);

inline constexpr const char* kDraftFigures =
    "right: of the drafts verified; kept: accepted drafts per step of an answer; depths: percent "
    "of "
    "these steps with 0 / 1 / 2 / 3-4 / 5-8 / 9-16 drafts";

}  // namespace kvasir

#endif  // KVASIR_BENCH_DRAFT_SIDE_H_
