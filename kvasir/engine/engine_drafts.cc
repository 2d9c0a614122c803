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
  drafter_ = HasRecurrentLayers(*parts_.spec) ? nullptr : std::move(drafter);
  // A draft model is a tenth of its target or less, and its passes take longer than that.
  planner_.emplace(drafter_ == nullptr || drafter_->is_cheap() ? 0 : 0.25);
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
  drafted_step_ = {};
  if (drafter_ == nullptr) return;
  std::vector<Asked> asked;
  for (Member& member : members) {
    const int64_t most = MaxDrafts(member, static_cast<int64_t>(members.size()));
    drafted_step_.plain_rows += member.tokens;
    if (most > 0) asked.push_back({&member, most});
  }
  if (asked.empty()) return;
  drafted_step_.candidates = static_cast<int64_t>(asked.size());
  if (planner_->BeginStep(drafted_step_.candidates)) {
    const EngineClock::time_point begin = Now();
    const double follow_ms = drafter_->is_cheap() ? ChooseDrafts(asked) : AskForDrafts(asked);
    drafted_step_.drafting_ms = MsBetween(begin, Now()) - follow_ms;
  }
  for (const Asked& one : asked) {
    const size_t drafts = one.member->drafts.size();
    ++stats_.draft_depths[std::min(drafts, stats_.draft_depths.size() - 1)];
  }
}

DraftRequest Engine::RequestOf(const Asked& asked) {
  EngineStream& stream = *asked.member->stream;
  if (!stream.draft_state) stream.draft_state = drafter_->NewState();
  if (!stream.draft_rates) stream.draft_rates = planner_->NewRates();
  return {.state = stream.draft_state.get(),
          .known = stream.known(),
          .salt = asked.member->job->request.salt,
          .max_drafts = asked.most,
          .sampling = &stream.sampling(),
          .target = &*stream.sequence,
          .hidden = stream.hidden()};
}

// Up to `count` drafts; `missing_tokens` as of Drafter::MissingTokens.
DraftCandidate Engine::CandidateOf(const EngineStream& stream, int64_t count,
                                   int64_t missing_tokens) const {
  DraftCandidate candidate = {.chances = {},
                              .missing_tokens = missing_tokens,
                              .expected_tokens = planner_->ExpectedTokens(
                                  stream.generated_tokens(), stream.remaining_tokens())};
  candidate.chances.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    candidate.chances.push_back(stream.draft_rates->Of(drafter_->Sureness(*stream.draft_state, i)));
  }
  return candidate;
}

// Guesses that cost nothing: all are made, and the planner says which are worth verifying.
double Engine::ChooseDrafts(std::span<const Asked> asked) {
  std::vector<DraftRequest> requests;
  for (const Asked& one : asked) requests.push_back(RequestOf(one));
  std::vector<std::vector<Token>> drafts = drafter_->Propose(requests);
  std::vector<DraftCandidate> candidates;
  for (size_t i = 0; i < asked.size(); ++i) {
    candidates.push_back(
        CandidateOf(*asked[i].member->stream, static_cast<int64_t>(drafts[i].size()), 0));
  }
  const std::vector<int64_t> plan = planner_->Plan(std::move(candidates), OtherRows());
  for (size_t i = 0; i < asked.size(); ++i) {
    drafts[i].resize(static_cast<size_t>(plan[i]));
    asked[i].member->drafts = std::move(drafts[i]);
  }
  return 0;
}

// Guesses of a drafter whose work the planner weighs before there is any. Returns the time it took
// the drafter to catch up.
double Engine::AskForDrafts(std::span<const Asked> asked) {
  std::vector<DraftRequest> requests;
  std::vector<DraftCandidate> candidates;
  for (const Asked& one : asked) {
    requests.push_back(RequestOf(one));
    const std::optional<int64_t> missing = drafter_->MissingTokens(requests.back());
    candidates.push_back(
        CandidateOf(*one.member->stream, missing ? one.most : 0, missing.value_or(0)));
  }
  const std::vector<int64_t> plan = planner_->Plan(std::move(candidates), OtherRows());
  std::vector<Member*> chosen;
  for (size_t i = 0; i < plan.size(); ++i) {
    if (plan[i] == 0) continue;
    requests[chosen.size()] = requests[i];
    requests[chosen.size()].max_drafts = plan[i];
    chosen.push_back(asked[i].member);
  }
  if (chosen.empty()) return 0;
  requests.resize(chosen.size());
  const double follow_ms = FollowDrafts(requests);
  const EngineClock::time_point begin = Now();
  std::vector<std::vector<Token>> drafts = drafter_->Propose(requests);
  std::vector<int64_t> guessed;
  for (size_t i = 0; i < chosen.size(); ++i) {
    guessed.push_back(static_cast<int64_t>(drafts[i].size()));
    chosen[i]->drafts = std::move(drafts[i]);
  }
  planner_->RecordPasses(guessed, MsBetween(begin, Now()));
  return follow_ms;
}

