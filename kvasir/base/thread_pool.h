// A fork-join pool: one call runs a task on every thread and returns when all are done.
// Deliberately no queue, no futures: a backend op splits its own outputs, so results never depend
// on the number of threads.
#ifndef KVASIR_BASE_THREAD_POOL_H_
#define KVASIR_BASE_THREAD_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

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

// What threads do while they wait.
class IdleWork {
 public:
  virtual ~IdleWork() = default;
  // A step of less than a microsecond; false if there is nothing to do.
  virtual bool Step(int thread) = 0;
};

// How many indices are taken at once.
struct PieceSizes {
  size_t least = 1;  // if there are so many, or fewer by what is said of rows
  // Indices [i * row, (i + 1) * row) lie side by side: a piece of more than a row ends, or one that
  // another thread takes begins, where a row does.
  size_t row = 1;
};

class ThreadPool {
 public:
  // `threads` >= 1 counts the caller; 1 runs everything inline and starts no thread. Where the
  // system gives fewer, so many they are. `idle` may be null and must outlive the pool.
  explicit ThreadPool(int threads, IdleWork* idle = nullptr);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Where the share of thread `i` of `parts` of [0, count) begins.
  static constexpr size_t ShareBegin(size_t count, size_t i, size_t parts) {
    return count * i / parts;
  }

  // Runs task(0) .. task(threads()-1), each on a thread of its own or, if that has not come to it,
  // on the caller's: they must not wait for each other.
  // THREADS: one caller at a time; tasks must not call Run.
  void Run(TaskRef task);

  // Runs body(begin, end) on pieces that make up [0, count). Each thread begins with a contiguous
  // share of its own and takes half of what is left of it at a time; who is done takes half of what
  // another has left. So a thread that lost its core for a while holds nobody up.
  template <typename Body>
  void For(size_t count, const Body& body) {
    ForPieces(count, {}, [&](int, const auto& take) {
      size_t begin = 0;
      size_t end = 0;
      while (take(&begin, &end)) body(begin, end);
    });
  }

  // The same for a body that takes its next piece before it is done with one: body(thread, take)
  // runs on each thread and calls take(&begin, &end), which is false if nobody has any left.
  template <typename Body>
  void ForPieces(size_t count, PieceSizes sizes, const Body& body) {
    if (threads_ == 1 || count <= 1) {
      size_t left = count;
      body(0, [&](size_t* begin, size_t* end) {
        *begin = 0;
        *end = std::exchange(left, 0);
        return *begin < *end;
      });
      return;
    }
    Share(count);
    Run([&](int thread) {
      body(thread, [&](size_t* begin, size_t* end) { return Claim(thread, sizes, begin, end); });
    });
  }

 private:
  struct Shared;
  void Share(size_t count);
  // The next piece for `thread`; false if nobody has any left.
  bool Claim(int thread, PieceSizes sizes, size_t* begin, size_t* end);

  int threads_;
  std::unique_ptr<Shared> shared_;  // null when threads_ == 1
};

}  // namespace kvasir

#endif  // KVASIR_BASE_THREAD_POOL_H_
