#include "kvasir/engine/engine.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/engine/engine_job.h"

namespace kvasir {
namespace {

// A run that does not reach the end anyway ends with a block where it can: a state that is kept
// there shares only full blocks, so nothing is copied for it.
int64_t WholeBlocks(Position position, int64_t tokens, int64_t pending_tokens) {
  const int64_t surplus = (position + tokens) % kBlockTokens;
  return tokens < pending_tokens && surplus < tokens ? tokens - surplus : tokens;
}

Status Invalid(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

}  // namespace

EngineParts EngineParts::Of(ModelBundle& bundle) {
  return {.model = &bundle.model(),
          .pool = &bundle.pool(),
          .spec = bundle.cache_spec(),
          .vocabulary = {.tokenizer = bundle.tokenizer(),
                         .stop_tokens = bundle.stop_tokens(),
                         .sampleable_tokens = bundle.sampleable_tokens()}};
}

Result<std::unique_ptr<Engine>> Engine::Create(EngineParts parts, EngineOptions options) {
  KVASIR_TRY_OK(options.scheduler.Validate());
  if (options.max_streams < 1) {
    return {ErrorCode::kInvalidArgument, "engine: max_streams is " +
                                             std::to_string(options.max_streams) +
                                             ", it must be at least 1"};
  }
  KVASIR_TRY_OK(parts.spec->Validate());
  std::unique_ptr<SwapStore> swap;
  if (!options.swap.dir.empty()) {
    KVASIR_TRY(swap, SwapStore::Open(options.swap));
  }
  return std::unique_ptr<Engine>(new Engine(std::move(parts), std::move(options), std::move(swap)));
}

Engine::Engine(EngineParts parts, EngineOptions options, std::unique_ptr<SwapStore> swap)
    : parts_(std::move(parts)),
      options_(std::move(options)),
      tree_(parts_.pool, parts_.spec, options_.max_index_bytes),
      shares_any_prefix_(std::all_of(parts_.spec->layers.begin(), parts_.spec->layers.end(),
                                     [](const KvLayerSpec& layer) {
                                       return !layer.is_recurrent() &&
                                              layer.layout.dense_recent == 0 &&
                                              layer.retention.kind == RetentionSpec::Kind::kAll;
                                     })),
      evicts_rows_(std::any_of(parts_.spec->layers.begin(), parts_.spec->layers.end(),
                               [](const KvLayerSpec& layer) {
                                 return layer.retention.kind == RetentionSpec::Kind::kBudget;
                               })),
      swap_(std::move(swap)) {}

Engine::~Engine() { CancelAll(); }

Status Engine::Check(const EngineRequest& request) const {
  const auto prompt = static_cast<int64_t>(request.prompt.size());
  const int64_t context = parts_.model->context_tokens();
  if (prompt == 0) return Invalid("the prompt has no token");
  if (prompt >= context) {
    return Invalid("the prompt has " + std::to_string(prompt) +
                   " tokens and the model's context is " + std::to_string(context) +
                   "; shorten the prompt");
  }
  const int64_t vocab_size = parts_.model->vocab_size();
  for (const Token token : request.prompt) {
    if (token >= 0 && token < vocab_size) continue;
    return Invalid("token " + std::to_string(token) +
                   " of the prompt is outside the vocabulary of " + std::to_string(vocab_size));
  }
  if (request.answers < 1 || request.answers > options_.max_streams) {
    return Invalid("answers is " + std::to_string(request.answers) + ", it must be 1 to " +
                   std::to_string(options_.max_streams));
  }
  if (request.pooling && request.answers != 1) {
    return Invalid("answers is " + std::to_string(request.answers) +
                   ", it must be 1 where the prompt is pooled");
  }
  if (request.top_logprobs.value_or(0) < 0) {
    return Invalid("top_logprobs is " + std::to_string(*request.top_logprobs) +
                   ", it must be 0 or more");
  }
  KVASIR_TRY_OK(request.sampling.Validate(parts_.vocabulary.sampleable_tokens));
  const size_t bytes = parts_.spec->BytesAt(prompt);
  const size_t budget = parts_.pool->budget_bytes();
  if (bytes <= budget) return {};
  return {ErrorCode::kResourceExhausted, "the prompt's cache needs " + std::to_string(bytes) +
                                             " bytes and all caches together may have " +
                                             std::to_string(budget) +
                                             "; shorten the prompt or raise the cache budget"};
}

Result<RequestId> Engine::Submit(EngineRequest request, EngineCallbacks callbacks) {
  const RequestId id = NewId();
  KVASIR_TRY_OK(Submit(id, std::move(request), std::move(callbacks)));
  return id;
}

Status Engine::Submit(RequestId id, EngineRequest request, EngineCallbacks callbacks) {
  KVASIR_TRY_OK(Check(request));
  auto job = std::make_unique<Job>();
  job->id = id;
  job->breakers = Breakers(request.sampling);
  job->request = std::move(request);
  job->callbacks = std::move(callbacks);
  job->submitted_at = Now();
  AddStreams(*job, 1);
  submitted_.push_back(std::move(job));
  return {};
}

std::shared_ptr<const DryBreakers> Engine::Breakers(const SamplingOptions& options) {
  if (!options.has_dry() || parts_.vocabulary.tokenizer == nullptr) return nullptr;
  if (breakers_ == nullptr || breaker_texts_ != options.dry.breakers) {
    breaker_texts_ = options.dry.breakers;
    breakers_ =
        std::make_shared<const DryBreakers>(MakeDryBreakers(breaker_texts_, parts_.vocabulary));
  }
  return breakers_;
}

void Engine::AddStreams(Job& job, int count) {
  const int64_t room =
      parts_.model->context_tokens() - static_cast<int64_t>(job.request.prompt.size());
  const int64_t limit = std::min(job.request.max_tokens, room);
  while (static_cast<int>(job.streams.size()) < count) {
    job.streams.push_back(std::make_unique<EngineStream>(
        &job.request, &job.callbacks, &parts_.vocabulary, job.breakers.get(),
        static_cast<int>(job.streams.size()), limit));
    job.streams.back()->result().prompt_scores = job.streams[0]->result().prompt_scores;
    GenerationStats& stats = job.streams.back()->result().stats;
    stats.prompt_tokens = static_cast<int64_t>(job.request.prompt.size());
    stats.cached_tokens = job.streams[0]->result().stats.cached_tokens;
    stats.known_prefix_tokens = job.streams[0]->result().stats.known_prefix_tokens;
  }
}

void Engine::Cancel(RequestId id) {
  for (const auto* list : {&submitted_, &jobs_}) {
    for (const auto& job : *list) job->is_cancelled |= job->id == id;
  }
  if (!is_stepping_) EndCancelled();
}

void Engine::CancelAll() {
  for (const auto* list : {&submitted_, &jobs_}) {
    for (const auto& job : *list) job->is_cancelled = true;
  }
  if (!is_stepping_) EndCancelled();
}

bool Engine::Step() {
  KVASIR_CHECK(!is_stepping_);
  for (const auto* list : {&submitted_, &jobs_}) {
    for (const auto& job : *list) {
      if (job->callbacks.is_cancelled && job->callbacks.is_cancelled()) job->is_cancelled = true;
      job->is_paused = job->callbacks.is_paused && job->callbacks.is_paused();
      if (job->is_paused) is_admission_blocked_ = false;  // its blocks count as free
    }
  }
  EndCancelled();
  is_stepping_ = true;
  UpdateSwaps();
  Admit();
  std::vector<Member> members = PlanMembers();
  ProposeDrafts(members);
  const EngineClock::time_point begin = Now();
  const auto logits = Forward(members);
  if (logits.ok()) {
    Deliver(members, *logits);
    RecordStep(members, MsBetween(begin, Now()));
  }
  // All that is left to do is the disk's.
  if (members.empty() && swap_ != nullptr) swap_->WaitForProgress(swap_wait_left_);
  is_stepping_ = false;
  EndCancelled();
  return has_work();
}

void Engine::TakeSubmitted() {
  if (!submitted_.empty()) is_admission_blocked_ = false;  // one may rank first and need little
  std::move(submitted_.begin(), submitted_.end(), std::back_inserter(jobs_));
  submitted_.clear();
}

// Also ends what came to its deadline, and closes what is done.
void Engine::EndCancelled() {
  TakeSubmitted();
  is_stepping_ = true;  // callbacks below may call Cancel
  const EngineClock::time_point now = Now();
  for (const auto& job : jobs_) {
    if (job->is_cancelled) {
      EndJob(*job, FinishReason::kCancelled);
    } else if (job->request.deadline && now >= *job->request.deadline) {
      job->result.status = {ErrorCode::kCancelled, "the request's deadline has passed"};
      EndJob(*job, FinishReason::kCancelled);
    }
  }
  Close();
  is_stepping_ = false;
}

void Engine::EndJob(Job& job, FinishReason reason) {
  AddStreams(job, job.request.answers);
  for (const auto& stream : job.streams) {
    stream->Finish(reason);
    if (stream->holds_blocks()) is_admission_blocked_ = false;
    DropDraftState(job, *stream);
    stream->sequence.reset();
    stream->swapped.reset();
  }
}

void Engine::Close() {
  const auto first_done = std::stable_partition(jobs_.begin(), jobs_.end(),
                                                [](const auto& job) { return !job->is_done(); });
  std::vector<std::unique_ptr<Job>> done(std::make_move_iterator(first_done),
                                         std::make_move_iterator(jobs_.end()));
  jobs_.erase(first_done, jobs_.end());
  for (const auto& job : done) {
    for (const auto& stream : job->streams) {
      job->result.answers.push_back(std::move(stream->result()));
    }
    if (job->callbacks.on_finish) job->callbacks.on_finish(std::move(job->result));
  }
}

std::vector<Engine::Member> Engine::PlanMembers() {
  std::vector<Member> members;
  std::vector<SchedulerInput> inputs;
  bool is_scoring = false;
  for (const auto& job : jobs_) {
    for (const auto& stream : job->streams) {
      if (!stream->sequence || job->is_paused) continue;
      // One after the other, as the logits of many would take much memory.
      if (job->is_scored() && std::exchange(is_scoring, true)) continue;
      const int64_t pending = stream->known_tokens() - stream->sequence->position();
      inputs.push_back({.pending_tokens = pending,
                        .run_limit = job->is_scored()
                                         ? std::min(stream->sequence->RunLimit(), kMostScoredRows)
                                         : stream->sequence->RunLimit(),
                        .priority = job->request.priority,
                        .is_decode = pending == 1});
      members.push_back({job.get(), stream.get(), 0});
    }
  }
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
      tokens.push_back(member.stream->Known(position, member.tokens));
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
    // Nobody loses a cache for somebody's drafts.
    if (DropDrafts(members)) continue;
    if (error.code == ErrorCode::kResourceExhausted && MakeRoom(members, error)) continue;
    // Checked requests give the model nothing to refuse; if it does, these can never go on.
    for (const Member& member : members) {
      member.job->result.status = error;
      EndJob(*member.job, FinishReason::kCancelled);
    }
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
    const auto prompt = static_cast<int64_t>(job.request.prompt.size());
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
      if (!job.is_mean_pooled() &&
          position / kPublishTokens != (position - member.tokens) / kPublishTokens) {
        Publish(job, stream);
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
    Publish(job, stream);
    tree_.AddUser(job.request.salt, job.request.prompt);
    AddStreams(job, job.request.answers);
    for (size_t i = 1; i < job.streams.size(); ++i) {
      job.streams[i]->sequence = stream.sequence->Fork();
      job.streams[i]->admitted_at = stream.admitted_at;
      if (hidden.rows > 0) {
        job.streams[i]->KeepHidden(position - 1, hidden.Part(hidden.rows - 1, 1));
      }
      if (draft_rounds_) job.streams[i]->drafted = draft_rounds_->Fork(stream.drafted);
    }
    for (const auto& answer : job.streams) Accept(job, *answer, scores);
  }
  CommitDrafts(members);
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
    job.is_cancelled = true;  // its other answers end with this step
  }
  stats_.generated_tokens += stats.generated_tokens - before;
}

void Engine::Retire(const Job& job, EngineStream& stream) {
  Publish(job, stream);
  if (draft_rounds_) {
    draft_rounds_->Finish(stream.drafted, stream.known(), job.request.salt,
                          stream.generated_tokens());
  }
  stream.sequence.reset();
  is_admission_blocked_ = false;
}

void Engine::EndPooled(Job& job, EngineStream& stream) {
  stream.result().stats.prefill_ms = MsBetween(stream.admitted_at, Now());
  stream.Finish(FinishReason::kStop);
  if (!job.is_mean_pooled()) Publish(job, stream);
  stream.sequence.reset();
  is_admission_blocked_ = false;
}

// What the stream has read becomes findable for others: references, no copies.
void Engine::Publish(const Job& job, const EngineStream& stream) {
  const std::vector<Token> tokens = stream.Known(0, stream.sequence->position());
  (void)tree_.Insert(job.request.salt, tokens, *stream.sequence);
}

EngineStats Engine::Stats() const {
  EngineStats stats = stats_;
  stats.used_bytes = parts_.pool->used_bytes();
  stats.scratch_bytes = workspace_.bytes();
  stats.index_bytes = tree_.index_bytes();
  stats.swap_bytes = swap_ == nullptr ? 0 : swap_->used_bytes();
  stats.waiting_requests = static_cast<int64_t>(submitted_.size());
  for (const auto& job : jobs_) {
    ++(job->is_begun ? stats.running_requests : stats.waiting_requests);
    for (const auto& stream : job->streams) {
      stats.active_streams += stream->holds_blocks();
      stats.reading_streams += stream->is_reading();
      stats.swapped_streams += stream->swapped != nullptr && !stream->is_reading();
    }
  }
  return stats;
}

}  // namespace kvasir
