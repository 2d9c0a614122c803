// Calls that a grammar lets a model write are read as calls that are valid against their schemas,
// in every family whose calls are held to anything but their beginning.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "kvasir/base/json.h"
#include "kvasir/chat/answer_parser.h"
#include "kvasir/grammar/grammar.h"
#include "kvasir/grammar/grammar_masks.h"
#include "kvasir/grammar/grammar_test_util.h"
#include "kvasir/grammar/test_schema_validator.h"
#include "kvasir/server/tool_request.h"

namespace kvasir {
namespace {

constexpr const char* kTools = R"json([
  {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
    "properties": {"city": {"type": "string", "maxLength": 6}, "days": {"type": "integer",
      "minimum": -3, "maximum": 12}, "unit": {"enum": ["C", "it's \"F\"", null, true]},
      "exact": {"type": "boolean"}, "first name": {"type": ["number", "null"]},
      "tags": {"type": "array", "items": {"type": "object", "properties": {"on": {"type":
        "boolean"}}, "required": ["on"]}, "maxItems": 2}},
    "required": ["city", "exact"]}}},
  {"type": "function", "function": {"name": "a.b-c", "parameters": {"$ref": "#/$defs/tree",
    "$defs": {"tree": {"type": "object", "properties": {"tree": {"$ref": "#/$defs/tree"},
      "x": {"anyOf": [{"type": "null"}, {"type": "boolean"}]}}, "required": ["x"]}}}}},
  {"type": "function", "function": {"name": "map", "parameters": {"type": "object",
    "additionalProperties": {"type": "boolean"}, "minProperties": 1}}},
  {"type": "function", "function": {"name": "price", "parameters": {"type": "object",
    "properties": {"Price (USD)": {"type": "integer"}, "on": {"type": "boolean"}}, "required":
      ["Price (USD)"]}}},
  {"type": "function", "function": {"name": "now"}}])json";

std::shared_ptr<const Grammar> CallsOf(const Json& tools, ToolSyntax syntax) {
  ToolRequest request =
      *ParseToolRequest(Json::Object{{"tools", tools}, {"tool_choice", "required"}});
  GrammarSyntax rules;
  const auto calls = CallsExpr(request, syntax, CallBegin::kWithOpening, &rules);
  KVASIR_CHECK(calls.ok());
  const GrammarSyntax::Rule root = rules.RuleNamed("calls");
  rules.Define(root, *calls);
  auto grammar = Grammar::FromSyntax(rules, root);
  KVASIR_CHECK(grammar.ok());
  return *std::move(grammar);
}

AnswerParts Read(const Json& tools, ToolSyntax syntax, const std::string& text) {
  AnswerParserOptions options{.tools = tools};
  options.dialect.tools = syntax;
  AnswerParser parser(std::move(options));
  AnswerParts parts = parser.Push(text);
  for (AnswerPart& part : parser.Finish()) parts.push_back(std::move(part));
  return parts;
}

const Json& ParametersOf(const Json& tools, const std::string& name) {
  static const Json kNone = *Json::Parse(R"({"type": "object"})");
  for (const Json& tool : tools.as_array()) {
    const Json& function = *tool.Find("function");
    const Json* parameters = function.Find("parameters");
    if (*function.Find("name") == Json(name)) return parameters != nullptr ? *parameters : kNone;
  }
  ADD_FAILURE() << name << " is no tool";
  return kNone;
}

class HeldCallsTest : public testing::TestWithParam<ToolSyntax> {};

