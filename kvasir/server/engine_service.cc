#include "kvasir/server/engine_service.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kvasir {
namespace {

Status ShuttingDown() { return {ErrorCode::kCancelled, "the server is shutting down"}; }

EngineRequest ToEngine(const CompletionRequest& whole, std::vector<Token> prompt) {
  EngineRequest request;
  static_cast<GenerationRequest&>(request) = whole.generation;
  request.prompt = std::move(prompt);
  request.answers = whole.answers;
  request.pooling = whole.pooling;
  request.priority = whole.priority;
  request.salt = whole.salt;
  request.deadline = whole.deadline;
  return request;
}

}  // namespace

// One request with all its choices. Its sink is called on the engine's thread, and for a request
// that was refused as a whole on the caller's.
class EngineService::Listener {
 public:
  Listener(CompletionId id, CompletionRequest request)
      : request_(std::move(request)),
        id_(id),
        sink_(std::move(request_.sink)),
        slots_(request_.prompts.size() * static_cast<size_t>(request_.answers)),
        open_choices_(slots_.size()) {
    for (size_t i = 0; i < slots_.size(); ++i) {
      const std::vector<Token>& prompt = request_.prompts[i / static_cast<size_t>(answers())];
      slots_[i] = {.prompt_tokens = static_cast<int64_t>(prompt.size()),
                   .max_tokens = request_.generation.max_tokens};
    }
  }

  CompletionId id() const { return id_; }
  // But for its sink and the prompts that were taken.
  const CompletionRequest& request() const { return request_; }
  int answers() const { return request_.answers; }
  bool is_pooled() const { return request_.pooling.has_value(); }
  // REQUIRES: a choice is open, and the caller is who will end it.
  CompletionSink& sink() { return *sink_; }

  // Whether the engine would accept all of them, and what it has to know of their sampling.
  // ERRORS: as Engine::Check. REQUIRES: none was taken.
  Status CheckPrompts(EngineThread* engine) {
    EngineRequest request = ToEngine(request_, {});
    breakers_ = engine->Breakers(request.sampling);
    for (std::vector<Token>& prompt : request_.prompts) {
      request.prompt.swap(prompt);
      const Status checked = engine->Check(request);
      request.prompt.swap(prompt);
      KVASIR_TRY_OK(checked);
    }
    return {};
  }
  const std::shared_ptr<const DryBreakers>& breakers() const { return breakers_; }
  // The next prompt, with its number. THREADS: the submitter's, then the engine's.
  struct Next {
    size_t number = 0;
    std::vector<Token> prompt;
  };
  std::optional<Next> TakePrompt() {
    if (next_prompt_ == request_.prompts.size()) return std::nullopt;
    const size_t number = next_prompt_++;
    return Next{number, std::move(request_.prompts[number])};
  }
  // The error that makes further prompts pointless; OK: there is none.
  Status Obstacle() const {
    const std::lock_guard lock(mutex_);
    return error_ ? Status(*error_) : Status();
  }

  void Cancel() { is_cancelled_ = true; }
  // REQUIRES: as sink().
  bool is_cancelled() const { return is_cancelled_ || sink_->is_cancelled(); }

  // Changes what status() says of one choice.
  template <typename Change>
  void Update(size_t choice, const Change& change) {
    const std::lock_guard lock(mutex_);
    is_begun_ = true;
    change(slots_[choice]);
  }
  // The choice has ended, well or not: the first error is what the client hears.
  void EndChoice(size_t choice, const Status& status) {
    std::unique_ptr<CompletionSink> sink;
    {
      const std::lock_guard lock(mutex_);
      slots_[choice].is_processing = false;
      if (!error_ && !status.ok()) error_ = status.error();
      if (--open_choices_ > 0) return;
      sink = std::move(sink_);
    }
    sink->OnEnd(error_ ? Status(*error_) : Status());
  }

  size_t choices() const { return slots_.size(); }
  bool is_done() const {
    const std::lock_guard lock(mutex_);
    return open_choices_ == 0;
  }
  // Whether it takes a place in the queue: whoever has gone must not keep others out.
  bool is_waiting() const {
    const std::lock_guard lock(mutex_);
    return open_choices_ > 0 && !is_begun_ && !is_cancelled();
  }
  int64_t begun_choices() const {
    const std::lock_guard lock(mutex_);
    return std::count_if(slots_.begin(), slots_.end(),
                         [](const SlotStatus& slot) { return slot.is_processing; });
  }
  void AddSlots(std::vector<SlotStatus>* slots) const {
    const std::lock_guard lock(mutex_);
    for (const SlotStatus& slot : slots_) {
      if (slot.is_processing) slots->push_back(slot);
    }
  }

