// Random operations on sequences, snapshots, batches and speculations against a naive model
// (kv_naive_model.h), under tiny budgets.
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
#include "kvasir/kv/kv_naive_model.h"
#include "kvasir/kv/kv_size_class.h"
#include "kvasir/kv/speculation.h"

namespace kvasir {
namespace {

using namespace kv_testing;

constexpr uint32_t kSeedsPerSpec = 40;
constexpr int kOperationsPerSeed = 250;
constexpr size_t kMaxSequences = 6;
constexpr size_t kMaxSnapshots = 10;

using Expected = NaiveModel;
using Need = NaiveModel::Need;

class Machine {
 public:
  Machine(std::shared_ptr<const KvCacheSpec> spec, size_t budget_bytes, uint32_t seed)
      : pool_(Budget(budget_bytes)), spec_(std::move(spec)), random_(seed) {
    std::set<size_t> sizes;
    for (const KvLayerSpec& layer : spec_->layers) {
      sizes.insert(layer.is_recurrent() ? layer.state_bytes : layer.layout.BlockBytes(0));
      if (layer.is_recurrent()) continue;
      sizes.insert(layer.layout.BlockBytes(1 << 20));
      if (layer.layout.dense_recent > 0) sizes.insert(layer.layout.RecentBlock().BlockBytes());
    }
    one_block_size_ = sizes.size() == 1;
  }

