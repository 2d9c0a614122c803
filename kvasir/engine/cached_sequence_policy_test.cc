// Going back in a conversation whose cache is packed or evicts rows: the bits of a fresh one.
#include <gtest/gtest.h>

#include "kvasir/engine/cached_sequence.h"
#include "tests/support/tiny_policies.h"

namespace kvasir {
namespace {

using Logits = std::vector<float>;

CachedSequence NewSequence(TinyModel& tiny, const TinyPolicy& policy) {
  return ValueOrDie(CachedSequence::Create(&tiny.model(), &tiny.pool(), policy.Spec(tiny.model())));
}

Logits Evaluate(TinyModel& tiny, CachedSequence& sequence, std::span<const Token> tokens) {
  const auto logits = ValueOrDie(sequence.Evaluate(tokens, tiny.workspace()));
  return {logits.begin(), logits.end()};
}

const TinyPolicy& PolicyNamed(std::string_view name) {
  static const auto* const kPolicies = new std::vector<TinyPolicy>(TinyPolicies());
  const auto found = std::find_if(kPolicies->begin(), kPolicies->end(),
                                  [&](const TinyPolicy& policy) { return policy.name == name; });
  KVASIR_CHECK(found != kPolicies->end());
  return *found;
}

class CachedSequencePolicyTest : public testing::TestWithParam<TinyPolicy> {
 protected:
  CachedSequencePolicyTest() : tiny_({.folder = GetParam().folder}) {}

  static bool Evicts() { return *GetParam().budget != '\0'; }
  CachedSequence New() { return NewSequence(tiny_, GetParam()); }
  // Rewinds to what `prompt` shares, evaluates the rest, and expects the logits of a fresh start.
  // Returns the tokens kept.
  int64_t AskAgain(CachedSequence& sequence, const std::vector<Token>& prompt) {
    const int64_t kept = sequence.Rewind(prompt);
    const Logits logits =
        Evaluate(tiny_, sequence, std::span(prompt).subspan(static_cast<size_t>(kept)));
    CachedSequence fresh = New();
    EXPECT_EQ(logits, Evaluate(tiny_, fresh, prompt)) << kept << " tokens kept";
    EXPECT_EQ(sequence.tokens(), prompt);
    EXPECT_EQ(sequence.sequence().evicted(), fresh.sequence().evicted());
    return kept;
  }
  static std::vector<Token> Diverging(std::vector<Token> prompt, size_t at) {
    prompt[at] = (prompt[at] + 1) % 256;
    return prompt;
  }

