// Random operations on sequences, snapshots, batches and speculations against a naive model: a
// list of tokens per sequence and the set of blocks it must still hold, under tiny budgets.
// A failure prints its seed; KVASIR_KV_SEED=n runs that seed only.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/kv/kv_batch.h"
#include "kvasir/kv/kv_test_util.h"
#include "kvasir/kv/speculation.h"

namespace kvasir {
namespace {

using namespace kv_testing;

constexpr int kSeedsPerSpec = 40;
constexpr int kOperationsPerSeed = 250;
constexpr size_t kMaxSequences = 6;
constexpr size_t kMaxSnapshots = 10;

// First row a query at `next` or later sees, from the definitions in design terms.
Position FirstSeen(const RetentionSpec& retention, Position next) {
  switch (retention.kind) {
    case RetentionSpec::Kind::kAll:
      return 0;
    case RetentionSpec::Kind::kWindow:
      return next < retention.size ? 0 : next + 1 - retention.size;
    case RetentionSpec::Kind::kChunk:
      return next - next % retention.size;
    case RetentionSpec::Kind::kBudget:
      return 0;
  }
  return 0;
}

using BlockSet = std::set<int64_t>;

// What must be true of one sequence (begin is 0) or snapshot.
struct Expected {
  std::vector<Token> tokens;  // [0, end), before `begin` too
  Position begin = 0;
  std::vector<BlockSet> held;  // per layer of the spec

  Position end() const { return static_cast<Position>(tokens.size()); }
};

BlockSet Within(const BlockSet& blocks, int64_t begin, int64_t end) {
  BlockSet within;
  for (const int64_t block : blocks) {
    if (block >= begin && block < end) within.insert(block);
  }
  return within;
}

int64_t BlocksUpTo(Position position) { return (position + 63) / 64; }

class Machine {
 public:
  Machine(std::shared_ptr<const KvCacheSpec> spec, size_t budget_bytes, uint32_t seed)
      : pool_(Budget(budget_bytes)), spec_(std::move(spec)), random_(seed) {
    const size_t block_bytes = spec_->layers[0].layout.BlockBytes(0);
    one_block_size_ = std::all_of(
        spec_->layers.begin(), spec_->layers.end(),
        [&](const KvLayerSpec& layer) { return layer.layout.BlockBytes(0) == block_bytes; });
  }

  void Run() {
    using Operation = void (Machine::*)();
    // Appending counts thrice: it is what fills blocks, windows and the budget.
    constexpr Operation kOperations[] = {
        &Machine::Create,    &Machine::Append,      &Machine::Append,   &Machine::Append,
        &Machine::Trim,      &Machine::Fork,        &Machine::Drop,     &Machine::TakeSnapshot,
        &Machine::Split,     &Machine::Merge,       &Machine::Restore,  &Machine::DropSnapshot,
        &Machine::Filter,    &Machine::MoveAround,  &Machine::TrimEach, &Machine::Step,
        &Machine::Speculate, &Machine::ReleaseSlabs};
    for (int i = 0; i < kOperationsPerSeed; ++i) {
      const auto operation = kOperations[Below(std::size(kOperations))];
      (this->*operation)();
      CheckMemory();
      if (i % 10 == 0) CheckEverything();
      if (testing::Test::HasFatalFailure() || testing::Test::HasNonfatalFailure()) return;
    }
    CheckEverything();
    batch_ = KvBatch();
    snapshots_.clear();
    EXPECT_EQ(pool_.used_bytes(), 0u);
    pool_.ReleaseFreeSlabs();
    EXPECT_EQ(pool_.reserved_bytes(), 0u);
  }

 private:
  struct SnapshotPair {
    KvSnapshot snapshot;
    Expected expected;
  };

