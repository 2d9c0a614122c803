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

std::vector<Engine::Member> Engine::StreamsByRank(bool with_blocks) const {
  std::vector<Member> members;
  for (const auto& job : jobs_) {
    for (const auto& stream : job->streams) {
      if (stream->is_done() || stream->holds_blocks() != with_blocks) continue;
      members.push_back({job.get(), stream.get(), 0});
    }
  }
  std::stable_sort(members.begin(), members.end(), [](const Member& a, const Member& b) {
    if (a.job->is_paused != b.job->is_paused) return b.job->is_paused;
    return a.job->request.priority > b.job->request.priority;
  });
  return members;
}

void Engine::Admit() {
  if (is_admission_blocked_) return;
  // Whoever starts over has all of the memory until it has come a token further.
  const auto starts_over = [](const Member& member) {
    return !member.job->is_paused && member.stream->is_starting_over();
  };
  const std::vector<Member> active = StreamsByRank(true);
  if (std::any_of(active.begin(), active.end(), starts_over)) return;
  std::vector<Member> waiting = StreamsByRank(false);
  std::stable_partition(waiting.begin(), waiting.end(), starts_over);
  for (const Member& member : waiting) {
    if (member.job->is_paused) continue;
    // Nobody overtakes: what is first in rank would wait for ever behind a stream of small ones.
    const Admission admission = TryAdmit(*member.job, *member.stream);
    if (admission == Admission::kNoRoom) is_admission_blocked_ = true;
    if (is_admission_blocked_ || starts_over(member)) return;
  }
}

Engine::Admission Engine::TryAdmit(Job& job, EngineStream& stream) {
  if (stream.fetch || stream.search) return Admission::kLater;
  const int64_t known = stream.known_tokens();
  // The last token is always evaluated, and of a prompt that is scored every one: no cache holds
  // logits.
  const int64_t limit = job.is_scored()        ? 0
                        : job.is_mean_pooled() ? std::min(stream.pooled_tokens(), known - 1)
                                               : known - 1;
  const std::vector<Token> tokens = stream.known().Copy(0, known);
  // Who waits, and looks every step, uses nothing.
  const int64_t found = tree_.LookForTokens(job.request.salt, tokens, limit);
  if (!job.is_scored() && !job.is_mean_pooled() && IsBeingRead(job, found)) {
    return Admission::kLater;
  }
  if (stream.swapped && !IsWorthReading(stream, found)) stream.swapped.reset();
  if (stream.swapped && stream.swapped->state() == SwappedCache::State::kWriting) {
    return Admission::kLater;
  }
  auto match = tree_.Look(job.request.salt, tokens, limit);
  if (!match.ok()) {
    EndJob(job, FinishReason::kCancelled, match.error());
    return Admission::kLater;
  }
  const auto victims = FindVictims(job, stream, match->sequence);
  if (!victims) return Admission::kNoRoom;
  const auto cacheable = std::span(tokens).first(static_cast<size_t>(limit));
  if (FetchMore(job, stream, cacheable, found)) return Admission::kLater;
  tree_.Use(job.request.salt, std::span(tokens).first(static_cast<size_t>(match->tokens)));
  for (const Member& victim : *victims) Preempt(*victim.job, *victim.stream);
  stream.tokens_at_admission = stream.generated_tokens();
  AllowStartingOver(&stream);
  // Its time from token to token begins here.
  if (std::exchange(stream.waits_for_place, false)) stream.first_token_at = Now();
  if (stream.swapped && BeginReading(stream, match->sequence)) return Admission::kAdmitted;
  stream.sequence = std::move(match->sequence);
  if (!job.is_begun && match->diverges_at - match->tokens >= kBlockTokens) {
    stream.parts_at = match->diverges_at;
  }
  if (!job.is_begun) Begin(job, stream, match->tokens, match->diverges_at);
  return Admission::kAdmitted;
}

void Engine::Begin(Job& job, EngineStream& stream, int64_t cached_tokens,
                   int64_t known_prefix_tokens) {
  job.is_begun = true;
  stream.admitted_at = Now();
  job.result.queued_ms = MsBetween(job.submitted_at, stream.admitted_at);
  stream.result().stats.cached_tokens = cached_tokens;
  stream.result().stats.known_prefix_tokens = known_prefix_tokens;
  stats_.prompt_tokens += stream.known_tokens();
  stats_.cached_tokens += cached_tokens;
}

