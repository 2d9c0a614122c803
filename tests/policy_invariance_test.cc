// Promise 1 under every way to store and to evict: a lossy cache changes the numbers once, for
// everyone alike. Deliberately only what a policy can break: weights, other models and longer
// contexts are in invariance_test.cc. Every test compares bits, none has a tolerance.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "kvasir/kv/snapshot_file.h"
#include "kvasir/kv/speculation.h"
#include "tests/support/tiny_policies.h"

namespace kvasir {
namespace {

using Logits = std::vector<float>;

constexpr int64_t kTokens = 400;

bool SameBits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

class PolicyInvarianceTest : public testing::TestWithParam<TinyPolicy> {
 protected:
  PolicyInvarianceTest()
      : tiny_({.folder = GetParam().folder, .attention = GetParam().attention}) {}

  static KvSequence New(TinyModel& tiny) {
    return ValueOrDie(KvSequence::Create(&tiny.pool(), GetParam().Spec(tiny.model())));
  }
  KvSequence New() { return New(tiny_); }
  std::vector<Token> Tokens(int64_t count = kTokens, uint64_t seed = 1) {
    return RandomTokens(count, tiny_.model().vocab_size(), seed);
  }
  // Logits of every position, evaluated at once.
  Logits Whole(const std::vector<Token>& tokens) {
    KvSequence sequence = New();
    return tiny_.Feed(sequence, tokens);
  }
  // Whether logits of the positions from `begin` on are those of `whole`.
  bool Continues(const Logits& logits, const Logits& whole, int64_t begin) {
    const auto first = static_cast<size_t>(begin * tiny_.model().vocab_size());
    return first + logits.size() <= whole.size() &&
           SameBits(logits, std::span(whole).subspan(first, logits.size()));
  }