  int64_t Below(int64_t end) { return std::uniform_int_distribution<int64_t>(0, end - 1)(random_); }
  // Mostly short runs, sometimes several blocks, sometimes exactly to a block border.
  int64_t RunLength(Position position) {
    switch (Below(4)) {
      case 0:
        return 1;
      case 1:
        return 64 - position % 64;
      case 2:
        return Below(200) + 1;
      default:
        return Below(20) + 1;
    }
  }
  // Few different tokens, so that different sequences often have common prefixes.
  std::vector<Token> RandomTokens(int64_t count) {
    std::vector<Token> tokens;
    for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<Token>(Below(5)));
    return tokens;
  }
  SequenceId RandomId() {
    return batch_.ids()[static_cast<size_t>(Below(static_cast<int64_t>(batch_.size())))];
  }

  Expected Empty() const {
    Expected expected;
    expected.held.resize(spec_->layers.size());
    return expected;
  }

  const RetentionSpec& RetentionOf(size_t layer) const { return spec_->layers[layer].retention; }

  void Release(Expected* expected) const {
    for (size_t layer = 0; layer < spec_->layers.size(); ++layer) {
      const int64_t first = FirstSeen(RetentionOf(layer), expected->end()) / 64;
      expected->held[layer] = Within(expected->held[layer], first, BlocksUpTo(expected->end()));
    }
  }
  static void Hold(Expected* expected, const std::vector<Token>& tokens) {
    const int64_t first_new = expected->end() / 64;
    expected->tokens.insert(expected->tokens.end(), tokens.begin(), tokens.end());
    for (BlockSet& held : expected->held) {
      for (int64_t block = first_new; block < BlocksUpTo(expected->end()); ++block) {
        held.insert(block);
      }
    }
  }
  static void Cut(Expected* expected, Position end) {
    expected->tokens.resize(static_cast<size_t>(end));
    for (BlockSet& held : expected->held) held = Within(held, 0, BlocksUpTo(end));
  }
  // Whether the state at `end` needs rows at all, and whether all of them are held.
  enum class Need { kHeld, kNothing, kMissing };
  Need NeedAt(const Expected& expected, Position end) const {
    bool something = false;
    for (size_t layer = 0; layer < spec_->layers.size(); ++layer) {
      for (int64_t block = FirstSeen(RetentionOf(layer), end) / 64; block < BlocksUpTo(end);
           ++block) {
        something = true;
        if (!expected.held[layer].contains(block)) return Need::kMissing;
      }
    }
    return something ? Need::kHeld : Need::kNothing;
  }

  void Create() {
    if (batch_.size() >= kMaxSequences) return;
    MustOk(batch_.Add(next_id_, Must(KvSequence::Create(&pool_, spec_))));
    expected_[next_id_++] = Empty();
  }

  // Whether a refusal of `needed_bytes` is right; known exactly while there is one block size.
  void CheckRefusal(const Status& status, size_t needed_bytes, size_t used_bytes) {
    if (one_block_size_) {
      const size_t block_bytes = spec_->layers[0].layout.BlockBytes(0);
      const size_t room = pool_.budget_bytes() / block_bytes * block_bytes;
      ASSERT_EQ(status.ok(), used_bytes + needed_bytes <= room);
    } else if (used_bytes + needed_bytes > pool_.budget_bytes()) {
      ASSERT_FALSE(status.ok());
    }
    if (!status.ok()) {
      ASSERT_EQ(status.error().code, ErrorCode::kResourceExhausted);
      ASSERT_EQ(pool_.used_bytes(), used_bytes);
    }
  }

  void Append() {
    if (batch_.empty()) return;
    const SequenceId id = RandomId();
    KvSequence& sequence = *batch_.Find(id);
    const auto tokens = RandomTokens(RunLength(sequence.position()));
    const size_t used = pool_.used_bytes();
    const auto count = static_cast<int64_t>(tokens.size());
    const size_t needed = sequence.BytesToReserve(count);
    const Status status = sequence.Reserve(count);
    CheckRefusal(status, needed, used);
    if (status.ok()) {
      ASSERT_EQ(pool_.used_bytes(), used + needed);
      WriteReserved(sequence, tokens);
      Hold(&expected_[id], tokens);
      Release(&expected_[id]);
    }
    Check(id);
  }

