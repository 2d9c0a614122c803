#include "kvasir/engine/engine.h"

#include <algorithm>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/engine/engine_job.h"
#include "kvasir/engine/model_bundle.h"

namespace kvasir {
namespace {

// A step that has nothing to evaluate waits for the store so long: then somebody may have come.
constexpr std::chrono::milliseconds kStoreWait{5};

Status Invalid(std::string message) { return {ErrorCode::kInvalidArgument, std::move(message)}; }

bool EvictsRows(const KvCacheSpec& spec) {
  return std::any_of(spec.layers.begin(), spec.layers.end(), [](const KvLayerSpec& layer) {
    return layer.retention.kind == RetentionSpec::Kind::kBudget;
  });
}

// `callbacks` must outlive it.
AnswerBuilder::Listener ListenerOf(const EngineCallbacks& callbacks, int answer) {
  AnswerBuilder::Listener listener;
  if (callbacks.on_token) {
    listener.on_token = [&callbacks, answer](Token token, const TokenScores* scores) {
      callbacks.on_token(answer, token, scores);
    };
  }
  if (callbacks.on_text) {
    listener.on_text = [&callbacks, answer](std::string_view text) {
      callbacks.on_text(answer, text);
    };
  }
  return listener;
}

}  // namespace

EngineParts EngineParts::Of(ModelBundle& bundle) {
  return {.model = &bundle.model(),
          .pool = &bundle.pool(),
          .spec = bundle.cache_spec(),
          .vocabulary = AnswerVocabulary::Of(bundle)};
}

Result<std::unique_ptr<Engine>> Engine::Create(EngineParts parts, EngineOptions options) {
  if (parts.model == nullptr || parts.pool == nullptr || parts.spec == nullptr) {
    return {ErrorCode::kInvalidArgument, "engine: parts lack a model, a pool or a spec; give all"};
  }
  KVASIR_TRY_OK(options.scheduler.Validate());
  if (options.max_streams < 1) {
    return {ErrorCode::kInvalidArgument, "engine: max_streams is " +
                                             std::to_string(options.max_streams) +
                                             ", it must be at least 1"};
  }
  KVASIR_TRY_OK(parts.spec->Validate());
  KVASIR_TRY_OK(CheckCacheSpec(*parts.spec, *parts.model));
  const int64_t sampleable = parts.vocabulary.sampleable_tokens;
  if (sampleable < 1 || sampleable > parts.model->vocab_size()) {
    return {ErrorCode::kInvalidArgument, "engine: sampleable_tokens is " +
                                             std::to_string(sampleable) + ", it must be 1 to " +
                                             std::to_string(parts.model->vocab_size())};
  }
  std::unique_ptr<SwapStore> swap;
  if (!options.swap.dir.empty()) {
    KVASIR_TRY(swap, SwapStore::Open(options.swap));
  }
  std::unique_ptr<PrefixStore> store;
  if (!options.store.dir.empty()) {
    // What is being written cannot be evicted, so it must not be all there is.
    KVASIR_TRY(store, PrefixStore::Open(options.store, parts.spec, parts.pool->budget_bytes() / 4));
    if (EvictsRows(*parts.spec)) {
      Log(options.store.log, LogLevel::kWarning,
          "prefixes are stored only up to where rows are first evicted: behind that a cache is not "
          "one of all its tokens");
    }
  }
  return std::unique_ptr<Engine>(
      new Engine(std::move(parts), std::move(options), std::move(swap), std::move(store)));
}

Engine::Engine(EngineParts parts, EngineOptions options, std::unique_ptr<SwapStore> swap,
               std::unique_ptr<PrefixStore> store)
    : parts_(std::move(parts)),
      options_(std::move(options)),
      tree_(parts_.pool, parts_.spec, options_.max_index_bytes),
      publish_points_(*parts_.spec, store != nullptr),
      evicts_rows_(EvictsRows(*parts_.spec)),
      swap_(std::move(swap)),
      store_(std::move(store)) {}

Engine::~Engine() {
  is_ending_ = true;
  CancelAll();
}

Status Engine::Check(const EngineRequest& request) const {
  // Where nothing is to follow it, a prompt may fill the context.
  KVASIR_TRY_OK(CheckGenerationRequest(request, request.pooling ? 0 : request.max_tokens,
                                       {.context_tokens = parts_.model->context_tokens(),
                                        .vocab_size = parts_.model->vocab_size(),
                                        .sampleable_tokens = parts_.vocabulary.sampleable_tokens}));
  if (request.answers < 1 || request.answers > kMostAnswers) {
    return Invalid("answers is " + std::to_string(request.answers) + ", it must be 1 to " +
                   std::to_string(kMostAnswers));
  }
  if (request.pooling && request.answers != 1) {
    return Invalid("answers is " + std::to_string(request.answers) +
                   ", it must be 1 where the prompt is pooled");
  }
  if (request.pooling && request.scores_prompt) {
    return Invalid("the prompt is pooled and its tokens are scored; ask for one of them");
  }
  const size_t bytes = parts_.spec->BytesAt(static_cast<int64_t>(request.prompt.size()));
  const size_t budget = parts_.pool->budget_bytes();
  if (bytes <= budget) return {};
  return {ErrorCode::kInvalidArgument, "the prompt's cache needs " + std::to_string(bytes) +
                                           " bytes and all caches together may have " +
                                           std::to_string(budget) +
                                           "; shorten the prompt or raise the cache budget"};
}

Result<RequestId> Engine::Submit(EngineRequest request, EngineCallbacks callbacks) {
  const RequestId id = NewId();
  auto breakers = Breakers(request.sampling);
  KVASIR_TRY_OK(Submit(id, std::move(request), std::move(callbacks), std::move(breakers)));
  return id;
}

Status Engine::Submit(RequestId id, EngineRequest request, EngineCallbacks callbacks,
                      std::shared_ptr<const DryBreakers> breakers) {
  if (is_ending_) return {ErrorCode::kCancelled, "the engine is being destroyed"};
  KVASIR_TRY_OK(Check(request));
  auto job = std::make_unique<Job>();
  job->id = id;
  job->breakers = std::move(breakers);
  job->request = std::move(request);
  job->callbacks = std::move(callbacks);
  job->submitted_at = Now();
  AddStreams(*job, 1);
  submitted_.push_back(std::move(job));
  return {};
}

std::shared_ptr<const DryBreakers> Engine::Breakers(const SamplingOptions& options) {
  if (!options.has_dry()) return nullptr;
  const std::lock_guard lock(breakers_mutex_);
  return breakers_.Get(options, parts_.vocabulary);
}

void Engine::AddStreams(Job& job, int count) {
  const int64_t room =
      parts_.model->context_tokens() - static_cast<int64_t>(job.request.prompt.size());
  const int64_t limit = std::min(job.request.max_tokens, room);
  while (static_cast<int>(job.streams.size()) < count) {
    const auto answer = static_cast<int>(job.streams.size());
    job.streams.push_back(std::make_unique<EngineStream>(
        &job.request, &parts_.vocabulary,
        AnswerBuilder::Options{.breakers = job.breakers.get(),
                               .most_tokens = limit,
                               .seed_offset = static_cast<uint64_t>(answer),
                               .listener = ListenerOf(job.callbacks, answer)}));
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
  if (store_ != nullptr) store_->StopWriting();
  if (!is_stepping_) EndCancelled();
}

bool Engine::Step() {
  KVASIR_CHECK(!is_stepping_);
  TakeSubmitted();
  is_stepping_ = true;  // callbacks below may call Submit and Cancel
  for (const auto& job : jobs_) {
    if (job->callbacks.is_cancelled && job->callbacks.is_cancelled()) job->is_cancelled = true;
    const bool was_paused =
        std::exchange(job->is_paused, job->callbacks.is_paused && job->callbacks.is_paused());
    // Its blocks count as free; who goes on may have a place to take.
    if (job->is_paused || was_paused) is_admission_blocked_ = false;
  }
  EndCancelled();
  is_stepping_ = true;
  const auto ended =
      std::erase_if(lent_, [](const std::weak_ptr<LentBlocks>& lent) { return lent.expired(); });
  if (ended > 0) is_admission_blocked_ = false;
  disk_wait_left_ = std::max(last_step_, kLeastDiskWait);
  const uint64_t stored_before = store_ == nullptr ? 0 : store_->progress();
  UpdateSwaps();
  UpdateStore();
  Admit();
  std::vector<Member> members = PlanMembers();
  ProposeDrafts(members);
  KeepStates(members);
  const uint64_t committed = parts_.pool->committed_bytes();
  const EngineClock::time_point begin = Now();
  const auto logits = Forward(members);
  if (logits.ok()) {
    Deliver(members, *logits);
    RecordStep(members, MsBetween(begin, Now()), parts_.pool->committed_bytes() - committed);
  }
  // All that is left to do is the disk's.
  if (members.empty() && swap_ != nullptr) swap_->WaitForProgress(disk_wait_left_);
  if (members.empty() && store_ != nullptr) store_->WaitForProgress(stored_before, kStoreWait);
  is_stepping_ = false;
  EndCancelled();
  return has_work();
}

void Engine::TakeSubmitted() {
  if (!submitted_.empty()) is_admission_blocked_ = false;  // one may rank first and need little
  std::move(submitted_.begin(), submitted_.end(), std::back_inserter(jobs_));
  submitted_.clear();
}

// Also ends what came to its deadline, and closes what is done; and who was cancelled by the
// callbacks of that.
void Engine::EndCancelled() {
  const auto is_cancelled = [](const std::unique_ptr<Job>& job) { return job->is_cancelled; };
  do {
    EndAndClose();
  } while (std::any_of(jobs_.begin(), jobs_.end(), is_cancelled) ||
           std::any_of(submitted_.begin(), submitted_.end(), is_cancelled));
}

void Engine::EndAndClose() {
  TakeSubmitted();
  is_stepping_ = true;  // callbacks below may call Cancel
  const EngineClock::time_point now = Now();
  for (const auto& job : jobs_) {
    if (job->is_done()) continue;  // in the step that came to its deadline
    if (job->is_cancelled) {
      EndJob(*job, FinishReason::kCancelled);
    } else if (job->request.deadline && now >= *job->request.deadline) {
      EndJob(*job, FinishReason::kCancelled,
             Error{ErrorCode::kCancelled, "the request's deadline has passed"});
    }
  }
  Close();
  is_stepping_ = false;
}

void Engine::EndJob(Job& job, FinishReason reason, const std::optional<Error>& error) {
  AddStreams(job, job.request.answers);
  if (error && job.result.status.ok()) job.result.status = *error;
  // Blocks come free, or whoever waited first in rank waits no longer.
  is_admission_blocked_ = false;
  for (const auto& stream : job.streams) {
    if (stream->is_done()) continue;
    stream->error = error;
    EndAnswer(job, *stream, reason);
  }
}

void Engine::EndAnswer(const Job& job, EngineStream& stream, FinishReason reason) {
  is_admission_blocked_ = false;
  stream.Finish(reason);
  DropDraftState(job, stream);
  stream.ReleaseCache();
}

void Engine::Close() {
  for (const auto& job : jobs_) {
    if (!job->callbacks.on_answer_end) continue;
    for (size_t i = 0; i < job->streams.size(); ++i) {
      EngineStream& stream = *job->streams[i];
      if (!stream.is_done() || std::exchange(stream.is_told, true)) continue;
      const Status status = stream.error ? Status(*stream.error) : Status();
      job->callbacks.on_answer_end(static_cast<int>(i), status, std::move(stream.result()));
    }
  }
  const auto first_done = std::stable_partition(jobs_.begin(), jobs_.end(),
                                                [](const auto& job) { return !job->is_done(); });
  std::vector<std::unique_ptr<Job>> done(std::make_move_iterator(first_done),
                                         std::make_move_iterator(jobs_.end()));
  jobs_.erase(first_done, jobs_.end());
  for (const auto& job : done) {
    for (const auto& stream : job->streams) {
      if (!stream->is_told) job->result.answers.push_back(std::move(stream->result()));
    }
    if (job->callbacks.on_finish) job->callbacks.on_finish(std::move(job->result));
  }
}

EngineStats Engine::Stats() const {
  EngineStats stats = stats_;
  stats.used_bytes = parts_.pool->used_bytes();
  stats.scratch_bytes = workspace_.bytes() + parts_.model->backend_bytes();
  stats.index_bytes = tree_.index_bytes();
  stats.evictions = tree_.evictions();
  stats.swap_bytes = swap_ == nullptr ? 0 : swap_->used_bytes();
  if (store_ != nullptr) stats.store = store_->stats();
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