TEST_P(HeldCallsTest, AreReadAsValidCalls) {
  const Json tools = *Json::Parse(kTools);
  const auto vocabulary = ByteVocabulary({"True",
                                          "true",
                                          "None",
                                          "null",
                                          "\", ",
                                          "\", \"",
                                          "', ",
                                          "days=",
                                          "exact=",
                                          "[{\"on\": ",
                                          "\"",
                                          "\"",
                                          ")",
                                          "),",
                                          "}",
                                          "}]",
                                          ")]",
                                          "]",
                                          "\\\"",
                                          "\\u00e9",
                                          "\\ud83d\\ude00",
                                          "\\/",
                                          "é",
                                          "'",
                                          "12",
                                          "now()",
                                          "now",
                                          "\"x\"",
                                          "=True",
                                          "=true",
                                          "tree=(",
                                          "</arg_value>",
                                          "</tool_call>",
                                          "</tool_call"});
  GrammarMasks masks(CallsOf(tools, GetParam()), vocabulary);
  int calls = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    GrammarMatcher matcher(&masks);
    const Walked walked = RandomWalk(&matcher, *vocabulary, seed, 600);
    if (!walked.ended) continue;
    const AnswerParts parts = Read(tools, GetParam(), walked.text);
    std::string name;
    std::string arguments;
    const auto check = [&] {
      if (name.empty()) return;
      const auto value = Json::Parse(arguments);
      ASSERT_TRUE(value.ok()) << walked.text << "\n" << arguments;
      const Json& schema = ParametersOf(tools, name);
      ASSERT_EQ(SchemaViolation(*value, schema, schema), "") << walked.text << "\n" << arguments;
      ++calls;
    };
    for (const AnswerPart& part : parts) {
      ASSERT_NE(part.kind, AnswerPart::Kind::kText) << walked.text << "\n" << part.text;
      if (part.kind == AnswerPart::Kind::kCall) {
        check();
        name = part.text;
        arguments.clear();
      } else {
        arguments += part.text;
      }
    }
    check();
  }
  EXPECT_GT(calls, 30);
}

INSTANTIATE_TEST_SUITE_P(All, HeldCallsTest,
                         testing::Values(ToolSyntax::kHermes, ToolSyntax::kLlama,
                                         ToolSyntax::kMistral, ToolSyntax::kMistralArgs,
                                         ToolSyntax::kGranite, ToolSyntax::kLfm2,
                                         ToolSyntax::kOlmo3, ToolSyntax::kPhi4Mini,
                                         ToolSyntax::kGlm),
                         [](const auto& info) {
                           std::string name(ToolSyntaxName(info.param));
                           std::erase(name, '-');
                           return name;
                         });

// In the usual spelling.
bool Allows(ToolSyntax syntax, const std::string& text) {
  GrammarAutomaton automaton(CallsOf(*Json::Parse(kTools), syntax));
  return Matches(&automaton, text);
}

TEST(HeldCalls, Lfm2) {
  const auto allows = [](const std::string& calls) {
    return Allows(ToolSyntax::kLfm2, "<|tool_call_start|>" + calls + "<|tool_call_end|>");
  };
  EXPECT_TRUE(allows("[get_weather(city=\"Paris\", exact=True)]"));
  EXPECT_TRUE(
      allows("[get_weather(city=\"Paris\", days=3, unit=None, exact=False, first name=2.5, "
             "tags=[{\"on\": True}]), now()]"));
  EXPECT_TRUE(allows("[a.b-c(tree={\"x\": None}, x=True)]"));
  EXPECT_TRUE(allows("[map(a=True, _b2=False)]"));
  const std::string price =
      R"json({"name": "price", "arguments": {"Price (USD)": 3, "on": true}})json";
  EXPECT_TRUE(allows("[" + price + "]"));
  EXPECT_TRUE(allows("[" + price + ", " + price + "]"));
  EXPECT_FALSE(allows("[" + price + ", now()]"));
  EXPECT_FALSE(allows("[price(on=True)]"));
  for (const char* calls :
       {"get_weather(city=\"Paris\", exact=True)", "[]", "[get_weather(city=\"Paris\")]",
        "[get_weather(exact=True, city=\"Paris\")]", "[get_weather(city=\"Paris\", exact=true)]",
        "[get_weather(city=\"Parisian\", exact=True)]", "[map()]", "[map(2=True)]", "[now(a=1)]",
        "[a.b-c(tree=(x=None), x=True)]", "[other()]"}) {
    EXPECT_FALSE(allows(calls)) << calls;
  }
}

TEST(HeldCalls, Olmo3) {
  const auto allows = [](const std::string& calls) {
    return Allows(ToolSyntax::kOlmo3, "<function_calls>" + calls + "</function_calls>");
  };
  EXPECT_TRUE(allows("\nget_weather(city=\"Paris\", unit=null, exact=true)\nnow()\n"));
  EXPECT_TRUE(allows("now()"));
  EXPECT_TRUE(allows("\n{\"name\": \"price\", \"arguments\": {\"Price (USD)\": 3}}\n"));
  EXPECT_FALSE(allows("now(), now()"));
  EXPECT_FALSE(allows("get_weather(city=\"Paris\", exact=True)"));
}