  void Trim() {
    if (batch_.empty()) return;
    const SequenceId id = RandomId();
    TrimOne(id, batch_.Find(id)->Trim(0), 0);
    const int64_t count = RunLength(expected_[id].end());
    TrimOne(id, batch_.Find(id)->Trim(count), count);
  }

  void TrimOne(SequenceId id, const Result<int64_t>& trimmed, int64_t count) {
    Expected& expected = expected_[id];
    const int64_t wanted = std::min(count, expected.end());
    const Position target = expected.end() - wanted;
    if (trimmed.ok()) {
      ASSERT_EQ(trimmed.value(), wanted);
      ASSERT_NE(NeedAt(expected, target), Need::kMissing);
      Cut(&expected, target);
    } else {
      ASSERT_EQ(trimmed.error().code, ErrorCode::kFailedPrecondition);
      // Refused only if that state or one on the way to it lacks rows; and it says how far it can.
      bool whole = true;
      for (Position end = target; end <= expected.end(); ++end) {
        whole = whole && NeedAt(expected, end) != Need::kMissing;
      }
      ASSERT_FALSE(whole);
      const int64_t most = batch_.Find(id)->MaxTrim();
      ASSERT_LT(most, wanted);
      ASSERT_NE(trimmed.error().message.find("at most " + std::to_string(most)), std::string::npos);
    }
    Check(id);
  }

  void Fork() {
    if (batch_.empty() || batch_.size() >= kMaxSequences) return;
    const SequenceId id = RandomId();
    const size_t used = pool_.used_bytes();
    MustOk(batch_.Add(next_id_, batch_.Find(id)->Fork()));
    ASSERT_EQ(pool_.used_bytes(), used);
    expected_[next_id_] = expected_[id];
    Check(next_id_++);
  }

  void Drop() {
    if (batch_.size() < 2) return;
    const SequenceId id = RandomId();
    const size_t used = pool_.used_bytes();
    const size_t exclusive = batch_.Find(id)->nbytes_exclusive();
    { const KvSequence ended = Must(batch_.Extract(id)); }
    ASSERT_EQ(pool_.used_bytes(), used - exclusive);
    expected_.erase(id);
  }

  void Keep(KvSnapshot snapshot, Expected expected) {
    if (snapshots_.size() >= kMaxSnapshots) DropSnapshot();
    snapshots_.push_back({std::move(snapshot), std::move(expected)});
  }

  void TakeSnapshot() {
    if (batch_.empty()) return;
    const SequenceId id = RandomId();
    const Position position = expected_[id].end();
    const Position end = Below(2) == 0 ? position : Below(position + 1);
    const Position begin = Below(2) == 0 ? 0 : Below(end + 1);
    Keep(batch_.Find(id)->Snapshot(begin, end), Slice(expected_[id], begin, end));
  }

  static Expected Slice(const Expected& of, Position begin, Position end) {
    Expected slice;
    slice.tokens.assign(of.tokens.begin(), of.tokens.begin() + end);
    slice.begin = begin;
    for (const BlockSet& held : of.held) {
      slice.held.push_back(Within(held, begin / 64, BlocksUpTo(end)));
    }
    return slice;
  }

  size_t RandomSnapshot() {
    return static_cast<size_t>(Below(static_cast<int64_t>(snapshots_.size())));
  }

  void Split() {
    if (snapshots_.empty()) return;
    const SnapshotPair whole = snapshots_[RandomSnapshot()];
    const Position begin = whole.expected.begin;
    const Position at = begin + Below(whole.expected.end() - begin + 1);
    auto [left, right] = Must(whole.snapshot.Split(at));
    Keep(std::move(left), Slice(whole.expected, begin, at));
    Keep(std::move(right), Slice(whole.expected, at, whole.expected.end()));
  }

