#include "kvasir/engine/publish_points.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

KvLayerSpec Rows(RetentionSpec retention) {
  KvLayerSpec layer;
  layer.layout = {.kv_heads = 2, .key_dim = 16, .value_dim = 16};
  layer.retention = retention;
  return layer;
}

KvLayerSpec State(size_t bytes) {
  KvLayerSpec layer;
  layer.state_bytes = bytes;
  return layer;
}

TEST(PublishPoints, RowsThatStayAreFoundAnywhere) {
  const PublishPoints points({{Rows(RetentionSpec::All())}}, false);
  EXPECT_TRUE(points.are_anywhere());
  EXPECT_EQ(points.Next(0, 10'000), kSegmentTokens);
  EXPECT_EQ(points.Next(kSegmentTokens - 1, 10'000), kSegmentTokens);
  EXPECT_EQ(points.Next(kSegmentTokens, 10'000), 2 * kSegmentTokens);
  EXPECT_EQ(points.Next(0, 100), kSegmentTokens);  // none before the end
  EXPECT_EQ(points.Last(kSegmentTokens - 1, 10'000), 0);
  EXPECT_EQ(points.Last(3 * kSegmentTokens + 5, 10'000), 3 * kSegmentTokens);
}

TEST(PublishPoints, WindowsAreGoneOnWithAtPoints) {
  const PublishPoints points({{Rows(RetentionSpec::All()), Rows(RetentionSpec::Window(64))}}, false);
  EXPECT_FALSE(points.are_anywhere());
  EXPECT_EQ(points.Next(5, 700), kSegmentTokens);
  EXPECT_EQ(points.Next(kSegmentTokens, 700), 2 * kSegmentTokens);
}

TEST(PublishPoints, StatesTakeNoMoreRoomThanRows) {
  const KvLayerSpec rows = Rows(RetentionSpec::All());
  const size_t segment_bytes = KvCacheSpec{{rows}}.TokenBytes() * kSegmentTokens;
  const KvCacheSpec small = {{rows, State(segment_bytes / 2)}};
  EXPECT_EQ(PublishPoints(small, false).Next(0, 100'000), kSegmentTokens);
  const KvCacheSpec large = {{rows, State(2 * segment_bytes), State(segment_bytes / 2)}};
  EXPECT_EQ(PublishPoints(large, false).Next(0, 100'000), 3 * kSegmentTokens);
  EXPECT_EQ(PublishPoints(large, true).Next(0, 100'000), kSegmentTokens);
  const KvCacheSpec huge = {{rows, State(100 * segment_bytes)}};
  EXPECT_EQ(PublishPoints(huge, false).Next(0, 100'000), 8 * kSegmentTokens);
  EXPECT_EQ(PublishPoints({{State(64)}}, false).Next(0, 100'000), 8 * kSegmentTokens);
}

TEST(PublishPoints, StatesAreKeptShortlyBeforeAnAnswer) {
  const PublishPoints points({{Rows(RetentionSpec::All()), State(64)}}, false);
  EXPECT_EQ(points.Next(0, 1000), kSegmentTokens);
  EXPECT_EQ(points.Next(kSegmentTokens, 1000), 960);
  EXPECT_EQ(points.Next(960, 1000), 2 * kSegmentTokens);
  EXPECT_EQ(points.Next(0, 80), 64);
  EXPECT_EQ(points.Next(0, 79), kSegmentTokens);  // within what begins the answer
  EXPECT_EQ(points.Next(0, 3), kSegmentTokens);
  EXPECT_EQ(points.Last(959, 1000), kSegmentTokens);
  EXPECT_EQ(points.Last(990, 1000), 960);
  EXPECT_EQ(points.Last(63, 80), 0);
}

}  // namespace
}  // namespace kvasir
