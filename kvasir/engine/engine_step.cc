// One step of the engine: which rows it evaluates, and what becomes of their logits.
// Deliberately without drafts (engine_drafts.cc) and without finding memory (engine_memory.cc).
#include <algorithm>
#include <chrono>
#include <utility>

#include "kvasir/engine/engine.h"
#include "kvasir/engine/engine_job.h"

namespace kvasir {
namespace {

// A run that does not reach the end anyway ends with a block where it can: a state that is kept
// there shares only full blocks, so nothing is copied for it.
int64_t WholeBlocks(Position position, int64_t tokens, int64_t pending_tokens) {
  const int64_t surplus = (position + tokens) % kBlockTokens;
  return tokens < pending_tokens && surplus < tokens ? tokens - surplus : tokens;
}

}  // namespace

std::vector<Engine::Member> Engine::PlanMembers() {
  std::vector<Member> members;
  std::vector<SchedulerInput> inputs;
  bool is_scoring = false;
  bool starts_over = false;
  for (const auto& job : jobs_) {
    for (const auto& stream : job->streams) {
      if (!stream->sequence || job->is_paused) continue;
      // One after the other, as the logits of many would take much memory.
      if (job->is_scored() && std::exchange(is_scoring, true)) continue;
      const int64_t pending = stream->known_tokens() - stream->sequence->position();
      int64_t run_limit = stream->sequence->RunLimit();
      if (job->is_scored()) run_limit = std::min(run_limit, kMostScoredRows);
      // Layers that hold whole states at the end of a run only are published and stored there.
      const Position position = stream->sequence->position();
      if (publish_points_.cut_runs() && !job->is_mean_pooled()) {
        run_limit =
            std::min(run_limit, publish_points_.Next(position, PointsOf(*job, *stream)) - position);
      }
      // Long runs take blocks for a moment, in whose slabs a few that stay keep all from others.
      if (stream->is_starting_over()) {
        run_limit = std::min<int64_t>(run_limit, kBlockTokens);
        starts_over = true;
      }
      inputs.push_back({.pending_tokens = pending,
                        .run_limit = run_limit,
                        .priority = job->request.priority,
                        .is_decode = pending == 1});
      members.push_back({job.get(), stream.get(), 0});
    }
  }
  parts_.pool->SetExactGrowth(starts_over);
  const std::vector<int64_t> tokens = PlanStep(inputs, options_.scheduler);
  for (size_t i = 0; i < members.size(); ++i) {
    members[i].tokens =
        WholeBlocks(members[i].stream->sequence->position(), tokens[i], inputs[i].pending_tokens);
  }
  std::erase_if(members, [](const Member& member) { return member.tokens == 0; });
  return members;
}

// Runs what fits: members that memory could not be found for are gone from the list afterwards.
Result<ConstFloatRows> Engine::Forward(std::vector<Member>& members) {
  for (;;) {
    if (members.empty()) return {ErrorCode::kCancelled, "there is nothing to evaluate"};
    OpenSpeculation(members);
    std::vector<std::vector<Token>> tokens;
    std::vector<SequenceRun> runs;
    int64_t evaluated = 0;
    for (Member& member : members) {
      const Position position = member.stream->sequence->position();
      tokens.push_back(member.stream->known().Copy(position, position + member.tokens));
      const bool is_last = position + member.tokens == member.stream->known_tokens();
      const bool is_pooled = member.job->request.pooling.has_value();
      const auto drafts = static_cast<int64_t>(member.drafts.size());
      tokens.back().insert(tokens.back().end(), member.drafts.begin(), member.drafts.end());
      const int64_t rows = member.job->is_scored() ? member.tokens
                           : is_last && !is_pooled ? 1 + drafts
                                                   : 0;
      member.hidden_rows = HiddenRows(member, is_last);
      runs.push_back({&*member.stream->sequence, tokens.back(), rows, member.hidden_rows});
      evaluated += member.tokens + drafts;
    }
    const auto begin = std::chrono::steady_clock::now();
    auto logits = parts_.model->Forward(runs, workspace_);
    if (logits.ok()) {
      MeasureStep(evaluated, std::chrono::steady_clock::now() - begin);
      ++stats_.steps;
      stats_.evaluated_tokens += evaluated;
      return logits;
    }
    const Error error = logits.error();
    const bool is_full = error.code == ErrorCode::kResourceExhausted;
    // Nobody loses a cache for somebody's drafts; only for the states behind each of them, which
    // are given back at once, so that the next drafts find room.
    if (is_full && parts_.spec->HasRecurrentLayers() && IsEvictionEnough(members) &&
        EvictFor(members)) {
      speculation_.reset();
      continue;
    }
    if (DropDrafts(members)) continue;
    if (is_full) {
      if (EvictFor(members)) continue;
      // Nobody waits for what others may find.
      if (DropKeptStates(members)) continue;
      if (MakeRoom(members, error)) continue;
    }
    // Checked requests give the model nothing to refuse; if it does, these can never go on.
    for (const Member& member : members) EndJob(*member.job, FinishReason::kCancelled, error);
    return error;
  }
}

void Engine::Deliver(std::vector<Member>& members, ConstFloatRows logits) {
  int64_t row = 0;
  const ConstFloatRows states = workspace_.HiddenStates();
  int64_t state = 0;
  for (Member& member : members) {
    Job& job = *member.job;
    EngineStream& stream = *member.stream;
    const ConstFloatRows hidden = states.Part(state, member.hidden_rows);
    state += member.hidden_rows;
    if (!member.drafts.empty()) {
      Verify(member, logits, row);
      row += 1 + static_cast<int64_t>(member.drafts.size());
      TellDrafter(member, hidden);
      continue;
    }
    const Position position = stream.sequence->position();
    const int64_t prompt = job.prompt_tokens();
    if (job.callbacks.on_prefill && position - member.tokens < prompt &&
        stream.generated_tokens() == 0) {
      job.callbacks.on_prefill({.cached = stream.result().stats.cached_tokens,
                                .known_prefix = stream.result().stats.known_prefix_tokens,
                                .done = std::min(position, prompt),
                                .total = prompt});
    }
    const auto next_row = [&] {
      return std::span<const float>(logits.row(row++), static_cast<size_t>(logits.cols));
    };
    if (job.is_scored()) {
      for (Position at = position - member.tokens; at < std::min(position, prompt - 1); ++at) {
        stream.ScorePrompt(at, next_row());
      }
    }
    const bool is_all_read = position == stream.known_tokens();
    if (job.request.pooling) stream.AddStates(position - hidden.rows, hidden);
    if (!is_all_read) {
      if (!job.is_mean_pooled() && !stream.is_starting_over() &&
          publish_points_.Next(position - member.tokens, PointsOf(job, stream)) <= position) {
        PublishPoint(job, stream);
      }
      TellDrafter(member, hidden);
      continue;
    }
    if (job.request.pooling) {
      EndPooled(job, stream);
      continue;
    }
    const std::span<const float> scores = next_row();
    TellDrafter(member, hidden);
    if (job.is_prompt_read()) {
      Accept(job, stream, scores);
      continue;
    }
    BeginAnswers(job, stream, hidden);
    for (const auto& answer : job.streams) Accept(job, *answer, scores);
  }
  CommitDrafts(members);
}

// The prompt is read: as many answers as there are places for go on from its cache, the others wait
// for one with their first token chosen.
void Engine::BeginAnswers(Job& job, EngineStream& first, ConstFloatRows hidden) {
  PublishPoint(job, first);
  tree_.AddUser(job.request.salt, job.request.prompt);
  const auto active = static_cast<int64_t>(StreamsByRank(true).size());
  AddStreams(job, job.request.answers);
  for (size_t i = 1; i < job.streams.size(); ++i) {
    EngineStream& stream = *job.streams[i];
    if (active + static_cast<int64_t>(i) <= options_.max_streams) {
      stream.sequence = first.sequence->Fork();
    } else {
      stream.waits_for_place = true;
    }
    stream.admitted_at = first.admitted_at;
    stream.keys = first.keys;
    if (hidden.rows > 0) {
      stream.KeepHidden(first.sequence->position() - 1, hidden.Part(hidden.rows - 1, 1));
    }
    if (draft_rounds_) stream.drafted = draft_rounds_->Fork(first.drafted);
  }
}

void Engine::Accept(Job& job, EngineStream& stream, std::span<const float> logits) {
  Choose(job, stream, logits);
  if (stream.is_done()) Retire(job, stream);
}

void Engine::Choose(Job& job, EngineStream& stream, std::span<const float> logits) {
  GenerationStats& stats = stream.result().stats;
  const EngineClock::time_point now = Now();
  if (stats.generated_tokens == 0) {
    stream.first_token_at = now;
    stats.prefill_ms = MsBetween(stream.admitted_at, now);
  }
  stats.decode_ms = MsBetween(stream.first_token_at, now);
  const int64_t before = stats.generated_tokens;
  const Status chosen = stream.Accept(logits, sampler_);
  if (!chosen.ok()) {
    job.result.status = chosen.error();
    stream.error = chosen.error();
    job.is_cancelled = true;  // its other answers end with this step
  }
  stats_.generated_tokens += stats.generated_tokens - before;
  // Now others may take its place.
  if (before == stream.tokens_at_admission) is_admission_blocked_ = false;
}

void Engine::Retire(const Job& job, EngineStream& stream) {
  if (stream.sequence) Publish(job, stream);
  if (draft_rounds_) {
    draft_rounds_->Finish(stream.drafted, stream.known(), job.request.salt,
                          stream.generated_tokens());
  }
  stream.ReleaseCache();
  is_admission_blocked_ = false;
}

void Engine::EndPooled(Job& job, EngineStream& stream) {
  stream.result().stats.prefill_ms = MsBetween(stream.admitted_at, Now());
  stream.Finish(FinishReason::kStop);
  if (!job.is_mean_pooled()) Publish(job, stream);
  stream.ReleaseCache();
  is_admission_blocked_ = false;
}

// What the stream has read becomes findable for others: references, no copies.
void Engine::Publish(const Job& job, EngineStream& stream) {
  KvSequence& sequence = *stream.sequence;
  const std::vector<Token> tokens = stream.known().Copy(0, sequence.position());
  if (tree_.Insert(job.request.salt, tokens, sequence)) StorePrefix(job, stream);
  ForgetStates(sequence);
}

// The same of a prompt that is gone on with: where states are kept, up to the last of them, as the
// state here is about to change and nobody will ask for it.
void Engine::PublishPoint(const Job& job, EngineStream& stream) {
  KvSequence& sequence = *stream.sequence;
  const std::vector<Position> kept = sequence.Checkpoints();
  if (kept.empty() || publish_points_.cut_runs()) return Publish(job, stream);
  const std::vector<Token> tokens = stream.known().Copy(0, kept.back());
  if (tree_.Insert(job.request.salt, tokens, sequence.Snapshot(0, kept.back()))) {
    StorePrefix(job, stream);
  }
  ForgetStates(sequence);
}

PublishPoints::Prompt Engine::PointsOf(const Job& job, const EngineStream& stream) {
  return {.tokens = job.prompt_tokens(), .parts_at = stream.parts_at};
}

// Which states the next runs leave, of those that are not asked for drafts.
void Engine::KeepStates(const std::vector<Member>& members) {
  for (const Member& member : members) {
    KvSequence& sequence = *member.stream->sequence;
    if (member.job->is_mean_pooled() || !member.drafts.empty()) continue;
    const Position position = sequence.position();
    // Whoever starts over has no memory for it.
    if (member.stream->is_starting_over()) {
      sequence.KeepStatesAt({});
    } else {
      sequence.KeepStatesAt(publish_points_.StatesWithin(position, position + member.tokens,
                                                         PointsOf(*member.job, *member.stream)));
    }
  }
}

// Those that runs were to leave, and those that they have left and nobody can find yet. Whether
// there were any.
bool Engine::DropKeptStates(const std::vector<Member>& members) {
  bool dropped = false;
  for (const Member& member : members) {
    KvSequence& sequence = *member.stream->sequence;
    dropped |= sequence.InnerStateCount(member.tokens) > 0 || !sequence.Checkpoints().empty();
    sequence.KeepStatesAt({});
    ForgetStates(sequence);
  }
  return dropped;
}

// The tree has them.
void Engine::ForgetStates(KvSequence& sequence) {
  sequence.DropCheckpoints(sequence.position() + 1);
}

}  // namespace kvasir
