// Values without quotation marks, by what schemas say of them.
#include "kvasir/chat/argument_value.h"

#include <gtest/gtest.h>

#include <string>

namespace kvasir {
namespace {

std::string Read(const std::string& schema, const std::string& text) {
  const Json parsed = *Json::Parse(schema);
  return ArgumentValue(text, TypesOfSchema(parsed, parsed)).Dump();
}

TEST(ArgumentValue, TextIsWhatTheSchemaSays) {
  const std::string text = R"({"type": "string"})";
  for (const char* value :
       {"1", "true", "null", "None", "[1]", "{\"a\": 1}", "\"a\"", "", " a\n"}) {
    EXPECT_EQ(Read(text, value), Json(value).Dump());
    EXPECT_EQ(Read(R"({"pattern": "."})", value), Json(value).Dump());
    EXPECT_EQ(Read(R"({"$ref": "#/$defs/a~1b", "$defs": {"a/b": {"minLength": 1}}})", value),
              Json(value).Dump());
    EXPECT_EQ(Read(R"({"allOf": [{"type": ["string", "null"]}, {"type": "string"}]})", value),
              Json(value).Dump());
  }
  EXPECT_EQ(Read(R"({"type": "integer"})", "12"), "12");
  EXPECT_EQ(Read(R"({"type": "integer"})", " 12\n"), "12");
  EXPECT_EQ(Read(R"({"type": "integer"})", "twelve"), "\"twelve\"");
  EXPECT_EQ(Read(R"({"type": "boolean"})", "True"), "true");
  EXPECT_EQ(Read("{}", "[1, \"a\"]"), "[1,\"a\"]");
  EXPECT_EQ(Read("{}", "True"), "\"True\"");
}

TEST(ArgumentValue, OfSeveralTypes) {
  const std::string id = R"({"anyOf": [{"type": "string"}, {"type": "integer"}]})";
  EXPECT_EQ(Read(id, "7"), "7");
  EXPECT_EQ(Read(id, "7.5"), "\"7.5\"");
  EXPECT_EQ(Read(R"({"type": ["number", "string"]})", "7.5"), "7.5");
  EXPECT_EQ(Read(R"({"enum": ["1", 2, null]})", "1"), "\"1\"");
  EXPECT_EQ(Read(R"({"enum": ["1", 2, null]})", "2"), "2");
  EXPECT_EQ(Read(R"({"enum": ["1", 2, null]})", "null"), "null");
  EXPECT_EQ(Read(R"({"enum": ["a"]})", "\"a\""), "\"a\"");
  EXPECT_EQ(Read(R"({"const": "true"})", "true"), "\"true\"");
}

TEST(ArgumentValue, ArgumentsOfFunctions) {
  const Json parameters =
      *Json::Parse(R"({"$ref": "#/$defs/all", "$defs": {"all": {"type": "object",
    "properties": {"n": {"type": "integer"}, "s": {"$ref": "#/$defs/text"}},
    "additionalProperties": {"$ref": "#/$defs/text"}}, "text": {"type": "string"}}})");
  const auto read = [&](const char* name, const char* text) {
    return ArgumentValue(text, TypesOfArgument(&parameters, name)).Dump();
  };
  EXPECT_EQ(read("n", "1"), "1");
  EXPECT_EQ(read("s", "1"), "\"1\"");
  EXPECT_EQ(read("other", "1"), "\"1\"");
  EXPECT_EQ(ArgumentValue("1", TypesOfArgument(nullptr, "a")).Dump(), "1");
}

// Malformed schemas, and such as lead back to themselves or have no end, allow all.
TEST(ArgumentValue, SchemasThatSayNothing) {
  for (const char* schema :
       {R"({"$ref": "#"})", R"({"$ref": "#/nothing"})", R"({"$ref": 3})", R"({"type": "text"})",
        R"({"anyOf": [{"$ref": "#"}, {"$ref": "#"}]})", R"({"allOf": 1})", "3", "true"}) {
    EXPECT_EQ(Read(schema, "1"), "1") << schema;
    EXPECT_EQ(Read(schema, "a"), "\"a\"") << schema;
  }
}

TEST(ArgumentValue, TypesWithoutLimits) {
  const auto unlimited = [](const char* schema) {
    const Json parsed = *Json::Parse(schema);
    return TypesOfSchema(parsed, parsed).unlimited;
  };
  EXPECT_EQ(unlimited(R"({"type": ["string", "null"], "minLength": 1})"), ArgumentTypes::kNull);
  EXPECT_EQ(unlimited(R"({"type": "string", "not": {}})"), 0u);
  EXPECT_EQ(unlimited(R"({"anyOf": [{"type": "integer", "minimum": 1}, {"type": "boolean"}]})"),
            ArgumentTypes::kBoolean);
  EXPECT_EQ(unlimited("true"), ArgumentTypes::kAll);
}

}  // namespace
}  // namespace kvasir
