// EngineService: the batching engine behind the routes: every prompt is one of its requests, and of
// each client's request a few at a time.
// Deliberately without threads of its own: sinks are called on the engine's and never wait; whose
// client is behind is paused.
#ifndef KVASIR_SERVER_ENGINE_SERVICE_H_
#define KVASIR_SERVER_ENGINE_SERVICE_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/engine/conversation_file.h"
#include "kvasir/engine/draft_source.h"
#include "kvasir/engine/engine_thread.h"
#include "kvasir/engine/model_bundle.h"
#include "kvasir/engine/prefix_cache_file.h"
#include "kvasir/server/completion_service.h"
#include "kvasir/server/slot_memory.h"

namespace kvasir {

struct EngineServiceOptions {
  EngineOptions engine;
  const DraftSource* drafts = nullptr;  // outlives the service; null: one token at a time
  int64_t max_waiting = 64;             // requests that have not begun, beyond the free streams
};

class EngineService final : public CompletionService {
 public:
  // The bundle must outlive it, and nobody else may use its pool. ERRORS: kFailedPrecondition for a
  // model without tokenizer; as Engine::Create.
  static Result<std::unique_ptr<EngineService>> Start(ModelBundle* bundle,
                                                      EngineServiceOptions options);
  // Cancels what runs.
  ~EngineService() override;

  CompletionId Submit(CompletionRequest request) override;
  bool Cancel(CompletionId id) override;
  ServiceStatus status() const override;
  void Picture(EngineThread::ShowPicture show) override { engine_->Picture(std::move(show)); }

  bool HasSlot(int64_t number) const override { return slot_memory_.Has(number); }
  Result<PrefixCacheFileStats> SaveSlot(const SlotAddress& slot, const SlotFile& file) override;
  Result<PrefixCacheFileStats> LoadSlot(const SlotAddress& slot, const SlotFile& file) override;
  int64_t EraseSlot(const SlotAddress& slot) override { return slot_memory_.Erase(slot); }

  // New requests are refused from now on. Accepted ones may end within `grace`, then they are
  // cancelled: within one forward pass, or one block of a slot's file. Returns when all answers
  // have ended. THREADS: any.
  void Stop(std::chrono::milliseconds grace);

  // As SavePrefixCache, of what is cached now. THREADS: any.
  Result<PrefixCacheFileStats> SaveCache(const std::string& path, size_t max_bytes);
  // As LoadPrefixCache. THREADS: any.
  Result<PrefixCacheFileStats> LoadCache(const std::string& path);

 private:
  class Listener;

  EngineService(ModelBundle* bundle, std::unique_ptr<Engine> engine,
                const EngineServiceOptions& options);

  EngineThread::Job JobOf(const std::shared_ptr<Listener>& listener, size_t number,
                          std::vector<Token> prompt);
  void SubmitNext(const std::shared_ptr<Listener>& listener);
  Status StatusOf(const Listener& listener, const Status& ended,
                  const GenerationResult& result) const;
  void EndChoice(Listener& listener, size_t choice, const Status& ended, GenerationResult result,
                 std::span<const Token> prompt);
  Status Register(const std::shared_ptr<Listener>& listener);
  FileProgress ProgressOf(const SlotFile& file) const;

  ModelBundle* const bundle_;
  const size_t budget_bytes_;
  const int64_t slots_;
  const int64_t max_waiting_;
  std::atomic<bool> is_stopping_ = false;
  // When files that are being written or read are given up.
  std::atomic<std::chrono::steady_clock::time_point> end_of_grace_ =
      std::chrono::steady_clock::time_point::max();
  std::atomic<CompletionId> next_id_ = 1;

  SlotMemory slot_memory_;

  mutable std::mutex mutex_;
  std::list<std::shared_ptr<Listener>> listeners_;  // of what has not ended, and a little more

  std::unique_ptr<EngineThread> engine_;  // calls back into the above, so it goes first
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_ENGINE_SERVICE_H_
