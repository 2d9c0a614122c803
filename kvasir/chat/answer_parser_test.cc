// Answers of several families, as published templates have them written and as models write them.
#include "kvasir/chat/answer_parser.h"

#include <gtest/gtest.h>

#include <string>

#include "kvasir/chat/test_answers.h"

namespace kvasir {
namespace {

const char* const kTools = R"([
  {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
   "properties": {"city": {"type": "string"}, "days": {"type": "integer"}}}}},
  {"type": "function", "function": {"name": "python", "parameters": {"type": "object"}}}])";

AnswerParserOptions Options(ToolSyntax syntax, bool has_tools = true) {
  AnswerParserOptions options;
  options.dialect.tools = syntax;
  options.dialect.think_open = "<think>";
  options.dialect.think_close = "</think>";
  options.reads_thoughts = true;
  if (has_tools) options.tools = *Json::Parse(kTools);
  return options;
}

std::string Parse(const AnswerParserOptions& options, const std::string& text) {
  return ParseHowever<AnswerParser>(options, text);
}

TEST(AnswerParser, PlainTextGoesOutAtOnce) {
  AnswerParser parser({});
  const AnswerParts parts = parser.Push(" <think>a</think> <tool_call> \n");
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].text, " <think>a</think> <tool_call> \n");
  EXPECT_TRUE(parser.Finish().empty());
}

TEST(AnswerParser, Thoughts) {
  const AnswerParserOptions options = Options(ToolSyntax::kHermes, false);
  EXPECT_EQ(Parse(options, "<think>\nOne.\n\nTwo.\n</think>\n\nHello <b>you</b>\n"),
            "R:One.\n\nTwo.T:Hello <b>you</b>\n");
  EXPECT_EQ(Parse(options, "\n<think></think>Hi"), "T:Hi");
  EXPECT_EQ(Parse(options, "  Hi <think> no"), "T:  Hi <think> no");
  EXPECT_EQ(Parse(options, "<think>cut </thi"), "R:cut </thi");
  EXPECT_EQ(Parse(options, "<thin"), "T:<thin");
  AnswerParserOptions opened = options;
  opened.starts_in_thought = true;
  EXPECT_EQ(Parse(opened, "\nso </b>\n</think>\n\nHi"), "R:so </b>T:Hi");
  opened.reads_thoughts = false;
  EXPECT_EQ(Parse(opened, "so</think>Hi"), "T:so</think>Hi");
}

TEST(AnswerParser, TextGoesOutBeforeTheMarkerIsKnown) {
  AnswerParser parser(Options(ToolSyntax::kHermes));
  EXPECT_EQ(Describe(parser.Push("Hello <")), "T:Hello");
  EXPECT_EQ(Describe(parser.Push("b> <tool")), "T: <b>");
  EXPECT_EQ(Describe(parser.Push("box>")), "T: <toolbox>");
}

TEST(AnswerParser, Hermes) {
  const AnswerParserOptions options = Options(ToolSyntax::kHermes);
  EXPECT_EQ(Parse(options,
                  "<think>\nhm\n</think>\n\nLet me look.\n<tool_call>\n{\"name\": \"get_weather\", "
                  "\"arguments\": {\"city\": \"K\\u00f6ln }\\\"\", \"days\": 2}}\n</tool_call>"),
            "R:hmT:Let me look.C:get_weather={\"city\": \"K\\u00f6ln }\\\"\", \"days\": 2}");
  EXPECT_EQ(Parse(options,
                  "<tool_call>\n{\"name\": \"a\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n"
                  "{\"arguments\": {\"x\": [1, {}]}, \"name\": \"b\"}\n</tool_call>\n"),
            "C:a={}C:b={\"x\": [1, {}]}");
  EXPECT_EQ(Parse(options, "<tool_call>{\"name\": \"a\", \"arguments\": \"{\\\"k\\\": 1}\"}"),
            "C:a={\"k\": 1}");
  EXPECT_EQ(Parse(options, "<tool_call>{\"name\": \"a\"}</tool_call>done"), "C:a={}T:done");
  EXPECT_EQ(Parse(options, "<tool_call>{\"name\": \"a\", \"arguments\": null}</tool_call>"),
            "C:a={}");
}

TEST(AnswerParser, ArgumentsGoOutAsTheyCome) {
  AnswerParser parser(Options(ToolSyntax::kHermes));
  EXPECT_EQ(Describe(parser.Push("<tool_call>\n{\"name\": \"f\"")), "C:f");
  EXPECT_EQ(Describe(parser.Push(", \"arguments\": {\"te")), "={\"te");
  EXPECT_EQ(Describe(parser.Push("xt\": \"a")), "=xt\": \"a");
  EXPECT_EQ(Describe(parser.Push("\"}}\n</tool_call>")), "=\"}");
  EXPECT_TRUE(parser.Finish().empty());
}

