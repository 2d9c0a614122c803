#include "kvasir/base/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>  // NOLINT: masks are POSIX

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

#include "kvasir/base/check.h"

namespace kvasir {
namespace {

inline void CpuRelax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// How long a waiter spins before it sleeps. Ops inside one forward pass follow each other within
// microseconds, so a short spin saves two system calls an op; 50 us is a few times the cost of
// one futex wake-up, the classic competitive bound.
constexpr std::chrono::microseconds kSpinTime{50};

// Does what is to be done while waiting, then spins until `ready`, at most kSpinTime. Yields now
// and then, so that on a machine with more runnable threads than cores the one that is waited for
// gets to run.
template <typename Ready>
bool SpinUntil(const Ready& ready, IdleWork* idle, int thread) {
  while (idle != nullptr && !ready() && idle->Step(thread)) {
  }
  const auto end = std::chrono::steady_clock::now() + kSpinTime;
  for (;;) {
    for (int i = 0; i < 64; ++i) {
      if (ready()) return true;
      CpuRelax();
    }
    if (std::chrono::steady_clock::now() >= end) return false;
    sched_yield();
  }
}

// While it lives, threads that this one starts get no signals: those of the process are for who
// waits for them, a line editor's for instance, which a handler elsewhere would not stop. What a
// thread does to itself, and a profiler's clock, still reach it.
class SignalsElsewhere {
 public:
  SignalsElsewhere() {
    sigset_t signals;
    sigfillset(&signals);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS, SIGPROF}) {
      sigdelset(&signals, own);
    }
    pthread_sigmask(SIG_BLOCK, &signals, &before_);
  }
  ~SignalsElsewhere() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalsElsewhere(const SignalsElsewhere&) = delete;
  SignalsElsewhere& operator=(const SignalsElsewhere&) = delete;

 private:
  sigset_t before_;
};

// A line goes from one core to another in 50 to 250 ns, often the one beside it with it: what
// different threads write lies so far apart.
constexpr size_t kApart = 128;

// What one thread has left of a For: [begin, end) in one word.
struct RangeShare {
  std::atomic<uint64_t> range{0};

  static uint64_t Pack(uint64_t begin, uint64_t end) { return begin << 32 | end; }

  // Half of it, or the least size: the owner from the front, so that it goes on where it was,
  // others from the back.
  bool TakeHalf(bool is_owner, PieceSizes sizes, size_t* begin, size_t* end) {
    uint64_t now = range.load(std::memory_order_relaxed);
    for (;;) {
      const uint64_t first = now >> 32;
      const uint64_t last = now & 0xFFFFFFFFu;
      if (first == last) return false;
      const uint64_t count = last - first;
      const uint64_t half = std::max((count + 1) / 2, std::min<uint64_t>(sizes.least, count));
      uint64_t cut = is_owner ? first + half : last - half;
      if (half > sizes.row) {
        cut =
            is_owner ? cut / sizes.row * sizes.row : (cut + sizes.row - 1) / sizes.row * sizes.row;
      }
      const uint64_t left = is_owner ? Pack(cut, last) : Pack(first, cut);
      if (!range.compare_exchange_weak(now, left, std::memory_order_relaxed)) continue;
      *begin = is_owner ? first : cut;
      *end = is_owner ? cut : last;
      return true;
    }
  }
};

}  // namespace

// Each fork and join should take few lines from one core to another, one after the other: a helper
// reads what is posted and takes its assignment, the caller reads what it has finished.
struct ThreadPool::Shared {
  // Written by the caller.
  struct alignas(kApart) Posted {
    std::atomic<uint64_t> generation{0};  // one more for every Run
    std::atomic<bool> stop{false};
    std::optional<TaskRef> task;
  };
  // Of one thread: written by the caller, who is thread 0, and by whoever takes it.
  struct alignas(kApart) Assignment {
    std::atomic<uint64_t> begun{0};  // the last generation whose part somebody has begun
    RangeShare share;                // of the present For
  };
  // Of one helper: written by whoever has finished its part.
  struct alignas(kApart) Progress {
    std::atomic<uint64_t> finished{0};  // the last generation of which that is done
  };
  // Written by whoever falls asleep.
  struct alignas(kApart) Sleep {
    std::mutex mutex;
    std::condition_variable work_posted;
    std::condition_variable work_done;
    std::atomic<int> helpers{0};
    std::atomic<bool> caller{false};
  };

  Posted posted;
  std::vector<Assignment> assignments;
  std::vector<Progress> progress;
  Sleep sleep;
  std::vector<std::thread> helpers;
  IdleWork* const idle;

  Shared(int threads, IdleWork* idle)
      : assignments(static_cast<size_t>(threads)),
        progress(static_cast<size_t>(threads)),
        idle(idle) {}