// Which running streams have to give way so that this one fits: none if it fits beside all; for its
// place whoever is paused, so that slow readers keep nobody out; else the last in rank of lower
// priorities; and no more than it takes. Nothing if that is not enough.
// A job that was preempted itself takes nothing from those who have not come a token further since:
// two that take turns (one falls behind now and then) would both begin again for ever.
std::optional<std::vector<Engine::Member>> Engine::FindVictims(const Job& job,
                                                               const EngineStream& stream,
                                                               const KvSequence& cached) const {
  std::vector<Member> active = StreamsByRank(true);
  // Blocks of whoever is paused count as free already.
  std::vector<Member> victims;
  const auto has_place = [&] { return static_cast<int64_t>(active.size()) < options_.max_streams; };
  while (!has_place() || !HasRoomFor(stream, cached, active)) {
    auto last = active.rend();
    if (!has_place()) {
      last = std::find_if(active.rbegin(), active.rend(),
                          [](const Member& member) { return member.job->is_paused; });
    }
    if (last == active.rend()) {
      last = std::find_if(active.rbegin(), active.rend(), [&](const Member& member) {
        return member.job->request.priority < job.request.priority &&
               (job.result.preemptions == 0 || member.stream->has_advanced());
      });
    }
    if (last == active.rend()) return std::nullopt;
    victims.push_back(*last);
    active.erase(std::next(last).base());
  }
  return victims;
}

// Whether somebody is just reading at least a block more of this prompt than the tree knows: then
// waiting for it is no slower than reading it twice, and takes the memory once.
bool Engine::IsBeingRead(const Job& job, int64_t cached_tokens) const {
  if (evicts_rows_) return false;  // what others read may not be there to be found
  const std::vector<Token>& mine = job.request.prompt;
  for (const auto& other : jobs_) {
    if (other->is_paused) continue;  // who knows when it goes on
    if (other.get() == &job || other->request.salt != job.request.salt ||
        other->request.priority < job.request.priority) {
      continue;
    }
    if (!other->streams[0]->sequence || other->is_prompt_read() || other->is_mean_pooled()) {
      continue;
    }
    const std::vector<Token>& theirs = other->request.prompt;
    const auto part = std::mismatch(mine.begin(), mine.end(), theirs.begin(), theirs.end());
    int64_t shared = part.first - mine.begin();
    // Other layers can be gone on with only where the prompt is published.
    if (!publish_points_.are_anywhere() && part.second != theirs.end()) {
      shared = publish_points_.Last(shared, other->prompt_tokens());
    }
    if (shared - cached_tokens >= kBlockTokens) return true;
  }
  return false;
}

size_t Engine::BytesToReserve(const std::vector<Member>& members) {
  size_t bytes = 0;
  for (const Member& member : members) {
    const auto drafts = static_cast<int64_t>(member.drafts.size());
    bytes += member.stream->sequence->BytesToReserve(member.tokens + drafts);
  }
  return bytes;
}

// Whether the members would fit if the tree gave all it has.
bool Engine::IsEvictionEnough(const std::vector<Member>& members) const {
  return parts_.pool->used_bytes() + BytesToReserve(members) <=
         parts_.pool->budget_bytes() + tree_.nbytes_exclusive();
}

// Whether the tree had anything to give: first what is missing; where that is nothing, what is
// there lies in blocks of other sizes.
bool Engine::EvictFor(const std::vector<Member>& members) {
  const size_t wanted = BytesToReserve(members);
  const size_t needed = parts_.pool->used_bytes() + wanted;
  const size_t budget = parts_.pool->budget_bytes();
  return tree_.Evict(needed > budget ? needed - budget : wanted) > 0;
}

// Whether the stream fits beside these. What only the prefix tree holds can be evicted.
bool Engine::HasRoomFor(const EngineStream& stream, const KvSequence& cached,
                        std::span<const Member> active) const {
  size_t to_come = BytesToCome(*parts_.spec, stream.known_tokens(), cached.nbytes());
  std::vector<std::vector<const KvBlock*>> references;  // of those that are not paused
  for (const Member& member : active) {
    // Whoever is paused gives way when it comes to that.
    if (member.job->is_paused) continue;
    references.push_back(member.stream->BlockReferences());
    size_t bytes = 0;
    for (const KvBlock* block : references.back()) bytes += block->owner->block_bytes();
    to_come += BytesToCome(*parts_.spec, member.stream->known_tokens(), bytes);
  }
  const size_t budget = parts_.pool->budget_bytes();
  if (references.empty() || parts_.pool->used_bytes() + to_come <= budget) return true;
  // Only what running answers hold stays; what they share is there once.
  references.push_back(cached.BlockReferences());
  std::unordered_set<const KvBlock*> seen;
  size_t held = 0;
  for (const std::vector<const KvBlock*>& of_one : references) {
    for (const KvBlock* block : of_one) {
      if (seen.insert(block).second) held += block->owner->block_bytes();
    }
    if (held + to_come > budget) return false;
  }
  return true;
}

