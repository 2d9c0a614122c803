// The cache of a drafting head: whatever was guessed, refused, forked, read again or found, drafts
// are those of exactly the pairs that the drafter was told of.
#include "kvasir/speculative/pair_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "tests/support/synthetic_head.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

using Tokens = std::vector<Token>;
constexpr int64_t kVocabulary = 61;
constexpr int64_t kStateSize = 6;

// The target's state at a position: a function of all tokens up to it.
std::vector<float> TargetState(const Tokens& tokens, int64_t position) {
  uint64_t hash = 7;
  for (int64_t i = 0; i <= position; ++i) {
    hash = (hash ^ static_cast<uint64_t>(tokens[static_cast<size_t>(i)] + 1)) * 0x100000001B3ull;
  }
  std::vector<float> state;
  for (int i = 0; i < kStateSize; ++i) state.push_back(static_cast<float>(hash >> (9 * i) & 511));
  return state;
}

// A sequence as the engine has it.
struct Told {
  std::unique_ptr<DraftState> state;
  Tokens known;
  uint64_t salt = 0;
  int64_t read = 0;                                      // tokens that the target has read
  std::map<int64_t, std::vector<float>> stand_ins = {};  // by slot: not the state there
  // Slots that nobody reported, too many for stand-ins.
  int64_t gap_begin = 0;
  int64_t gap_end = 0;

  bool is_gapped() const { return gap_begin < gap_end; }
};

class PairDrafterTest : public testing::Test {
 protected:
  explicit PairDrafterTest(size_t budget_bytes = size_t{64} << 20)
      : pool_({.budget_bytes = budget_bytes}) {
    Renew();
  }
  void Renew() {
    drafter_ =
        ValueOrDie(PairDrafter::Create({&head_, &pool_, SyntheticHead::Spec(), kVocabulary}));
  }
  Told New(Tokens known, uint64_t salt = 0) {
    return {drafter_->NewState(), std::move(known), salt};
  }
  // The target reads [begin, end).
  void Report(Told& told, int64_t begin, int64_t end) {
    std::vector<float> states;
    for (int64_t at = begin; at < end; ++at) {
      const auto state = TargetState(told.known, at);
      states.insert(states.end(), state.begin(), state.end());
    }
    drafter_->Report({.state = told.state.get(),
                      .known = {told.known, {}},
                      .salt = told.salt,
                      .begin = begin,
                      .hidden = {states.data(), end - begin, kStateSize, kStateSize}});
    told.read = end;
  }
  DraftRequest Request(const Told& told, int64_t most) const {
    return {.state = told.state.get(),
            .known = {told.known, {}},
            .salt = told.salt,
            .max_drafts = most,
            .sampling = &sampling_};
  }
  Tokens Ask(const Told& told, int64_t most) {
    const DraftRequest request = Request(told, most);
    return drafter_->Propose(std::span(&request, 1))[0];
  }
  // By the definition: all pairs that are known, then a chain of guesses.
  Tokens Expected(const Told& told, int64_t most) const {
    std::vector<float> rows;
    const auto add = [&](Token token, const std::vector<float>& state) {
      const auto row = SyntheticHead::Row(token, state);
      rows.insert(rows.end(), row.begin(), row.end());
    };
    for (int64_t slot = 0; slot + 1 < static_cast<int64_t>(told.known.size()); ++slot) {
      if (slot >= told.gap_begin && slot < told.gap_end) continue;
      const auto other = told.stand_ins.find(slot);
      add(told.known[static_cast<size_t>(slot) + 1],
          other == told.stand_ins.end() ? TargetState(told.known, slot) : other->second);
    }
    Tokens drafts = {head_.Says(rows)};
    while (static_cast<int64_t>(drafts.size()) < most) {
      add(drafts.back(), head_.StateOf(rows));
      drafts.push_back(head_.Says(rows));
    }
    return drafts;
  }
  // The first report begins at `begin`, and pairs are known up to `found`.
  static void Miss(Told& told, int64_t found, int64_t begin) {
    if (begin - found > 8) {
      told.gap_begin = found;
      told.gap_end = begin;
    } else {
      for (int64_t slot = found; slot < begin; ++slot) {
        told.stand_ins[slot] = TargetState(told.known, begin);
      }
    }
  }
  // A step accepts some of the drafts and adds a token of its own.
  void Accept(Told& told, const Tokens& drafts, size_t accepted, Token own) {
    const int64_t begin = told.known.size() - 1;
    told.known.insert(told.known.end(), drafts.begin(),
                      drafts.begin() + static_cast<int64_t>(accepted));
    told.known.push_back(own);
    Report(told, begin, begin + 1 + static_cast<int64_t>(accepted));
  }