TEST(HeldCalls, Phi4Mini) {
  const std::string call = R"({"name": "map", "arguments": {"a": true}})";
  EXPECT_TRUE(Allows(ToolSyntax::kPhi4Mini, "functools[" + call + "]"));
  EXPECT_TRUE(Allows(ToolSyntax::kPhi4Mini, "functools[" + call + ", " + call + "]"));
  EXPECT_TRUE(Allows(ToolSyntax::kPhi4Mini, "<|tool_call|>[" + call + "]<|/tool_call|>"));
  EXPECT_FALSE(Allows(ToolSyntax::kPhi4Mini, "functools" + call));
}

std::string Argument(const std::string& key, const std::string& value) {
  return "<arg_key>" + key + "</arg_key>\n<arg_value>" + value + "</arg_value>\n";
}

TEST(HeldCalls, Glm) {
  const auto allows = [](const std::string& call) {
    return Allows(ToolSyntax::kGlm, "<tool_call>" + call + "</tool_call>");
  };
  const std::string city = Argument("city", "Paris");
  const std::string exact = Argument("exact", "true");
  EXPECT_TRUE(allows("get_weather\n" + city + exact));
  EXPECT_TRUE(allows("get_weather\n" + city + Argument("days", "3") +
                     Argument("unit", "it's \"F\"") + exact + Argument("first name", "2.5") +
                     Argument("tags", "[{\"on\": true}]")));
  // GLM-4.7's spelling.
  EXPECT_TRUE(allows(
      "get_weather<arg_key>city</arg_key><arg_value>\"1\"</arg_value><arg_key>exact</arg_key>"
      "<arg_value>false</arg_value>"));
  EXPECT_TRUE(allows("now"));
  EXPECT_TRUE(allows("now</tool_call>\n<tool_call>now\n"));
  EXPECT_TRUE(allows("a.b-c\n" + Argument("tree", "{\"x\": null}") + Argument("x", "true")));
  EXPECT_TRUE(allows("map\n" + Argument("a", "true") + Argument("_b2", "false")));
  for (const std::string& call :
       {"get_weather\n" + city, "get_weather\n" + exact + city,
        "get_weather\n" + Argument("city", "Parisian") + exact,
        "get_weather\n" + city + Argument("exact", "True"), std::string("map"),
        "map\n" + Argument("a", "1"), "now\n" + Argument("a", "1"), std::string("other"),
        "get_weather\n" + city + Argument("days", "\"3\"") + exact}) {
    EXPECT_FALSE(allows(call)) << call;
  }
}

// Values of one argument of a function f.
bool GlmAllows(const std::string& schema, const std::string& value, bool is_strict = false) {
  const Json tools =
      *Json::Parse("[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"strict\": " +
                   std::string(is_strict ? "true" : "false") +
                   ", \"parameters\": {\"type\": \"object\", \"properties\": {\"a\": " + schema +
                   "}, \"required\": [\"a\"], \"$defs\": {\"id\": {\"type\": \"string\"}}}}}]");
  GrammarAutomaton automaton(CallsOf(tools, ToolSyntax::kGlm));
  return Matches(&automaton, "<tool_call>f\n" + Argument("a", value) + "</tool_call>");
}

TEST(HeldCalls, GlmTexts) {
  const std::string text = R"({"type": "string"})";
  for (const char* value : {"", "a\n\"b\" \\n", "{\"x\": 1}", "</arg_valu>", "<</arg_key>", "<",
                            "12", "</tool_call>", "</arg_value"}) {
    EXPECT_TRUE(GlmAllows(text, value)) << value;
    EXPECT_TRUE(GlmAllows(R"({"$ref": "#/$defs/id"})", value)) << value;
    EXPECT_TRUE(GlmAllows(R"({"anyOf": [{"type": "string"}, {"type": "null"}]})", value)) << value;
    EXPECT_TRUE(GlmAllows("{}", value)) << value;
  }
  EXPECT_FALSE(GlmAllows(text, "a</arg_value>b"));
  EXPECT_FALSE(GlmAllows(text, "<</arg_value>b"));
  EXPECT_FALSE(GlmAllows(R"({"type": "string", "minLength": 1})", ""));
  EXPECT_TRUE(GlmAllows(R"({"type": "string", "minLength": 1})", "<b>"));
  EXPECT_FALSE(GlmAllows(R"({"type": "string", "format": "date"})", "2024-02-30"));
  EXPECT_TRUE(GlmAllows(R"({"type": "string", "format": "date"})", "2024-02-29"));
  const std::string pattern = R"({"type": ["string", "null"], "pattern": "^[^x]\"\\\\$"})";
  EXPECT_TRUE(GlmAllows(pattern, "a\"\\"));
  EXPECT_TRUE(GlmAllows(pattern, "null"));
  EXPECT_FALSE(GlmAllows(pattern, "x\"\\"));
  // A value that is read as another type is a valid one of that.
  const std::string limited =
      R"({"anyOf": [{"type": "string"}, {"type": "integer", "minimum": 3}]})";
  EXPECT_TRUE(GlmAllows(limited, "x"));  // not held to
  EXPECT_TRUE(GlmAllows(R"({"type": ["string", "integer"]})", "x", true));
}