TEST(AnswerParser, WhatIsNoCallStaysText) {
  const AnswerParserOptions options = Options(ToolSyntax::kHermes);
  EXPECT_EQ(Parse(options, "<tool_call>none</tool_call>"), "T:<tool_call>none</tool_call>");
  EXPECT_EQ(Parse(options, "<tool_call>{\"result\": 3}"), "T:<tool_call>{\"result\": 3}");
  EXPECT_EQ(Parse(Options(ToolSyntax::kHermes, false), "<tool_call>{\"name\": \"a\"}"),
            "T:<tool_call>{\"name\": \"a\"}");
}

// Nothing of it is lost, blanks included.
TEST(AnswerParser, BlanksAroundWhatIsNoCall) {
  const AnswerParserOptions options = Options(ToolSyntax::kHermes);
  EXPECT_EQ(Parse(options, "As in:\n\n<tool_call>\n none </tool_call> so"),
            "T:As in:\n\n<tool_call>\n none </tool_call> so");
  EXPECT_EQ(Parse(options, "a\n<tool_call> {\"name\": \"f\"} </tool_call>\n<tool_call>\n what"),
            "T:aC:f={}T:\n<tool_call>\n what");
  EXPECT_EQ(Parse(options, "a <tool_call>{\"name\": \"f\"}</tool_call>\n\n b\n"),
            "T:aC:f={}T:\n\n b\n");
  EXPECT_EQ(Parse(Options(ToolSyntax::kLlama), " {\"answer\": 1}"), "T: {\"answer\": 1}");
  EXPECT_EQ(Parse(Options(ToolSyntax::kMistral), "Well, [TOOL_CALLS] [none]"),
            "T:Well, [TOOL_CALLS] [none]");
  EXPECT_EQ(Parse(Options(ToolSyntax::kMistral), "[TOOL_CALLS] [{\"name\": \"f\"}, {\"a\": 1}]"),
            "C:f={}T:, {\"a\": 1}]");
  EXPECT_EQ(Parse(Options(ToolSyntax::kGemma), "x <|tool_call> y <tool_call|> z"),
            "T:x <|tool_call> y <tool_call|> z");
}

TEST(AnswerParser, CallsThatWereCutOff) {
  const AnswerParserOptions options = Options(ToolSyntax::kHermes);
  EXPECT_EQ(Parse(options, "Hi <tool_call>{\"na"), "T:Hi");
  EXPECT_EQ(Parse(options, "<tool_call>{\"name\": \"a\", \"arguments\": {\"x\": \"lo"),
            "C:a={\"x\": \"lo");
  // Of the tag behind a call nothing is shown.
  EXPECT_EQ(Parse(options, "<tool_call>{\"name\": \"a\", \"arguments\": {}}\n</tool"), "C:a={}");
}

// Where calls are asked for, what is cut off was to be one.
TEST(AnswerParser, CutMarkersOfCallsThatAreAskedFor) {
  AnswerParserOptions options = Options(ToolSyntax::kHermes);
  const auto parse = [&](ToolSyntax syntax, std::string_view text, bool must_call) {
    options = Options(syntax);
    options.must_call = must_call;
    return Parse(options, std::string(text));
  };
  EXPECT_EQ(parse(ToolSyntax::kHermes, "<tool", false), "T:<tool");
  EXPECT_EQ(parse(ToolSyntax::kHermes, "<tool", true), "");
  EXPECT_EQ(parse(ToolSyntax::kHermes, "so \n<tool_call", true), "T:so");
  EXPECT_EQ(parse(ToolSyntax::kHermes, "a < b", true), "T:a < b");
  EXPECT_EQ(parse(ToolSyntax::kHermes, "<tool_call>{\"name\": \"f\"}</tool_call>\n<tool_", true),
            "C:f={}");
  EXPECT_EQ(parse(ToolSyntax::kMistralArgs, "[TOOL_CALLS]get_w", true), "");
  EXPECT_EQ(parse(ToolSyntax::kGemma, "<|tool_call>call:f{k:", true), "");
  EXPECT_EQ(parse(ToolSyntax::kGemma, "<|tool_call>call:f{k:", false), "T:<|tool_call>call:f{k:");
}