  SyntheticHead head_{kVocabulary, kStateSize};
  KvPool pool_;
  std::unique_ptr<PairDrafter> drafter_;
  SamplingOptions sampling_;
};

TEST_F(PairDrafterTest, APromptIsReadAsItIsReported) {
  Told told = New(RandomTokens(200, kVocabulary, 1));
  for (int64_t at = 0; at < 200; at += 50) Report(told, at, at + 50);
  EXPECT_EQ(head_.passes, 4);
  EXPECT_EQ(head_.pairs, 199);  // the last one waits for its token
  told.known.push_back(5);
  EXPECT_EQ(Ask(told, 1), Expected(told, 1));
  EXPECT_EQ(head_.passes, 5);
  EXPECT_EQ(head_.pairs, 200);
  Accept(told, {}, 0, 6);
  EXPECT_EQ(Ask(told, 3), Expected(told, 3));
  EXPECT_EQ(head_.passes, 8);
  EXPECT_EQ(head_.pairs, 203);
}

TEST_F(PairDrafterTest, AFewPairsAreReadWithTheFirstDraft) {
  Told told = New(RandomTokens(20, kVocabulary, 1));
  for (int64_t at = 0; at < 20; at += 5) Report(told, at, at + 5);
  told.known.push_back(5);
  EXPECT_EQ(head_.passes, 0);
  EXPECT_EQ(Ask(told, 2), Expected(told, 2));
  EXPECT_EQ(head_.passes, 2);
  EXPECT_EQ(head_.pairs, 21);
}

TEST_F(PairDrafterTest, AFullQueueIsReadBeforeAnybodyAsks) {
  Told told = New(RandomTokens(600, kVocabulary, 2));
  Report(told, 0, 600);
  EXPECT_EQ(head_.passes, 3);
  EXPECT_EQ(head_.pairs, 599);
  told.known.push_back(1);
  EXPECT_EQ(Ask(told, 2), Expected(told, 2));
}

// Guesses were written with the head's own states; what is true of them is written anew.
TEST_F(PairDrafterTest, PairsAreMadeOfTheTargetsStatesWhetherRefusedOrAccepted) {
  for (size_t accepted = 0; accepted <= 4; ++accepted) {
    Told told = New(RandomTokens(30, kVocabulary, accepted));
    Report(told, 0, 30);
    told.known.push_back(3);
    const Tokens drafts = Ask(told, 4);
    ASSERT_EQ(drafts, Expected(told, 4));
    Accept(told, drafts, accepted, 9);
    EXPECT_EQ(Ask(told, 4), Expected(told, 4)) << accepted;
  }
}

TEST_F(PairDrafterTest, AskedAgainWithoutAStepItSaysTheSame) {
  Told told = New({1, 2, 3, 4});
  Report(told, 0, 3);
  EXPECT_EQ(Ask(told, 3), Expected(told, 3));
  EXPECT_EQ(Ask(told, 5), Expected(told, 5));
  Report(told, 0, 3);  // read again after a preemption
  EXPECT_EQ(Ask(told, 2), Expected(told, 2));
}

