#include "kvasir/backend/query_tile.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvasir {
namespace {

TEST(QueryTileTest, PartitionsGetLongerFurtherBack) {
  std::vector<int64_t> ends;
  for (int64_t row = 0; row < 24576; row = PartitionEnd(row)) ends.push_back(PartitionEnd(row));
  EXPECT_EQ(ends,
            (std::vector<int64_t>{1024, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 20480, 24576}));
}

// A window begins anywhere: its first partition is cut where those of others are.
TEST(QueryTileTest, AllRowsOfAPartitionAgreeOnItsEnd) {
  int64_t begin = 0;
  for (int64_t row = 0; row < 50000; ++row) {
    if (row == PartitionEnd(begin)) begin = row;
    ASSERT_EQ(PartitionEnd(row), PartitionEnd(begin)) << row;
  }
}

}  // namespace
}  // namespace kvasir
