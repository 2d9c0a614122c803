#include "kvasir/base/thread_pool.h"

#include <gtest/gtest.h>
#include <signal.h>  // NOLINT: masks are POSIX
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <vector>

namespace kvasir {
namespace {

TEST(ThreadPoolTest, EveryIndexIsVisitedOnce) {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (size_t count : {size_t{0}, size_t{1}, size_t{2}, size_t{7}, size_t{1000}}) {
      std::vector<int> visits(count, 0);
      pool.For(count, [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) ++visits[i];
      });
      for (int n : visits) ASSERT_EQ(n, 1);
    }
  }
}

TEST(ThreadPoolTest, PiecesHaveTheLeastSizeAndAreTakenAhead) {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (size_t count : {size_t{0}, size_t{1}, size_t{6}, size_t{60}, size_t{61}}) {
      std::vector<int> visits(count, 0);
      std::atomic<int> small{0};
      pool.ForPieces(count, {.least = 4}, [&](int thread, const auto& take) {
        EXPECT_LT(thread, threads);
        size_t begin = 0;
        size_t end = 0;
        bool has_more = take(&begin, &end);
        while (has_more) {
          small += end - begin < 4 ? 1 : 0;
          const size_t first = begin;
          const size_t last = end;
          has_more = take(&begin, &end);
          for (size_t i = first; i < last; ++i) ++visits[i];
        }
      });
      for (int n : visits) ASSERT_EQ(n, 1);
      // Only what is left of a share may be less.
      EXPECT_LE(small.load(), threads);
    }
  }
}

TEST(ThreadPoolTest, LongPiecesConsistOfWholeRows) {
  constexpr size_t kRow = 8;
  for (int threads : {2, 3}) {
    ThreadPool pool(threads);
    for (size_t count : {size_t{16}, size_t{24}, size_t{56}, size_t{61}}) {
      std::vector<int> visits(count, 0);
      std::atomic<int> torn{0};
      pool.ForPieces(count, {.least = 2, .row = kRow}, [&](int, const auto& take) {
        size_t begin = 0;
        size_t end = 0;
        while (take(&begin, &end)) {
          for (size_t i = begin; i < end; ++i) ++visits[i];
          if (end - begin > kRow && begin % kRow != 0 && end % kRow != 0) ++torn;
        }
      });
      for (int n : visits) ASSERT_EQ(n, 1);
      EXPECT_EQ(torn.load(), 0);
    }
  }
}

TEST(ThreadPoolTest, OthersFinishWhatAStalledThreadHasLeft) {
  ThreadPool pool(2);
  constexpr size_t kCount = 64;
  std::atomic<size_t> done{0};
  std::vector<int> visits(kCount, 0);
  pool.For(kCount, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) ++visits[i];
    // Whoever has index 0 goes on only when all that it has not taken yet is done.
    if (begin == 0) {
      while (done < kCount - end) {
      }
    }
    done += end - begin;
  });
  for (int n : visits) EXPECT_EQ(n, 1);
}

class CountingWork final : public IdleWork {
 public:
  bool Step(int thread) override {
    EXPECT_TRUE(thread == 0 || thread == 1);
    return --left_ > 0;
  }
  bool is_done() const { return left_ <= 0; }

 private:
  std::atomic<int> left_{100};
};

TEST(ThreadPoolTest, WhoWaitsWorksAhead) {
  CountingWork idle;
  ThreadPool pool(2, &idle);
  pool.Run([](int) {});
  while (!idle.is_done()) {
  }
  int sum = 0;
  pool.For(3, [&](size_t begin, size_t) {
    if (begin == 0) sum = 1;
  });
  EXPECT_EQ(sum, 1);
}

// Waiters sleep after 50 us: helpers between runs, the caller during one.
TEST(ThreadPoolTest, WhoeverSleepsIsWoken) {
  ThreadPool pool(3);
  const auto wait = [](int microseconds) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(microseconds);
    while (std::chrono::steady_clock::now() < end) {
    }
  };
  std::atomic<int> sum{0};
  constexpr int kRuns = 400;
  for (int i = 0; i < kRuns; ++i) {
    pool.Run([&](int thread) {
      if (thread > 0) wait(30 + i % 50);
      sum += thread;
    });
    EXPECT_EQ(sum.load(), (i + 1) * (1 + 2));
    wait(30 + i * 7 % 50);
  }
}

// Sanitizers reserve more addresses than any limit would leave.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// In a process of its own, whose memory has room for the stacks of some.
void UseMoreThreadsThanThereAre() {
  std::ifstream statm("/proc/self/statm");
  rlim_t pages = 0;
  statm >> pages;
  const rlim_t bytes = pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)) + (rlim_t{100} << 20);
  const rlimit limit = {bytes, bytes};
  if (setrlimit(RLIMIT_AS, &limit) != 0) std::exit(2);
  constexpr int kWanted = 500;
  ThreadPool pool(kWanted);
  if (pool.threads() >= kWanted) std::exit(3);
  std::atomic<size_t> sum{0};
  pool.For(1000, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) sum += i;
  });
  std::exit(sum == 1000 * 999 / 2 ? 0 : 4);
}

volatile sig_atomic_t signals_taken = 0;

TEST(ThreadPoolTest, HelpersTakeNoSignals) {
  ThreadPool pool(4);
  const auto handler = std::signal(SIGUSR1, [](int) { signals_taken = signals_taken + 1; });
  sigset_t own;
  sigset_t before;
  sigemptyset(&own);
  sigaddset(&own, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &own, &before);
  EXPECT_EQ(kill(getpid(), SIGUSR1), 0);
  // Whoever could have taken it has come by.
  for (int run = 0; run < 100; ++run) {
    pool.ForPieces(4, {.least = 1}, [&](int, const auto& take) {
      size_t begin = 0;
      size_t end = 0;
      while (take(&begin, &end)) {
      }
    });
  }
  EXPECT_EQ(signals_taken, 0);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);  // now this thread does
  EXPECT_EQ(signals_taken, 1);
  std::signal(SIGUSR1, handler);
}

TEST(ThreadPoolTest, FewerThreadsWhereTheSystemGivesNoMore) {
  EXPECT_EXIT(UseMoreThreadsThanThereAre(), testing::ExitedWithCode(0), "");
}
#endif

TEST(ThreadPoolTest, ManyShortRuns) {
  ThreadPool pool(4);
  std::atomic<int> sum{0};
  for (int i = 0; i < 2000; ++i) pool.Run([&](int thread) { sum += thread; });
  EXPECT_EQ(sum.load(), 2000 * (1 + 2 + 3));
}

}  // namespace
}  // namespace kvasir