// What follows is drafted from what is known; only reports that are still to come are waited for.
TEST_F(PairDrafterTest, AGapIsLeftOut) {
  Told told = New(RandomTokens(20, kVocabulary, 4));
  Report(told, 0, 5);
  Report(told, 14, 18);
  EXPECT_EQ(drafter_->MissingTokens(Request(told, 1)), std::nullopt);
  EXPECT_TRUE(Ask(told, 1).empty());
  Report(told, 18, 19);
  Miss(told, 5, 14);
  ASSERT_TRUE(told.is_gapped());
  EXPECT_EQ(drafter_->MissingTokens(Request(told, 1)), 0);
  EXPECT_EQ(Ask(told, 3), Expected(told, 3));
  Report(told, 0, 19);  // read again: the rows are as they are
  EXPECT_EQ(Ask(told, 2), Expected(told, 2));
  Told late = New(RandomTokens(20, kVocabulary, 5));
  Report(late, 9, 19);
  Miss(late, 0, 9);
  EXPECT_EQ(Ask(late, 2), Expected(late, 2));
  // Nothing of either is found by others.
  for (Told* const one : {&told, &late}) {
    drafter_->Finish(*one->state, {one->known, {}}, 0);
    one->state.reset();
  }
  EXPECT_EQ(pool_.used_bytes(), 0u);
}

// Where others parted the target has one state more than there are pairs. What is said then is
// found by the next turn.
TEST_F(PairDrafterTest, AnotherStateStandsInForAFew) {
  Told first = New(RandomTokens(40, kVocabulary, 6));
  Report(first, 0, 39);
  drafter_->Finish(*first.state, {first.known, {}}, 0);
  Tokens parted = first.known;
  std::fill(parted.begin() + 30, parted.end(), 7);
  Told second = New(parted);
  Report(second, 30, 39);  // slots up to 28 are the same
  Miss(second, 29, 30);
  ASSERT_EQ(second.stand_ins.size(), 1u);
  EXPECT_EQ(Ask(second, 3), Expected(second, 3));
  drafter_->Finish(*second.state, {second.known, {}}, 0);
  Tokens next_turn = parted;
  next_turn.insert(next_turn.end(), {4, 5, 6});
  Told third = New(next_turn);
  third.stand_ins = second.stand_ins;
  const int64_t before = head_.pairs;
  Report(third, 39, 42);
  EXPECT_EQ(Ask(third, 1), Expected(third, 1));
  EXPECT_EQ(head_.pairs - before, 3);
}

// A pair is proven by the token behind it as well: where sequences part, the last slot differs.
TEST_F(PairDrafterTest, AFoundPrefixHasExactlyThePairsInCommon) {
  Told first = New(RandomTokens(40, kVocabulary, 6));
  Report(first, 0, 39);
  ASSERT_EQ(Ask(first, 1), Expected(first, 1));
  drafter_->Finish(*first.state, {first.known, {}}, 0);
  const auto fresh_pairs = [&](Told told, int64_t begin, int64_t found) {
    const int64_t before = head_.pairs;
    const Token last = told.known.back();  // comes later, as the pair of the last state
    told.known.pop_back();
    Report(told, begin, static_cast<int64_t>(told.known.size()));
    told.known.push_back(last);
    Miss(told, found, begin);
    EXPECT_EQ(Ask(told, 1), Expected(told, 1));
    return head_.pairs - before;
  };
  Tokens more = first.known;
  more.insert(more.end(), {1, 2, 3});
  EXPECT_EQ(fresh_pairs(New(more), 39, 39), 3);
  EXPECT_EQ(fresh_pairs(New(more, 1), 0, 0), 42);  // another salt has nothing of it
  EXPECT_EQ(fresh_pairs(New(more, 1), 39, 0), 3);
  Tokens parted = more;
  parted[20] = (parted[20] + 1) % kVocabulary;
  // Slots 0 to 18 are the same: slot 19 holds token 20.
  EXPECT_EQ(fresh_pairs(New(parted), 19, 19), 42 - 19);
  EXPECT_EQ(fresh_pairs(New(parted), 20, 19), 42 - 19);
  Tokens other = more;
  other[0] = (other[0] + 1) % kVocabulary;  // in no pair, but in every state
  EXPECT_EQ(fresh_pairs(New(other), 0, 0), 42);
}