  void Merge() {
    for (const SnapshotPair& a : snapshots_) {
      for (const SnapshotPair& b : snapshots_) {
        const bool meet = a.expected.end() == b.expected.begin;
        if (!meet && Below(20) == 0) {
          ASSERT_FALSE(KvSnapshot::Merge(a.snapshot, b.snapshot).ok());
        }
        if (!meet || &a == &b || Below(3) != 0) continue;
        if (!std::equal(a.expected.tokens.begin(), a.expected.tokens.end(),
                        b.expected.tokens.begin())) {
          continue;  // not a continuation of a
        }
        Expected merged = b.expected;
        merged.begin = a.expected.begin;
        for (size_t layer = 0; layer < merged.held.size(); ++layer) {
          merged.held[layer] =
              Reachable(a.expected.held[layer], b.expected.held[layer], BlocksUpTo(merged.end()));
        }
        Keep(Must(KvSnapshot::Merge(a.snapshot, b.snapshot)), std::move(merged));
        return;
      }
    }
  }

  // Of the blocks of both, those from which the end is reached without a gap.
  static BlockSet Reachable(const BlockSet& a, const BlockSet& b, int64_t end_block) {
    BlockSet reachable;
    for (int64_t block = end_block - 1; a.contains(block) || b.contains(block); --block) {
      reachable.insert(block);
    }
    return reachable;
  }

  void Restore() {
    if (snapshots_.empty()) return;
    const SnapshotPair& pair = snapshots_[RandomSnapshot()];
    const size_t used = pool_.used_bytes();
    auto sequence = KvSequence::Restore(&pool_, pair.snapshot);
    ASSERT_EQ(pool_.used_bytes(), used);
    ASSERT_EQ(sequence.ok(), pair.snapshot.Restorable().ok());
    switch (NeedAt(pair.expected, pair.expected.end())) {
      case Need::kHeld:
        ASSERT_TRUE(sequence.ok()) << sequence.error().message;
        break;
      case Need::kMissing:
        ASSERT_FALSE(sequence.ok());
        ASSERT_EQ(sequence.error().code, ErrorCode::kFailedPrecondition);
        break;
      case Need::kNothing:
        break;  // an empty state may be refused
    }
    if (!sequence.ok() || batch_.size() >= kMaxSequences) return;
    MustOk(batch_.Add(next_id_, std::move(sequence).value()));
    expected_[next_id_] = pair.expected;
    expected_[next_id_].begin = 0;
    Release(&expected_[next_id_]);
    Check(next_id_++);
  }

  void DropSnapshot() {
    if (snapshots_.empty()) return;
    const size_t used = pool_.used_bytes();
    const auto dropped = snapshots_.begin() + static_cast<int64_t>(RandomSnapshot());
    const size_t exclusive = dropped->snapshot.nbytes_exclusive();
    snapshots_.erase(dropped);
    ASSERT_EQ(pool_.used_bytes(), used - exclusive);
  }

  void Filter() {
    std::vector<SequenceId> keep = batch_.ids();
    std::shuffle(keep.begin(), keep.end(), random_);
    if (keep.size() > 1 && Below(3) == 0) {
      expected_.erase(keep.back());
      keep.pop_back();
    }
    MustOk(batch_.Filter(keep));
    ASSERT_EQ(batch_.ids(), keep);
  }

  // Out of the batch, through another one, and back.
  void MoveAround() {
    if (batch_.empty()) return;
    const size_t used = pool_.used_bytes();
    const SequenceId id = RandomId();
    KvBatch other;
    MustOk(other.Add(id, Must(batch_.Extract(id))));
    if (Below(2) == 0) {
      MustOk(batch_.Extend(std::move(other)));
    } else {
      KvBatch parts[] = {std::move(other), std::move(batch_)};
      batch_ = Must(KvBatch::Merge(parts));
    }
    ASSERT_EQ(batch_.size(), expected_.size());
    ASSERT_EQ(pool_.used_bytes(), used);
    Check(id);
  }