double Engine::FollowDrafts(std::span<const DraftRequest> requests) {
  const auto missing = [&] {
    int64_t tokens = 0;
    for (const DraftRequest& request : requests) {
      tokens += drafter_->MissingTokens(request).value_or(0);
    }
    return tokens;
  };
  const int64_t before = missing();
  if (before == 0) return 0;
  const EngineClock::time_point begin = Now();
  drafter_->Follow(requests);
  const double ms = MsBetween(begin, Now());
  planner_->RecordFollow(before - missing(), ms);
  return ms;
}

// Rows of the step that are of nobody who could be given drafts.
int64_t Engine::OtherRows() const { return drafted_step_.plain_rows - drafted_step_.candidates; }

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

// How many of the member's last tokens need their hidden state. `is_last`: nothing known follows.
int64_t Engine::HiddenRows(const Member& member, bool is_last) const {
  if (member.job->request.pooling) return member.stream->WantedStates(member.tokens, is_last);
  const auto drafts = static_cast<int64_t>(member.drafts.size());
  switch (drafter_ == nullptr ? HiddenWanted::kNone : drafter_->hidden_wanted()) {
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
  if (drafter_ == nullptr || member.job->request.pooling || hidden.rows == 0) return;
  EngineStream& stream = *member.stream;
  const Position begin = stream.sequence->position() - hidden.rows;
  const auto drafts = static_cast<int64_t>(member.drafts.size());
  const ConstFloatRows kept = hidden.Part(0, hidden.rows - drafts + member.accepted_drafts);
  stream.KeepHidden(begin + kept.rows - 1, kept.Part(kept.rows - 1, 1));
  if (drafter_->hidden_wanted() != HiddenWanted::kAll) return;
  if (!stream.draft_state) stream.draft_state = drafter_->NewState();
  drafter_->Report({.state = stream.draft_state.get(),
                    .known = stream.known(),
                    .salt = member.job->request.salt,
                    .begin = begin,
                    .hidden = kept});
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
    // What follows a wrong draft or the end of an answer was not judged.
    for (int64_t i = 0; i < member.accepted_drafts; ++i) RecordDraft(stream, i, true);
    if (member.accepted_drafts < drafted && !stream.is_done()) {
      RecordDraft(stream, member.accepted_drafts, false);
    }
    GenerationStats& stats = stream.result().stats;
    stats.drafted_tokens += drafted;
    stats.accepted_drafts += member.accepted_drafts;
    stats_.drafted_tokens += drafted;
    stats_.accepted_drafts += member.accepted_drafts;
    if (stream.is_done()) Retire(*member.job, stream);
  }
}

void Engine::RecordDraft(EngineStream& stream, int64_t index, bool is_right) {
  planner_->RecordDraft(&*stream.draft_rates, drafter_->Sureness(*stream.draft_state, index),
                        is_right);
}

// `members`: that ran; memory may have been short of some, or of their drafts.
void Engine::RecordStep(const std::vector<Member>& members, double ms) {
  if (drafter_ == nullptr) return;
  drafted_step_.plain_rows = 0;
  for (const Member& member : members) {
    drafted_step_.plain_rows += member.tokens;
    drafted_step_.drafts += static_cast<int64_t>(member.drafts.size());
    drafted_step_.kept_drafts += member.accepted_drafts;
  }
  drafted_step_.ms = ms;
  planner_->RecordStep(drafted_step_);
}

void Engine::FinishDrafts(const Job& job, EngineStream& stream) {
  if (!stream.draft_state) return;
  drafter_->Finish(*stream.draft_state, stream.known(), job.request.salt);
  stream.draft_state.reset();
}

}  // namespace kvasir
