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

// As kMostDiskStall, of what is written: a disk may take its time to say that a file is safe.
constexpr std::chrono::seconds kMostWriteStall{10};
// Nobody waits for less: what evaluating takes is an estimate.
constexpr std::chrono::seconds kLeastFetchTime{1};
// Where nothing was evaluated yet; then a fetch is what tells how fast the disk is.
constexpr std::chrono::seconds kFirstFetchTime{5};
// A search is waited for at once for so long, which is more than a local disk needs.
constexpr std::chrono::milliseconds kBriefSearch{2};

// As long as evaluating would take.
std::chrono::milliseconds PatienceFor(const SwapCost& cost) {
  if (cost.prefill_rate <= 0) return kFirstFetchTime;
  const double ms = 1000 * static_cast<double>(cost.tokens) / cost.prefill_rate;
  return std::max<std::chrono::milliseconds>(std::chrono::milliseconds(static_cast<int64_t>(ms)),
                                             kLeastFetchTime);
}

}  // namespace

// What the store has done since the last step.
void Engine::UpdateStore() {
  if (store_ == nullptr) return;
  store_->Reap();
  if (store_->write_time() > kMostWriteStall) store_->StopWriting();
  for (const auto& job : jobs_) {
    for (const auto& stream : job->streams) {
      if (stream->fetch != nullptr) UpdateFetch(*job, *stream);
      if (stream->search != nullptr && !IsSearching(*stream)) EndSearch(*stream);
    }
  }
}

bool Engine::IsSearching(const EngineStream& stream) const {
  return !stream.search->is_done() && !stream.search->is_late() &&
         store_->search_time() <= kMostDiskStall;
}

void Engine::EndSearch(EngineStream& stream) {
  stream.search.reset();
  is_admission_blocked_ = false;
}

void Engine::UpdateFetch(const Job& job, EngineStream& stream) {
  switch (stream.fetch->state()) {
    case FetchState::kOpening:
    case FetchState::kReading:
      if (!stream.fetch->is_late() && store_->read_time() <= kMostDiskStall) return;
      break;
    case FetchState::kOpened: {
      auto lent = stream.fetch->Read(parts_.pool, &tree_);
      if (!lent.ok()) break;
      return Lend(*std::move(lent));
    }
    case FetchState::kRead: {
      const auto segment = stream.fetch->Take(parts_.pool);
      if (segment.ok() && PublishFetched(job, stream, *segment)) return EndFetch(stream);
      break;
    }
    case FetchState::kFailed:
      break;
  }
  // Somebody took the memory, or a file is gone, which is known now: once more, and no longer.
  stream.fetches_left = std::min(stream.fetches_left, 1);
  EndFetch(stream);
}

void Engine::EndFetch(EngineStream& stream) {
  stream.fetch.reset();
  is_admission_blocked_ = false;
}

bool Engine::PublishFetched(const Job& job, const EngineStream& stream, const KvSnapshot& segment) {
  const std::vector<Token> tokens = stream.known().Copy(0, segment.end());
  const int64_t known = tree_.LookForTokens(job.request.salt, tokens, segment.end());
  if (!tree_.Insert(job.request.salt, tokens, segment)) return false;
  stats_.fetched_tokens += segment.end() - known;
  store_->Use(stream.keys.keys().first(static_cast<size_t>(segment.end() / kSegmentTokens)));
  return true;
}

// Whether the stream has to wait until it is known what others have stored of these keys, of which
// those from `first` on may be read. The ones before are asked for too: behind what seems to be
// missing nothing is written.
bool Engine::SearchMore(EngineStream& stream, std::span<const PrefixKey> keys, size_t first) {
  if (keys.size() <= stream.searched_segments || store_->Look(keys).segments == keys.size()) {
    return false;
  }
  if (store_->search_time() > kMostDiskStall) return false;
  stream.searched_segments = keys.size();
  const bool is_first = !store_->is_searching();
  stream.search = store_->Search(keys, first);
  if (is_first) store_->WaitFor(*stream.search, kBriefSearch);
  if (IsSearching(stream)) return true;
  stream.search.reset();
  return false;
}

// Whether the stream has to wait for the store: begins to read what goes on from the tokens that
// the tree has, where that takes less time than evaluating them. One stream at a time: what is read
// for two would take each other's memory before either is admitted, and the disk is one.
bool Engine::FetchMore(const Job& job, EngineStream& stream, std::span<const Token> tokens,
                       int64_t found_tokens) {
  if (store_ == nullptr || stream.swapped != nullptr || stream.fetches_left == 0) return false;
  // Nothing that it would share with the tree may be in its way.
  if (stream.is_starting_over() || store_->read_time() > kMostDiskStall) return false;
  stream.keys.Extend(store_->RootOf(job.request.salt), tokens);
  const auto first = static_cast<size_t>(found_tokens / kSegmentTokens);
  const auto until = stream.keys.keys().first(
      std::min(tokens.size() / kSegmentTokens, first + PrefixStore::kMostSegments));
  if (SearchMore(stream, until, first)) return true;
  const auto keys = until.subspan(first);
  const PrefixFolder::Found stored = store_->Look(keys);
  const auto end = static_cast<int64_t>(first + stored.segments) * kSegmentTokens;
  const SwapCost cost = {.tokens = end - found_tokens,
                         .prefill_rate = prefill_rate_,
                         .read_bytes = stored.bytes,
                         .disk = store_->rates()};
  if (cost.tokens < kBlockTokens) return false;
  if (!store_->options().ignores_rates && !IsSwapFaster(cost)) return false;
  const bool is_busy = std::any_of(jobs_.begin(), jobs_.end(), [](const auto& other) {
    return std::any_of(other->streams.begin(), other->streams.end(),
                       [](const auto& fetching) { return fetching->fetch != nullptr; });
  });
  if (is_busy) return true;
  --stream.fetches_left;
  // What it goes on from has to be there when it has been read.
  if (found_tokens > 0) {
    tree_.Use(job.request.salt, tokens.first(static_cast<size_t>(found_tokens)));
  }
  stream.fetch = store_->Fetch(keys.first(stored.segments),
                               static_cast<int64_t>(first) * kSegmentTokens, PatienceFor(cost));
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
  size_t stored = 0;  // without a gap, behind which nothing is found
  for (; stored < keys.size(); ++stored) {
    if (store_->Has(keys[stored])) continue;
    const Position begin = static_cast<int64_t>(stored) * kSegmentTokens;
    auto segment = SegmentOf(snapshot, begin, begin + kSegmentTokens);
    if (!segment || !store_->CanWrite()) break;
    Lend(store_->Write(keys.first(stored + 1), *std::move(segment)));
  }
  store_->Use(keys.first(stored));
}

// Waits until some of what is being written has been. False: nothing is, or the step would take too
// long; then it is given up.
bool Engine::WaitForStore() {
  if (store_ == nullptr || !store_->is_writing() || disk_wait_left_.count() <= 0) return false;
  const auto begin = std::chrono::steady_clock::now();
  store_->WaitForProgress(store_->progress(), disk_wait_left_);
  store_->Reap();
  disk_wait_left_ -=
      std::chrono::ceil<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
  return true;
}

}  // namespace kvasir