  TinyModel tiny_;
};

TEST_P(CachedSequencePolicyTest, WithoutARestorePointItStartsAnewWhereRowsAreGone) {
  const auto prompt = RandomTokens(390, 256, 1);
  CachedSequence sequence = New();
  Evaluate(tiny_, sequence, prompt);
  ASSERT_EQ(sequence.sequence().evicted(), Evicts());
  const int64_t kept = AskAgain(sequence, Diverging(prompt, 170));
  EXPECT_LE(kept, Evicts() ? 0 : 170);
}

TEST_P(CachedSequencePolicyTest, RestorePointsOutliveEvictions) {
  const auto prompt = RandomTokens(390, 256, 2);
  CachedSequence sequence = New();
  // Before any eviction; where one is due; between two.
  size_t done = 0;
  for (const size_t at : {150, 192, 340}) {
    Evaluate(tiny_, sequence, std::span(prompt).subspan(done, at - done));
    sequence.AddRestorePoint();
    done = at;
  }
  Evaluate(tiny_, sequence, std::span(prompt).subspan(done));
  for (const auto& [diverges_at, least] : {std::pair(345, 340), {200, 192}, {160, 150}}) {
    const int64_t kept = AskAgain(sequence, Diverging(prompt, static_cast<size_t>(diverges_at)));
    EXPECT_GE(kept, least);
    EXPECT_LE(kept, diverges_at);
  }
}

TEST_P(CachedSequencePolicyTest, TokensAfterTheLastEvictionAreTrimmed) {
  const auto prompt = RandomTokens(380, 256, 3);
  CachedSequence sequence = New();
  Evaluate(tiny_, sequence, prompt);
  EXPECT_EQ(AskAgain(sequence, prompt), 379);
  // States go back to where they are kept only: to a block's border shortly before the end.
  const bool has_states = sequence.sequence().spec().HasRecurrentLayers();
  EXPECT_EQ(AskAgain(sequence, Diverging(prompt, 335)), has_states ? 320 : 335);
}

TEST_P(CachedSequencePolicyTest, AskingAgainLeavesPointsInOrder) {
  const auto prompt = RandomTokens(390, 256, 4);
  CachedSequence sequence = New();
  for (int i = 0; i < 4; ++i) {
    Evaluate(tiny_, sequence, std::span(prompt).subspan(static_cast<size_t>(sequence.position())));
    sequence.AddRestorePoint();
    (void)sequence.Rewind(prompt);
  }
  const auto spec = GetParam().Spec(tiny_.model());
  const auto snapshots = sequence.Snapshots();
  EXPECT_LE(snapshots.size(), 4u);
  OrDie(CachedSequence::Restore(&tiny_.model(), &tiny_.pool(), spec, snapshots).status());
}

TEST_P(CachedSequencePolicyTest, SnapshotsBringBackSequenceAndRestorePoints) {
  const auto prompt = RandomTokens(390, 256, 4);
  CachedSequence sequence = New();
  Evaluate(tiny_, sequence, std::span(prompt).first(150));
  sequence.AddRestorePoint();
  Evaluate(tiny_, sequence, std::span(prompt).subspan(150));
  const auto snapshots = sequence.Snapshots();
  // Where there are states, each of the two has left two more.
  const bool has_states = sequence.sequence().spec().HasRecurrentLayers();
  ASSERT_EQ(snapshots.size(), has_states ? 6u : 2u);
  const auto spec = GetParam().Spec(tiny_.model());
  const auto restore = [&](std::span<const NamedSnapshot> from) {
    return CachedSequence::Restore(&tiny_.model(), &tiny_.pool(), spec, from);
  };
  CachedSequence restored = ValueOrDie(restore(snapshots));
  auto longer = prompt;
  longer.push_back(7);
  EXPECT_EQ(AskAgain(restored, longer), 390);
  EXPECT_GE(AskAgain(restored, Diverging(longer, 160)), 150);
  // Not one token per position; no sequence; restore points alone.
  auto wrong = snapshots;
  wrong[0].tokens.pop_back();
  EXPECT_EQ(restore(wrong).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(restore({}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(restore(std::span(snapshots).subspan(1)).error().code, ErrorCode::kInvalidArgument);
  // A "restore point" that ends behind the sequence.
  const KvSnapshot& point = snapshots[has_states ? 3 : 1].snapshot;
  wrong = {{"short", point, {prompt.begin(), prompt.begin() + 150}}, snapshots[0]};
  EXPECT_EQ(restore(wrong).error().code, ErrorCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Policies, CachedSequencePolicyTest, testing::ValuesIn(TinyPolicies()),
                         [](const auto& info) { return info.param.name; });

// An eviction copies the blocks that a restore point holds too. When the pool has no room for that,
// the restore point goes, not the request.
TEST(CachedSequenceEvictionTest, RestorePointsGiveWayToAnEviction) {
  for (const char* const name : {"knorm", "expected_attention"}) {
    const TinyPolicy& policy = PolicyNamed(name);
    const auto prompt = RandomTokens(250, 256, 1);
    const auto first = std::span(prompt).first(192);
    const auto rest = std::span(prompt).subspan(192);
    // The least memory with which one sequence can do it alone, to the kilobyte.
    size_t least = 0;
    Logits wanted;
    for (size_t step = size_t{1} << 20; step >= 1024; step /= 2) {
      TinyModel tiny({.folder = policy.folder, .budget_bytes = least + step});
      CachedSequence sequence = NewSequence(tiny, policy);
      const bool fits = sequence.Evaluate(first, tiny.workspace()).ok() &&
                        sequence.Evaluate(rest, tiny.workspace()).ok();
      if (!fits) least += step;
    }
    TinyModel tiny({.folder = policy.folder, .budget_bytes = least + 1024});
    CachedSequence sequence = NewSequence(tiny, policy);
    Evaluate(tiny, sequence, first);
    sequence.AddRestorePoint();
    const Logits logits = Evaluate(tiny, sequence, rest);
    TinyModel roomy({.folder = policy.folder});
    CachedSequence other = NewSequence(roomy, policy);
    EXPECT_EQ(logits, Evaluate(roomy, other, prompt)) << name;
    EXPECT_EQ(sequence.Snapshots().size(), 1u) << name << ": the restore point cost nothing";
    EXPECT_EQ(sequence.RewindTo(191), 0) << name;
  }
}

}  // namespace
}  // namespace kvasir
