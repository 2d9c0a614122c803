// Engine: preempted caches that go to disk and come back.
// Deliberately optional in every step: whatever goes wrong here, the tokens are evaluated again.
#include <algorithm>
#include <chrono>
#include <unordered_set>
#include <utility>

#include "kvasir/engine/engine.h"
#include "kvasir/engine/engine_job.h"
#include "kvasir/engine/swap_choice.h"
#include "kvasir/kv/kv_content.h"
#include "kvasir/kv/kv_size_class.h"

namespace kvasir {
namespace {

using State = SwappedCache::State;

// So much at once: what was written meanwhile is looked at in between.
constexpr std::chrono::milliseconds kWaitSlice{5};

}  // namespace

// What the store has done since the last step.
void Engine::UpdateSwaps() {
  if (swap_ == nullptr) return;
  swap_->Reap();
  const bool hangs = swap_->block_time() > kMostDiskStall;
  for (const auto& job : jobs_) {
    for (const auto& stream : job->streams) {
      UpdateSwap(*stream);
      if (hangs && stream->swapped && stream->swapped->is_under_way()) LoseSwap(*stream);
    }
  }
}

void Engine::LoseSwap(EngineStream& stream) {
  is_admission_blocked_ = false;
  stream.swapped.reset();
  ++stats_.swaps_lost;
}

void Engine::UpdateSwap(EngineStream& stream) {
  if (stream.swapped == nullptr) return;
  const State before = stream.swapped->state();
  const State state = stream.swapped->Update();
  if (state == before) return;
  is_admission_blocked_ = false;
  if (state == State::kRead) {
    auto sequence = stream.swapped->Take(parts_.pool);
    if (sequence.ok()) {
      stream.sequence = *std::move(sequence);
      ++stats_.swapped_in;
    }
    stream.swapped.reset();
  } else if (state == State::kLost) {
    LoseSwap(stream);
  }
}

// Tokens that nobody else holds blocks of: what evicting this stream's cache would cost.
int64_t Engine::ExclusiveTokens(const EngineStream& stream) const {
  std::unordered_set<const KvBlock*> others;
  for (const Member& member : StreamsByRank(true)) {
    if (member.stream == &stream) continue;
    for (const KvBlock* block : member.stream->BlockReferences()) others.insert(block);
  }
  std::vector<const KvBlock*> own = stream.BlockReferences();
  const size_t all = BlockBytes(own);
  std::erase_if(own, [&](const KvBlock* block) { return others.count(block) == 1; });
  const double share =
      all == 0 ? 0 : static_cast<double>(BlockBytes(std::move(own))) / static_cast<double>(all);
  return static_cast<int64_t>(share * static_cast<double>(stream.sequence->position()));
}

void Engine::SwapOut(EngineStream& stream) {
  if (swap_ == nullptr) return;
  const uint64_t bytes = BlockBytes(stream.BlockReferences());
  const SwapCost cost = {.tokens = ExclusiveTokens(stream),
                         .prefill_rate = prefill_rate_,
                         .write_bytes = bytes,
                         .read_bytes = bytes,
                         .disk = swap_->rates()};
  if (!options_.swap.ignores_rates && !IsSwapFaster(cost)) return;
  stream.swapped = SwappedCache::Write(swap_.get(), *stream.sequence);
  if (stream.swapped != nullptr) ++stats_.swapped_out;
}

// Whether it is better to wait for what is on disk than to go on from what the prefix tree has.
bool Engine::IsWorthReading(const EngineStream& stream, int64_t found_tokens) const {
  const SwappedCache& swapped = *stream.swapped;
  const int64_t tokens = swapped.position() - found_tokens;
  if (options_.swap.ignores_rates) return tokens > 0;
  return IsSwapFaster({.tokens = tokens,
                       .prefill_rate = prefill_rate_,
                       .write_bytes = swapped.unwritten_bytes(),
                       .read_bytes = swapped.bytes(),
                       .disk = swap_->rates()});
}

// False: there is no memory for it, and it is given up.
bool Engine::BeginReading(EngineStream& stream, const KvSequence& known) {
  for (;;) {
    const Status begun = stream.swapped->Read(parts_.pool, known);
    if (begun.ok()) return true;
    const size_t wanted = parts_.pool->used_bytes() + stream.swapped->bytes_to_read(known);
    const size_t budget = parts_.pool->budget_bytes();
    if (tree_.Evict(wanted > budget ? wanted - budget : 1) > 0 || TakeBackLent()) continue;
    LoseSwap(stream);
    return false;
  }
}

// Waits until some of what is being written has been, or gives it up when the step would take too
// long. False: nothing is being written.
bool Engine::WaitForSwap() {
  std::vector<EngineStream*> writing;
  for (const auto& job : jobs_) {
    for (const auto& stream : job->streams) {
      if (stream->swapped && stream->swapped->state() == State::kWriting) {
        writing.push_back(stream.get());
      }
    }
  }
  if (writing.empty()) return false;
  const auto begin = std::chrono::steady_clock::now();
  swap_->WaitForProgress(std::min(disk_wait_left_, kWaitSlice));
  disk_wait_left_ -=
      std::chrono::ceil<std::chrono::milliseconds>(std::chrono::steady_clock::now() - begin);
  for (EngineStream* stream : writing) {
    UpdateSwap(*stream);
    if (disk_wait_left_.count() > 0 || !stream->swapped) continue;
    if (stream->swapped->state() == State::kWriting) LoseSwap(*stream);
  }
  return true;
}

void Engine::MeasureStep(int64_t tokens, std::chrono::steady_clock::duration time) {
  // Fewer are decodes, of which a token costs more.
  constexpr int64_t kLeastTokens = kBlockTokens;
  constexpr double kWeight = 0.25;  // of the newest among the last few
  last_step_ = std::chrono::ceil<std::chrono::milliseconds>(time);
  const double seconds = std::chrono::duration<double>(time).count();
  if (tokens < kLeastTokens || seconds <= 0) return;
  const double rate = static_cast<double>(tokens) / seconds;
  prefill_rate_ = prefill_rate_ > 0 ? prefill_rate_ + kWeight * (rate - prefill_rate_) : rate;
}

}  // namespace kvasir