  // Whether the part of `thread` is now the asker's to run: each has one taker.
  bool Take(int thread, uint64_t generation) {
    std::atomic<uint64_t>& begun = assignments[static_cast<size_t>(thread)].begun;
    uint64_t before = generation - 1;
    return begun.load(std::memory_order_relaxed) == before &&
           begun.compare_exchange_strong(before, generation, std::memory_order_acq_rel);
  }

  void Finish(int thread, uint64_t generation) {
    progress[static_cast<size_t>(thread)].finished.store(generation, std::memory_order_seq_cst);
  }

  void Post(TaskRef task, uint64_t generation) {
    posted.task.emplace(task);
    posted.generation.store(generation, std::memory_order_release);
    // A helper that falls asleep at this moment may be missed, as waiting for this store would cost
    // every fork: the caller does what no helper begins, and the next Run wakes it.
    if (sleep.helpers.load(std::memory_order_relaxed) > 0) {
      const std::lock_guard lock(sleep.mutex);
      sleep.work_posted.notify_all();
    }
  }

  void HelperLoop(int thread) {
    uint64_t seen = 0;
    for (;;) {
      const auto ready = [&] {
        return posted.generation.load(std::memory_order_acquire) != seen ||
               posted.stop.load(std::memory_order_acquire);
      };
      if (!SpinUntil(ready, idle, thread)) {
        std::unique_lock lock(sleep.mutex);
        ++sleep.helpers;
        sleep.work_posted.wait(lock, ready);
        --sleep.helpers;
      }
      if (posted.stop.load(std::memory_order_acquire)) return;
      seen = posted.generation.load(std::memory_order_acquire);
      if (!Take(thread, seen)) continue;
      (*posted.task)(thread);
      // Before it is read whether the caller sleeps, who says so before reading this.
      Finish(thread, seen);
      if (sleep.caller.load(std::memory_order_seq_cst)) {
        const std::lock_guard lock(sleep.mutex);
        sleep.work_done.notify_one();
      }
    }
  }

  // Until a helper's part of a generation is done.
  void WaitFor(int thread, uint64_t generation) {
    const std::atomic<uint64_t>& finished = progress[static_cast<size_t>(thread)].finished;
    const auto is_done = [&] { return finished.load(std::memory_order_seq_cst) == generation; };
    if (SpinUntil(is_done, idle, 0)) return;
    std::unique_lock lock(sleep.mutex);
    sleep.caller.store(true, std::memory_order_seq_cst);
    sleep.work_done.wait(lock, is_done);
    sleep.caller.store(false, std::memory_order_relaxed);
  }
};

ThreadPool::ThreadPool(int threads, IdleWork* idle) : threads_(threads) {
  KVASIR_CHECK(threads >= 1);
  if (threads == 1) return;
  shared_ = std::make_unique<Shared>(threads, idle);
  const SignalsElsewhere elsewhere;
  try {
    for (int thread = 1; thread < threads; ++thread) {
      shared_->helpers.emplace_back([this, thread] { shared_->HelperLoop(thread); });
    }
  } catch (const std::system_error&) {  // the standard library knows no other way to say it
    threads_ = static_cast<int>(shared_->helpers.size()) + 1;
  }
}

ThreadPool::~ThreadPool() {
  if (shared_ == nullptr) return;
  {
    const std::lock_guard lock(shared_->sleep.mutex);
    shared_->posted.stop.store(true, std::memory_order_release);
    shared_->sleep.work_posted.notify_all();
  }
  for (std::thread& helper : shared_->helpers) helper.join();
}

void ThreadPool::Share(size_t count) {
  KVASIR_CHECK(count <= std::numeric_limits<uint32_t>::max());
  const size_t parts = static_cast<size_t>(threads_);
  for (size_t i = 0; i < parts; ++i) {
    shared_->assignments[i].share.range.store(
        RangeShare::Pack(ShareBegin(count, i, parts), ShareBegin(count, i + 1, parts)),
        std::memory_order_relaxed);
  }
}

bool ThreadPool::Claim(int thread, PieceSizes sizes, size_t* begin, size_t* end) {
  for (int i = 0; i < threads_; ++i) {
    const auto whose = static_cast<size_t>((thread + i) % threads_);
    if (shared_->assignments[whose].share.TakeHalf(i == 0, sizes, begin, end)) return true;
  }
  return false;
}

void ThreadPool::Run(TaskRef task) {
  if (shared_ == nullptr) {
    task(0);
    return;
  }
  Shared& shared = *shared_;
  const uint64_t generation = shared.posted.generation.load(std::memory_order_relaxed) + 1;
  shared.Post(task, generation);
  task(0);
  // On a busy machine a helper may not get a core for long: what it has not begun is done here.
  for (int thread = 1; thread < threads_; ++thread) {
    if (!shared.Take(thread, generation)) continue;
    task(thread);
    shared.Finish(thread, generation);
  }
  for (int thread = 1; thread < threads_; ++thread) shared.WaitFor(thread, generation);
}

}  // namespace kvasir
