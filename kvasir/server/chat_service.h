// ChatService: the engine thread: takes requests from a bounded inbox and answers them one after
// the other, on one sequence that keeps what it knows from request to request.
// Deliberately no batching: that is the engine's, once it has a scheduler.
#ifndef KVASIR_SERVER_CHAT_SERVICE_H_
#define KVASIR_SERVER_CHAT_SERVICE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <thread>

#include "kvasir/base/result.h"
#include "kvasir/engine/generator.h"
#include "kvasir/engine/model_bundle.h"
#include "kvasir/server/completion_service.h"

namespace kvasir {

class ChatService final : public CompletionService {
 public:
  // The bundle must outlive it, and nobody else may use its pool. `max_waiting`: requests beyond
  // the one that is being answered. ERRORS: kFailedPrecondition for a model without tokenizer or
  // chat template; kInvalidArgument; as ModelBundle::NewSequence.
  static Result<std::unique_ptr<ChatService>> Start(ModelBundle* bundle, int64_t max_waiting);
  // Cancels what runs.
  ~ChatService() override;

  void Submit(CompletionRequest request) override;
  ServiceStatus status() const override;

  // Waiting requests are refused from now on. The running one may end within `grace`, then it
  // is cancelled: within one forward pass. Returns once nothing runs, or after `grace` and
  // `patience`; the thread ends when the service is destroyed. THREADS: any.
  void Stop(std::chrono::milliseconds grace, std::chrono::milliseconds patience);

 private:
  ChatService(ModelBundle* bundle, CachedSequence sequence, int64_t max_waiting);

  void Run();
  Status Answer(CompletionRequest& request);
  GenerationCallbacks Listen(size_t choice, CompletionSink* sink);

  ModelBundle* const bundle_;
  const int64_t max_waiting_;
  CachedSequence sequence_;  // the engine thread's
  Generator generator_;      // the engine thread's

  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable idle_;
  std::list<CompletionRequest> waiting_;
  SlotStatus slot_;
  size_t cache_used_bytes_ = 0;
  bool is_busy_ = false;
  bool is_stopping_ = false;
  std::atomic<bool> cancels_ = false;
  std::thread thread_;
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_CHAT_SERVICE_H_
