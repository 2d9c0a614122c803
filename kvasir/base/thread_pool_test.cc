#include "kvasir/base/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
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

TEST(ThreadPoolTest, ManyShortRuns) {
  ThreadPool pool(4);
  std::atomic<int> sum{0};
  for (int i = 0; i < 2000; ++i) pool.Run([&](int thread) { sum += thread; });
  EXPECT_EQ(sum.load(), 2000 * (1 + 2 + 3));
}

}  // namespace
}  // namespace kvasir
