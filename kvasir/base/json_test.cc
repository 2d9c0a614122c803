#include "kvasir/base/json.h"

#include <gtest/gtest.h>

#include <limits>

namespace kvasir {
namespace {

TEST(JsonTest, RoundTripsInOrder) {
  const std::string text = R"({"z":1,"a":[true,null,2.5,"\u00e9\n"],"m":{}})";
  const auto parsed = Json::Parse(text);
  ASSERT_TRUE(parsed.ok()) << parsed.error().message;
  EXPECT_EQ(parsed->Dump(), "{\"z\":1,\"a\":[true,null,2.5,\"é\\n\"],\"m\":{}}");
  EXPECT_EQ(*Json::Parse(parsed->DumpPretty()), *parsed);
}

TEST(JsonTest, IntegersAboveTheLargest) {
  const std::string text = "[9223372036854775807,9223372036854775808,18446744073709551615]";
  const auto parsed = Json::Parse(text);
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->Dump(), text);
  const Json& large = parsed->as_array()[2];
  EXPECT_TRUE(large.is_number() && large.is_above_int() && !large.is_int());
  EXPECT_EQ(large.type_name(), "integer");
  EXPECT_EQ(large.as_double(), 18446744073709551616.0);
  EXPECT_FALSE(Json(Json::Object{{"n", large}}).GetInt("n").ok());
  EXPECT_EQ(*Json(Json::Object{{"n", large}}).GetDouble("n"), 18446744073709551616.0);
}

TEST(JsonTest, RepeatedKeysKeepTheLastValue) {
  const auto parsed = Json::Parse(R"({"a":1,"b":2,"a":3})");
  ASSERT_TRUE(parsed.ok());
  EXPECT_EQ(parsed->Dump(), R"({"a":3,"b":2})");
}

TEST(JsonTest, ErrorsSayWhere) {
  for (const char* bad : {"", "{", "[1,]", "{\"a\"}", "nul", "1 2", "\"\xff\"", "[1e999]"}) {
    const auto parsed = Json::Parse(bad);
    ASSERT_FALSE(parsed.ok()) << bad;
    EXPECT_EQ(parsed.error().code, ErrorCode::kCorrupt);
    EXPECT_FALSE(parsed.error().message.empty()) << bad;
  }
}

TEST(JsonTest, DeepNestingIsRefused) {
  const int depth = Json::kMaxDepth;
  EXPECT_TRUE(Json::Parse(std::string(depth, '[') + std::string(depth, ']')).ok());
  const auto deeper = Json::Parse(std::string(1000000, '['));
  ASSERT_FALSE(deeper.ok());
  EXPECT_NE(deeper.error().message.find("nested deeper"), std::string::npos);
}

TEST(JsonTest, TypedLookUpsNameTheField) {
  const Json json = *Json::Parse(R"({"n":3,"f":2.0,"x":2.5,"s":"t","none":null})");
  EXPECT_EQ(*json.GetInt("n"), 3);
  EXPECT_EQ(*json.GetInt("f"), 2);
  EXPECT_EQ(json.GetInt("x").error().message, "field 'x' must be an integer, not 2.5");
  EXPECT_EQ(json.GetString("gone").error().message, "field 'gone' is missing");
  EXPECT_EQ(*json.GetIntOr("none", 7), 7);
  EXPECT_FALSE(json.GetIntOr("s", 7).ok());
}

TEST(JsonTest, UnprintableValuesStayValid) {
  EXPECT_EQ(Json(std::string("a\xff")).Dump(), "\"a\xEF\xBF\xBD\"");
  EXPECT_EQ(Json(std::numeric_limits<double>::infinity()).Dump(), "null");
}

}  // namespace
}  // namespace kvasir
