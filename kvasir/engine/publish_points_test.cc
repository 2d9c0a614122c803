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
  EXPECT_FALSE(points.cut_runs());
  EXPECT_TRUE(points.StatesWithin(0, 10'000, {.tokens = 10'000}).empty());
  EXPECT_EQ(points.Next(0, {.tokens = 10'000}), kSegmentTokens);
  EXPECT_EQ(points.Next(kSegmentTokens - 1, {.tokens = 10'000}), kSegmentTokens);
  EXPECT_EQ(points.Next(kSegmentTokens, {.tokens = 10'000}), 2 * kSegmentTokens);
  EXPECT_EQ(points.Next(0, {.tokens = 100}), kSegmentTokens);  // none before the end
  EXPECT_EQ(points.Last(kSegmentTokens - 1, 10'000), 0);
  EXPECT_EQ(points.Last(3 * kSegmentTokens + 5, 10'000), 3 * kSegmentTokens);
}

TEST(PublishPoints, WindowsAreGoneOnWithAtPoints) {
  const PublishPoints points({{Rows(RetentionSpec::All()), Rows(RetentionSpec::Window(64))}},
                             false);
  EXPECT_FALSE(points.are_anywhere());
  EXPECT_TRUE(points.cut_runs());
  EXPECT_EQ(points.Next(5, {.tokens = 700}), kSegmentTokens);
  EXPECT_EQ(points.Next(kSegmentTokens, {.tokens = 700}), 2 * kSegmentTokens);
}

TEST(PublishPoints, StatesTakeNoMoreRoomThanRows) {
  const KvLayerSpec rows = Rows(RetentionSpec::All());
  const size_t segment_bytes = KvCacheSpec{{rows}}.TokenBytes() * kSegmentTokens;
  const KvCacheSpec small = {{rows, State(segment_bytes / 2)}};
  EXPECT_EQ(PublishPoints(small, false).Next(0, {.tokens = 100'000}), kSegmentTokens);
  const KvCacheSpec large = {{rows, State(2 * segment_bytes), State(segment_bytes / 2)}};
  EXPECT_EQ(PublishPoints(large, false).Next(0, {.tokens = 100'000}), 3 * kSegmentTokens);
  EXPECT_EQ(PublishPoints(large, true).Next(0, {.tokens = 100'000}), kSegmentTokens);
  const KvCacheSpec huge = {{rows, State(100 * segment_bytes)}};
  EXPECT_EQ(PublishPoints(huge, false).Next(0, {.tokens = 100'000}), 8 * kSegmentTokens);
  EXPECT_EQ(PublishPoints({{State(64)}}, false).Next(0, {.tokens = 100'000}), 8 * kSegmentTokens);
}

TEST(PublishPoints, StatesAreKeptShortlyBeforeAnAnswer) {
  const PublishPoints points({{Rows(RetentionSpec::All()), State(64)}}, false);
  EXPECT_EQ(points.Next(0, {.tokens = 1000}), kSegmentTokens);
  EXPECT_EQ(points.Next(kSegmentTokens, {.tokens = 1000}), 960);
  EXPECT_EQ(points.Next(960, {.tokens = 1000}), 2 * kSegmentTokens);
  EXPECT_EQ(points.Next(0, {.tokens = 80}), 64);
  EXPECT_EQ(points.Next(0, {.tokens = 79}), kSegmentTokens);  // within what begins the answer
  EXPECT_EQ(points.Next(0, {.tokens = 3}), kSegmentTokens);
  EXPECT_EQ(points.Last(959, 1000), kSegmentTokens);
  EXPECT_EQ(points.Last(990, 1000), 960);
  EXPECT_EQ(points.Last(63, 80), 0);
  EXPECT_FALSE(points.are_anywhere());
  EXPECT_FALSE(points.cut_runs());
}

TEST(PublishPoints, RunsLeaveStatesWherePromptsAreGoneOnWith) {
  const PublishPoints points({{Rows(RetentionSpec::All()), State(64)}}, false);
  using Positions = std::vector<Position>;
  EXPECT_EQ(points.StatesWithin(0, 1000, {.tokens = 1000}), (Positions{512, 960, 999}));
  EXPECT_EQ(points.StatesWithin(0, 512, {.tokens = 1000}), (Positions{512}));
  EXPECT_EQ(points.StatesWithin(512, 999, {.tokens = 1000}), (Positions{960, 999}));
  EXPECT_EQ(points.StatesWithin(999, 1000, {.tokens = 1000}), Positions());
  EXPECT_EQ(points.StatesWithin(1000, 1600, {.tokens = 1000}),
            Positions());  // an answer that is read again
  EXPECT_EQ(points.StatesWithin(0, 513, {.tokens = 513}), (Positions{448, 512}));
  EXPECT_EQ(points.StatesWithin(0, 1, {.tokens = 1}), Positions());
  EXPECT_EQ(points.StatesWithin(0, 2, {.tokens = 2}), (Positions{1}));
  // Where the prompt parts from others, but once.
  EXPECT_EQ(points.StatesWithin(0, 1000, {.tokens = 1000, .parts_at = 700}),
            (Positions{512, 700, 960, 999}));
  EXPECT_EQ(points.StatesWithin(700, 1000, {.tokens = 1000, .parts_at = 700}),
            (Positions{960, 999}));
  EXPECT_EQ(points.StatesWithin(512, 600, {.tokens = 1000, .parts_at = 700}), Positions());
  EXPECT_EQ(points.StatesWithin(0, 600, {.tokens = 1000, .parts_at = 512}), (Positions{512}));
  EXPECT_EQ(points.StatesWithin(0, 1000, {.tokens = 1000, .parts_at = 1000}),
            (Positions{512, 960, 999}));
}

}  // namespace
}  // namespace kvasir
