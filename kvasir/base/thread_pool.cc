#include "kvasir/base/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>
#include <optional>
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

// What one thread has left of a For: [begin, end) in one word, its own cache line.
struct alignas(64) RangeShare {
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

struct ThreadPool::Shared {
  std::mutex mutex;
  std::condition_variable work_posted;
  std::condition_variable work_done;
  std::atomic<uint64_t> generation{0};  // one more for every Run
  // Per helper: the last generation whose part somebody has begun, the helper itself or the caller.
  std::vector<std::atomic<uint64_t>> begun;
  std::atomic<int> running{0};  // parts of helpers that have not ended
  std::atomic<bool> stop{false};
  std::optional<TaskRef> task;
  std::vector<std::thread> helpers;
  std::vector<RangeShare> shares;  // of the present For

  IdleWork* const idle;

  Shared(int threads, IdleWork* idle)
      : begun(static_cast<size_t>(threads)), shares(static_cast<size_t>(threads)), idle(idle) {}

  // Whether the part of `thread` is now the asker's to run: each has one taker.
  bool Take(int thread, uint64_t of_generation) {
    uint64_t before = of_generation - 1;
    return begun[static_cast<size_t>(thread)].compare_exchange_strong(before, of_generation,
                                                                      std::memory_order_acq_rel);
  }

  void HelperLoop(int thread) {
    uint64_t seen = 0;
    for (;;) {
      const auto ready = [&] {
        return generation.load(std::memory_order_acquire) != seen ||
               stop.load(std::memory_order_acquire);
      };
      if (!SpinUntil(ready, idle, thread)) {
        std::unique_lock lock(mutex);
        work_posted.wait(lock, ready);
      }
      if (stop.load(std::memory_order_acquire)) return;
      seen = generation.load(std::memory_order_acquire);
      if (!Take(thread, seen)) continue;
      (*task)(thread);
      if (running.fetch_sub(1, std::memory_order_acq_rel) == 1) {
        const std::lock_guard lock(mutex);
        work_done.notify_one();
      }
    }
  }
};

ThreadPool::ThreadPool(int threads, IdleWork* idle) : threads_(threads) {
  KVASIR_CHECK(threads >= 1);
  if (threads == 1) return;
  shared_ = std::make_unique<Shared>(threads, idle);
  for (int thread = 1; thread < threads; ++thread) {
    shared_->helpers.emplace_back([this, thread] { shared_->HelperLoop(thread); });
  }
}

ThreadPool::~ThreadPool() {
  if (shared_ == nullptr) return;
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->stop.store(true, std::memory_order_release);
    shared_->work_posted.notify_all();
  }
  for (std::thread& helper : shared_->helpers) helper.join();
}

void ThreadPool::Share(size_t count) {
  KVASIR_CHECK(count <= std::numeric_limits<uint32_t>::max());
  const size_t parts = static_cast<size_t>(threads_);
  for (size_t i = 0; i < parts; ++i) {
    shared_->shares[i].range.store(
        RangeShare::Pack(ShareBegin(count, i, parts), ShareBegin(count, i + 1, parts)),
        std::memory_order_relaxed);
  }
}

bool ThreadPool::Claim(int thread, PieceSizes sizes, size_t* begin, size_t* end) {
  for (int i = 0; i < threads_; ++i) {
    const auto whose = static_cast<size_t>((thread + i) % threads_);
    if (shared_->shares[whose].TakeHalf(i == 0, sizes, begin, end)) return true;
  }
  return false;
}

void ThreadPool::Run(TaskRef task) {
  if (shared_ == nullptr) {
    task(0);
    return;
  }
  Shared& shared = *shared_;
  shared.task.emplace(task);
  shared.running.store(threads_ - 1, std::memory_order_relaxed);
  uint64_t generation;
  {
    const std::lock_guard lock(shared.mutex);
    generation = shared.generation.fetch_add(1, std::memory_order_release) + 1;
    shared.work_posted.notify_all();
  }
  task(0);
  // On a busy machine a helper may not get a core for long: what it has not begun is done here.
  for (int thread = 1; thread < threads_; ++thread) {
    if (!shared.Take(thread, generation)) continue;
    task(thread);
    shared.running.fetch_sub(1, std::memory_order_acq_rel);
  }
  const auto finished = [&] { return shared.running.load(std::memory_order_acquire) == 0; };
  if (!SpinUntil(finished, shared.idle, 0)) {
    std::unique_lock lock(shared.mutex);
    shared.work_done.wait(lock, finished);
  }
}

}  // namespace kvasir
