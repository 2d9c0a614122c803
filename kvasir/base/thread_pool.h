// A fork-join pool: one call runs a task on every thread and returns when all are done.
// Deliberately no queue, no futures: a backend op splits its own outputs, so results never depend
// on the number of threads.
#ifndef KVASIR_BASE_THREAD_POOL_H_
#define KVASIR_BASE_THREAD_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>

namespace kvasir {

// A borrowed callable: no allocation, valid during the call only.
class TaskRef {
 public:
  template <typename F>
  TaskRef(const F& function)  // NOLINT: implicit by design, callers pass lambdas
      : object_(&function),
        call_([](const void* object, int thread) { (*static_cast<const F*>(object))(thread); }) {}
  void operator()(int thread) const { call_(object_, thread); }

 private:
  const void* object_;
  void (*call_)(const void*, int);
};

class ThreadPool {
 public:
  // `threads` >= 1 counts the caller; 1 runs everything inline and starts no thread.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Runs task(0) .. task(threads()-1), each on a thread of its own or, if that has not come to it,
  // on the caller's: they must not wait for each other.
  // THREADS: one caller at a time; tasks must not call Run.
  void Run(TaskRef task);

  // Splits [0, count) into one contiguous, nearly equal range per thread and runs
  // body(begin, end) for the non-empty ones.
  template <typename Body>
  void For(size_t count, const Body& body) {
    const size_t parts = static_cast<size_t>(threads_);
    if (parts == 1 || count <= 1) {
      if (count > 0) body(size_t{0}, count);
      return;
    }
    Run([&](int thread) {
      const size_t begin = count * static_cast<size_t>(thread) / parts;
      const size_t end = count * (static_cast<size_t>(thread) + 1) / parts;
      if (begin < end) body(begin, end);
    });
  }

 private:
  struct Shared;
  int threads_;
  std::unique_ptr<Shared> shared_;  // null when threads_ == 1
};

}  // namespace kvasir

#endif  // KVASIR_BASE_THREAD_POOL_H_