 private:
  CompletionRequest request_;
  const CompletionId id_;
  std::shared_ptr<const DryBreakers> breakers_;
  size_t next_prompt_ = 0;
  std::atomic<bool> is_cancelled_ = false;
  mutable std::mutex mutex_;
  std::unique_ptr<CompletionSink> sink_;  // null once all choices have ended
  std::vector<SlotStatus> slots_;         // per choice
  std::optional<Error> error_;
  size_t open_choices_;
  bool is_begun_ = false;
};

Result<std::unique_ptr<EngineService>> EngineService::Start(ModelBundle* bundle,
                                                            EngineServiceOptions options) {
  KVASIR_TRY_OK(bundle->CheckText(TextNeed::kTokenizer));
  if (options.max_waiting < 0) {
    return {ErrorCode::kInvalidArgument, "server option 'max_waiting_requests' must be 0 or more"};
  }
  const CacheBudget& budget = bundle->budget();
  if (budget.step_tokens > 0) {
    SchedulerOptions& scheduler = options.engine.scheduler;
    scheduler.step_tokens = std::min(scheduler.step_tokens, budget.step_tokens);
    scheduler.mixed_step_tokens = std::min(scheduler.mixed_step_tokens, budget.step_tokens);
    options.engine.max_index_bytes = budget.index_bytes;
  }
  KVASIR_TRY(auto engine, Engine::Create(EngineParts::Of(*bundle), options.engine));
  if (options.drafts != nullptr) {
    engine->UseDrafter(options.drafts->NewDrafter(&engine->prefix_tree()));
  }
  return std::unique_ptr<EngineService>(new EngineService(bundle, std::move(engine), options));
}

EngineService::EngineService(ModelBundle* bundle, std::unique_ptr<Engine> engine,
                             const EngineServiceOptions& options)
    : bundle_(bundle),
      budget_bytes_(bundle->pool().budget_bytes()),
      slots_(options.engine.max_streams),
      max_waiting_(options.max_waiting),
      slot_memory_(options.engine.max_streams),
      // Requests are bounded here, where one may have many choices.
      engine_(std::make_unique<EngineThread>(std::move(engine),
                                             std::numeric_limits<int64_t>::max() / 2)) {}

EngineService::~EngineService() { Stop(std::chrono::milliseconds(0)); }

CompletionId EngineService::Submit(CompletionRequest request) {
  const CompletionId id = next_id_.fetch_add(1);
  const auto listener = std::make_shared<Listener>(id, std::move(request));
  const size_t choices = listener->choices();
  Status status = Register(listener);
  // Nobody can use some of the choices.
  if (status.ok()) status = listener->CheckPrompts(engine_.get());
  if (status.ok()) {
    std::vector<EngineThread::Job> jobs;
    // No more at once than there are places: what waits costs the engine a look in every step.
    while (static_cast<int64_t>(jobs.size()) < slots_) {
      auto next = listener->TakePrompt();
      if (!next) break;
      jobs.push_back(JobOf(listener, next->number, std::move(next->prompt)));
    }
    status = engine_->SubmitAll(std::move(jobs)).status();
  }
  for (size_t i = 0; !status.ok() && i < choices; ++i) listener->EndChoice(i, status);
  return id;
}

// One of the prompts has ended: the next one's turn.
void EngineService::SubmitNext(const std::shared_ptr<Listener>& listener) {
  Status status = listener->Obstacle();
  for (;;) {
    auto next = listener->TakePrompt();
    if (!next) return;
    const size_t first = next->number * static_cast<size_t>(listener->answers());
    const auto tokens = static_cast<int64_t>(next->prompt.size());
    if (status.ok() && !listener->is_cancelled()) {
      if (engine_->SubmitMore(JobOf(listener, next->number, std::move(next->prompt))).ok()) return;
      status = ShuttingDown();
    }
    // As the engine ends what waits and is cancelled.
    for (int i = 0; i < listener->answers(); ++i) {
      GenerationResult nothing;
      nothing.finish = FinishReason::kCancelled;
      nothing.stats.prompt_tokens = tokens;
      EndChoice(*listener, first + static_cast<size_t>(i), status, std::move(nothing), {});
    }
  }
}