// What a model forgets to close is a call if it reads as one, and else the text it is.
TEST(AnswerParser, CallsThatNobodyClosed) {
  const AnswerParserOptions xml = Options(ToolSyntax::kQwenXml);
  const std::string call =
      "<tool_call>\n<function=get_weather>\n<parameter=city>\nOslo\n</parameter>\n</function>\n";
  EXPECT_EQ(Parse(xml, call), "C:get_weather={\"city\":\"Oslo\"}");
  EXPECT_EQ(Parse(xml, "Hi <tool_call> tags"), "T:Hi <tool_call> tags");
  const AnswerParserOptions gemma = Options(ToolSyntax::kGemma);
  EXPECT_EQ(Parse(gemma, "<|tool_call>call:f{k:1}"), "C:f={\"k\":1}");
  const AnswerParserOptions mistral = Options(ToolSyntax::kMistralArgs);
  EXPECT_EQ(Parse(mistral, "[TOOL_CALLS]f{\"k\": 1}"), "T:[TOOL_CALLS]f{\"k\": 1}");
}

TEST(AnswerParser, Llama) {
  const AnswerParserOptions options = Options(ToolSyntax::kLlama);
  EXPECT_EQ(Parse(options, "{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Oslo\"}}"),
            "C:get_weather={\"city\": \"Oslo\"}");
  EXPECT_EQ(Parse(options,
                  "{\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": {}}; "
                  "{\"name\": \"get_weather\", \"parameters\": {\"days\": 1}}"),
            "C:get_weather={}C:get_weather={\"days\": 1}");
  EXPECT_EQ(Parse(options, "<|python_tag|>get_weather.call(city=\"Oslo, N\", days=3)"),
            "C:get_weather={\"city\":\"Oslo, N\",\"days\":3}");
  EXPECT_EQ(Parse(options, "<|python_tag|>print(1)\n"), "C:python={\"code\":\"print(1)\\n\"}");
  EXPECT_EQ(Parse(options, "{\"name\": \"John\", \"age\": 3}"),
            "T:{\"name\": \"John\", \"age\": 3}");
  EXPECT_EQ(Parse(options, "{\"answer\": [1, 2]}"), "T:{\"answer\": [1, 2]}");
  EXPECT_EQ(Parse(options, "It is {\"name\": \"get_weather\"}"),
            "T:It is {\"name\": \"get_weather\"}");
}

TEST(AnswerParser, Granite) {
  const AnswerParserOptions options = Options(ToolSyntax::kGranite);
  EXPECT_EQ(Parse(options,
                  "<|tool_call|>[{\"name\": \"f\", \"arguments\": {\"a\": [1]}}, "
                  "{\"arguments\": {}, \"name\": \"g\"}]"),
            "C:f={\"a\": [1]}C:g={}");
  EXPECT_EQ(Parse(options, "Well. <|tool_call|> none"), "T:Well. <|tool_call|> none");
}

TEST(AnswerParser, Mistral) {
  EXPECT_EQ(Parse(Options(ToolSyntax::kMistral),
                  "[TOOL_CALLS] [{\"name\": \"f\", \"arguments\": {\"a\": [1]}, \"id\": "
                  "\"abcdefghi\"}, {\"name\": \"g\", \"arguments\": {}}]"),
            "C:f={\"a\": [1]}C:g={}");
  EXPECT_EQ(Parse(Options(ToolSyntax::kMistralArgs),
                  "Well.[TOOL_CALLS]f[CALL_ID]abcdefghi[ARGS]{\"a\": 1}[TOOL_CALLS]g[ARGS]{}"),
            "T:Well.C:f={\"a\": 1}C:g={}");
}

// Whoever reads the parts puts arguments to the call before them.
TEST(AnswerParser, ArgumentsWithoutANameAreText) {
  const AnswerParserOptions options = Options(ToolSyntax::kMistralArgs);
  EXPECT_EQ(Parse(options, "[TOOL_CALLS][ARGS]{\"a\": 1}"), "T:[TOOL_CALLS][ARGS]{\"a\": 1}");
  EXPECT_EQ(Parse(options, "[TOOL_CALLS]f[ARGS]{}[TOOL_CALLS] [CALL_ID]x[ARGS]{}"),
            "C:f={}T:[TOOL_CALLS] [CALL_ID]x[ARGS]{}");
}

TEST(AnswerParser, TheFirstArgumentsCount) {
  const AnswerParserOptions options = Options(ToolSyntax::kHermes);
  EXPECT_EQ(
      Parse(options, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}, \"arguments\": {}}"),
      "C:f={\"a\": 1}");
  EXPECT_EQ(
      Parse(options, "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"f\", \"parameters\": {}}"),
      "C:f={\"a\": 1}");
}

TEST(AnswerParser, KeysThatAreTooLong) {
  const AnswerParserOptions options = Options(ToolSyntax::kHermes);
  const std::string key = "\"" + std::string(70, 'k') + "<tool_call>\": 1}";
  EXPECT_EQ(Parse(options, "<tool_call>{" + key), "T:<tool_call>{" + key);
  EXPECT_EQ(Parse(options, "<tool_call>{\"name\": \"f\", \"arguments\": {}, " + key),
            "C:f={}T:kkkkkk<tool_call>\": 1}");
}

