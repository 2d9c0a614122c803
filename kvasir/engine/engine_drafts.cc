// Engine: drafts of a step, from asking for them to keeping what the target would have said.
// Deliberately without an acceptance rule of its own: each row is sampled as if it stood alone, and
// a draft is accepted if it is what was sampled.
#include <algorithm>
#include <chrono>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/engine/engine.h"
#include "kvasir/engine/engine_job.h"

namespace kvasir {
namespace {

bool HasRecurrentLayers(const KvCacheSpec& spec) {
  return std::any_of(spec.layers.begin(), spec.layers.end(),
                     [](const KvLayerSpec& layer) { return layer.is_recurrent(); });
}

}  // namespace

void Engine::UseDrafter(std::unique_ptr<Drafter> drafter) {
  KVASIR_CHECK(!has_work());
  if (!HasRecurrentLayers(*parts_.spec)) drafter_ = std::move(drafter);
}

// How many drafts there is room for, in the request, the cache, the context and the step.
int64_t Engine::MaxDrafts(const Member& member, int64_t streams) const {
  const EngineStream& stream = *member.stream;
  const Position position = stream.sequence->position();
  if (!member.job->is_prompt_read() || member.tokens != 1 ||
      position + 1 != stream.known_tokens()) {
    return 0;
  }
  const int64_t room = std::min({stream.remaining_tokens() - 1, stream.sequence->RunLimit() - 1,
                                 parts_.model->context_tokens() - position - 1,
                                 options_.scheduler.mixed_step_tokens / streams});
  const int64_t wanted = member.job->request.max_drafts.value_or(options_.max_drafts);
  return std::max<int64_t>(0, std::min(room, wanted));
}

void Engine::ProposeDrafts(std::vector<Member>& members) {
  if (drafter_ == nullptr) return;
  std::vector<size_t> drafting;
  std::vector<DraftCandidate> candidates;
  int64_t other_rows = 0;
  for (size_t i = 0; i < members.size(); ++i) {
    const int64_t most = MaxDrafts(members[i], static_cast<int64_t>(members.size()));
    if (most == 0) {
      other_rows += members[i].tokens;
      continue;
    }
    std::optional<AcceptanceRate>& rate = members[i].stream->draft_rate;
    if (!rate) rate = planner_.NewRate();
    drafting.push_back(i);
    candidates.push_back({rate->value(), most});
  }
  const std::vector<int64_t> plan = planner_.Plan(candidates, other_rows);
  std::vector<DraftRequest> requests;
  std::vector<Member*> asked;
  for (size_t i = 0; i < plan.size(); ++i) {
    if (plan[i] == 0) continue;
    Member& member = members[drafting[i]];
    EngineStream& stream = *member.stream;
    if (!stream.draft_state) stream.draft_state = drafter_->NewState();
    asked.push_back(&member);
    requests.push_back({.state = stream.draft_state.get(),
                        .known = stream.known(),
                        .salt = member.job->request.salt,
                        .max_drafts = plan[i],
                        .sampling = &stream.sampling(),
                        .target = &*stream.sequence});
  }
  stats_.draft_depths[0] += static_cast<int64_t>(candidates.size() - requests.size());
  if (requests.empty()) return;
  drafter_->Follow(requests);
  const EngineClock::time_point begin = Now();
  std::vector<std::vector<Token>> drafts = drafter_->Propose(requests);
  size_t passes = 0;
  for (size_t i = 0; i < asked.size(); ++i) {
    passes = std::max(passes, drafts[i].size());
    ++stats_.draft_depths[std::min(drafts[i].size(), stats_.draft_depths.size() - 1)];
    asked[i]->drafts = std::move(drafts[i]);
  }
  planner_.RecordDrafting(static_cast<int64_t>(passes),
                          std::chrono::duration<double, std::milli>(Now() - begin).count());
}

void Engine::OpenSpeculation(std::vector<Member>& members) {
  std::vector<KvSequence*> sequences;
  for (const Member& member : members) {
    if (!member.drafts.empty()) sequences.push_back(&*member.stream->sequence);
  }
  if (sequences.empty()) return;
  Result<Speculation> speculation = Speculation::Begin(sequences);
  if (!speculation.ok()) {
    DropDrafts(members);
    return;
  }
  speculation_.emplace(std::move(speculation).value());
}

// Whether there were any.
bool Engine::DropDrafts(std::vector<Member>& members) {
  speculation_.reset();
  bool dropped = false;
  for (Member& member : members) {
    dropped |= !member.drafts.empty();
    member.drafts.clear();
  }
  return dropped;
}

void Engine::Verify(Member& member, ConstFloatRows logits, int64_t row) {
  EngineStream& stream = *member.stream;
  for (const Token draft : member.drafts) {
    Choose(*member.job, stream, {logits.row(row++), static_cast<size_t>(logits.cols)});
    if (stream.is_done() || stream.result().tokens.back() != draft) return;
    ++member.accepted_drafts;
  }
  Choose(*member.job, stream, {logits.row(row), static_cast<size_t>(logits.cols)});
}

void Engine::CommitDrafts(const std::vector<Member>& members) {
  if (!speculation_) return;
  std::vector<int64_t> kept;
  for (const Member& member : members) {
    if (!member.drafts.empty()) kept.push_back(member.tokens + member.accepted_drafts);
  }
  const Status committed = speculation_->Commit(kept);
  KVASIR_CHECK(committed.ok());
  speculation_.reset();
  for (const Member& member : members) {
    if (member.drafts.empty()) continue;
    EngineStream& stream = *member.stream;
    const auto drafted = static_cast<int64_t>(member.drafts.size());
    // What follows the end of an answer was not judged.
    planner_.RecordDrafts(&*stream.draft_rate, stream.is_done() ? member.accepted_drafts : drafted,
                          member.accepted_drafts);
    GenerationStats& stats = stream.result().stats;
    stats.drafted_tokens += drafted;
    stats.accepted_drafts += member.accepted_drafts;
    stats_.drafted_tokens += drafted;
    stats_.accepted_drafts += member.accepted_drafts;
    if (stream.is_done()) Retire(*member.job, stream);
  }
}

void Engine::FinishDrafts(const Job& job, EngineStream& stream) {
  if (!stream.draft_state) return;
  drafter_->Finish(*stream.draft_state, stream.known(), job.request.salt);
  stream.draft_state.reset();
}

}  // namespace kvasir
