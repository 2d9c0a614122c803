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

TEST(AnswerParser, OpeningsThatNothingFollows) {
  for (const bool must_call : {false, true}) {
    const auto parse = [&](ToolSyntax syntax, const std::string& text) {
      AnswerParserOptions options = Options(syntax);
      options.must_call = must_call;
      EXPECT_EQ(Parse(options, "use " + text), must_call ? "T:use" : "T:use " + text);
    };
    parse(ToolSyntax::kPhi4Mini, "functools[");
    parse(ToolSyntax::kLfm2, "<|tool_call_start|>");
    parse(ToolSyntax::kLfm2, "<|tool_call_start|>[ ");
    parse(ToolSyntax::kOlmo3, "<function_calls>\n");
    parse(ToolSyntax::kHermes, "<tool_call>\n");
    parse(ToolSyntax::kMistral, "[TOOL_CALLS] [");
  }
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

TEST(AnswerParser, Glm) {
  const AnswerParserOptions options = Options(ToolSyntax::kGlm);
  EXPECT_EQ(
      Parse(options,
            "\n<think>hm</think>\nLet me look.\n<tool_call>get_weather\n<arg_key>city"
            "</arg_key>\n<arg_value>12</arg_value>\n<arg_key>days</arg_key>\n"
            "<arg_value>2</arg_value>\n</tool_call>\n<tool_call>f\n<arg_key>x</arg_key>\n"
            "<arg_value>\na\n b</arg_value>\n</tool_call>"),
      "R:hmT:Let me look.C:get_weather={\"city\":\"12\",\"days\":2}C:f={\"x\":\"\\na\\n b\"}");
  // As GLM-4.7 writes them; without arguments a function is one that there is.
  EXPECT_EQ(Parse(options,
                  "<tool_call>get_weather<arg_key>city</arg_key><arg_value>{\"a\": 1}</arg_value>"
                  "<arg_key>x</arg_key><arg_value>[1, {}]</arg_value></tool_call><tool_call>python"
                  "</tool_call> So."),
            "C:get_weather={\"city\":\"{\\\"a\\\": 1}\",\"x\":[1,{}]}C:python={}T: So.");
  // What is no JSON is text.
  EXPECT_EQ(Parse(options,
                  "<tool_call>get_weather<arg_key>days</arg_key><arg_value>two</arg_value>"
                  "</tool_call>"),
            "C:get_weather={\"days\":\"two\"}");
}

TEST(AnswerParser, GlmWithoutACall) {
  const AnswerParserOptions options = Options(ToolSyntax::kGlm);
  for (const std::string text :
       {"<tool_call>none</tool_call>!", "<tool_call></tool_call>", "Hi <tool_call> tags",
        "<tool_call>{\"name\": \"f\"}</tool_call>", "<tool_call>python",
        "<tool_call>f<arg_key>x</arg_key></tool_call>",
        "<tool_call>f<arg_key>x</arg_key>1<arg_value>1</arg_value></tool_call>",
        "<tool_call>f<arg_key>x</arg_key><arg_value>1</arg_value> so</tool_call>",
        "<tool_call>f g<arg_key>x</arg_key><arg_value>1</arg_value></tool_call>",
        "<tool_call>f<arg_key>x</arg_key><arg_value>1</tool_call> So."}) {
    EXPECT_EQ(Parse(options, text), "T:" + text);
  }
}

TEST(AnswerParser, GlmCallsThatWereCutOffOrNotClosed) {
  AnswerParserOptions options = Options(ToolSyntax::kGlm);
  const std::string open = "<tool_call>f<arg_key>x</arg_key><arg_value>1";
  EXPECT_EQ(Parse(options, open + "</arg_value>\n"), "C:f={\"x\":1}");
  EXPECT_EQ(Parse(options, open + "</arg_val"), "T:" + open + "</arg_val");
  options.must_call = true;
  EXPECT_EQ(Parse(options, open), "");
  EXPECT_EQ(Parse(options, "<tool_call>pyth"), "");
}

// The mark behind a call may stand in a value.
TEST(AnswerParser, GlmMarksInValues) {
  const AnswerParserOptions options = Options(ToolSyntax::kGlm);
  const std::string open = "<tool_call>f<arg_key>x</arg_key><arg_value>";
  const std::string close = "</arg_value></tool_call>";
  EXPECT_EQ(Parse(options, open + "a</tool_call></tool_call><tool_call>b" + close + " So"),
            "C:f={\"x\":\"a</tool_call></tool_call><tool_call>b\"}T: So");
  // Of an open value nobody knows before the end.
  EXPECT_EQ(Parse(options, open + "a</tool_call> So <tool_call>python</tool_call>"),
            "T:" + open + "a</tool_call> SoC:python={}");
}

// An answer of a megabyte, which takes minutes where each opening reads all that follows.
TEST(AnswerParser, GlmManyOpenValues) {
  for (const std::string one :
       {"<tool_call>f<arg_key>x</arg_key><arg_value></tool_call>",
        "<tool_call>f<arg_key>x</arg_key><arg_value></tool_call></arg_value>"}) {
    std::string text;
    while (text.size() < size_t{1} << 20) text += one;
    AnswerParser parser(Options(ToolSyntax::kGlm));
    size_t size = 0;
    for (size_t at = 0; at < text.size(); at += 64) parser.Push(text.substr(at, 64));
    for (const AnswerPart& part : parser.Finish()) size += part.text.size();
    EXPECT_GT(size, 0u);
  }
}

TEST(AnswerParser, Gemma) {
  EXPECT_EQ(
      Parse(Options(ToolSyntax::kGemma),
            "<|tool_call>call:get_weather{city:<|\"|>Oslo, {N}<|\"|>,days:3,x:[true,{y:null}]}"
            "<tool_call|><|tool_call>call:f{}<tool_call|>"),
      "C:get_weather={\"city\":\"Oslo, {N}\",\"days\":3,\"x\":[true,{\"y\":null}]}C:f={}");
}

TEST(AnswerParser, Lfm2) {
  const AnswerParserOptions options = Options(ToolSyntax::kLfm2);
  EXPECT_EQ(Parse(options,
                  "<|tool_call_start|>[get_weather(city=\"Paris\", days=3), other()]"
                  "<|tool_call_end|>[1] I look.\n"),
            "C:get_weather={\"city\":\"Paris\",\"days\":3}C:other={}T:[1] I look.\n");
  EXPECT_EQ(
      Parse(options,
            "<think>hm</think>Let me see. <|tool_call_start|>[f(on=True, to=None, x='it\\'s', "
            "y=[1, {'k': 'v'}])]<|tool_call_end|>"),
      "R:hmT:Let me see.C:f={\"on\":true,\"to\":null,\"x\":\"it's\",\"y\":[1,{\"k\":\"v\"}]}");
  EXPECT_EQ(Parse(options,
                  "<|tool_call_start|>[f()]<|tool_call_end|> and <|tool_call_start|>[g(a=1)]"
                  "<|tool_call_end|>"),
            "C:f={}T: andC:g={\"a\":1}");
  // The form that its prompts may ask for.
  EXPECT_EQ(Parse(options,
                  "<|tool_call_start|>[{\"name\": \"f\", \"arguments\": {\"a\": [1]}}, {\"name\": "
                  "\"g\", \"arguments\": {}}]<|tool_call_end|>[2] So."),
            "C:f={\"a\": [1]}C:g={}T:[2] So.");
}

TEST(AnswerParser, Lfm2WithoutACall) {
  const AnswerParserOptions options = Options(ToolSyntax::kLfm2);
  for (const std::string text :
       {"<|tool_call_start|>[f(1)]<|tool_call_end|>",
        "<|tool_call_start|>[f(a=1), g(]<|tool_call_end|> x", "Well. <|tool_call_start|> none",
        "<|tool_call_start|>[]<|tool_call_end|>", "[f(a=1)]", "<|tool_call_start|>[f(a=\"x",
        "<|tool_call"}) {
    EXPECT_EQ(Parse(options, text), "T:" + text);
  }
}

// Calls that are whole are made, however the text ends.
TEST(AnswerParser, CutCallsInPython) {
  AnswerParserOptions options = Options(ToolSyntax::kLfm2);
  const std::string cut = "<|tool_call_start|>[f(a=1), g(b=\"x";
  EXPECT_EQ(Parse(options, cut), "C:f={\"a\":1}T:g(b=\"x");
  EXPECT_EQ(Parse(options, "<|tool_call_start|>[f(a=1)"), "C:f={\"a\":1}");
  EXPECT_EQ(Parse(options, "<|tool_call_start|>[f(a=1)]<|tool_"), "C:f={\"a\":1}T:<|tool_");
  options.must_call = true;
  EXPECT_EQ(Parse(options, cut), "C:f={\"a\":1}");
  EXPECT_EQ(Parse(options, "<|tool_call_start|>[g(b=\"x"), "");
  EXPECT_EQ(Parse(options, "<|tool_call_st"), "");
  EXPECT_EQ(Parse(Options(ToolSyntax::kOlmo3), "<function_calls>\nf(a=1)\ng()\n"),
            "C:f={\"a\":1}C:g={}");
}

TEST(AnswerParser, Olmo3) {
  const AnswerParserOptions options = Options(ToolSyntax::kOlmo3);
  EXPECT_EQ(Parse(options,
                  "Sure.\n<function_calls>\nget_weather(city=\"Paris\")\nother(a=1, on=true, "
                  "x=null)\n</function_calls>"),
            "T:Sure.C:get_weather={\"city\":\"Paris\"}C:other={\"a\":1,\"on\":true,\"x\":null}");
  EXPECT_EQ(Parse(options, "<function_calls>f()</function_calls>\n\nDone."), "C:f={}T:\n\nDone.");
  EXPECT_EQ(Parse(options, "<function_calls>\nf(x)\n</function_calls>"),
            "T:<function_calls>\nf(x)\n</function_calls>");
}

TEST(AnswerParser, MarksInStringsOfPython) {
  const AnswerParserOptions options = Options(ToolSyntax::kOlmo3);
  EXPECT_EQ(Parse(options,
                  "<function_calls>f(a=\"</function_calls>\", b='</function_calls>')"
                  "</function_calls>x</function_calls>"),
            "C:f={\"a\":\"</function_calls>\",\"b\":\"</function_calls>\"}T:x</function_calls>");
  // Of an open string nobody knows before the end.
  EXPECT_EQ(Parse(options, "<function_calls>f(a=\"x</function_calls> So"),
            "T:<function_calls>f(a=\"x</function_calls> So");
  // However many there are, and whatever stands between them.
  for (const std::string between : {"", " it's "}) {
    std::string all;
    for (int i = 0; i < 40; ++i) all += between + "</function_calls>";
    EXPECT_EQ(Parse(options, "<function_calls>f(a=\"" + all + "\")</function_calls> So"),
              "C:f={\"a\":\"" + all + "\"}T: So");
  }
  // Nobody closed it.
  EXPECT_EQ(Parse(options, "<function_calls>f(a=\"</function_calls>\")"),
            "C:f={\"a\":\"</function_calls>\"}");
}

// What is no call takes nothing of what follows with it.
TEST(AnswerParser, CallsBehindWhatIsNoCall) {
  AnswerParserOptions options = Options(ToolSyntax::kLfm2);
  const std::string open = "<|tool_call_start|>";
  const std::string close = "<|tool_call_end|>";
  const std::string no_call = open + "I don't know" + close + " Hello.";
  EXPECT_EQ(Parse(options, no_call + " " + open + "[f(a=1)]" + close + " end"),
            "T:" + no_call + "C:f={\"a\":1}T: end");
  AnswerParser parser(options);
  EXPECT_EQ(Describe(parser.Push(no_call)), "T:" + no_call);
  // Of a string that is open nobody knows before the end, or before it ends without a call.
  const std::string open_string = open + "[f(a=\"it" + close + " Hello.";
  EXPECT_EQ(Parse(options, open_string + " " + open + "[f(a=1)]" + close + " end"),
            "T:" + open_string + "C:f={\"a\":1}T: end");
  EXPECT_EQ(Parse(options, open_string + " \"So" + open + "[f(a=1)]" + close + " end"),
            "T:" + open_string + " \"SoC:f={\"a\":1}T: end");
  // Calls before it were complete.
  EXPECT_EQ(Parse(options, open + "[g(), f(a=\"it" + close + " is"),
            "C:g={}T:f(a=\"it" + close + " is");
  options.must_call = true;
  EXPECT_EQ(Parse(options, open + "[g(), f(a=\"it" + close + " is"), "C:g={}");
}

// Answers of a megabyte, which take minutes where each opening reads all that follows.
TEST(AnswerParser, ManyOpenStrings) {
  for (const std::string one :
       {"<|tool_call_start|>[f(a='<|tool_call_end|>",
        "<|tool_call_start|>[f(a=\"<|tool_call_end|>'", "'<|tool_call_end|>"}) {
    std::string text = "<|tool_call_start|>[f(a=\"";
    while (text.size() < size_t{1} << 20) text += one;
    text += "\"<|tool_call_end|><|tool_call_start|>[g(a='it's')]<|tool_call_end|>";
    std::string first;
    for (const size_t piece : {size_t{64}, size_t{5000}}) {
      AnswerParser parser(Options(ToolSyntax::kLfm2));
      AnswerParts parts;
      const auto add = [&](AnswerParts more) {
        for (AnswerPart& part : more) parts.push_back(std::move(part));
      };
      for (size_t at = 0; at < text.size(); at += piece) add(parser.Push(text.substr(at, piece)));
      add(parser.Finish());
      const std::string shown = Describe(parts);
      EXPECT_TRUE(shown.ends_with("C:g={\"a\":\"it's\"}")) << shown.substr(shown.size() - 200);
      if (first.empty()) first = shown;
      EXPECT_TRUE(shown == first) << one;
    }
  }
}

TEST(AnswerParser, Phi4Mini) {
  AnswerParserOptions options = Options(ToolSyntax::kPhi4Mini);
  EXPECT_EQ(Parse(options,
                  "functools[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}, "
                  "{\"name\": \"f\", \"arguments\": {\"a\": [1]}}]"),
            "C:get_weather={\"city\": \"Paris\"}C:f={\"a\": [1]}");
  // Its own tokens.
  EXPECT_EQ(
      Parse(options, "Hi. <|tool_call|>[{\"name\": \"f\", \"arguments\": {}}]<|/tool_call|> So."),
      "T:Hi.C:f={}T: So.");
  EXPECT_EQ(Parse(options, "The functools module, functools[0], functools[{}] of"),
            "T:The functools module, functools[0], functools[{}] of");
  EXPECT_EQ(Parse(options, "functools[{\"name\": \"f\", \"arguments\": {\"a\": \"x"),
            "C:f={\"a\": \"x");
  EXPECT_EQ(Parse(options, "an if"), "T:an if");
  options.must_call = true;
  EXPECT_EQ(Parse(options, "functo"), "");
}

// Of answers of more than a megabyte, which take minutes where each piece looks at all of it.
TEST(AnswerParser, WhatIsHeldIsLookedAtOnce) {
  constexpr int kPieces = 300'000;
  for (const std::string before : {"", "a", "<think>a", "<|tool_call_start|>[[f()]"}) {
    AnswerParser parser(Options(ToolSyntax::kLfm2));
    EXPECT_EQ(Describe(parser.Push(before)).ends_with("a"), before.ends_with("a")) << before;
    for (int i = 0; i < kPieces; ++i) ASSERT_TRUE(parser.Push("    ").empty()) << before;
    const std::string more = Describe(parser.Push("b"));
    EXPECT_EQ(more.size(), before.starts_with("<|") ? 0 : 2 + 4 * kPieces + 1) << before;
  }
  AnswerParser parser(Options(ToolSyntax::kLfm2));
  EXPECT_TRUE(parser.Push("<|tool_call_start|>").empty());
  for (int i = 0; i < kPieces; ++i) ASSERT_TRUE(parser.Push(" [ \n").empty());
  EXPECT_EQ(Describe(parser.Push("f()]<|tool_call_end|>a")).substr(0, 2), "T:");
  AnswerParser name(Options(ToolSyntax::kMistralArgs));
  EXPECT_TRUE(name.Push("[TOOL_CALLS]").empty());
  for (int i = 0; i < kPieces; ++i) ASSERT_TRUE(name.Push("f[AR").empty());
  EXPECT_EQ(Describe(name.Push("GS]{}")).substr(0, 4), "C:f[");
}

TEST(ChatDialect, IsReadOffTemplates) {
  EXPECT_EQ(DialectOf("{{ messages }}").tools, ToolSyntax::kHermes);
  EXPECT_FALSE(DialectOf("{{ messages }}").has_tools);
  const ChatDialect qwen = DialectOf("{% if tools %}<tool_call>{% endif %}</think>");
  EXPECT_EQ(qwen.tools, ToolSyntax::kHermes);
  EXPECT_TRUE(qwen.has_tools);
  EXPECT_EQ(qwen.think_open, "<think>");
  EXPECT_EQ(DialectOf("tools <tool_call> <function=").tools, ToolSyntax::kQwenXml);
  EXPECT_EQ(DialectOf("tools <tool_call>{name} <arg_key>").tools, ToolSyntax::kGlm);
  EXPECT_EQ(DialectOf("tools Environment: ipython").tools, ToolSyntax::kLlama);
  EXPECT_EQ(DialectOf("tools [TOOL_CALLS]").tools, ToolSyntax::kMistral);
  EXPECT_EQ(DialectOf("tools <|tool_call|>").tools, ToolSyntax::kGranite);
  EXPECT_EQ(DialectOf("tools List of tools: <|tool_list_start|>[").tools, ToolSyntax::kLfm2);
  EXPECT_EQ(DialectOf("tools List of tools: [").tools, ToolSyntax::kLfm2);
  EXPECT_EQ(DialectOf("tools <|tool_call_start|>[").tools, ToolSyntax::kLfm2);
  EXPECT_EQ(DialectOf("tools <functions> <function_calls>").tools, ToolSyntax::kOlmo3);
  EXPECT_EQ(DialectOf("message['function_calls'] <function_calls>").tools, ToolSyntax::kHermes);
  const ChatDialect phi = DialectOf("'<|tool|>' + message['tools'] + '<|/tool|>'");
  EXPECT_EQ(phi.tools, ToolSyntax::kPhi4Mini);
  EXPECT_TRUE(phi.takes_tools_from_system);
  EXPECT_FALSE(phi.has_calls);
  // What somebody says of calls counts for all that follows from it.
  const std::string of_phi = "'<|tool|>' + message['tools'] + '<|/tool|>' <|tool_call_start|>";
  EXPECT_FALSE(DialectOf(of_phi).takes_tools_from_system);
  EXPECT_TRUE(DialectOf(of_phi, ToolSyntax::kPhi4Mini).takes_tools_from_system);
  EXPECT_EQ(DialectOf(of_phi, ToolSyntax::kPhi4Mini).tools, ToolSyntax::kPhi4Mini);
  EXPECT_FALSE(
      DialectOf("message['tools'] <|/tool|>", ToolSyntax::kHermes).takes_tools_from_system);
  const ChatDialect functools = DialectOf("tools formatted as functools[ message.tool_calls");
  EXPECT_EQ(functools.tools, ToolSyntax::kPhi4Mini);
  EXPECT_FALSE(functools.takes_tools_from_system);
  EXPECT_TRUE(functools.has_calls);
  EXPECT_EQ(DialectOf("tools [TOOL_CALLS] [ARGS]").tools, ToolSyntax::kMistralArgs);
  const ChatDialect gemma = DialectOf("tools <|tool_call>call: <|channel>thought\n<channel|>");
  EXPECT_EQ(gemma.tools, ToolSyntax::kGemma);
  EXPECT_EQ(gemma.think_close, "<channel|>");
  for (const char* name : {"hermes", "qwen-xml", "llama", "mistral", "mistral-args", "granite",
                           "gemma", "lfm2", "olmo3", "phi4-mini", "glm", "harmony"}) {
    ASSERT_TRUE(ToolSyntaxNamed(name).has_value()) << name;
    EXPECT_EQ(ToolSyntaxName(*ToolSyntaxNamed(name)), name);
  }
}

}  // namespace
}  // namespace kvasir