bool EngineService::Cancel(CompletionId id) {
  const std::lock_guard lock(mutex_);
  for (const auto& listener : listeners_) {
    if (listener->id() != id || listener->is_done()) continue;
    listener->Cancel();
    return true;
  }
  return false;
}

Status EngineService::Register(const std::shared_ptr<Listener>& listener) {
  const std::lock_guard lock(mutex_);
  int64_t waiting = 0;
  // Not the engine's own count, which is that of the step before: whoever has read the beginning of
  // an answer must find its place taken.
  int64_t begun = 0;
  std::erase_if(listeners_, [](const auto& other) { return other->is_done(); });
  for (const auto& other : listeners_) {
    waiting += other->is_waiting();
    begun += other->begun_choices();
  }
  if (is_stopping_) return ShuttingDown();
  if (waiting < max_waiting_ + std::max<int64_t>(slots_ - begun, 0)) {
    listeners_.push_back(listener);
    return {};
  }
  return {ErrorCode::kResourceExhausted, "too many requests are waiting; try again later"};
}

EngineThread::Job EngineService::JobOf(const std::shared_ptr<Listener>& listener, size_t number,
                                       std::vector<Token> prompt) {
  const size_t first = number * static_cast<size_t>(listener->answers());
  EngineCallbacks callbacks;
  callbacks.is_cancelled = [listener] { return listener->is_cancelled(); };
  callbacks.is_paused = [listener] { return listener->sink().is_paused(); };
  callbacks.on_prefill = [listener, first](const PrefillProgress& progress) {
    listener->Update(first, [&](SlotStatus& slot) {
      slot.is_processing = true;
      slot.cached_tokens = progress.cached;
    });
    listener->sink().OnPrompt(first, {.prompt_tokens = progress.total,
                                      .cached_tokens = progress.cached,
                                      .known_prefix_tokens = progress.known_prefix,
                                      .done_tokens = progress.done - progress.cached});
  };
  callbacks.on_token = [listener, first](int answer, Token, const TokenScores* scores) {
    const size_t choice = first + static_cast<size_t>(answer);
    listener->Update(choice, [](SlotStatus& slot) {
      // With its first token an answer may still wait for a stream.
      slot.is_processing = slot.is_processing || slot.generated_tokens > 0;
      ++slot.generated_tokens;
    });
    listener->sink().OnToken(choice, scores);
  };
  callbacks.on_text = [listener, first](int answer, std::string_view text) {
    listener->sink().OnText(first + static_cast<size_t>(answer), text);
  };
  callbacks.on_answer_end = [this, listener, first,
                             said = listener->is_pooled() ? std::vector<Token>() : prompt](
                                int answer, const Status& status, GenerationResult result) {
    EndChoice(*listener, first + static_cast<size_t>(answer), status, std::move(result), said);
  };
  callbacks.on_finish = [this, listener](const EngineResult&) { SubmitNext(listener); };
  return {ToEngine(listener->request(), std::move(prompt)), std::move(callbacks),
          listener->breakers()};
}

// What a choice that the engine ended so is to its client. `ended`: as EngineCallbacks has it.
Status EngineService::StatusOf(const Listener& listener, const Status& ended,
                               const GenerationResult& result) const {
  // An answer that outgrows the cache is as one that outgrows the context: it ends there.
  if (result.finish == FinishReason::kLength && !result.tokens.empty()) return {};
  if (!ended.ok()) return ended.error();
  if (result.finish != FinishReason::kCancelled) return {};
  if (is_stopping_) return ShuttingDown();
  // Half an answer is an answer, half an embedding is none.
  if (!listener.is_pooled()) return {};
  return {ErrorCode::kCancelled, "the request's time was over before its embeddings"};
}

