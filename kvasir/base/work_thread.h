// WorkThread: a thread that runs tasks one after the other, in the order in which they came.
// Deliberately without a bound of its own: that is for those who post.
#ifndef KVASIR_BASE_WORK_THREAD_H_
#define KVASIR_BASE_WORK_THREAD_H_

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace kvasir {

class WorkThread {
 public:
  WorkThread() : thread_([this] { Run(); }) {}
  ~WorkThread() { Stop(); }

  // False, and the task dropped, after Stop. THREADS: any.
  bool Post(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    if (is_stopping_) return false;
    tasks_.push_back(std::move(task));
    added_.notify_one();
    return true;
  }

  // Runs what has been posted, then ends the thread. Idempotent. THREADS: one at a time.
  void Stop() {
    {
      const std::lock_guard lock(mutex_);
      is_stopping_ = true;
      added_.notify_one();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      added_.wait(lock, [this] { return is_stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      task = nullptr;  // what it held goes outside the lock
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable added_;
  std::deque<std::function<void()>> tasks_;
  bool is_stopping_ = false;
  std::thread thread_;
};

}  // namespace kvasir

#endif  // KVASIR_BASE_WORK_THREAD_H_
