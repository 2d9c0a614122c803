#include "kvasir/server/engine_service.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace kvasir {
namespace {

// Events that a client may be behind before its request is paused. Each is a token or so; what is
// on its way to the socket is bounded in bytes by the connection.
constexpr size_t kMaxUndelivered = 64;

Status ShuttingDown() { return {ErrorCode::kCancelled, "the server is shutting down"}; }

EngineRequest ToEngine(GenerationRequest choice) {
  EngineRequest request;
  request.prompt = std::move(choice.prompt);
  request.max_tokens = choice.max_tokens;
  request.sampling = std::move(choice.sampling);
  request.stop_strings = std::move(choice.stop_strings);
  request.ignore_stop_tokens = choice.ignore_stop_tokens;
  request.top_logprobs = choice.top_logprobs;
  request.scores_prompt = choice.scores_prompt;
  return request;
}

}  // namespace

// Carries one request's events from the engine's thread to its sink, which may wait.
class EngineService::Delivery {
 public:
  using Event = std::function<void(CompletionSink& sink)>;

  explicit Delivery(CompletionRequest& request)
      : sink_(std::move(request.sink)), open_choices_(request.choices.size()) {
    for (const GenerationRequest& choice : request.choices) {
      slots_.push_back({.prompt_tokens = static_cast<int64_t>(choice.prompt.size()),
                        .max_tokens = choice.max_tokens});
    }
    thread_ = std::thread([this] { Run(); });
  }
  ~Delivery() { thread_.join(); }

  // On the engine's thread, while a choice is open: the sink lives until the last has ended.
  bool is_cancelled() const { return sink_->is_cancelled(); }

  bool is_behind() const {
    const std::lock_guard lock(mutex_);
    return events_.size() > kMaxUndelivered;
  }
  void Post(Event event) {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
    added_.notify_one();
  }
  // Changes what status() says of one choice.
  template <typename Change>
  void Update(size_t choice, const Change& change) {
    const std::lock_guard lock(mutex_);
    is_begun_ = true;
    change(slots_[choice]);
  }
  // The choice has ended, well or not: the first error is what the client hears.
  void EndChoice(size_t choice, const Status& status) {
    const std::lock_guard lock(mutex_);
    slots_[choice].is_processing = false;
    if (!error_ && !status.ok()) error_ = status.error();
    if (--open_choices_ > 0) return;
    events_.push_back(
        [error = error_](CompletionSink& sink) { sink.OnEnd(error ? Status(*error) : Status()); });
    added_.notify_one();
  }

  bool is_done() const {
    const std::lock_guard lock(mutex_);
    return is_done_;
  }
  // Whether it takes a place in the queue: whoever has gone must not keep others out.
  bool is_waiting() const {
    const std::lock_guard lock(mutex_);
    return open_choices_ > 0 && !is_begun_ && !sink_->is_cancelled();
  }
  void AddSlots(std::vector<SlotStatus>* slots) const {
    const std::lock_guard lock(mutex_);
    for (const SlotStatus& slot : slots_) {
      if (slot.is_processing) slots->push_back(slot);
    }
  }
  bool WaitUntilDone(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    return done_.wait_until(lock, deadline, [this] { return is_done_; });
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    while (open_choices_ > 0 || !events_.empty()) {
      added_.wait(lock, [this] { return !events_.empty(); });
      Event event = std::move(events_.front());
      lock.unlock();
      event(*sink_);
      lock.lock();
      events_.pop_front();  // only now: until then the client is behind by it
    }
    lock.unlock();
    sink_.reset();
    lock.lock();
    is_done_ = true;
    done_.notify_all();
  }

  std::unique_ptr<CompletionSink> sink_;
  mutable std::mutex mutex_;
  std::condition_variable added_;
  std::condition_variable done_;
  std::deque<Event> events_;
  std::vector<SlotStatus> slots_;  // per choice
  std::optional<Error> error_;
  size_t open_choices_;
  bool is_begun_ = false;
  bool is_done_ = false;
  std::thread thread_;
};

Result<std::unique_ptr<EngineService>> EngineService::Start(ModelBundle* bundle,
                                                            EngineServiceOptions options) {
  if (bundle->tokenizer() == nullptr || bundle->chat() == nullptr) {
    return {ErrorCode::kFailedPrecondition,
            bundle->folder() + " has no " +
                (bundle->tokenizer() == nullptr ? "tokenizer.json" : "chat template") +
                ", without which a chat cannot be served; use a model that was trained to chat"};
  }
  if (options.max_waiting < 0) {
    return {ErrorCode::kInvalidArgument, "server option 'max_waiting_requests' must be 0 or more"};
  }
  KVASIR_TRY(auto engine, Engine::Create(EngineParts::Of(*bundle), options.engine));
  return std::unique_ptr<EngineService>(new EngineService(bundle, std::move(engine), options));
}

EngineService::EngineService(ModelBundle* bundle, std::unique_ptr<Engine> engine,
                             const EngineServiceOptions& options)
    : budget_bytes_(bundle->pool().budget_bytes()),
      slots_(options.engine.max_streams),
      max_waiting_(options.max_waiting),
      // Requests are bounded here, where one may have many choices.
      engine_(std::make_unique<EngineThread>(std::move(engine),
                                             std::numeric_limits<int64_t>::max() / 2)) {}