// `prompt`: of a conversation that a slot is to remember; empty where none is.
void EngineService::EndChoice(Listener& listener, size_t choice, const Status& ended,
                              GenerationResult result, std::span<const Token> prompt) {
  const Status status = StatusOf(listener, ended, result);
  const CompletionRequest& request = listener.request();
  if (status.ok() && !prompt.empty()) {
    SavedConversation conversation = {request.salt, {prompt.begin(), prompt.end()}};
    conversation.tokens.insert(conversation.tokens.end(), result.tokens.begin(),
                               result.tokens.end());
    slot_memory_.Keep(request.tenant, request.slot, std::move(conversation));
  }
  if (status.ok()) {
    listener.sink().OnChoiceEnd(choice, std::move(result));
  } else {
    listener.sink().OnChoiceFailure(choice, result.stats);
  }
  listener.EndChoice(choice, status);
}

ServiceStatus EngineService::status() const {
  const EngineStats stats = engine_->Stats();
  ServiceStatus status;
  status.engine = stats;
  status.cache_used_bytes = stats.used_bytes;
  status.cache_budget_bytes = budget_bytes_;
  const std::lock_guard lock(mutex_);
  for (const auto& listener : listeners_) {
    listener->AddSlots(&status.slots);
    status.waiting += listener->is_waiting();
  }
  status.slots.resize(static_cast<size_t>(slots_));
  return status;
}

void EngineService::Stop(std::chrono::milliseconds grace) {
  constexpr std::chrono::milliseconds kMostGrace = std::chrono::hours(24);  // now + it is a time
  if (!is_stopping_.exchange(true)) {
    end_of_grace_ = std::chrono::steady_clock::now() + std::min(grace, kMostGrace);
  }
  engine_->Stop(grace);
}

FileProgress EngineService::ProgressOf(const SlotFile& file) const {
  return [this, &file]() -> Status {
    if (std::chrono::steady_clock::now() >= end_of_grace_.load()) return ShuttingDown();
    if (!file.is_cancelled || !file.is_cancelled()) return {};
    return {ErrorCode::kCancelled, "nobody waits for the file any more"};
  };
}

Result<PrefixCacheFileStats> EngineService::SaveSlot(const SlotAddress& slot,
                                                     const SlotFile& file) {
  if (is_stopping_) return ShuttingDown().error();
  const std::optional<SavedConversation> conversation = slot_memory_.Get(slot);
  if (!conversation) {
    return {ErrorCode::kFailedPrecondition,
            "slot " + std::to_string(slot.number) + " has held no conversation yet"};
  }
  std::optional<Result<std::unique_ptr<ConversationSave>>> save;
  engine_->RunBetweenSteps([&](Engine& engine) {
    save.emplace(ConversationSave::Begin(engine, *bundle_, *conversation));
  });
  if (!save->ok()) return save->error();
  auto saved = (**save)->Write(file.path, ProgressOf(file));
  engine_->RunBetweenSteps([&](Engine&) { save.reset(); });
  return saved;
}

Result<PrefixCacheFileStats> EngineService::LoadSlot(const SlotAddress& slot,
                                                     const SlotFile& file) {
  if (is_stopping_) return ShuttingDown().error();
  KVASIR_TRY(auto load, ConversationLoad::Open(file.path, *bundle_, slot.salt));
  Status status;
  engine_->RunBetweenSteps([&](Engine& engine) { status = load->Begin(engine); });
  if (status.ok()) status = load->Read(ProgressOf(file));
  SavedConversation conversation;
  PrefixCacheFileStats stats;
  engine_->RunBetweenSteps([&](Engine& engine) {
    if (status.ok()) {
      auto published = load->Publish(engine, &conversation);
      status = published.status();
      if (published.ok()) stats = *published;
    }
    load.reset();
  });
  if (!status.ok()) return status.error();
  slot_memory_.Keep(slot.tenant, slot.number, std::move(conversation));
  return stats;
}

Result<PrefixCacheFileStats> EngineService::SaveCache(const std::string& path, size_t max_bytes) {
  std::optional<Result<PrefixCacheFileStats>> saved;
  engine_->RunBetweenSteps([&](Engine& engine) {
    saved.emplace(SavePrefixCache(engine.prefix_tree(), *bundle_, path, max_bytes));
  });
  return *std::move(saved);
}

Result<PrefixCacheFileStats> EngineService::LoadCache(const std::string& path) {
  std::optional<Result<PrefixCacheFileStats>> loaded;
  engine_->RunBetweenSteps([&](Engine& engine) {
    loaded.emplace(LoadPrefixCache(engine.prefix_tree(), *bundle_, path));
  });
  return *std::move(loaded);
}

}  // namespace kvasir
