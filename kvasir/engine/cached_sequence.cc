#include "kvasir/engine/cached_sequence.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "kvasir/base/check.h"
#include "kvasir/engine/publish_points.h"
#include "kvasir/kv/speculation.h"

namespace kvasir {
namespace {

// A restore point references the blocks of its last window only once the sequence has moved on,
// so 32 of them cost a few windows' worth of blocks; more turns than that are rarely undone.
constexpr size_t kMaxRestorePoints = 32;
// Each has a whole state for itself. A turn of a chat adds four.
constexpr size_t kMaxRestorePointsWithStates = 16;

// How many of a run's last tokens need their hidden state. `is_last`: nothing known follows.
int64_t HiddenRows(HiddenWanted wanted, int64_t tokens, bool is_last) {
  if (wanted == HiddenWanted::kAll) return tokens;
  return wanted == HiddenWanted::kLast && is_last ? 1 : 0;
}

}  // namespace

Result<CachedSequence> CachedSequence::Create(const Model* model, KvPool* pool,
                                              std::shared_ptr<const KvCacheSpec> spec) {
  KVASIR_TRY(KvSequence sequence, KvSequence::Create(pool, spec));
  KVASIR_TRY_OK(CheckCacheSpec(*spec, *model));
  return CachedSequence(model, std::move(spec), std::move(sequence));
}

Result<CachedSequence> CachedSequence::Restore(const Model* model, KvPool* pool,
                                               std::shared_ptr<const KvCacheSpec> spec,
                                               std::span<const NamedSnapshot> snapshots) {
  if (snapshots.empty()) return {ErrorCode::kInvalidArgument, "there is no cache to restore"};
  const NamedSnapshot& whole = snapshots[0];
  const Position end = whole.snapshot.end();
  if (whole.snapshot.begin() != 0 || static_cast<Position>(whole.tokens.size()) != end) {
    return {ErrorCode::kInvalidArgument,
            "a cache of the positions " + std::to_string(whole.snapshot.begin()) + " to " +
                std::to_string(end) + " with " + std::to_string(whole.tokens.size()) +
                " tokens cannot be gone on with; it must begin at 0 and know every token"};
  }
  if (whole.snapshot.spec() != *spec) {
    return {ErrorCode::kInvalidArgument, "the cache is stored in another way than this one"};
  }
  KVASIR_TRY(KvSequence sequence, KvSequence::Restore(pool, whole.snapshot));
  CachedSequence restored(model, std::move(spec), std::move(sequence));
  restored.tokens_ = whole.tokens;
  Position last = 0;
  for (const NamedSnapshot& point : snapshots.subspan(1)) {
    if (point.snapshot.begin() != 0 || point.snapshot.end() <= last || point.snapshot.end() > end) {
      return {ErrorCode::kInvalidArgument,
              "'" + point.name + "' is no restore point of '" + whole.name +
                  "': they begin at 0, and end in ascending order and not behind it"};
    }
    last = point.snapshot.end();
    restored.restore_points_.push_back(point.snapshot);
  }
  return restored;
}

int64_t CachedSequence::Rewind(std::span<const Token> prompt) {
  const auto [mine, theirs] =
      std::mismatch(tokens_.begin(), tokens_.end(), prompt.begin(), prompt.end());
  const int64_t common = mine - tokens_.begin();
  return RewindTo(std::min<int64_t>(common, static_cast<int64_t>(prompt.size()) - 1));
}

Position CachedSequence::RewindTo(Position target) {
  if (!TrimTo(target) && !RestoreNear(target)) {
    auto empty = KvSequence::Create(sequence_.pool(), spec_);
    KVASIR_CHECK(empty.ok());  // the same spec was accepted before
    sequence_ = *std::move(empty);
    tokens_.clear();
  }
  while (!restore_points_.empty() && restore_points_.back().end() > position()) {
    restore_points_.pop_back();
  }
  return position();
}

bool CachedSequence::TrimTo(Position target) {
  const int64_t surplus = sequence_.position() - std::max<Position>(target, 0);
  if (surplus > sequence_.MaxTrim()) return false;
  if (surplus > 0 && !sequence_.Trim(surplus).ok()) return false;
  tokens_.resize(static_cast<size_t>(sequence_.position()));
  return true;
}

// Newest first. A point a little behind `target` serves too: it holds whole blocks, so a window
// layer can usually give back some tokens from there (asking for an answer again needs one).
bool CachedSequence::RestoreNear(Position target) {
  for (auto point = restore_points_.rbegin(); point != restore_points_.rend(); ++point) {
    auto restored = KvSequence::Restore(sequence_.pool(), *point);
    if (!restored.ok()) continue;
    const int64_t surplus = std::max<int64_t>(point->end() - target, 0);
    if (surplus > restored->MaxTrim() || !restored->Trim(surplus).ok()) continue;
    sequence_ = *std::move(restored);
    tokens_.resize(static_cast<size_t>(sequence_.position()));
    return true;
  }
  return false;
}

Result<std::span<const float>> CachedSequence::Evaluate(std::span<const Token> tokens,
                                                        Workspace& workspace,
                                                        const EvaluateOptions& options) {
  if (tokens.empty()) return {ErrorCode::kInvalidArgument, "there is no token to evaluate"};
  const int64_t chunk = std::max<int64_t>(options.chunk_tokens, 1);
  KeepStates(static_cast<int64_t>(tokens.size()));
  for (size_t begin = 0;;) {
    if (options.is_cancelled && options.is_cancelled()) {
      return {ErrorCode::kCancelled, "cancelled by the caller"};
    }
    // Where rows are evicted is a matter of the sequence alone: no run crosses such a position.
    const auto limit = static_cast<size_t>(std::min(chunk, sequence_.RunLimit()));
    const std::span<const Token> part =
        tokens.subspan(begin, std::min(limit, tokens.size() - begin));
    const bool is_last = begin + part.size() == tokens.size();
    const SequenceRun run = {
        &sequence_, part, is_last ? 1 : 0,
        HiddenRows(options.hidden, static_cast<int64_t>(part.size()), is_last)};
    KVASIR_TRY(const ConstFloatRows logits, Step(run, workspace));
    begin += part.size();
    AddKeptRestorePoints();
    if (run.hidden_rows > 0) {
      options.on_hidden(position() - run.hidden_rows, workspace.HiddenStates());
    }
    if (options.progress) {
      options.progress(static_cast<int64_t>(begin), static_cast<int64_t>(tokens.size()));
    }
    if (is_last) return std::span<const float>(logits.row(0), static_cast<size_t>(logits.cols));
  }
}

Result<ConstFloatRows> CachedSequence::Step(const SequenceRun& run, Workspace& workspace) {
  for (;;) {
    auto logits = model_->Forward(std::span(&run, 1), workspace);
    if (logits.ok()) {
      tokens_.insert(tokens_.end(), run.tokens.begin(), run.tokens.end());
      return logits;
    }
    if (logits.error().code != ErrorCode::kResourceExhausted) return logits;
    if (sequence_.InnerStateCount(static_cast<int64_t>(run.tokens.size())) > 0) {
      sequence_.KeepStatesAt({});
    } else if (!restore_points_.empty()) {
      restore_points_.pop_front();
    } else {
      return logits;
    }
  }
}

Status CachedSequence::EvaluateDrafts(std::span<const Token> tokens, Workspace& workspace,
                                      const std::function<int64_t(ConstFloatRows logits)>& judge,
                                      const EvaluateOptions& options) {
  if (tokens.empty()) return {ErrorCode::kInvalidArgument, "there is no token to evaluate"};
  KvSequence* const sequence = &sequence_;
  KVASIR_TRY(Speculation speculation, Speculation::Begin({&sequence, 1}));
  const auto rows = static_cast<int64_t>(tokens.size());
  std::vector<Position> states(tokens.size() - 1);  // any token may be the last that is kept
  std::iota(states.begin(), states.end(), position() + 1);
  sequence_.KeepStatesAt(std::move(states));
  const bool wants_hidden = options.hidden != HiddenWanted::kNone;
  const SequenceRun run = {&sequence_, tokens, rows, wants_hidden ? rows : 0};
  KVASIR_TRY(const ConstFloatRows logits, model_->Forward(std::span(&run, 1), workspace));
  const int64_t kept[] = {judge(logits)};
  KVASIR_TRY_OK(speculation.Commit(kept));
  sequence_.DropCheckpoints(position() + 1);
  tokens_.insert(tokens_.end(), tokens.begin(), tokens.begin() + kept[0]);
  if (wants_hidden) {
    const int64_t told = HiddenRows(options.hidden, kept[0], true);
    options.on_hidden(position() - told, workspace.HiddenStates().Part(kept[0] - told, told));
  }
  return {};
}

void CachedSequence::AddRestorePoint() { AddRestorePointAt(position()); }

void CachedSequence::AddRestorePointAt(Position at) {
  if (at == 0 || (!restore_points_.empty() && restore_points_.back().end() == at)) return;
  restore_points_.push_back(sequence_.Snapshot(0, at));
  const size_t most = spec_->HasRecurrentLayers() ? kMaxRestorePointsWithStates : kMaxRestorePoints;
  if (restore_points_.size() > most) restore_points_.pop_front();
}

// Of what is evaluated at once, as states cannot go back by single tokens: shortly before its end,
// and one token before it.
void CachedSequence::KeepStates(int64_t tokens) {
  const PublishPoints points(*spec_, false);
  const Position end = position() + tokens;
  std::vector<Position> near_end;
  for (const Position at : points.StatesWithin(position(), end, {.tokens = end})) {
    if (at + 2 * kBlockTokens > end) near_end.push_back(at);
  }
  sequence_.KeepStatesAt(std::move(near_end));
}

void CachedSequence::AddKeptRestorePoints() {
  for (const Position at : sequence_.Checkpoints()) {
    sequence_.DropCheckpoints(at);  // a point holds no other's states
    if (restore_points_.empty() || at > restore_points_.back().end()) AddRestorePointAt(at);
  }
  sequence_.DropCheckpoints(position() + 1);
}

CachedSequence CachedSequence::Fork() const {
  CachedSequence fork(model_, spec_, sequence_.Fork());
  fork.tokens_ = tokens_;
  fork.restore_points_ = restore_points_;
  return fork;
}

std::vector<NamedSnapshot> CachedSequence::Snapshots() const {
  std::vector<NamedSnapshot> snapshots = {{"sequence", sequence_.Snapshot(), tokens_}};
  for (const KvSnapshot& point : restore_points_) {
    snapshots.push_back({"restore point " + std::to_string(point.end()), point, {}});
  }
  return snapshots;
}

}  // namespace kvasir