  void Run() {
    using Operation = void (Machine::*)();
    // Appending counts thrice: it is what fills blocks, windows and the budget.
    constexpr Operation kOperations[] = {
        &Machine::Create,    &Machine::Append,       &Machine::Append,   &Machine::Append,
        &Machine::Trim,      &Machine::Fork,         &Machine::Drop,     &Machine::TakeSnapshot,
        &Machine::Split,     &Machine::Merge,        &Machine::Restore,  &Machine::DropSnapshot,
        &Machine::Filter,    &Machine::MoveAround,   &Machine::TrimEach, &Machine::Step,
        &Machine::Speculate, &Machine::ReleaseSlabs, &Machine::Compact,  &Machine::TakeCheckpoint};
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

  size_t FirstBlockBytes() const {
    const KvLayerSpec& layer = spec_->layers[0];
    return layer.is_recurrent() ? layer.state_bytes : layer.layout.BlockBytes(0);
  }
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

  void Create() {
    if (batch_.size() >= kMaxSequences) return;
    MustOk(batch_.Add(next_id_, Must(KvSequence::Create(&pool_, spec_))));
    expected_.emplace(next_id_++, Expected(spec_));
  }

  // Whether a refusal of `needed_bytes` is right; known exactly while there is one block size.
  void CheckRefusal(const Status& status, size_t needed_bytes, size_t used_bytes) {
    if (one_block_size_) {
      const size_t block_bytes = FirstBlockBytes();
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

  // At most what may be appended before a budget evicts; sometimes more, which must be refused.
  int64_t RunWithin(KvSequence& sequence) {
    const int64_t limit = sequence.RunLimit();
    const int64_t length = RunLength(sequence.position());
    if (length > limit) {
      const Status status = sequence.Reserve(length);
      EXPECT_FALSE(status.ok());
      EXPECT_EQ(status.error().code,
                limit == 0 ? ErrorCode::kFailedPrecondition : ErrorCode::kInvalidArgument);
    }
    return std::min(length, limit);
  }

  void Append() {
    if (batch_.empty()) return;
    const SequenceId id = RandomId();
    KvSequence& sequence = *batch_.Find(id);
    const auto tokens = RandomTokens(RunWithin(sequence));
    const size_t used = pool_.used_bytes();
    const auto count = static_cast<int64_t>(tokens.size());
    const size_t needed = sequence.BytesToReserve(count);
    const bool evicts = Due(expected_.at(id)) && count > 0;
    const Status status = sequence.Reserve(count);
    CheckRefusal(status, needed, used);
    if (status.ok()) {
      if (evicts) {
        ASSERT_LE(pool_.used_bytes(), used + needed);
      } else {
        ASSERT_EQ(pool_.used_bytes(), used + needed);
      }
      WriteReserved(sequence, tokens);
      const Position begin = expected_.at(id).end();
      expected_.at(id).Append(tokens);
      if (count > 0) expected_.at(id).Release(begin);
    }
    Check(id);
  }

  static bool Due(const Expected& expected) {
    for (size_t group = 0; group < expected.groups.size(); ++group) {
      if (expected.Due(group)) return true;
    }
    return false;
  }

  void Compact() {
    if (batch_.empty()) return;
    const SequenceId id = RandomId();
    KvSequence& sequence = *batch_.Find(id);
    Expected& expected = expected_.at(id);
    const int64_t slack = Below(3) == 0 ? 0 : Below(100);
    const size_t used = pool_.used_bytes();
    const auto compacted = sequence.Compact(slack);
    if (expected.groups.empty()) {
      ASSERT_FALSE(compacted.ok());
      return;
    }
    bool expect_some = false;
    for (size_t group = 0; group < expected.groups.size(); ++group) {
      const int64_t rows = expected.Row(static_cast<int>(group), expected.end());
      if (rows <= expected.BudgetOf(group).size + slack) continue;
      expect_some = true;
      if (compacted.ok()) expected.Evict(group);
    }
    if (compacted.ok()) {
      ASSERT_EQ(*compacted, expect_some);
    } else {
      ASSERT_EQ(compacted.error().code, ErrorCode::kResourceExhausted);
      ASSERT_EQ(pool_.used_bytes(), used);
    }
    Check(id);
  }

  void TakeCheckpoint() {
    if (batch_.empty()) return;
    const SequenceId id = RandomId();
    const size_t used = pool_.used_bytes();
    MustOk(batch_.Find(id)->Checkpoint());
    ASSERT_EQ(pool_.used_bytes(), used);
    Expected& expected = expected_.at(id);
    if (expected.recurrent() && expected.end() > 0) expected.checkpoints.insert(expected.end());
    if (Below(4) == 0) {
      const Position below = Below(expected.end() + 1);
      batch_.Find(id)->DropCheckpoints(below);
      std::erase_if(expected.checkpoints, [&](Position p) { return p < below; });
    }
    Check(id);
  }

  void Trim() {
    if (batch_.empty()) return;
    const SequenceId id = RandomId();
    TrimOne(id, batch_.Find(id)->Trim(0), 0);
    const int64_t count = RunLength(expected_.at(id).end());
    TrimOne(id, batch_.Find(id)->Trim(count), count);
  }

  void TrimOne(SequenceId id, const Result<int64_t>& trimmed, int64_t count) {
    Expected& expected = expected_.at(id);
    const int64_t wanted = std::min(count, expected.end());
    const Position target = expected.end() - wanted;
    if (trimmed.ok()) {
      ASSERT_EQ(trimmed.value(), wanted);
      ASSERT_NE(expected.NeedAt(target), Need::kMissing);
      expected.Cut(target);
    } else {
      ASSERT_EQ(trimmed.error().code, ErrorCode::kFailedPrecondition);
      // Refused only if that state or one on the way to it lacks rows; and it says how far it can.
      bool whole = true;
      for (Position end = target; end <= expected.end(); ++end) {
        whole = whole && expected.NeedAt(end) != Need::kMissing;
      }
      ASSERT_FALSE(whole);
      const int64_t most = batch_.Find(id)->MaxTrim();
      ASSERT_LT(most, wanted);
      ASSERT_NE(trimmed.error().message.find("up to " + std::to_string(most) + " tokens"),
                std::string::npos);
    }
    Check(id);
  }

  void Fork() {
    if (batch_.empty() || batch_.size() >= kMaxSequences) return;
    const SequenceId id = RandomId();
    const size_t used = pool_.used_bytes();
    MustOk(batch_.Add(next_id_, batch_.Find(id)->Fork()));
    ASSERT_EQ(pool_.used_bytes(), used);
    expected_.emplace(next_id_, expected_.at(id));
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
    const Position position = expected_.at(id).end();
    const Position end = Below(2) == 0 ? position : Below(position + 1);
    const Position begin = Below(2) == 0 ? 0 : Below(end + 1);
    Keep(batch_.Find(id)->Snapshot(begin, end), expected_.at(id).Slice(begin, end));
  }

  size_t RandomSnapshot() {
    return static_cast<size_t>(Below(static_cast<int64_t>(snapshots_.size())));
  }

  void Split() {
    if (snapshots_.empty()) return;
    const SnapshotPair whole = snapshots_[RandomSnapshot()];
    const Position begin = whole.expected.begin;
    const Position at = begin + Below(whole.expected.end() - begin + 1);
    auto halves = whole.snapshot.Split(at);
    ASSERT_EQ(halves.ok(), whole.expected.CanSplit(at));
    if (!halves.ok()) return;
    Keep(std::move(halves->first), whole.expected.Slice(begin, at));
    Keep(std::move(halves->second), whole.expected.Slice(at, whole.expected.end()));
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
        Expected merged(spec_);
        auto snapshot = KvSnapshot::Merge(a.snapshot, b.snapshot);
        ASSERT_EQ(snapshot.ok(), a.expected.Merge(b.expected, &merged));
        if (snapshot.ok()) Keep(*std::move(snapshot), std::move(merged));
        return;
      }
    }
  }

  void Restore() {
    if (snapshots_.empty()) return;
    const SnapshotPair& pair = snapshots_[RandomSnapshot()];
    const size_t used = pool_.used_bytes();
    auto sequence = KvSequence::Restore(&pool_, pair.snapshot);
    ASSERT_EQ(pool_.used_bytes(), used);
    ASSERT_EQ(sequence.ok(), pair.snapshot.Restorable().ok());
    switch (pair.expected.NeedAt(pair.expected.end())) {
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
    Expected& restored = expected_.emplace(next_id_, pair.expected).first->second;
    restored.begin = 0;
    if (restored.end() == 0) restored.Cut(0);
    restored.Release(0);
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
      counts.push_back(Below(3) == 0 ? RunLength(expected_.at(id).end()) : Below(5));
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
      runs.push_back(RandomTokens(Below(3) == 0 ? 0 : RunWithin(*batch_.Find(id))));
      counts.push_back(static_cast<int64_t>(runs.back().size()));
      at_most += batch_.Find(id)->BytesToReserve(counts.back());
    }
    const size_t used = pool_.used_bytes();
    const Status status = batch_.ReserveEach(counts);
    if (!status.ok()) {
      ASSERT_EQ(status.error().code, ErrorCode::kResourceExhausted);
      ASSERT_EQ(pool_.used_bytes(), used);
      if (one_block_size_) {
        ASSERT_GT(used + at_most + FirstBlockBytes(), pool_.budget_bytes());
      }
    }
    for (size_t i = 0; i < runs.size() && status.ok(); ++i) {
      const SequenceId id = batch_.ids()[i];
      WriteReserved(*batch_.sequences()[i], runs[i]);
      const Position begin = expected_.at(id).end();
      expected_.at(id).Append(runs[i]);
      if (!runs[i].empty()) expected_.at(id).Release(begin);
    }
    CheckEverything();
  }

  void Speculate() {
    std::vector<SequenceId> ids = batch_.ids();
    std::shuffle(ids.begin(), ids.end(), random_);
    ids.resize(static_cast<size_t>(Below(static_cast<int64_t>(ids.size()) + 1)));
    std::vector<KvSequence*> members;
    for (const SequenceId id : ids) members.push_back(batch_.Find(id));
    const bool commit = Below(2) == 0;
    auto begun = Speculation::Begin(members);
    std::map<SequenceId, Expected> before;
    for (size_t i = 0; i < ids.size(); ++i) {
      LearnEvictions(*members[i], &expected_.at(ids[i]));
      before.emplace(ids[i], expected_.at(ids[i]));
    }
    if (!begun.ok()) {
      ASSERT_EQ(begun.error().code, ErrorCode::kResourceExhausted);
      return;
    }
    std::vector<int64_t> accepted;
    {
      Speculation speculation = *std::move(begun);
      for (size_t i = 0; i < ids.size(); ++i) {
        Expected& expected = expected_.at(ids[i]);
        // Begin has taken one.
        if (expected.recurrent() && expected.end() > 0) expected.checkpoints.insert(expected.end());
        accepted.push_back(Draft(*members[i], &expected_.at(ids[i])));
        Check(ids[i]);
      }
      if (commit) MustOk(speculation.Commit(accepted));
    }
    for (size_t i = 0; i < ids.size(); ++i) {
      Expected& expected = expected_.at(ids[i]);
      if (commit) {
        const Position start = before.at(ids[i]).end();
        const Position end = start + accepted[i];
        if (!before.at(ids[i]).checkpoints.contains(start)) expected.checkpoints.erase(start);
        expected.Cut(end);
        if (end > start) expected.Release(start);
      } else {
        expected = before.at(ids[i]);
      }
      Check(ids[i]);
    }
  }

  // Appends up to two runs of drafts and says how many of them a commit may keep.
  int64_t Draft(KvSequence& sequence, Expected* expected) {
    const Position start = expected->end();
    std::vector<int64_t> allowed = {0};
    for (int part = 0; part < 2; ++part) {
      const int64_t length = RunWithin(sequence) / (2 - part);
      const auto tokens = RandomTokens(length);
      std::vector<Position> kept;
      for (Position at = expected->end() + 1; at <= expected->end() + length; ++at) {
        if (expected->recurrent() && Below(3) == 0) kept.push_back(at);
      }
      sequence.KeepStatesAt(kept);
      if (length == 0 || !kv_testing::Append(sequence, tokens).ok()) {
        sequence.KeepStatesAt({});
        continue;
      }
      expected->Append(tokens);
      for (const Position at : kept) {
        expected->checkpoints.insert(at);
        allowed.push_back(at - start);
      }
      if (!expected->recurrent() || Below(2) == 0) continue;
      MustOk(sequence.Checkpoint());
      expected->checkpoints.insert(expected->end());
      allowed.push_back(expected->end() - start);
    }
    if (!expected->recurrent()) return Below(expected->end() - start + 1);
    allowed.push_back(expected->end() - start);
    return allowed[static_cast<size_t>(Below(static_cast<int64_t>(allowed.size())))];
  }

  // Evictions that were due have happened, or none of a sequence's has.
  static void LearnEvictions(const KvSequence& sequence, Expected* expected) {
    for (size_t group = 0; group < expected->groups.size(); ++group) {
      const int64_t rows = sequence.StoredRows(expected->groups[group][0]);
      if (rows != expected->Row(static_cast<int>(group), expected->end())) {
        ASSERT_TRUE(expected->Due(group));
        expected->Evict(group);
      }
      LearnOrder(sequence, group, expected);
    }
  }

  // Which rows stay is the model's to say, in which order is not.
  static void LearnOrder(const KvSequence& sequence, size_t group, Expected* expected) {
    NaiveModel::Kept& kept = expected->kept[group];
    if (kept.ordered) return;
    std::vector<Position> rows = sequence.RowPositions(expected->groups[group][0]);
    ASSERT_GE(rows.size(), kept.positions.size());
    rows.resize(kept.positions.size());
    std::vector<Position> sorted = rows;
    std::sort(sorted.begin(), sorted.end());
    ASSERT_EQ(sorted, kept.positions);
    kept.positions = std::move(rows);
    kept.ordered = true;
  }

  void ReleaseSlabs() { pool_.ReleaseFreeSlabs(); }

  void Check(SequenceId id) {
    Expected& expected = expected_.at(id);
    LearnEvictions(*batch_.Find(id), &expected);
    CheckContent(*batch_.Find(id), expected);
  }

  void CheckContent(const KvSequence& sequence, const Expected& expected) {
    ASSERT_EQ(sequence.position(), expected.end());
    for (const NaiveModel::Store& store : expected.stores) CheckStore(sequence, expected, store);
    for (size_t i = 0; i < spec_->layers.size(); ++i) {
      const auto layer = static_cast<int>(i);
      if (spec_->layers[i].is_recurrent()) {
        ASSERT_EQ(LoadState(sequence.State(layer)), NextState(0, layer, expected.tokens));
      } else if (!spec_->layers[i].owns_rows()) {
        ASSERT_EQ(&sequence.layer_blocks(layer),
                  &sequence.layer_blocks(spec_->layers[i].shares_layer));
      }
    }
    const std::vector<Position> checkpoints = sequence.Checkpoints();
    ASSERT_EQ(std::set(checkpoints.begin(), checkpoints.end()), expected.checkpoints);
  }

  // Everything that must be held is, and all that is held is right.
  void CheckStore(const KvSequence& sequence, const Expected& expected,
                  const NaiveModel::Store& store) {
    SCOPED_TRACE("layer " + std::to_string(store.layer) + (store.recent ? " recent" : ""));
    const KvLayout& layout = expected.LayerOf(store).layout;
    const KvBlocksView view =
        store.recent ? sequence.RecentBlocks(store.layer) : sequence.Blocks(store.layer);
    const auto holds = [&](int64_t block) {
      return block < static_cast<int64_t>(view.head.size()) ||
             (block >= view.first_block && block * 64 < view.end_row());
    };
    for (const int64_t block : store.held) ASSERT_TRUE(holds(block)) << block;
    const std::vector<Position> positions = expected.PositionsOfRows(store.group);
    if (!store.recent) {
      ASSERT_EQ(sequence.RowPositions(store.layer), positions);
      const VisibleRows visible = sequence.Visible(store.layer, expected.end());
      ASSERT_EQ(visible.end, static_cast<int64_t>(positions.size()) + 1);
    }
    for (int64_t row = 0; row < static_cast<int64_t>(positions.size()); ++row) {
      if (!holds(row / 64)) continue;
      const auto position = static_cast<size_t>(positions[static_cast<size_t>(row)]);
      // A row keeps the codec of the block it was written into, wherever it is moved.
      const int64_t written = store.group < 0
                                  ? static_cast<int64_t>(position)
                                  : expected.written[static_cast<size_t>(store.group)][position];
      const KvBlockLayout as_written =
          store.recent ? layout.RecentBlock() : layout.BlockAt(written / 64);
      const KvRows& right = stored_.Of(as_written, layout, store.layer, expected.tokens[position]);
      const KvRows row_read = store.recent ? sequence.ReadRecentRows(store.layer, row, row + 1)
                                           : sequence.ReadRows(store.layer, row, row + 1);
      ASSERT_EQ(row_read.keys, right.keys) << row;
      ASSERT_EQ(row_read.values, right.values) << row;
    }
  }

  void CheckEverything() {
    ASSERT_EQ(batch_.size(), expected_.size());
    for (auto& [id, expected] : expected_) Check(id);
    for (const SnapshotPair& pair : snapshots_) {
      if (!pair.snapshot.Restorable().ok()) continue;
      CheckContent(Must(KvSequence::Restore(&pool_, pair.snapshot)), Restored(pair.expected));
    }
  }

  static Expected Restored(Expected expected) {
    if (expected.end() == 0) expected.Cut(0);
    expected.Release(0);
    return expected;
  }

  // Budgets hold, and the pool counts exactly the blocks that somebody references.
  void CheckMemory() {
    ASSERT_LE(pool_.used_bytes(), pool_.reserved_bytes());
    ASSERT_LE(pool_.reserved_bytes(), pool_.budget_bytes());
    std::set<const KvBlock*> seen;
    size_t bytes = 0;
    const auto add = [&](const std::vector<const KvBlock*>& references) {
      for (const KvBlock* block : references) {
        if (seen.insert(block).second) bytes += block->owner->block_bytes();
      }
    };
    for (const KvSequence* sequence : batch_.sequences()) add(sequence->BlockReferences());
    ASSERT_EQ(batch_.nbytes(), bytes);
    for (const SnapshotPair& pair : snapshots_) add(pair.snapshot.BlockReferences());
    ASSERT_EQ(pool_.used_bytes(), bytes);
  }

  KvPool pool_;
  std::shared_ptr<const KvCacheSpec> spec_;
  std::mt19937 random_;
  bool one_block_size_ = false;
  KvBatch batch_;
  std::map<SequenceId, Expected> expected_;
  std::vector<SnapshotPair> snapshots_;
  StoredRows stored_;
  SequenceId next_id_ = 1;
};

struct ModelCase {
  const char* name;
  std::vector<KvLayerSpec> layers;
  size_t budget_blocks;  // of the first layer's size
  uint32_t seeds = kSeedsPerSpec;
};

void PrintTo(const ModelCase& c, std::ostream* out) { *out << c.name; }

KvLayerSpec Shared(KvLayerSpec layer, int of) {
  layer.shares_layer = of;
  return layer;
}

std::vector<ModelCase> Cases() {
  const auto budget = [](const char* name, KvLayerSpec layer = Layer(RetentionSpec::All())) {
    layer.retention = *RetentionSpec::FromName(name);
    return layer;
  };
  const auto packed = [](RetentionSpec retention, const char* keys, const char* values) {
    KvLayerSpec layer = Layer(retention, *KvCodec::FromName(keys), *KvCodec::FromName(values));
    layer.layout.key_dim = 32;
    layer.layout.value_dim = 64;
    layer.layout.dense_codec = F32();
    return layer;
  };
  KvLayerSpec affine = packed(RetentionSpec::All(), "affine4:32", "affine8:64");
  KvLayerSpec turbo = packed(RetentionSpec::Window(70), "turbo3", "turbo4");
  KvLayerSpec start = affine;
  start.layout.dense_start = 128;
  KvLayerSpec recent = affine;
  recent.layout.dense_recent = 64;
  recent.layout.dense_codec = F16();
  KvLayerSpec both = packed(RetentionSpec::Window(150, 3), "affine5:32", "f16");
  both.layout.dense_start = 64;
  both.layout.dense_recent = 128;
  const char* const rare = "budget:128,keep=4,recent=64,interval=64,score=knorm";
  const char* const layered = "budget:64,recent=10,interval=128,score=streaming,per-layer";
  KvLayerSpec norms = Layer(RetentionSpec::All());
  norms.layout.key_norms = true;
  KvLayerSpec kept = budget(rare, recent);
  kept.layout.key_norms = true;
  kept.layout.dense_start = 64;
  kept.layout.dense_codec = F32();  // rows that move below dense_start are decoded, not rounded
  const KvLayerSpec sinks = Layer(RetentionSpec::Window(20, 4));
  const KvLayerSpec long_sinks = Layer(RetentionSpec::Window(200, 100));
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
      {"kept_first_rows", {sinks}, 15},
      {"kept_first_blocks", {long_sinks, all, sinks}, 60},
      {"affine", {affine}, 30, 8},
      {"affine_and_turbo", {affine, turbo}, 40, 8},
      {"dense_start", {start}, 40, 8},
      {"dense_recent", {recent}, 60, 8},
      {"dense_start_and_recent", {both, all}, 90, 8},
      {"budget_by_hand", {budget("budget:50,keep=3,recent=20,score=knorm-high")}, 30},
      {"budget", {budget(rare)}, 30},
      {"budget_with_norms", {budget(rare, norms), budget(rare, norms)}, 40},
      {"budget_per_layer", {budget(layered), all, budget(layered)}, 60},
      {"budget_of_two_kinds", {budget(rare), budget(layered)}, 40},
      {"budget_packed", {kept, window, kept}, 200, 8},
      {"budget_shared", {budget(rare), Shared(budget(rare), 0), small_window}, 40},
      {"recurrent", {Recurrent(64)}, 1000},
      {"hybrid", {Recurrent(256), all, Recurrent(64), window}, 60},
      {"everything", {kept, Recurrent(64), both, sinks, chunk, Shared(kept, 0)}, 200, 6},
      {"ample", {all, window, chunk, small_window}, 100000},
  };
}

class KvModelTest : public testing::TestWithParam<ModelCase> {};

TEST_P(KvModelTest, BehavesAsTheNaiveModel) {
  uint32_t first = 0;
  uint32_t end = GetParam().seeds;
  if (const char* only = std::getenv("KVASIR_KV_SEED")) {
    first = static_cast<uint32_t>(std::strtoul(only, nullptr, 10));
    end = first + 1;
  }
  const KvLayerSpec& layer = GetParam().layers[0];
  const size_t budget =
      GetParam().budget_blocks *
      (layer.is_recurrent() ? layer.state_bytes : layer.layout.BlockBytes(1 << 20));
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
