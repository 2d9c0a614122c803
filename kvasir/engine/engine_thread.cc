#include "kvasir/engine/engine_thread.h"

#include <algorithm>
#include <future>
#include <string>
#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {
namespace {

// How soon a reader that has caught up is noticed when nothing else runs: short beside a token.
constexpr std::chrono::milliseconds kStallPoll{5};

// Beyond this a grace is for ever, and a deadline would overflow.
constexpr std::chrono::hours kLongestGrace{24 * 365};

}  // namespace

EngineThread::EngineThread(std::unique_ptr<Engine> engine, int64_t max_waiting)
    : engine_(std::move(engine)),
      max_waiting_(max_waiting),
      stats_(engine_->Stats()),
      thread_([this] { Run(); }) {}

EngineThread::~EngineThread() {
  Stop(std::chrono::milliseconds(0));
  {
    const std::lock_guard lock(mutex_);
    is_ended_ = true;
    work_.notify_one();
  }
  thread_.join();
}

Result<RequestId> EngineThread::Submit(EngineRequest request, EngineCallbacks callbacks) {
  std::vector<Job> jobs(1);
  jobs[0] = {std::move(request), std::move(callbacks)};
  KVASIR_TRY(const std::vector<RequestId> ids, SubmitAll(std::move(jobs)));
  return ids[0];
}

Result<std::vector<RequestId>> EngineThread::SubmitAll(std::vector<Job> jobs) {
  if (jobs.empty()) return std::vector<RequestId>();
  // On the caller's thread: what is wrong with a request costs the others nothing.
  for (const Job& job : jobs) KVASIR_TRY_OK(engine_->Check(job.request));
  std::vector<Submission> submissions;
  std::vector<RequestId> ids;
  for (Job& job : jobs) {
    if (job.breakers == nullptr) job.breakers = engine_->Breakers(job.request.sampling);
    ids.push_back(engine_->NewId());
    submissions.push_back({ids.back(), std::move(job)});
  }
  const std::lock_guard lock(mutex_);
  if (is_stopping_) return {ErrorCode::kCancelled, "the engine is shutting down"};
  const int64_t waiting = stats_.waiting_requests + static_cast<int64_t>(inbox_.size());
  const int64_t free_streams = engine_->options().max_streams - stats_.active_streams;
  if (waiting >= max_waiting_ + std::max<int64_t>(free_streams, 0)) {
    return {ErrorCode::kResourceExhausted,
            std::to_string(waiting) + " requests are waiting already; try again later"};
  }
  std::move(submissions.begin(), submissions.end(), std::back_inserter(inbox_));
  work_.notify_one();
  return ids;
}

Status EngineThread::SubmitMore(Job job) {
  const std::lock_guard lock(mutex_);
  if (is_cancelling_) return {ErrorCode::kCancelled, "the engine is shutting down"};
  inbox_.push_back({engine_->NewId(), std::move(job)});
  work_.notify_one();
  return {};
}

void EngineThread::Cancel(RequestId id) {
  const std::lock_guard lock(mutex_);
  cancels_.push_back(id);
  work_.notify_one();
}

void EngineThread::Stop(std::chrono::milliseconds grace) {
  std::unique_lock lock(mutex_);
  is_stopping_ = true;
  const auto is_idle = [this] { return !has_work_ && inbox_.empty(); };
  if (idle_.wait_for(lock, std::min<std::chrono::milliseconds>(grace, kLongestGrace), is_idle)) {
    return;
  }
  cancels_all_ = true;
  is_cancelling_ = true;
  work_.notify_one();
  idle_.wait(lock, is_idle);
}

EngineStats EngineThread::Stats() const {
  const std::lock_guard lock(mutex_);
  EngineStats stats = stats_;
  stats.waiting_requests += static_cast<int64_t>(inbox_.size());
  return stats;
}

void EngineThread::Picture(ShowPicture show) {
  std::shared_ptr<const EnginePicture> known;
  {
    const std::lock_guard lock(mutex_);
    if (picture_ != nullptr && EngineClock::now() - picture_->made_at < kPictureAge) {
      known = picture_;
    } else {
      viewers_.push_back(std::move(show));
      work_.notify_one();
    }
  }
  if (known != nullptr) show(std::move(known));
}

void EngineThread::RunBetweenSteps(const std::function<void(Engine& engine)>& task) {
  std::promise<void> done;
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back([&] {
      task(*engine_);
      done.set_value();
    });
    work_.notify_one();
  }
  done.get_future().wait();
}

// On the engine's thread.
void EngineThread::ShowTo(const std::vector<ShowPicture>& viewers) {
  if (viewers.empty()) return;
  const auto picture = std::make_shared<const EnginePicture>(engine_->Picture());
  {
    const std::lock_guard lock(mutex_);
    picture_ = picture;
  }
  for (const ShowPicture& show : viewers) show(picture);
}

void EngineThread::Run() {
  std::unique_lock lock(mutex_);
  const auto is_called = [this] {
    return is_ended_ || cancels_all_ || !inbox_.empty() || !cancels_.empty() || !viewers_.empty() ||
           !tasks_.empty();
  };
  for (;;) {
    // With work, but none that could be done: every reader is behind.
    if (has_work_ && is_stalled_) work_.wait_for(lock, kStallPoll, is_called);
    work_.wait(lock, [&] { return has_work_ || is_called(); });
    if (is_ended_ && !has_work_ && inbox_.empty()) return;
    Serve(lock);
    if (!has_work_ && inbox_.empty()) idle_.notify_all();
  }
}

void EngineThread::Serve(std::unique_lock<std::mutex>& lock) {
  std::vector<Submission> submissions = std::exchange(inbox_, {});
  const std::vector<RequestId> cancels = std::exchange(cancels_, {});
  const bool cancels_all = std::exchange(cancels_all_, false);
  const std::vector<ShowPicture> viewers = std::exchange(viewers_, {});
  const std::vector<std::function<void()>> tasks = std::exchange(tasks_, {});
  has_work_ = true;
  // What leaves the inbox must go on counting as waiting.
  stats_.waiting_requests += static_cast<int64_t>(submissions.size());
  lock.unlock();
  for (Submission& submission : submissions) {
    const Status accepted =
        engine_->Submit(submission.id, std::move(submission.job.request),
                        std::move(submission.job.callbacks), std::move(submission.job.breakers));
    KVASIR_CHECK(accepted.ok());  // it was checked
  }
  for (const RequestId id : cancels) engine_->Cancel(id);
  if (cancels_all) engine_->CancelAll();
  for (const auto& task : tasks) task();
  const bool has_work = engine_->has_work() && engine_->Step();
  ShowTo(viewers);
  const EngineStats stats = engine_->Stats();
  lock.lock();
  is_stalled_ = stats.steps == stats_.steps;
  has_work_ = has_work;
  stats_ = stats;
}

}  // namespace kvasir
