// Engine: drafts of a step, from asking for them to keeping what the target would have said.
// Deliberately without an acceptance rule of its own: each row is sampled as if it stood alone, and
// a draft is accepted if it is what was sampled.
#include <algorithm>
#include <chrono>
#include <limits>
#include <numeric>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/engine/engine.h"
#include "kvasir/engine/engine_job.h"

namespace kvasir {
void Engine::UseDrafter(std::unique_ptr<Drafter> drafter) {
  KVASIR_CHECK(!has_work());
  draft_rounds_.reset();
  if (drafter == nullptr) return;
  draft_rounds_.emplace(std::move(drafter), options_.now);
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
  return std::max<int64_t>(0, std::min({room, WantedDrafts(member), StatesForDrafts() / streams}));
}

int64_t Engine::WantedDrafts(const Member& member) const {
  return member.job->request.max_drafts.value_or(options_.max_drafts);
}

// How many states the drafts of a step may take, one each.
int64_t Engine::StatesForDrafts() const {
  constexpr size_t kPartOfBudget = 4;
  size_t bytes = 0;
  for (const KvLayerSpec& layer : parts_.spec->layers) bytes += layer.state_bytes;
  if (bytes == 0) return std::numeric_limits<int64_t>::max();
  return static_cast<int64_t>(parts_.pool->budget_bytes() / kPartOfBudget / bytes);
}

void Engine::ProposeDrafts(std::vector<Member>& members) {
  if (!draft_rounds_) return;
  int64_t count = 0;
  int64_t other_rows = 0;
  for (Member& member : members) {
    member.most_drafts = MaxDrafts(member, static_cast<int64_t>(members.size()));
    if (member.most_drafts > 0) {
      ++count;
    } else {
      other_rows += member.tokens;
    }
  }
  if (!draft_rounds_->Begin(count)) {
    stats_.draft_depths[0] += count;
    return;
  }
  std::vector<Member*> seated;
  std::vector<DraftSeat> seats;
  for (Member& member : members) {
    if (member.most_drafts == 0) continue;
    EngineStream& stream = *member.stream;
    seated.push_back(&member);
    seats.push_back({.answer = &stream.drafted,
                     .request = {.known = stream.known(),
                                 .salt = member.job->request.salt,
                                 .max_drafts = member.most_drafts,
                                 .sampling = &stream.sampling(),
                                 .target = &*stream.sequence,
                                 .hidden = stream.hidden()},
                     .said_tokens = stream.generated_tokens(),
                     .most_tokens = stream.remaining_tokens()});
  }
  std::vector<std::vector<Token>> drafts = draft_rounds_->Propose(seats, other_rows);
  for (size_t i = 0; i < seated.size(); ++i) {
    ++stats_.draft_depths[std::min(drafts[i].size(), stats_.draft_depths.size() - 1)];
    seated[i]->drafts = std::move(drafts[i]);
  }
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
  for (const Member& member : members) {
    if (!member.drafts.empty()) KeepStatesOfDrafts(member);
  }
}

// Any of them may be the last that is kept.
void Engine::KeepStatesOfDrafts(const Member& member) {
  KvSequence& sequence = *member.stream->sequence;
  std::vector<Position> states(member.drafts.size());
  std::iota(states.begin(), states.end(), sequence.position() + member.tokens);
  sequence.KeepStatesAt(std::move(states));
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

// How many of the member's last tokens need their hidden state. `is_last`: nothing known follows.
int64_t Engine::HiddenRows(const Member& member, bool is_last) const {
  if (member.job->request.pooling) return member.stream->WantedStates(member.tokens, is_last);
  const auto drafts = static_cast<int64_t>(member.drafts.size());
  const bool is_drafted_for = draft_rounds_ && WantedDrafts(member) > 0;
  switch (is_drafted_for ? draft_rounds_->hidden_wanted() : HiddenWanted::kNone) {
    case HiddenWanted::kNone:
      return 0;
    case HiddenWanted::kLast:
      return is_last ? 1 + drafts : 0;
    case HiddenWanted::kAll:
      return member.tokens + drafts;
  }
  return 0;
}

// `hidden`: of the tokens that end at the sequence's position; those of refused drafts are dropped.
void Engine::TellDrafter(const Member& member, ConstFloatRows hidden) {
  if (!draft_rounds_ || member.job->request.pooling || hidden.rows == 0) return;
  EngineStream& stream = *member.stream;
  const Position begin = stream.sequence->position() - hidden.rows;
  const auto drafts = static_cast<int64_t>(member.drafts.size());
  const ConstFloatRows kept = hidden.Part(0, hidden.rows - drafts + member.accepted_drafts);
  stream.KeepHidden(begin + kept.rows - 1, kept.Part(kept.rows - 1, 1));
  if (draft_rounds_->hidden_wanted() != HiddenWanted::kAll) return;
  draft_rounds_->Report(
      stream.drafted,
      {.known = stream.known(), .salt = member.job->request.salt, .begin = begin, .hidden = kept});
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
    ForgetStates(*stream.sequence);
    const auto drafted = static_cast<int64_t>(member.drafts.size());
    draft_rounds_->Judge(
        stream.drafted, drafted, member.accepted_drafts,
        stream.is_done() ? DraftRounds::Answer::kEnded : DraftRounds::Answer::kGoesOn);
    GenerationStats& stats = stream.result().stats;
    stats.drafted_tokens += drafted;
    stats.accepted_drafts += member.accepted_drafts;
    stats_.drafted_tokens += drafted;
    stats_.accepted_drafts += member.accepted_drafts;
    if (stream.is_done()) Retire(*member.job, stream);
  }
}

// `members`: that ran; memory may have been short of some, or of their drafts.
void Engine::RecordStep(const std::vector<Member>& members, double ms, uint64_t committed_bytes) {
  if (!draft_rounds_) return;
  DraftedStep step = {.ms = ms, .committed_bytes = committed_bytes};
  for (const Member& member : members) {
    step.plain_rows += member.tokens;
    step.drafts += static_cast<int64_t>(member.drafts.size());
    step.kept_drafts += member.accepted_drafts;
    const EngineStream& stream = *member.stream;
    step.is_usual &= !stream.is_done() && stream.generated_tokens() != 1;
  }
  draft_rounds_->End(step);
}

void Engine::DropDraftState(const Job& job, EngineStream& stream) {
  if (draft_rounds_) draft_rounds_->Drop(stream.drafted, stream.known(), job.request.salt);
}

}  // namespace kvasir