  TinyModel tiny_;
};

std::vector<Token> Slice(const std::vector<Token>& tokens, int64_t begin, int64_t end) {
  return {tokens.begin() + begin, tokens.begin() + end};
}

TEST_P(PolicyInvarianceTest, ChunksOfAnySize) {
  const auto tokens = Tokens();
  const Logits whole = Whole(tokens);
  for (const int64_t chunk : {1, 7, 64, 512}) {
    KvSequence sequence = New();
    EXPECT_TRUE(SameBits(tiny_.Feed(sequence, tokens, {chunk}), whole)) << chunk;
    EXPECT_EQ(sequence.evicted(), *GetParam().budget != '\0');
    KvSequence prefilled = New();
    tiny_.Prefill(prefilled, Slice(tokens, 0, kTokens - 20), chunk);
    const Logits rest = tiny_.Feed(prefilled, Slice(tokens, kTokens - 20, kTokens));
    EXPECT_TRUE(Continues(rest, whole, kTokens - 20)) << chunk << ", without logits";
  }
}

TEST_P(PolicyInvarianceTest, ThreadsAndInstructionSets) {
  const auto tokens = Tokens(210);
  const Logits whole = Whole(tokens);
  for (const Isa isa : SupportedIsas()) {
    for (const int threads : {1, 2, 4}) {
      // The scalar oracle is slow and has no threads of its own: once is enough.
      if (isa == Isa::kScalar && threads != 2) continue;
      TinyModel other({.folder = GetParam().folder,
                       .threads = threads,
                       .isa = isa,
                       .attention = GetParam().attention});
      KvSequence sequence = New(other);
      EXPECT_TRUE(SameBits(other.Feed(sequence, tokens, {170, 1}), whole))
          << IsaName(isa) << ", " << threads << " threads";
    }
  }
}

TEST_P(PolicyInvarianceTest, BatchMatesDoNotMatter) {
  constexpr size_t kSequences = 3;
  std::vector<std::vector<Token>> prompts;
  std::vector<KvSequence> sequences;
  for (size_t i = 0; i < kSequences; ++i) {
    prompts.push_back(Tokens(kTokens - 70 * static_cast<int64_t>(i), i));
    sequences.push_back(New());
  }
  // Every step mixes decode, prefill chunks and absent sequences at random.
  std::mt19937 random(7);
  std::vector<Logits> batched(kSequences);
  for (bool is_done = false; !is_done;) {
    is_done = true;
    std::vector<SequenceRun> runs;
    std::vector<size_t> members;
    for (size_t i = 0; i < kSequences; ++i) {
      const int64_t position = sequences[i].position();
      const int64_t rest = static_cast<int64_t>(prompts[i].size()) - position;
      if (rest == 0) continue;
      is_done = false;
      if (random() % 4 == 0) continue;
      const int64_t wish = random() % 2 == 0 ? 1 : 1 + random() % 90;
      const int64_t count = std::min({rest, wish, sequences[i].RunLimit()});
      runs.push_back(
          {&sequences[i],
           std::span(prompts[i]).subspan(static_cast<size_t>(position), static_cast<size_t>(count)),
           count});
      members.push_back(i);
    }
    if (runs.empty()) continue;
    const ConstFloatRows rows = ValueOrDie(tiny_.model().Forward(runs, tiny_.workspace()));
    int64_t row = 0;
    for (size_t m = 0; m < members.size(); ++m) {
      const int64_t end = row + runs[m].logits_rows;
      batched[members[m]].insert(batched[members[m]].end(), rows.row(row), rows.row(end));
      row = end;
    }
  }
  for (size_t i = 0; i < kSequences; ++i) EXPECT_TRUE(SameBits(batched[i], Whole(prompts[i]))) << i;
}

TEST_P(PolicyInvarianceTest, ForksGoTheirOwnWays) {
  const auto left = Tokens();
  for (const int64_t at : {150, 192, 240, 300}) {
    auto right = Slice(left, 0, at);
    const auto other = Tokens(100, 2);
    right.insert(right.end(), other.begin(), other.end());
    KvSequence a = New();
    tiny_.Feed(a, Slice(left, 0, at));
    KvSequence b = a.Fork();
    // In turns and in one step: neither may see rows that the other has written or moved.
    Logits from_a, from_b;
    const auto add = [](Logits& logits, const ConstFloatRows& rows, int64_t begin, int64_t end) {
      logits.insert(logits.end(), rows.row(begin), rows.row(end));
    };
    while (a.position() < at + 100) {
      const int64_t begin = a.position();
      const int64_t count = std::min({int64_t{20}, at + 100 - begin, a.RunLimit()});
      const auto next_a = Slice(left, begin, begin + count);
      const auto next_b = Slice(right, begin, begin + count);
      const SequenceRun runs[] = {{&a, next_a, count}, {&b, next_b, count}};
      if (begin / 20 % 2 == 1) {
        for (const SequenceRun& run : runs) {
          const auto rows = ValueOrDie(tiny_.model().Forward({&run, 1}, tiny_.workspace()));
          add(run.sequence == &a ? from_a : from_b, rows, 0, count);
        }
      } else {
        const auto rows = ValueOrDie(tiny_.model().Forward(runs, tiny_.workspace()));
        add(from_a, rows, 0, count);
        add(from_b, rows, count, 2 * count);
      }
    }
    EXPECT_TRUE(Continues(from_a, Whole(left), at)) << at;
    EXPECT_TRUE(Continues(from_b, Whole(right), at)) << at;
  }
}

TEST_P(PolicyInvarianceTest, TrimmedTokensLeaveNoTrace) {
  const auto tokens = Tokens();
  const Logits whole = Whole(tokens);
  // Far enough behind evictions, and where windows and recent copies have not just let a block go.
  for (const int64_t end : {150, 280, 380}) {
    constexpr int64_t kWrong = 11;
    KvSequence sequence = New();
    sequence.KeepStatesAt(PositionsWithin(end - kWrong - 30, end));
    tiny_.Feed(sequence, Slice(tokens, 0, end - kWrong));
    tiny_.Feed(sequence, Tokens(kWrong, 3));
    const int64_t most = sequence.MaxTrim();
    ASSERT_GE(most, kWrong) << end;
    if (most < end) {
      EXPECT_EQ(sequence.Trim(most + 1).error().code, ErrorCode::kFailedPrecondition);
      EXPECT_EQ(sequence.position(), end);
    }
    ASSERT_TRUE(sequence.Trim(std::min(most, kWrong + 20)).ok());
    const int64_t kept = sequence.position();
    EXPECT_TRUE(Continues(tiny_.Feed(sequence, Slice(tokens, kept, kTokens)), whole, kept)) << end;
  }
}

TEST_P(PolicyInvarianceTest, SnapshotsAndFilesGoOnWithTheSameBits) {
  const auto tokens = Tokens();
  KvSequence sequence = New();
  Logits whole;
  // 192 and 320 are where budgets become full: rows are evicted by whoever goes on.
  for (const int64_t at : {100, 192, 193, 320, 390}) {
    const auto begin = sequence.position();
    const Logits more = tiny_.Feed(sequence, Slice(tokens, begin, at));
    const KvSnapshot snapshot = sequence.Snapshot();
    std::vector<std::byte> bytes;
    OrDie(WriteSnapshots({{{"", snapshot, {}}}, {}}, [&](std::span<const std::byte> part) {
      bytes.insert(bytes.end(), part.begin(), part.end());
      return Status();
    }));
    if (whole.empty()) whole = Whole(tokens);
    EXPECT_TRUE(Continues(more, whole, begin)) << at;

    const auto rest = Slice(tokens, at, kTokens);
    KvSequence restored = ValueOrDie(KvSequence::Restore(&tiny_.pool(), snapshot));
    EXPECT_TRUE(Continues(tiny_.Feed(restored, rest, {9}), whole, at)) << at;
    // The file is read where nothing of the first sequence exists.
    KvPool pool({.budget_bytes = size_t{64} << 20});
    const KvSnapshotFile file = ValueOrDie(ReadSnapshots(&pool, bytes));
    KvSequence loaded = ValueOrDie(KvSequence::Restore(&pool, file.sequences[0].snapshot));
    EXPECT_TRUE(Continues(tiny_.Feed(loaded, rest), whole, at)) << at;
  }
}

TEST_P(PolicyInvarianceTest, RejectedDraftsLeaveNoTrace) {
  const auto tokens = Tokens();
  const Logits whole = Whole(tokens);
  KvSequence sequence = New();
  tiny_.Feed(sequence, Slice(tokens, 0, 170));
  std::mt19937 random(3);
  Logits verified;
  while (sequence.position() < 340) {
    const int64_t begin = sequence.position();
    KvSequence* member = &sequence;
    Speculation round = ValueOrDie(Speculation::Begin(std::span(&member, 1)));
    const int64_t drafts = std::min<int64_t>(8, sequence.RunLimit());
    ASSERT_GT(drafts, 0) << begin;
    sequence.KeepStatesAt(PositionsWithin(begin + 1, begin + drafts));
    const int64_t right = std::min<int64_t>(random() % 9, drafts);
    auto run = Slice(tokens, begin, begin + right);
    while (static_cast<int64_t>(run.size()) < drafts) {
      run.push_back(static_cast<Token>(random() % 256));
    }
    const Logits logits = tiny_.Feed(sequence, run);
    OrDie(round.Commit(std::span(&right, 1)));
    verified.insert(verified.end(), logits.begin(),
                    logits.begin() + right * tiny_.model().vocab_size());
  }
  EXPECT_TRUE(Continues(verified, whole, 170));
}

INSTANTIATE_TEST_SUITE_P(Policies, PolicyInvarianceTest, testing::ValuesIn(TinyPolicies()),
                         [](const auto& info) { return info.param.name; });

// Partial sums of long contexts are merged at fixed rows: the first such border is row 1,024.
TEST(LongPackedContextTest, ChunksOfAnySize) {
  for (const TinyPolicy& policy : TinyPolicies()) {
    const std::string_view name = policy.name;
    if (name != "dense_ends" && name != "turbo4" && name != "turbo3h" && name != "affine3" &&
        name != "from_value_turbo4") {
      continue;
    }
    TinyModel tiny({.folder = policy.folder, .attention = policy.attention});
    const auto tokens = RandomTokens(1100, tiny.model().vocab_size(), 1);
    const auto feed = [&](const std::vector<int64_t>& chunks) {
      auto sequence = ValueOrDie(KvSequence::Create(&tiny.pool(), policy.Spec(tiny.model())));
      return tiny.Feed(sequence, tokens, chunks);
    };
    const Logits whole = feed({512});
    EXPECT_TRUE(SameBits(feed({1023, 2, 1}), whole)) << policy.name;
    EXPECT_TRUE(SameBits(feed({7, 1, 121, 1, 63, 300}), whole)) << policy.name;
  }
}

}  // namespace
}  // namespace kvasir
