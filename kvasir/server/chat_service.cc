#include "kvasir/server/chat_service.h"

#include <string>
#include <utility>

namespace kvasir {
namespace {

Status ShuttingDown() { return {ErrorCode::kCancelled, "the server is shutting down"}; }

Status TooManyWaiting() {
  return {ErrorCode::kResourceExhausted, "too many requests are waiting; try again later"};
}

Status TooLate() {
  return {ErrorCode::kCancelled, "the request's time was over before its turn came"};
}

}  // namespace

Result<std::unique_ptr<ChatService>> ChatService::Start(ModelBundle* bundle, int64_t max_waiting) {
  if (bundle->tokenizer() == nullptr || bundle->chat() == nullptr) {
    return {ErrorCode::kFailedPrecondition,
            bundle->folder() + " has no " +
                (bundle->tokenizer() == nullptr ? "tokenizer.json" : "chat template") +
                ", without which a chat cannot be served; use a model that was trained to chat"};
  }
  if (max_waiting < 0) {
    return {ErrorCode::kInvalidArgument, "server option 'max_waiting_requests' must be 0 or more"};
  }
  KVASIR_TRY(CachedSequence sequence, bundle->NewSequence());
  return std::unique_ptr<ChatService>(new ChatService(bundle, std::move(sequence), max_waiting));
}

ChatService::ChatService(ModelBundle* bundle, CachedSequence sequence, int64_t max_waiting)
    : bundle_(bundle),
      max_waiting_(max_waiting),
      sequence_(std::move(sequence)),
      generator_(bundle),
      thread_([this] { Run(); }) {}

ChatService::~ChatService() {
  Stop(std::chrono::milliseconds(0), std::chrono::milliseconds(0));
  thread_.join();
}

void ChatService::Submit(CompletionRequest request) {
  bool is_stopping = false;
  std::list<CompletionRequest> gone;  // they end outside the lock
  {
    const std::lock_guard lock(mutex_);
    is_stopping = is_stopping_;
    // Whoever has gone must not keep others out.
    for (auto it = waiting_.begin(); it != waiting_.end();) {
      const auto next = std::next(it);
      if (it->sink->is_cancelled()) gone.splice(gone.end(), waiting_, it);
      it = next;
    }
    if (!is_stopping_ && waiting_.size() < static_cast<size_t>(max_waiting_) + !is_busy_) {
      waiting_.push_back(std::move(request));
      work_.notify_one();
    }
  }
  for (CompletionRequest& other : gone) {
    other.sink->OnEnd(TooLate());
  }
  if (request.sink) request.sink->OnEnd(is_stopping ? ShuttingDown() : TooManyWaiting());
}

ServiceStatus ChatService::status() const {
  const std::lock_guard lock(mutex_);
  return {{slot_},
          static_cast<int64_t>(waiting_.size()),
          cache_used_bytes_,
          bundle_->pool().budget_bytes()};
}

void ChatService::Stop(std::chrono::milliseconds grace, std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  is_stopping_ = true;
  work_.notify_one();
  const auto is_idle = [this] { return !is_busy_ && waiting_.empty(); };
  if (idle_.wait_for(lock, grace, is_idle)) return;
  cancels_ = true;
  (void)idle_.wait_for(lock, patience, is_idle);
}

void ChatService::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return is_stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    CompletionRequest request = std::move(waiting_.front());
    waiting_.pop_front();
    is_busy_ = true;
    const bool is_refused = is_stopping_;
    lock.unlock();
    if (is_refused || request.sink->is_cancelled()) {
      request.sink->OnEnd(is_refused ? ShuttingDown() : TooLate());
    } else {
      request.sink->OnEnd(Answer(request));
    }
    request.sink.reset();
    lock.lock();
    is_busy_ = false;
    slot_ = {};
    cache_used_bytes_ = bundle_->pool().used_bytes();
    idle_.notify_all();
  }
}

Status ChatService::Answer(CompletionRequest& request) {
  CompletionSink* const sink = request.sink.get();
  for (size_t i = 0; i < request.choices.size(); ++i) {
    const GenerationRequest& choice = request.choices[i];
    {
      const std::lock_guard lock(mutex_);
      slot_ = {.is_processing = true,
               .prompt_tokens = static_cast<int64_t>(choice.prompt.size()),
               .max_tokens = choice.max_tokens};
    }
    KVASIR_TRY(GenerationResult result, generator_.Generate(choice, sequence_, Listen(i, sink)));
    if (result.finish == FinishReason::kCancelled && cancels_) return ShuttingDown();
    sink->OnChoiceEnd(i, std::move(result));
  }
  return {};
}

GenerationCallbacks ChatService::Listen(size_t choice, CompletionSink* sink) {
  GenerationCallbacks callbacks;
  callbacks.is_cancelled = [this, sink] {
    sink->WaitWhilePaused();
    return cancels_.load(std::memory_order_relaxed) || sink->is_cancelled();
  };
  callbacks.on_prefill = [this, choice, sink](int64_t done, int64_t total) {
    PromptProgress progress;
    {
      const std::lock_guard lock(mutex_);
      slot_.cached_tokens = slot_.prompt_tokens - total;
      progress = {slot_.prompt_tokens, slot_.cached_tokens, done};
    }
    sink->OnPrompt(choice, progress);
  };
  // A token's scores are announced right before the token itself.
  const auto scores = std::make_shared<const TokenScores*>(nullptr);
  callbacks.on_scores = [scores](const TokenScores& of_token) { *scores = &of_token; };
  callbacks.on_token = [this, choice, sink, scores](Token) {
    {
      const std::lock_guard lock(mutex_);
      ++slot_.generated_tokens;
    }
    sink->OnToken(choice, std::exchange(*scores, nullptr));
  };
  callbacks.on_text = [choice, sink](std::string_view text) { sink->OnText(choice, text); };
  return callbacks;
}

}  // namespace kvasir