TEST(AnswerParser, QwenXml) {
  EXPECT_EQ(Parse(Options(ToolSyntax::kQwenXml),
                  "<tool_call>\n<function=get_weather>\n<parameter=city>\n12\n</parameter>\n"
                  "<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n"
                  "<function=f>\n<parameter=x>\na\n b\n</parameter>\n</function>\n</tool_call>"),
            "C:get_weather={\"city\":\"12\",\"days\":2}C:f={\"x\":\"a\\n b\"}");
  EXPECT_EQ(Parse(Options(ToolSyntax::kQwenXml), "<tool_call>what</tool_call>!"),
            "T:<tool_call>what</tool_call>!");
}

// Values have no quotation marks: the schema says which are text.
TEST(AnswerParser, QwenXmlValues) {
  AnswerParserOptions options = Options(ToolSyntax::kQwenXml);
  options.tools = *Json::Parse(R"([{"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "properties": {"zip": {"type": ["string", "null"]},
      "id": {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "size": {"enum": ["1", "2"]},
      "on": {"type": "boolean"}, "n": {"oneOf": [{"type": "number"}, {"type": "string"}]}}}}}])");
  const auto argument = [&](const std::string& key, const std::string& value) {
    return Parse(options, "<tool_call><function=f><parameter=" + key + ">" + value +
                              "</parameter></function></tool_call>");
  };
  EXPECT_EQ(argument("zip", "10115"), "C:f={\"zip\":\"10115\"}");
  EXPECT_EQ(argument("zip", "null"), "C:f={\"zip\":null}");
  EXPECT_EQ(argument("zip", "None"), "C:f={\"zip\":null}");
  EXPECT_EQ(argument("zip", "true"), "C:f={\"zip\":\"true\"}");
  EXPECT_EQ(argument("id", "7"), "C:f={\"id\":7}");
  EXPECT_EQ(argument("id", "7.5"), "C:f={\"id\":\"7.5\"}");
  EXPECT_EQ(argument("size", "2"), "C:f={\"size\":\"2\"}");
  EXPECT_EQ(argument("on", "True"), "C:f={\"on\":true}");
  EXPECT_EQ(argument("n", "3"), "C:f={\"n\":3}");
  EXPECT_EQ(argument("other", "[1]"), "C:f={\"other\":[1]}");
  EXPECT_EQ(argument("other", "True"), "C:f={\"other\":\"True\"}");
}

TEST(AnswerParser, Gemma) {
  EXPECT_EQ(
      Parse(Options(ToolSyntax::kGemma),
            "<|tool_call>call:get_weather{city:<|\"|>Oslo, {N}<|\"|>,days:3,x:[true,{y:null}]}"
            "<tool_call|><|tool_call>call:f{}<tool_call|>"),
      "C:get_weather={\"city\":\"Oslo, {N}\",\"days\":3,\"x\":[true,{\"y\":null}]}C:f={}");
}

TEST(ChatDialect, IsReadOffTemplates) {
  EXPECT_EQ(DialectOf("{{ messages }}").tools, ToolSyntax::kHermes);
  EXPECT_FALSE(DialectOf("{{ messages }}").has_tools);
  const ChatDialect qwen = DialectOf("{% if tools %}<tool_call>{% endif %}</think>");
  EXPECT_EQ(qwen.tools, ToolSyntax::kHermes);
  EXPECT_TRUE(qwen.has_tools);
  EXPECT_EQ(qwen.think_open, "<think>");
  EXPECT_EQ(DialectOf("tools <tool_call> <function=").tools, ToolSyntax::kQwenXml);
  EXPECT_EQ(DialectOf("tools Environment: ipython").tools, ToolSyntax::kLlama);
  EXPECT_EQ(DialectOf("tools [TOOL_CALLS]").tools, ToolSyntax::kMistral);
  EXPECT_EQ(DialectOf("tools <|tool_call|>").tools, ToolSyntax::kGranite);
  EXPECT_EQ(DialectOf("tools [TOOL_CALLS] [ARGS]").tools, ToolSyntax::kMistralArgs);
  const ChatDialect gemma = DialectOf("tools <|tool_call>call: <|channel>thought\n<channel|>");
  EXPECT_EQ(gemma.tools, ToolSyntax::kGemma);
  EXPECT_EQ(gemma.think_close, "<channel|>");
  for (const char* name :
       {"hermes", "qwen-xml", "llama", "mistral", "mistral-args", "granite", "gemma"}) {
    ASSERT_TRUE(ToolSyntaxNamed(name).has_value()) << name;
    EXPECT_EQ(ToolSyntaxName(*ToolSyntaxNamed(name)), name);
  }
}

}  // namespace
}  // namespace kvasir