// Finds memory for a step that the pool refused. False: there is none left to find.
bool Engine::MakeRoom(std::vector<Member>& members, const Error& error) {
  const size_t wanted = BytesToReserve(members);
  if (WaitForSwap() || WaitForStore()) return true;
  if (TakeBackLent()) return true;
  const std::vector<Member> active = StreamsByRank(true);
  const Member last = active.back();
  if (active.size() > 1) {
    Preempt(*last.job, *last.stream);
    std::erase_if(members, [&](const Member& member) { return member.stream == last.stream; });
    return true;
  }
  // A window layer gives blocks back behind every run, so shorter runs need less.
  if (members[0].tokens > kBlockTokens) {
    members[0].tokens /= 2;
    return true;
  }
  // What the tree has left is the stream's own. Sharing its last block costs a copy of it, so
  // alone it shares none: all of it can be found again when it ends.
  if (tree_.leaf_count() > 0) {
    tree_.Clear();
    return true;
  }
  // A step asks for what evicting rows needs and for what it adds at once; one after the other they
  // need less.
  if (evicts_rows_) {
    const size_t held = last.stream->sequence->nbytes();
    const Status compacted = last.stream->sequence->CompactIfDue();
    if (compacted.ok() && last.stream->sequence->nbytes() < held) return true;
  }
  if (members[0].tokens > 1) {
    members[0].tokens /= 2;
    return true;
  }
  if (swap_ != nullptr && swap_->holds_blocks()) {
    members.clear();  // the disk has them yet: the next step looks again
    return true;
  }
  if (StartOver(*last.job, *last.stream, wanted)) {
    members.clear();
    return true;
  }
  Error ending = WithContext(
      error,
      "the request does not fit into the cache even alone; ask for less or raise its budget");
  // A prompt that is too large will be so again; of what the system refuses nobody knows.
  const bool is_full = parts_.pool->used_bytes() + wanted > parts_.pool->budget_bytes();
  if (is_full && last.stream->generated_tokens() == 0) ending.code = ErrorCode::kInvalidArgument;
  if (last.job->is_prompt_read()) {
    // Other answers of the request may be shorter.
    if (last.job->result.status.ok()) last.job->result.status = ending;
    last.stream->error = std::move(ending);
    EndAnswer(*last.job, *last.stream, FinishReason::kLength);
  } else {
    EndJob(*last.job, FinishReason::kLength, ending);
  }
  members.clear();
  return true;
}

// What was there before can be in the way although it is gone: blocks of one size are free where
// another size is short, in memory that the stream's own blocks hold; and where rows are evicted,
// the stream needs more to leave what it shared. Alone it would fit, so it gives up everything and
// reads it again, once for each token that it chooses. False: it does not fit, or has done so.
bool Engine::StartOver(Job& job, EngineStream& stream, size_t wanted) {
  const bool is_full = parts_.pool->used_bytes() + wanted > parts_.pool->budget_bytes();
  if (is_full && !evicts_rows_) return false;
  if (stream.is_starting_over()) return false;
  stream.tokens_at_start_over = stream.generated_tokens();
  ++job.result.preemptions;
  ++stats_.preemptions;
  stream.sequence.reset();
  (void)tree_.Evict(parts_.pool->budget_bytes());  // what it has published
  parts_.pool->ReleaseFreeSlabs();                 // its first blocks would hold large ones again
  is_admission_blocked_ = false;
  return true;
}

// Somebody else has taken memory: all others that were starting over (while their readers were
// behind) are not alone in it any more, and may do so again.
void Engine::AllowStartingOver(const EngineStream* taker) {
  for (const auto& job : jobs_) {
    for (const auto& stream : job->streams) {
      if (stream.get() != taker) stream->tokens_at_start_over = -1;
    }
  }
}

void Engine::Lend(std::weak_ptr<LentBlocks> blocks) {
  lent_.push_back(std::move(blocks));
  AllowStartingOver(nullptr);
}

// Whoever reads or writes a file with them hears that they are gone. False: there were none.
bool Engine::TakeBackLent() {
  bool is_any = false;
  for (const std::weak_ptr<LentBlocks>& lent : std::exchange(lent_, {})) {
    if (const auto blocks = lent.lock()) is_any = blocks->TakeBack().has_value() || is_any;
  }
  return is_any;
}

// The stream waits again, in its old place. What it has read goes to the prefix tree, which is
// evicted block by block: as much as stays is not read again. What goes may be kept on disk.
void Engine::Preempt(Job& job, EngineStream& stream) {
  ++job.result.preemptions;
  ++stats_.preemptions;
  if (stream.is_reading()) {
    stream.swapped->StopReading();
    if (stream.swapped->state() == SwappedCache::State::kLost) LoseSwap(stream);
    return;
  }
  Publish(job, stream);
  SwapOut(stream);
  stream.sequence.reset();
}

}  // namespace kvasir
