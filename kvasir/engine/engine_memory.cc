// Engine: who may hold cache blocks: admission, eviction, preemption.
// Deliberately by rank alone (priority, then arrival): the first in rank always goes on, so however
// small the pool, somebody finishes and then the next.
#include <algorithm>
#include <chrono>
#include <unordered_set>
#include <utility>

#include "kvasir/engine/engine.h"
#include "kvasir/engine/engine_job.h"
#include "kvasir/kv/kv_block.h"
#include "kvasir/kv/kv_size_class.h"

namespace kvasir {
namespace {

// A stream that can grow by less than a block before memory is short is not worth its prefill.
constexpr int64_t kGrowthTokens = kBlockTokens;

// Bytes of blocks that the stream will take soon, beyond those it references.
size_t BytesToCome(const KvCacheSpec& spec, int64_t known_tokens, size_t held_bytes) {
  const size_t bytes = spec.BytesAt(known_tokens + kGrowthTokens);
  return bytes > held_bytes ? bytes - held_bytes : 0;
}

}  // namespace

// Streams that hold blocks, or that wait for some, the most important first.
std::vector<Engine::Member> Engine::StreamsByRank(bool with_cache) const {
  std::vector<Member> members;
  for (const auto& job : jobs_) {
    for (const auto& stream : job->streams) {
      if (stream->is_done() || stream->sequence.has_value() != with_cache) continue;
      members.push_back({job.get(), stream.get(), 0});
    }
  }
  std::stable_sort(members.begin(), members.end(), [](const Member& a, const Member& b) {
    if (a.job->is_paused != b.job->is_paused) return b.job->is_paused;
    return a.job->request.priority > b.job->request.priority;
  });
  return members;
}

int64_t Engine::UsedSlots() const {
  int64_t used = 0;
  for (const auto& job : jobs_) {
    for (const auto& stream : job->streams) {
      if (!stream->sequence) continue;
      // Its forks come without asking again.
      used += job->is_prompt_read() ? 1 : job->request.answers;
    }
  }
  return used;
}

void Engine::Admit() {
  if (is_admission_blocked_) return;
  int64_t used = UsedSlots();
  for (const Member& member : StreamsByRank(false)) {
    if (member.job->is_paused) continue;
    const int64_t slots = member.job->is_prompt_read() ? 1 : member.job->request.answers;
    // Nobody overtakes: what is first in rank would wait for ever behind a stream of small ones.
    if (used + slots > options_.max_streams) return;
    const Admission admission = TryAdmit(*member.job, *member.stream);
    if (admission == Admission::kNoRoom) {
      is_admission_blocked_ = true;
      return;
    }
    if (admission == Admission::kAdmitted) used += slots;
  }
}

Engine::Admission Engine::TryAdmit(Job& job, EngineStream& stream) {
  const int64_t known = stream.known_tokens();
  // The last token is always evaluated, for its logits.
  // No cache holds logits.
  const int64_t limit = job.is_scored() ? 0 : known - 1;
  auto match = tree_.Find(job.request.salt, stream.Known(0, known), limit);
  if (!match.ok()) {
    job.result.status = match.error();
    EndJob(job, FinishReason::kCancelled);
    return Admission::kLater;
  }
  if (!job.is_scored() && IsBeingRead(job, match->tokens)) return Admission::kLater;
  if (!HasRoomFor(stream, match->sequence)) return Admission::kNoRoom;
  stream.sequence = std::move(match->sequence);
  if (!job.is_begun) {
    job.is_begun = true;
    stream.admitted_at = Now();
    job.result.queued_ms =
        std::chrono::duration<double, std::milli>(stream.admitted_at - job.submitted_at).count();
    stream.result().stats.cached_tokens = match->tokens;
    stream.result().stats.known_prefix_tokens = match->diverges_at;
    stats_.cached_tokens += match->tokens;
  }
  return Admission::kAdmitted;
}

// Whether somebody is just reading at least a block more of this prompt than the tree knows: then
// waiting for it is no slower than reading it twice, and takes the memory once.
bool Engine::IsBeingRead(const Job& job, int64_t cached_tokens) const {
  if (evicts_rows_) return false;  // what others read may not be there to be found
  const std::vector<Token>& mine = job.request.prompt;
  for (const auto& other : jobs_) {
    if (other.get() == &job || other->request.salt != job.request.salt ||
        other->request.priority < job.request.priority) {
      continue;
    }
    if (!other->streams[0]->sequence || other->is_prompt_read()) continue;
    const std::vector<Token>& theirs = other->request.prompt;
    const auto part = std::mismatch(mine.begin(), mine.end(), theirs.begin(), theirs.end());
    int64_t shared = part.first - mine.begin();
    // Other layers can be gone on with only where the prompt is published.
    if (!shares_any_prefix_ && part.second != theirs.end()) {
      shared = shared / kPublishTokens * kPublishTokens;
    }
    if (shared - cached_tokens >= kBlockTokens) return true;
  }
  return false;
}

bool Engine::HasRoomFor(const EngineStream& stream, const KvSequence& cached) const {
  size_t to_come = BytesToCome(*parts_.spec, stream.known_tokens(), cached.nbytes());
  std::vector<Member> active = StreamsByRank(true);
  // Whoever is paused gives way when it comes to that.
  std::erase_if(active, [](const Member& member) { return member.job->is_paused; });
  if (active.empty()) return true;
  for (const Member& member : active) {
    to_come +=
        BytesToCome(*parts_.spec, member.stream->known_tokens(), member.stream->sequence->nbytes());
  }
  const size_t budget = parts_.pool->budget_bytes();
  if (parts_.pool->used_bytes() + to_come <= budget) return true;
  // What only the prefix tree holds can be evicted: count the blocks that running streams share or
  // own, each once.
  std::unordered_set<const KvBlock*> seen;
  size_t held = 0;
  const auto count = [&](const KvSequence& sequence) {
    for (const KvBlock* block : sequence.BlockReferences()) {
      if (seen.insert(block).second) held += block->owner->block_bytes();
    }
  };
  count(cached);
  for (const Member& member : active) count(*member.stream->sequence);
  return held + to_come <= budget;
}

// Finds memory for a step that the pool refused. False: there is none left to find.
bool Engine::MakeRoom(std::vector<Member>& members, const Error& error) {
  size_t wanted = 0;
  for (const Member& member : members) {
    wanted += member.stream->sequence->BytesToReserve(member.tokens);
  }
  if (tree_.Evict(wanted) > 0) return true;
  const std::vector<Member> active = StreamsByRank(true);
  const Member last = active.back();
  if (active.size() > 1) {
    Preempt(*last.job, *last.stream);
    std::erase_if(members, [&](const Member& member) { return member.stream == last.stream; });
    return true;
  }
  if (members[0].tokens > 1) {
    // A window layer gives blocks back behind every run, so shorter runs need less.
    members[0].tokens /= 2;
    return true;
  }
  last.job->result.status = WithContext(
      error,
      "the request does not fit into the cache even alone; ask for less or raise its budget");
  EndJob(*last.job, FinishReason::kLength);
  members.clear();
  return true;
}

// The stream waits again, in its old place. What it has read goes to the prefix tree, which is
// evicted block by block: as much as stays is not read again.
void Engine::Preempt(Job& job, EngineStream& stream) {
  Publish(job, stream);
  stream.sequence.reset();
  ++job.result.preemptions;
  ++stats_.preemptions;
}

}  // namespace kvasir
