// Engine: prefixes that go to the store as they are read, and come back from it.
// Deliberately optional in every step: whatever goes wrong here, the tokens are evaluated again.
#include <algorithm>
#include <chrono>
#include <utility>

#include "kvasir/engine/engine.h"
#include "kvasir/engine/engine_job.h"
#include "kvasir/engine/swap_choice.h"
#include "kvasir/kv/prefix_segment.h"

namespace kvasir {
namespace {

// A disk that has not moved a block for so long hangs: computing again is surer.
constexpr std::chrono::seconds kMostStall{1};
// A step waits for what is being written at most as long as the last one took to compute, and in
// any case long enough for a disk to begin.
constexpr std::chrono::milliseconds kLeastWait{20};

}  // namespace

// What the store has done since the last step.
void Engine::UpdateStore() {
  if (store_ == nullptr) return;
  store_->Reap();
  store_wait_left_ = std::max(last_step_, kLeastWait);
  const bool hangs = store_->read_time() > kMostStall;
  for (const auto& job : jobs_) {
    for (const auto& stream : job->streams) {
      if (stream->fetch == nullptr) continue;
      UpdateFetch(*job, *stream);
      if (!hangs || stream->fetch == nullptr) continue;
      stream->fetch.reset();
      is_admission_blocked_ = false;
    }
  }
}

void Engine::UpdateFetch(const Job& job, EngineStream& stream) {
  const FetchState state = stream.fetch->state();
  if (state == FetchState::kOpening || state == FetchState::kReading) return;
  if (state == FetchState::kOpened) {
    auto lent = stream.fetch->Read(parts_.pool, &tree_);
    if (lent.ok()) return Lend(*std::move(lent));
  }
  if (state == FetchState::kRead) {
    const auto segment = stream.fetch->Take(parts_.pool);
    if (segment.ok()) PublishFetched(job, stream, *segment);
  }
  stream.fetch.reset();
  is_admission_blocked_ = false;
}

void Engine::PublishFetched(const Job& job, const EngineStream& stream, const KvSnapshot& segment) {
  const std::vector<Token> tokens = stream.known().Copy(0, segment.end());
  const int64_t known = tree_.LookForTokens(job.request.salt, tokens, segment.end());
  if (!tree_.Insert(job.request.salt, tokens, segment)) return;
  stats_.fetched_tokens += segment.end() - known;
  store_->Use(stream.keys.keys().first(static_cast<size_t>(segment.end() / kSegmentTokens)));
}

// Whether somebody is waiting for what this stream would have to ask for.
bool Engine::IsBeingFetched(const PrefixKey& key) const {
  return std::any_of(jobs_.begin(), jobs_.end(), [&](const auto& job) {
    return std::any_of(job->streams.begin(), job->streams.end(), [&](const auto& stream) {
      return stream->fetch != nullptr && stream->fetch->Reads(key);
    });
  });
}

// Begins to read from the store what goes on from the tokens that the tree has, where that takes
// less time than evaluating them, or waits for who is at it. False: there is nothing to wait for.
bool Engine::FetchMore(const Job& job, EngineStream& stream, int64_t found_tokens, int64_t limit) {
  if (store_ == nullptr || stream.swapped != nullptr) return false;
  // Nothing that it would share with the tree may be in its way.
  if (stream.is_starting_over()) return false;
  const int64_t first = found_tokens / kSegmentTokens;
  if (limit < (first + 1) * kSegmentTokens) return false;
  stream.keys.Extend(store_->RootOf(job.request.salt), stream.known().Copy(0, limit));
  auto keys = stream.keys.keys().subspan(static_cast<size_t>(first));
  keys = keys.first(std::min({keys.size(), static_cast<size_t>(limit / kSegmentTokens - first),
                              PrefixStore::kMostSegments}));
  if (IsBeingFetched(keys[0])) return true;
  if (stream.fetches_left == 0 || store_->read_time() > kMostStall) return false;
  const PrefixStore::Found stored = store_->Look(keys);
  const int64_t end = (first + static_cast<int64_t>(stored.segments)) * kSegmentTokens;
  const SwapCost cost = {.tokens = end - found_tokens,
                         .prefill_rate = prefill_rate_,
                         .read_bytes = stored.bytes,
                         .disk = store_->rates()};
  if (cost.tokens < kBlockTokens) return false;
  if (!store_->options().ignores_rates && !IsSwapFaster(cost)) return false;
  --stream.fetches_left;
  stream.fetch = store_->Fetch(keys.first(stored.segments), first * kSegmentTokens);
  return true;
}

// Writes what the store does not have of what the stream has read.
void Engine::StorePrefix(const Job& job, EngineStream& stream) {
  if (store_ == nullptr) return;
  const Position position = stream.sequence->position();
  const auto segments = static_cast<size_t>(position / kSegmentTokens);
  if (segments == 0) return;
  stream.keys.Extend(store_->RootOf(job.request.salt), stream.known().Copy(0, position));
  const auto keys = stream.keys.keys().first(segments);
  const KvSnapshot snapshot = stream.sequence->Snapshot();
  for (size_t i = 0; i < keys.size(); ++i) {
    if (!store_->Wants(keys[i])) continue;
    const Position begin = static_cast<int64_t>(i) * kSegmentTokens;
    auto segment = SegmentOf(snapshot, begin, begin + kSegmentTokens);
    if (segment) Lend(store_->Write(keys.first(i + 1), *std::move(segment)));
  }
  store_->Use(keys);
}

// Waits until some of what is being written has been. False: nothing is, or the step would take too
// long; then it is given up.
bool Engine::WaitForStore() {
  if (store_ == nullptr || !store_->is_writing() || store_wait_left_.count() <= 0) return false;
  const auto begin = std::chrono::steady_clock::now();
  store_->WaitForProgress(store_wait_left_);
  store_->Reap();
  store_wait_left_ -=
      std::chrono::ceil<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
  return true;
}

}  // namespace kvasir
