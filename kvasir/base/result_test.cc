#include "kvasir/base/result.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

Result<int> Half(int value) {
  if (value % 2 != 0) return {ErrorCode::kInvalidArgument, "value must be even"};
  return value / 2;
}

Result<int> Quarter(int value) {
  KVASIR_TRY(const int half, Half(value));
  return Half(half);
}

Status CheckQuarter(int value) {
  KVASIR_TRY_OK(Quarter(value));
  return {};
}

TEST(ResultTest, TryForwardsValuesAndErrors) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_EQ(Quarter(3).error().message, "value must be even");
  EXPECT_EQ(Quarter(6).error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(CheckQuarter(8).ok());
  EXPECT_FALSE(CheckQuarter(7).ok());
}

TEST(ResultTest, ContextComesFirst) {
  EXPECT_EQ(WithContext(Half(1).error(), "file.json").message, "file.json: value must be even");
}

TEST(ResultDeathTest, ReadingTheValueOfAFailureIsABug) {
  EXPECT_DEATH(Half(1).value(), "check failed");
}

}  // namespace
}  // namespace kvasir
