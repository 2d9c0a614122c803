// Answers of gpt-oss, as its format is documented and as models stray from it.
#include "kvasir/chat/harmony_parser.h"

#include <gtest/gtest.h>

#include <string>

#include "kvasir/chat/answer_parser.h"
#include "kvasir/chat/test_answers.h"

namespace kvasir {
namespace {

std::string Parse(const HarmonyOptions& options, const std::string& text) {
  return ParseHowever<HarmonyParser>(options, text);
}

HarmonyOptions WithTools() { return {.tools = {"get_weather", "python"}}; }

TEST(HarmonyParser, ThoughtsAndText) {
  const std::string text =
      "<|channel|>analysis<|message|>Two and two.<|end|><|start|>assistant<|channel|>final"
      "<|message|>Four <|b|> <|e";
  EXPECT_EQ(Parse({}, text), "R:Two and two.T:Four <|b|> <|e");
  EXPECT_EQ(Parse(WithTools(), text + "nd|>"), "R:Two and two.T:Four <|b|> ");
  EXPECT_EQ(Parse({}, text + "nd|><|return|>"), "R:Two and two.T:Four <|b|> ");
  EXPECT_EQ(Parse({.reads_thoughts = false}, text),
            "T:<|channel|>analysis<|message|>Two and two.<|end|>\n\nFour <|b|> <|e");
  // Several of each.
  EXPECT_EQ(Parse({},
                  "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis"
                  "<|message|>b<|end|><|start|>assistant<|channel|>commentary<|message|>c<|end|>"
                  "<|start|>assistant<|channel|>final<|message|>d<|return|>"),
            "R:a\n\nbT:c\n\nd");
  // An empty one, and one that is cut off in its header.
  EXPECT_EQ(Parse({}, "<|channel|>analysis<|message|><|end|><|start|>assistant<|channel|>fin"), "");
}

TEST(HarmonyParser, Calls) {
  const std::string thought = "<|channel|>analysis<|message|>hm<|end|><|start|>assistant";
  const std::string arguments = "{\"city\": \"<|end|> }\"}";
  const std::string wanted = "R:hmC:get_weather=" + arguments;
  // As the model was trained to, as its template repeats it, and what comes between.
  for (const std::string header :
       {"<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>",
        " to=functions.get_weather<|channel|>commentary json<|message|>",
        "<|channel|>commentary to=functions.get_weather<|message|> ",
        "<|channel|>analysis to=functions.get_weather code<|message|>\n"}) {
    EXPECT_EQ(Parse(WithTools(), thought + header + arguments + "<|call|>"), wanted) << header;
    EXPECT_EQ(Parse(WithTools(), thought + header + arguments + " \n<|call|>"), wanted) << header;
  }
  // With words before, and a second one.
  const std::string call =
      "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>";
  EXPECT_EQ(Parse(WithTools(),
                  "<|channel|>commentary<|message|>Let me see.<|end|>"
                  "<|start|>assistant" +
                      call + "<|start|>assistant" + call),
            "T:Let me see.C:f={}C:f={}");
  // A program, nothing, and what is neither.
  EXPECT_EQ(Parse(WithTools(), "<|channel|>analysis to=python code<|message|>print(1)<|call|>"),
            "C:python={\"code\":\"print(1)\"}");
  EXPECT_EQ(Parse(WithTools(), "<|channel|>commentary to=functions.f<|message|> <|call|>"),
            "C:f={}");
  EXPECT_EQ(Parse(WithTools(), "<|channel|>commentary to=functions.f<|message|>x<|call|>"), "T:x");
  HarmonyOptions must = WithTools();
  must.must_call = true;
  EXPECT_EQ(Parse(must, "<|channel|>commentary to=functions.f<|message|>x<|call|>"), "");
  // Cut off.
  EXPECT_EQ(Parse(WithTools(), "<|channel|>commentary to=functions.f<|message|>{\"a\": [1, "),
            "C:f={\"a\": [1, ");
  EXPECT_EQ(Parse(WithTools(), "<|channel|>commentary to=functions.f"), "");
  // Nobody offered any.
  EXPECT_EQ(Parse({}, "<|channel|>commentary to=browser.search<|message|>{}<|call|>"), "R:{}");
}

TEST(HarmonyParser, WhatIsNotWrittenSoIsText) {
  EXPECT_EQ(Parse({}, "Hello <|end|>"), "T:Hello ");
  EXPECT_EQ(Parse({.starts_in_header = false}, " and so on<|end|>"), "T: and so on");
  EXPECT_EQ(Parse({}, "<|channel|>" + std::string(1000, 'x')).size(), 1013u);
  EXPECT_EQ(Parse({}, "<|message|>Hi"), "T:Hi");
  EXPECT_EQ(Parse({}, "<|channel|>final<|message|>a<|end|>tut<|message|>b"),
            "T:a\n\ntut<|message|>b");
  EXPECT_EQ(Parse({}, ""), "");
}

// As models write now and then (one turn in twenty-five at a temperature of 1).
TEST(HarmonyParser, HeadersThatAreNone) {
  const std::string turn = "<|start|>assistant";
  const std::string final = turn + "<|channel|>final<|message|>Hi";
  // Without its mark: what is behind the channel's name.
  EXPECT_EQ(Parse({}, "<|channel|>We need<|end|>" + turn + "<|channel|>analysis<|message|>secret"),
            "R:We need\n\nsecret");
  EXPECT_EQ(Parse({}, "<|channel|>analysis<|end|>" + final), "T:Hi");
  EXPECT_EQ(Parse({}, "<|channel|>analysis Well<|end|>" + final), "R:WellT:Hi");
  EXPECT_EQ(Parse({}, "<|channel|>final The answer is 4."), "T:The answer is 4.");
  EXPECT_EQ(Parse({}, "<|channel|>final The answer is 4.<|return|>"), "T:The answer is 4.");
  EXPECT_EQ(Parse({}, "assistants are helpful"), "T:assistants are helpful");
  EXPECT_EQ(Parse({}, "<|channel|>final<|message|>a<|end|>" + turn), "T:a");
  // The last channel counts, and what stands behind its name does not.
  EXPECT_EQ(Parse({}, "<|channel|>commentary to=assistant<|channel|>commentary?<|end|>" + final),
            "R:?T:Hi");
  for (const char* name : {"analysis?", " analysis", "analysiscode", "final<|channel|>analysis",
                           "analysis to=assistant"}) {
    EXPECT_EQ(Parse({}, std::string("<|channel|>") + name + "<|message|>a<|end|>" + final),
              "R:aT:Hi")
        << name;
  }
  EXPECT_EQ(Parse({}, "<|channel|>final <|constrain|>json<|message|>{}"), "T:{}");
  // What it made up for others to say.
  EXPECT_EQ(
      Parse({}, "<|channel|>final<|message|>a<|end|><|start|>user<|message|>b<|end|>" + final),
      "T:a\n\nHi");
  EXPECT_EQ(Parse(WithTools(),
                  "<|start|>functions.f to=assistant<|channel|>commentary<|message|>1"
                  "<|end|>" +
                      final),
            "T:Hi");
  for (const size_t size : {480u, 490u, 500u, 501u, 502u, 503u, 512u, 520u}) {
    (void)Parse({}, "<|channel|>" + std::string(size, 'x') + "<|message|>a");
  }
  EXPECT_EQ(Parse(WithTools(), "<|channel|>analysis to=python code<|message|>{1, 2}.pop()<|call|>"),
            "C:python={\"code\":\"{1, 2}.pop()\"}");
  EXPECT_EQ(Parse(WithTools(), "<|channel|>commentary to=functions.python<|message|>{\"a\": 1}"),
            "C:python={\"a\": 1}");
}

TEST(HarmonyParser, GoesOutAtOnce) {
  HarmonyParser parser(WithTools());
  EXPECT_TRUE(parser.Push("<|channel|>analysis<|mess").empty());
  EXPECT_FALSE(parser.is_in_thought());
  EXPECT_EQ(Describe(parser.Push("age|>I ")), "R:I ");
  EXPECT_TRUE(parser.is_in_thought());
  EXPECT_EQ(Describe(parser.Push("see <")), "R:see ");
  EXPECT_EQ(Describe(parser.Push("|end|><|start|>assistant<|channel|>final<|message|>Yes")),
            "T:Yes");
  EXPECT_TRUE(parser.is_in_text());
}

// The parser of every family knows this one.
TEST(HarmonyParser, IsReadWhereTheTemplateSpeaksSo) {
  const ChatDialect dialect = DialectOf("{{ '<|start|>assistant<|channel|>analysis<|message|>' }}");
  EXPECT_TRUE(dialect.is_harmony());
  EXPECT_FALSE(DialectOf("<|channel>thought\n<channel|>").is_harmony());
  AnswerParserOptions options;
  options.dialect = dialect;
  options.reads_thoughts = true;
  AnswerParser parser(options);
  EXPECT_EQ(Describe(parser.Push("<|channel|>analysis<|message|>a")), "R:a");
  EXPECT_TRUE(parser.is_in_thought());
  EXPECT_TRUE(parser.Finish().empty());
}

}  // namespace
}  // namespace kvasir
