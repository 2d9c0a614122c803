// EngineThread: the one thread that steps an engine, and the inbox that all others reach it by.
// Deliberately without policy: what runs when is the engine's business.
#ifndef KVASIR_ENGINE_ENGINE_THREAD_H_
#define KVASIR_ENGINE_ENGINE_THREAD_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "kvasir/engine/engine.h"

namespace kvasir {

class EngineThread {
 public:
  // `max_waiting`: requests accepted and not begun, beyond those for which a stream is free; more
  // are refused.
  EngineThread(std::unique_ptr<Engine> engine, int64_t max_waiting);
  // As Stop without grace; returns once the thread has ended.
  ~EngineThread();
  EngineThread(const EngineThread&) = delete;
  EngineThread& operator=(const EngineThread&) = delete;

  // Accepts a request. Its callbacks are called on the engine's thread: they must not wait, and
  // must not call this object. on_finish is called exactly once, unless this returns an error.
  // ERRORS: as Engine::Check; kResourceExhausted when too many wait; kCancelled after Stop.
  // THREADS: any.
  Result<RequestId> Submit(EngineRequest request, EngineCallbacks callbacks);
  // Ends the request within one step. Unknown and finished ids are ignored. THREADS: any.
  void Cancel(RequestId id);

  // Refuses new requests and lets accepted ones end; those that have not after `grace` are
  // cancelled. Returns when all have ended. Idempotent. THREADS: any but the engine's.
  void Stop(std::chrono::milliseconds grace);

  // As of the last step, with what has come since as waiting. THREADS: any.
  EngineStats Stats() const;

 private:
  struct Submission {
    RequestId id;
    EngineRequest request;
    EngineCallbacks callbacks;
  };

  void Run();
  // Called with the lock held, gives it up meanwhile.
  void Serve(std::unique_lock<std::mutex>& lock);

  const std::unique_ptr<Engine> engine_;  // the thread's, but for NewId and Check
  const int64_t max_waiting_;

  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable idle_;
  std::vector<Submission> inbox_;
  std::vector<RequestId> cancels_;
  EngineStats stats_;
  bool has_work_ = false;    // in the engine
  bool is_stalled_ = false;  // the last step evaluated nothing
  bool is_stopping_ = false;
  bool cancels_all_ = false;
  bool is_ended_ = false;
  std::thread thread_;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_ENGINE_THREAD_H_