TEST_F(PairDrafterTest, SequencesAreDraftedForSideBySide) {
  std::vector<Told> all;
  std::vector<DraftRequest> requests;
  for (int64_t i = 0; i < 6; ++i) {
    all.push_back(New(RandomTokens(2 + 17 * i, kVocabulary, static_cast<uint64_t>(i))));
    Report(all.back(), 0, 1 + 17 * i);
  }
  for (size_t i = 0; i < all.size(); ++i) {
    requests.push_back(Request(all[i], 1 + static_cast<int64_t>(i) % 3));
  }
  const int64_t before = head_.passes;
  const auto drafts = drafter_->Propose(requests);
  EXPECT_EQ(head_.passes - before, 3);
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(drafts[i], Expected(all[i], requests[i].max_drafts)) << i;
  }
}

// Of a large vocabulary drafts are looked for where the sequence's own tokens are.
TEST_F(PairDrafterTest, RareTokensAreNotLookedAt) {
  constexpr int64_t kMany = 100'000;
  const SyntheticHead large(kMany, kStateSize);
  drafter_ = ValueOrDie(PairDrafter::Create({&large, &pool_, SyntheticHead::Spec(), kMany - 7}));
  const auto looked_at = [&](int64_t most, size_t rare) {
    Tokens known = RandomTokens(65, 10'000, 1);
    for (size_t i = 1; i <= rare; ++i) known[i] = static_cast<Token>(most - 1);
    Told told = New(std::move(known));
    Report(told, 0, 64);
    EXPECT_EQ(Ask(told, 2).size(), 2u);
    return large.logits_tokens;
  };
  constexpr int64_t kEighth = 12'496;  // of 99,993, in whole panels
  constexpr int64_t kHalf = 49'984;
  EXPECT_EQ(looked_at(10'000, 64), kEighth);
  EXPECT_EQ(looked_at(kEighth, 64), kEighth);
  EXPECT_EQ(looked_at(kHalf, 64), kHalf);
  EXPECT_EQ(looked_at(kHalf, 4), kEighth);  // one of 16
  EXPECT_EQ(looked_at(kHalf, 5), kHalf);
  EXPECT_EQ(looked_at(kMany - 7, 64), kMany);
  // Whoever needs most decides for a pass; nothing is looked at where nobody asks.
  Told common = New(RandomTokens(30, 100, 2));
  Told rare = New(RandomTokens(30, 100, 3));
  for (Token& token : rare.known) token += kHalf + 16;
  for (Told* const told : {&common, &rare}) Report(*told, 0, 29);
  const DraftRequest requests[] = {Request(common, 1), Request(rare, 1)};
  (void)drafter_->Propose(requests);
  EXPECT_EQ(large.logits_tokens, kMany);
  Told unasked = New(RandomTokens(300, 100, 4));
  Report(unasked, 0, 299);
  EXPECT_EQ(large.logits_tokens, 0);
}

TEST_F(PairDrafterTest, PartsThatCannotBeAreNamed) {
  KvCacheSpec window = *SyntheticHead::Spec();
  window.layers[0].retention = RetentionSpec::Window(64);
  const auto kept = PairDrafter::Create(
      {&head_, &pool_, std::make_shared<const KvCacheSpec>(window), kVocabulary});
  EXPECT_EQ(kept.error().code, ErrorCode::kInvalidArgument);
  const auto vocabulary =
      PairDrafter::Create({&head_, &pool_, SyntheticHead::Spec(), kVocabulary + 1});
  EXPECT_NE(vocabulary.error().message.find("61 tokens"), std::string::npos);
}

class PairDrafterBudgetTest : public PairDrafterTest {
 protected:
  // Two blocks.
  PairDrafterBudgetTest() : PairDrafterTest(size_t{2} * 64 * 2 * SyntheticHead::kDim * 4) {}
};

TEST_F(PairDrafterBudgetTest, WhoDoesNotFitGoesWithout) {
  Told large = New(RandomTokens(200, kVocabulary, 1));
  Report(large, 0, 199);
  EXPECT_TRUE(Ask(large, 2).empty());
  EXPECT_EQ(pool_.used_bytes(), 0u);
  Told small = New(RandomTokens(20, kVocabulary, 2));
  Report(small, 0, 19);
  EXPECT_EQ(Ask(small, 2), Expected(small, 2));
}

// Everything that can happen to sequences, in any order, with prefixes that many have in common.
class PairDrafterRandomTest : public PairDrafterTest {
 protected:
  // Slots of an earlier sequence that `told` would find.
  int64_t Findable(const Told& told) const {
    int64_t most = 0;
    for (const Told& done : finished_) {
      if (done.salt != told.salt) continue;
      int64_t tokens = 0;
      const auto end = static_cast<int64_t>(std::min(done.known.size(), told.known.size()));
      while (tokens < end &&
             done.known[static_cast<size_t>(tokens)] == told.known[static_cast<size_t>(tokens)]) {
        ++tokens;
      }
      // done.read: how many slots it left.
      most = std::max(most, std::min(tokens - 1, done.read));
    }
    return most;
  }
  int64_t Below(int64_t end) {
    return static_cast<int64_t>(random_() % static_cast<uint64_t>(end));
  }
  void Begin() {
    Tokens prompt;
    const int64_t size = 2 + Below(40);
    for (int64_t i = 0; i < size; ++i) prompt.push_back(static_cast<Token>(Below(8) == 0));
    Told told = New(std::move(prompt), static_cast<uint64_t>(Below(2)));
    const int64_t found = Findable(told);
    int64_t at = std::min(Below(3) == 0 ? Below(size) : Below(found + 1), size - 1);
    // Which of several rows for one slot is found depends on how blocks are shared, so that where
    // others have stood in drafts are not known.
    if (told.salt == 0 && at > found && at <= found + 8) at = found;
    Miss(told, found, at);
    while (at < size) {
      const int64_t end = std::min(size, at + 1 + Below(12));
      Report(told, at, end);
      at = end;
    }
    told.known.push_back(static_cast<Token>(Below(2)));
    if (Below(4) == 0) {
      Told fork = {drafter_->ForkState(*told.state),
                   told.known,
                   told.salt,
                   told.read,
                   told.stand_ins,
                   told.gap_begin,
                   told.gap_end};
      fork.known.back() = static_cast<Token>(Below(kVocabulary));
      live_.push_back(std::move(fork));
    }
    live_.push_back(std::move(told));
  }
  void Round(Told& told) {
    const int64_t most = 1 + Below(5);
    Tokens drafts;
    if (Below(3) != 0) {
      drafts = Ask(told, most);
      if (told.salt == 0) {
        EXPECT_EQ(drafts, Expected(told, most));
        ++(told.is_gapped() ? gapped_ : drafted_);
      } else {
        EXPECT_EQ(static_cast<int64_t>(drafts.size()), most);
      }
    }
    if (Below(6) == 0) {
      const int64_t from = Below(told.read + 1);
      if (from < told.read) Report(told, from, told.read);
    }
    const auto accepted = static_cast<size_t>(Below(static_cast<int64_t>(drafts.size()) + 1));
    Accept(told, drafts, accepted, static_cast<Token>(Below(kVocabulary)));
  }
  void Finish(size_t index) {
    Told& told = live_[index];
    drafter_->Finish(*told.state, {told.known, {}}, told.salt);
    told.state.reset();
    if (!told.is_gapped()) {
      told.read = std::min<int64_t>(told.read, static_cast<int64_t>(told.known.size()) - 1);
      finished_.push_back(std::move(told));
    }
    live_.erase(live_.begin() + static_cast<int64_t>(index));
  }

  std::mt19937_64 random_{20};
  std::vector<Told> live_;
  std::vector<Told> finished_;
  int64_t drafted_ = 0;
  int64_t gapped_ = 0;
};

TEST_F(PairDrafterRandomTest, DraftsAreThoseOfTheNaiveModel) {
  for (int step = 0; step < 6000 && !HasFailure(); ++step) {
    SCOPED_TRACE(testing::Message() << "step " << step);
    if (live_.size() < 4 || Below(8) == 0) {
      Begin();
      continue;
    }
    const auto index = static_cast<size_t>(Below(static_cast<int64_t>(live_.size())));
    if (Below(6) == 0) {
      Finish(index);
    } else {
      Round(live_[index]);
    }
  }
  EXPECT_GT(drafted_, 800);
  EXPECT_GT(gapped_, 50);
  while (!live_.empty()) Finish(0);
  Renew();
  EXPECT_EQ(pool_.used_bytes(), 0u);
}

}  // namespace
}  // namespace kvasir