EngineService::~EngineService() {
  Stop(std::chrono::milliseconds(0), std::chrono::milliseconds(0));
  engine_.reset();  // no event comes any more
}

void EngineService::Submit(CompletionRequest request) {
  Reap();
  const auto delivery = std::make_shared<Delivery>(request);
  Status refused = Register(delivery);
  std::vector<RequestId> accepted;
  for (size_t i = 0; i < request.choices.size(); ++i) {
    if (refused.ok()) {
      const auto id = engine_->Submit(ToEngine(std::move(request.choices[i])), Listen(delivery, i));
      if (id.ok()) {
        accepted.push_back(*id);
        continue;
      }
      refused = id.status();
      // Nobody can use some of the choices.
      for (const RequestId other : accepted) engine_->Cancel(other);
    }
    delivery->EndChoice(i, refused);
  }
}

// The delivery is listed in any case: its thread has to be waited for.
Status EngineService::Register(const std::shared_ptr<Delivery>& delivery) {
  const int64_t free_streams = std::max<int64_t>(slots_ - engine_->Stats().active_streams, 0);
  const std::lock_guard lock(mutex_);
  int64_t waiting = 0;
  for (const auto& other : deliveries_) waiting += other->is_waiting();
  deliveries_.push_back(delivery);
  if (is_stopping_) return ShuttingDown();
  if (waiting < max_waiting_ + free_streams) return {};
  return {ErrorCode::kResourceExhausted, "too many requests are waiting; try again later"};
}

EngineCallbacks EngineService::Listen(const std::shared_ptr<Delivery>& delivery, size_t choice) {
  EngineCallbacks callbacks;
  callbacks.is_cancelled = [delivery] { return delivery->is_cancelled(); };
  callbacks.is_paused = [delivery] { return delivery->is_behind(); };
  callbacks.on_prefill = [delivery, choice](const PrefillProgress& progress) {
    delivery->Update(choice, [&](SlotStatus& slot) {
      slot.is_processing = true;
      slot.cached_tokens = progress.cached;
    });
    const PromptProgress done = {progress.total, progress.cached, progress.done - progress.cached};
    delivery->Post([=](CompletionSink& sink) { sink.OnPrompt(choice, done); });
  };
  callbacks.on_token = [delivery, choice](int, Token, const TokenScores* scores) {
    delivery->Update(choice, [](SlotStatus& slot) { ++slot.generated_tokens; });
    std::optional<TokenScores> copy;
    if (scores != nullptr) copy = *scores;
    delivery->Post([choice, copy = std::move(copy)](CompletionSink& sink) {
      sink.OnToken(choice, copy ? &*copy : nullptr);
    });
  };
  callbacks.on_text = [delivery, choice](int, std::string_view text) {
    delivery->Post(
        [choice, text = std::string(text)](CompletionSink& sink) { sink.OnText(choice, text); });
  };
  callbacks.on_finish = [this, delivery, choice](EngineResult result) {
    const bool is_cancelled = result.answers[0].finish == FinishReason::kCancelled;
    if (!result.status.ok()) return delivery->EndChoice(choice, result.status);
    if (is_cancelled && is_stopping_) return delivery->EndChoice(choice, ShuttingDown());
    // std::function wants what can be copied.
    const auto answer = std::make_shared<GenerationResult>(std::move(result.answers[0]));
    delivery->Post(
        [choice, answer](CompletionSink& sink) { sink.OnChoiceEnd(choice, std::move(*answer)); });
    delivery->EndChoice(choice, {});
  };
  return callbacks;
}

// The threads of requests that have ended.
void EngineService::Reap() {
  std::list<std::shared_ptr<Delivery>> done;  // joined outside the lock
  const std::lock_guard lock(mutex_);
  for (auto it = deliveries_.begin(); it != deliveries_.end();) {
    const auto next = std::next(it);
    if ((*it)->is_done()) done.splice(done.end(), deliveries_, it);
    it = next;
  }
}

ServiceStatus EngineService::status() const {
  const EngineStats stats = engine_->Stats();
  ServiceStatus status;
  status.waiting = stats.waiting_requests;
  status.cache_used_bytes = stats.used_bytes;
  status.cache_budget_bytes = budget_bytes_;
  const std::lock_guard lock(mutex_);
  for (const auto& delivery : deliveries_) delivery->AddSlots(&status.slots);
  status.slots.resize(static_cast<size_t>(slots_));
  return status;
}

void EngineService::Stop(std::chrono::milliseconds grace, std::chrono::milliseconds patience) {
  std::vector<std::shared_ptr<Delivery>> open;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    open.assign(deliveries_.begin(), deliveries_.end());
  }
  engine_->Stop(grace);
  const auto deadline = std::chrono::steady_clock::now() + patience;
  for (const auto& delivery : open) {
    if (!delivery->WaitUntilDone(deadline)) return;
  }
}

}  // namespace kvasir
