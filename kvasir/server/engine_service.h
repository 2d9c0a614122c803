// EngineService: the batching engine behind the routes: every choice is one of its requests.
// Deliberately one thread per request that is being answered: only that waits for a slow client.
#ifndef KVASIR_SERVER_ENGINE_SERVICE_H_
#define KVASIR_SERVER_ENGINE_SERVICE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>

#include "kvasir/base/result.h"
#include "kvasir/engine/engine_thread.h"
#include "kvasir/engine/model_bundle.h"
#include "kvasir/server/completion_service.h"

namespace kvasir {

struct EngineServiceOptions {
  EngineOptions engine;
  int64_t max_waiting = 64;  // requests that have not begun, beyond the free streams
};

class EngineService final : public CompletionService {
 public:
  // The bundle must outlive it, and nobody else may use its pool. ERRORS: kFailedPrecondition for a
  // model without tokenizer or chat template; as Engine::Create.
  static Result<std::unique_ptr<EngineService>> Start(ModelBundle* bundle,
                                                      EngineServiceOptions options);
  // Cancels what runs.
  ~EngineService() override;

  void Submit(CompletionRequest request) override;
  ServiceStatus status() const override;

  // New requests are refused from now on. Accepted ones may end within `grace`, then they are
  // cancelled: within one forward pass. Returns once every client has its answer, or after
  // `patience` more; what is left ends when the service is destroyed. THREADS: any.
  void Stop(std::chrono::milliseconds grace, std::chrono::milliseconds patience);

 private:
  class Delivery;

  EngineService(ModelBundle* bundle, std::unique_ptr<Engine> engine,
                const EngineServiceOptions& options);

  EngineCallbacks Listen(const std::shared_ptr<Delivery>& delivery, size_t choice);
  void Reap();
  Status Register(const std::shared_ptr<Delivery>& delivery);

  const size_t budget_bytes_;
  const int64_t slots_;
  const int64_t max_waiting_;
  std::unique_ptr<EngineThread> engine_;

  mutable std::mutex mutex_;
  std::atomic<bool> is_stopping_ = false;
  std::list<std::shared_ptr<Delivery>> deliveries_;
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_ENGINE_SERVICE_H_