TEST(HeldCalls, GlmValuesWithinJsonDoNotEndTheArgument) {
  const std::string list = R"({"type": "array", "items": {"type": "string"}})";
  EXPECT_TRUE(GlmAllows(list, R"(["<b>", "<<", "<\/b>", "\u003c/"])"));
  EXPECT_FALSE(GlmAllows(list, R"(["</b>"])"));
  EXPECT_FALSE(GlmAllows(list, "x"));
  const std::string counted = R"({"type": "array", "items": {"type": "string", "maxLength": 20}})";
  EXPECT_TRUE(GlmAllows(counted, R"(["\u003cb>"])"));
  EXPECT_FALSE(GlmAllows(counted, R"(["<b>"])"));
}

TEST(HeldCalls, GlmLimitsThatAreNotHeldTo) {
  const auto status = [](const std::string& schema) {
    const Json tools = *Json::Parse(
        R"([{"type": "function", "function": {"name": "f", "strict": true, "parameters": {
          "type": "object", "properties": {"a": )" +
        schema + "}}}}]");
    ToolRequest request = *ParseToolRequest(Json::Object{{"tools", tools}});
    GrammarSyntax rules;
    const auto calls = CallsExpr(request, ToolSyntax::kGlm, CallBegin::kWithOpening, &rules);
    return calls.ok() ? "" : calls.error().message;
  };
  EXPECT_EQ(status(R"({"type": "string"})"), "");
  for (const char* schema :
       {R"({"type": "string", "maxLength": 500})", R"({"type": "string", "not": {}})",
        R"({"type": ["string", "integer"], "minimum": 3})", R"({"type": "integer", "not": {}})"}) {
    EXPECT_NE(status(schema).find("tools[0].function.parameters"), std::string::npos) << schema;
    EXPECT_TRUE(GlmAllows(schema, "12")) << schema;
  }
}

// Tools that a call in Python cannot be held to are called in JSON, strict or not.
TEST(HeldCalls, WhatACallInPythonCannotSay) {
  for (const bool is_strict : {false, true}) {
    const auto allows = [&](const std::string& parameters, const std::string& calls) {
      Json tools = *Json::Parse(kTools);
      tools.as_array().push_back(*Json::Parse(
          "{\"type\": \"function\", \"function\": {\"name\": \"f\", \"strict\": " +
          std::string(is_strict ? "true" : "false") + ", \"parameters\": " + parameters + "}}"));
      GrammarAutomaton lfm2(CallsOf(tools, ToolSyntax::kLfm2));
      GrammarAutomaton olmo3(CallsOf(tools, ToolSyntax::kOlmo3));
      const bool is_allowed = Matches(&lfm2, "<|tool_call_start|>[" + calls + "]<|tool_call_end|>");
      EXPECT_EQ(Matches(&olmo3, "<function_calls>\n" + calls + "\n</function_calls>"), is_allowed)
          << calls;
      return is_allowed;
    };
    const std::string name = R"({"type": "object", "properties": {"a=b": {"type": "string"}}})";
    EXPECT_TRUE(allows(name, R"({"name": "f", "arguments": {"a=b": "x"}})"));
    EXPECT_FALSE(allows(name, R"({"name": "f", "arguments": {"a=b": 1}})"));
    EXPECT_FALSE(allows(name, "f()"));
    // The others are as they were.
    EXPECT_TRUE(allows(name, "now()"));
    EXPECT_FALSE(allows(name, R"({"name": "now", "arguments": {}})"));
    const std::string constant = R"({"const": {"a": 1}})";
    EXPECT_TRUE(allows(constant, R"({"name": "f", "arguments": {"a":1}})"));
    EXPECT_FALSE(allows(constant, "f(a=1)"));
  }
}

}  // namespace
}  // namespace kvasir
