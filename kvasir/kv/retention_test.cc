#include "kvasir/kv/retention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "kvasir/base/token.h"
#include "kvasir/kv/retention_kinds.h"

namespace kvasir {
namespace {

// A retention and, independently of it, the rule from its definition: may `query` see `row`?
struct Case {
  std::string name;
  std::function<bool(Position query, Position row)> sees;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

Case Window(int64_t size) {
  return {"window:" + std::to_string(size),
          [size](Position query, Position row) { return row <= query && row > query - size; }};
}
Case Sinks(int64_t size, int64_t keep) {
  return {"window:" + std::to_string(size) + ",keep=" + std::to_string(keep),
          [=](Position query, Position row) {
            return row <= query && (row < keep || row > query - (size - keep));
          }};
}
Case Chunk(int64_t size) {
  return {"chunk:" + std::to_string(size), [size](Position query, Position row) {
            return row <= query && row / size == query / size;
          }};
}

class RetentionConformance : public testing::TestWithParam<Case> {
 protected:
  static constexpr Position kEnd = 300;

  std::unique_ptr<const Retention> Make() const {
    return *Retention::Make(*RetentionSpec::FromName(GetParam().name));
  }
};

TEST_P(RetentionConformance, VisibleRowsAreThoseOfTheDefinition) {
  const auto retention = Make();
  for (Position query = 0; query < kEnd; ++query) {
    const VisibleRows visible = retention->Visible(query);
    ASSERT_TRUE(0 <= visible.head_end && visible.head_end <= visible.begin &&
                visible.begin <= visible.end);
    for (Position row = 0; row < kEnd; ++row) {
      const bool in_range = row < visible.head_end || (row >= visible.begin && row < visible.end);
      ASSERT_EQ(in_range, GetParam().sees(query, row)) << query << " " << row;
    }
  }
}

TEST_P(RetentionConformance, RowsBelowFirstNeededAreNeverSeenAgainAndItIsTight) {
  const auto retention = Make();
  for (Position next = 0; next < kEnd; ++next) {
    const Position first = retention->FirstNeeded(next);
    ASSERT_LE(first, next);
    ASSERT_GE(retention->FirstNeeded(next + 1), first);
    for (Position query = next; query < kEnd; ++query) {
      for (Position row = retention->head_rows(); row < first; ++row) {
        ASSERT_FALSE(GetParam().sees(query, row)) << next << " " << query << " " << row;
      }
    }
    ASSERT_TRUE(GetParam().sees(next, first));
  }
}

TEST_P(RetentionConformance, WhatIsNeededIsKept) {
  const auto retention = Make();
  for (Position begin = 0; begin < kEnd; ++begin) {
    for (const Position run : {0, 1, 2, 63, 64, 65, 300}) {
      const Position kept = retention->FirstKept(begin, begin + run);
      ASSERT_GE(kept, 0);
      ASSERT_LE(kept, retention->FirstNeeded(begin + run)) << begin << " " << run;
    }
  }
}

TEST_P(RetentionConformance, EarliestStateIsTheLowestThatNeedsNothingBelow) {
  const auto retention = Make();
  for (Position first_held = 0; first_held < kEnd; ++first_held) {
    Position earliest = 0;
    while (earliest < 4 * kEnd && retention->FirstNeeded(earliest) < first_held) ++earliest;
    const Position claimed = retention->EarliestState(first_held);
    if (earliest < 4 * kEnd) {
      ASSERT_EQ(claimed, earliest) << first_held;
    } else {
      ASSERT_GE(claimed, 4 * kEnd) << first_held;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, RetentionConformance,
    testing::Values(Case{"all", [](Position query, Position row) { return row <= query; }},
                    Window(1), Window(2), Window(63), Window(64), Window(65), Window(200),
                    Window(1000), Sinks(5, 4), Sinks(16, 4), Sinks(100, 70), Sinks(64, 64 - 1),
                    Chunk(1), Chunk(3), Chunk(64), Chunk(100), Chunk(1000)));

TEST(RecentRetentionTest, HoldsWhatQueriesReadAndOneRowMore) {
  for (const int64_t recent : {64, 128, 256}) {
    const auto retention = MakeRecentRetention(recent);
    const KvLayout layout = {.dense_recent = recent};
    for (int64_t next = 0; next < 700; ++next) {
      const int64_t first = retention->FirstNeeded(next);
      ASSERT_LE(first, layout.RecentBegin(next));
      ASSERT_LE(first, std::max<int64_t>(0, next - recent));
      ASSERT_EQ(retention->Visible(next), (VisibleRows{0, layout.RecentBegin(next), next + 1}));
    }
    for (int64_t first_held = 0; first_held < 400; ++first_held) {
      int64_t earliest = 0;
      while (retention->FirstNeeded(earliest) < first_held) ++earliest;
      ASSERT_EQ(retention->EarliestState(first_held), earliest) << first_held;
    }
  }
}

TEST(RetentionSpecTest, NamesComeBack) {
  for (const char* name :
       {"all", "window:1", "window:4096", "chunk:8192", "window:8,keep=4",
        "budget:1024,score=knorm", "budget:12,recent=4,score=knorm-high",
        "budget:1024,keep=4,recent=128,interval=256,score=expected-attention,per-layer"}) {
    const auto spec = RetentionSpec::FromName(name);
    ASSERT_TRUE(spec.ok()) << spec.error().message;
    EXPECT_EQ(spec->name(), name);
  }
  EXPECT_EQ(*RetentionSpec::FromName("window:7"), RetentionSpec::Window(7));
  EXPECT_EQ(*RetentionSpec::FromName("window:7,keep=2"), RetentionSpec::Window(7, 2));
  EXPECT_EQ(RetentionSpec::FromName("budget:9")->score, RowScore::kKnorm);
}

TEST(RetentionSpecTest, RefusesWhatMeansNothing) {
  for (const char* name :
       {"", "al", "all:3", "window", "sinks:4", "window:12,", "window:9,keep", "window:9,keep=x",
        "window:9,keep=-1", "window:9,recent=1", "chunk:9,keep=1", "budget:9,score=best",
        "budget:9,perlayer", "window:9,,keep=1"}) {
    const auto spec = RetentionSpec::FromName(name);
    ASSERT_FALSE(spec.ok()) << name;
    EXPECT_EQ(spec.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(spec.error().message.find("window:TOKENS"), std::string::npos);
  }
  for (const char* name :
       {"window:", "window:0", "window:-1", "window:12x", "window: 3", "chunk:0",
        "chunk:99999999999999999999", "window:1099511627777", "window:4,keep=4", "budget:0",
        "budget:9,keep=5,recent=5", "budget:100,interval=64", "budget:128,interval=63",
        "budget:64,keep=9999999999999", "budget:64,interval=2199023255552"}) {
    const auto spec = RetentionSpec::FromName(name);
    ASSERT_FALSE(spec.ok()) << name;
    EXPECT_EQ(spec.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(spec.error().message.find("must be"), std::string::npos) << spec.error().message;
  }
  EXPECT_FALSE(Retention::Make(RetentionSpec::Window(0)).ok());
  EXPECT_FALSE(Retention::Make({RetentionSpec::Kind::kAll, 5}).ok());
  EXPECT_FALSE(RetentionSpec({.kind = RetentionSpec::Kind::kAll, .keep = 1}).Validate().ok());
  EXPECT_FALSE(
      RetentionSpec({.kind = RetentionSpec::Kind::kChunk, .size = 8, .recent = 1}).Validate().ok());
}

}  // namespace
}  // namespace kvasir