  void TrimEach() {
    std::vector<int64_t> counts;
    for (const SequenceId id : batch_.ids()) {
      counts.push_back(Below(3) == 0 ? RunLength(expected_[id].end()) : Below(5));
    }
    const auto reports = Must(batch_.TrimEach(counts));
    for (size_t i = 0; i < reports.size(); ++i) {
      const TrimReport& report = reports[i];
      TrimOne(report.id,
              report.status.ok() ? Result<int64_t>(report.trimmed)
                                 : Result<int64_t>(report.status.error()),
              counts[i]);
    }
  }

  // A ragged step over the whole batch, reserved at once.
  void Step() {
    std::vector<std::vector<Token>> runs;
    std::vector<int64_t> counts;
    size_t at_most = 0;
    for (const SequenceId id : batch_.ids()) {
      runs.push_back(RandomTokens(Below(3) == 0 ? 0 : RunLength(expected_[id].end())));
      counts.push_back(static_cast<int64_t>(runs.back().size()));
      at_most += batch_.Find(id)->BytesToReserve(counts.back());
    }
    const size_t used = pool_.used_bytes();
    const Status status = batch_.ReserveEach(counts);
    if (!status.ok()) {
      ASSERT_EQ(status.error().code, ErrorCode::kResourceExhausted);
      ASSERT_EQ(pool_.used_bytes(), used);
      if (one_block_size_) {
        ASSERT_GT(used + at_most + spec_->layers[0].layout.BlockBytes(0), pool_.budget_bytes());
      }
    }
    for (size_t i = 0; i < runs.size() && status.ok(); ++i) {
      const SequenceId id = batch_.ids()[i];
      WriteReserved(*batch_.sequences()[i], runs[i]);
      Hold(&expected_[id], runs[i]);
      Release(&expected_[id]);
    }
    CheckEverything();
  }

  void Speculate() {
    std::vector<SequenceId> ids = batch_.ids();
    std::shuffle(ids.begin(), ids.end(), random_);
    ids.resize(static_cast<size_t>(Below(static_cast<int64_t>(ids.size()) + 1)));
    std::vector<KvSequence*> members;
    for (const SequenceId id : ids) members.push_back(batch_.Find(id));
    const std::map<SequenceId, Expected> before = expected_;
    const bool commit = Below(2) == 0;
    std::vector<int64_t> accepted;
    {
      auto speculation = Must(Speculation::Begin(members));
      for (size_t i = 0; i < ids.size(); ++i) {
        const int64_t drafts = RunLength(members[i]->position());
        for (const int64_t part : {drafts / 2, drafts - drafts / 2}) {
          const auto tokens = RandomTokens(part);
          if (!kv_testing::Append(*members[i], tokens).ok()) continue;
          Hold(&expected_[ids[i]], tokens);
        }
        Check(ids[i]);
        accepted.push_back(Below(speculation.appended(i) + 1));
      }
      if (commit) MustOk(speculation.Commit(accepted));
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      Expected& expected = expected_[ids[i]];
      if (commit) {
        Cut(&expected, before.at(ids[i]).end() + accepted[i]);
        Release(&expected);
      } else {
        expected = before.at(ids[i]);
      }
      Check(ids[i]);
    }
  }

  void ReleaseSlabs() { pool_.ReleaseFreeSlabs(); }

  void Check(SequenceId id) {
    const KvSequence& sequence = *batch_.Find(id);
    const Expected& expected = expected_.at(id);
    ExpectHolds(sequence, expected.tokens);
    for (size_t layer = 0; layer < spec_->layers.size(); ++layer) {
      for (const int64_t block : expected.held[layer]) {
        const KvBlocksView view = sequence.Blocks(static_cast<int>(layer));
        ASSERT_GE(block * 64, view.first_row()) << "layer " << layer;
        ASSERT_LT(block * 64, view.end_row()) << "layer " << layer;
      }
    }
  }

  void CheckEverything() {
    ASSERT_EQ(batch_.size(), expected_.size());
    for (const auto& [id, expected] : expected_) Check(id);
    for (const SnapshotPair& pair : snapshots_) {
      if (!pair.snapshot.Restorable().ok()) continue;
      ExpectHolds(Must(KvSequence::Restore(&pool_, pair.snapshot)), pair.expected.tokens);
    }
  }

