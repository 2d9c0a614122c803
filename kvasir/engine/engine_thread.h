// EngineThread: the one thread that steps an engine, and the inbox that all others reach it by.
// Deliberately without policy: what runs when is the engine's business.
#ifndef KVASIR_ENGINE_ENGINE_THREAD_H_
#define KVASIR_ENGINE_ENGINE_THREAD_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "kvasir/engine/engine.h"
#include "kvasir/engine/engine_picture.h"

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

  // Accepts a request. Its callbacks are called on the engine's thread: they must not wait or
  // throw, and must not call this object but for SubmitMore. on_finish is called exactly once,
  // unless this returns an error. ERRORS: as Engine::Check; kResourceExhausted when too many wait;
  // kCancelled after Stop. THREADS: any.
  Result<RequestId> Submit(EngineRequest request, EngineCallbacks callbacks);
  // The same for all of them, or none: where there is a place for one, however many they are.
  struct Job {
    EngineRequest request;
    EngineCallbacks callbacks;
    // What Breakers says of the request's sampling; null: it is asked.
    std::shared_ptr<const DryBreakers> breakers = {};
  };
  Result<std::vector<RequestId>> SubmitAll(std::vector<Job> jobs);
  // What belongs to a request that was accepted: however many wait, and while others end (Stop).
  // REQUIRES: Check said OK, and its breakers are given. ERRORS: kCancelled once what has not ended
  // is cancelled. THREADS: any, also from a callback.
  Status SubmitMore(Job job);
  // As Engine's. THREADS: any.
  Status Check(const EngineRequest& request) const { return engine_->Check(request); }
  std::shared_ptr<const DryBreakers> Breakers(const SamplingOptions& sampling) {
    return engine_->Breakers(sampling);
  }
  // Ends the request within one step. Unknown and finished ids are ignored. THREADS: any.
  void Cancel(RequestId id);

  // Refuses new requests and lets accepted ones end; those that have not after `grace` (a year at
  // most) are cancelled. Returns when all have ended. Idempotent. THREADS: any but the engine's.
  void Stop(std::chrono::milliseconds grace);

  // As of the last step, with what has come since as waiting. THREADS: any.
  EngineStats Stats() const;

  // Shows a picture that was made at most kPictureAge ago: one made before, on this thread and at
  // once, or else one made between two steps, on the engine's; then `show` must not wait. Never, if
  // the engine's thread ends first. However many ask, the engine is kept no more often than that.
  // THREADS: any.
  using ShowPicture = std::function<void(std::shared_ptr<const EnginePicture> picture)>;
  static constexpr std::chrono::milliseconds kPictureAge{200};
  void Picture(ShowPicture show);

  // Runs `task` on the engine's thread between two steps, and returns when it has: meanwhile nobody
  // is answered. THREADS: any but the engine's.
  void RunBetweenSteps(const std::function<void(Engine& engine)>& task);

 private:
  struct Submission {
    RequestId id;
    Job job;
  };

  void Run();
  // Called with the lock held, gives it up meanwhile.
  void Serve(std::unique_lock<std::mutex>& lock);
  void ShowTo(const std::vector<ShowPicture>& viewers);

  const std::unique_ptr<Engine> engine_;  // the thread's, but for what any may call
  const int64_t max_waiting_;

  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable idle_;
  std::vector<Submission> inbox_;
  std::vector<RequestId> cancels_;
  EngineStats stats_;
  std::vector<std::function<void()>> tasks_;
  std::vector<ShowPicture> viewers_;  // who wait for the next picture
  std::shared_ptr<const EnginePicture> picture_;
  bool has_work_ = false;    // in the engine
  bool is_stalled_ = false;  // the last step evaluated nothing
  bool is_stopping_ = false;
  bool cancels_all_ = false;
  bool is_cancelling_ = false;  // since Stop did
  bool is_ended_ = false;
  std::thread thread_;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_ENGINE_THREAD_H_