  // Budgets hold, and the pool counts exactly the blocks that somebody references.
  void CheckMemory() {
    ASSERT_LE(pool_.used_bytes(), pool_.reserved_bytes());
    ASSERT_LE(pool_.reserved_bytes(), pool_.budget_bytes());
    std::set<const KvBlock*> seen;
    size_t bytes = 0;
    const auto add = [&](const KvLayer& layer, size_t block_bytes) {
      for (int64_t block = layer.first_block(); block < layer.end_block(); ++block) {
        if (seen.insert(layer.block(block).get()).second) bytes += block_bytes;
      }
    };
    for (size_t i = 0; i < spec_->layers.size(); ++i) {
      if (!spec_->layers[i].owns_rows()) continue;
      const auto layer = static_cast<int>(i);
      const size_t block_bytes = spec_->layers[i].layout.BlockBytes(0);
      for (const KvSequence* sequence : batch_.sequences()) {
        add(sequence->layer_blocks(layer), block_bytes);
      }
      for (const SnapshotPair& pair : snapshots_) add(pair.snapshot.layer(layer), block_bytes);
    }
    ASSERT_EQ(pool_.used_bytes(), bytes);
  }

  KvPool pool_;
  std::shared_ptr<const KvCacheSpec> spec_;
  std::mt19937 random_;
  bool one_block_size_ = false;
  KvBatch batch_;
  std::map<SequenceId, Expected> expected_;
  std::vector<SnapshotPair> snapshots_;
  SequenceId next_id_ = 1;
};

struct ModelCase {
  const char* name;
  std::vector<KvLayerSpec> layers;
  size_t budget_blocks;  // of the first layer's size
};

void PrintTo(const ModelCase& c, std::ostream* out) { *out << c.name; }

KvLayerSpec Shared(KvLayerSpec layer, int of) {
  layer.shares_layer = of;
  return layer;
}

std::vector<ModelCase> Cases() {
  const KvLayerSpec all = Layer(RetentionSpec::All());
  const KvLayerSpec window = Layer(RetentionSpec::Window(100), F16(), F16());
  const KvLayerSpec small_window = Layer(RetentionSpec::Window(5));
  const KvLayerSpec chunk = Layer(RetentionSpec::Chunk(90), Bf16(), F32());
  return {
      {"all", {all}, 30},
      {"all_three_layers", {all, all, all}, 40},
      {"window", {small_window}, 15},
      {"window_of_one", {Layer(RetentionSpec::Window(1))}, 15},
      {"window_of_a_block", {Layer(RetentionSpec::Window(64))}, 15},
      {"chunk", {chunk}, 15},
      {"chunk_of_a_block", {Layer(RetentionSpec::Chunk(64))}, 15},
      {"all_and_window", {all, small_window}, 40},
      {"alternating", {window, all, window, chunk}, 60},
      {"sharing", {window, all, Shared(window, 0), Shared(all, 1)}, 40},
      {"one_block_is_too_much", {all, all, all, all}, 3},
      {"ample", {all, window, chunk, small_window}, 100000},
  };
}

class KvModelTest : public testing::TestWithParam<ModelCase> {};

TEST_P(KvModelTest, BehavesAsTheNaiveModel) {
  uint32_t first = 0;
  uint32_t end = kSeedsPerSpec;
  if (const char* only = std::getenv("KVASIR_KV_SEED")) {
    first = static_cast<uint32_t>(std::strtoul(only, nullptr, 10));
    end = first + 1;
  }
  const size_t budget = GetParam().budget_blocks * GetParam().layers[0].layout.BlockBytes(0);
  for (uint32_t seed = first; seed < end; ++seed) {
    SCOPED_TRACE("KVASIR_KV_SEED=" + std::to_string(seed));
    Machine(Spec(GetParam().layers), budget, seed).Run();
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Specs, KvModelTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kvasir
