#include "kvasir/chat/unfinished_answer.h"

#include <gtest/gtest.h>

#include <string>

#include "kvasir/chat/chat_template.h"

namespace kvasir {
namespace {

Json Conversation(std::string_view text) { return *Json::Parse(text); }

// What is said so far, trusted text in brackets; or the error.
std::string SoFar(std::string_view source, const Json& messages) {
  const auto marked = MarkEnd(messages);
  if (!marked.ok()) return "error: " + marked.error().message;
  const auto parsed = ChatTemplate::Parse(source, "t.jinja");
  const auto rendered = (*parsed)->Render(Json::Object{{"messages", *marked}});
  if (!rendered.ok()) return "error: " + rendered.error().message;
  const auto prompt = UpToMark(*rendered);
  if (!prompt.ok()) return "error: " + prompt.error().message;
  std::string text;
  for (const TextSegment& segment : *prompt) {
    text += segment.trusted ? "[" + segment.text + "]" : segment.text;
  }
  return text;
}

TEST(UnfinishedAnswer, IsAnAssistantsLastTextWithoutCalls) {
  const auto ends = [](std::string_view text) { return EndsUnfinished(Conversation(text)); };
  EXPECT_TRUE(ends(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}])"));
  EXPECT_TRUE(ends(R"([{"role": "assistant", "content": "b", "tool_calls": []}])"));
  EXPECT_FALSE(
      ends(R"([{"role": "assistant", "content": "b"}, {"role": "user", "content": "a"}])"));
  EXPECT_FALSE(ends(R"([{"role": "assistant", "content": ""}])"));
  EXPECT_FALSE(ends(R"([{"role": "assistant", "content": null}])"));
  EXPECT_FALSE(ends(R"([{"role": "assistant", "content": "b", "tool_calls": [{}]}])"));
  EXPECT_FALSE(ends(R"([{"content": "b"}])"));
  EXPECT_FALSE(ends("[]"));
  EXPECT_FALSE(ends("{}"));
}

constexpr std::string_view kTurns =
    "{% for m in messages %}<{{ m.role }}>{{ m.content | trim }}</>{% endfor %}";

TEST(UnfinishedAnswer, PromptsEndWithItsText) {
  const Json messages = Conversation(
      R"([{"role": "user", "content": " a "}, {"role": "assistant", "content": " </> b \n"}])");
  EXPECT_EQ(SoFar(kTurns, messages), "[<user>]a[</><assistant>]</> b \n");
  // What a template does with thoughts, it does.
  EXPECT_EQ(SoFar("{% for m in messages %}{{ m.content.split('</>')[-1] }}|{% endfor %}", messages),
            " a [|] b \n");
  // Somebody who writes the mark cuts their own text off, and no more.
  Json twice = messages;
  for (Json& message : twice.as_array()) {
    message.Set("content", "x\uE000end of the unfinished answer\uE001y");
  }
  EXPECT_EQ(SoFar("{% for m in messages %}<{{ m.content }}>{% endfor %}", twice),
            "[<]x\uE000end of the unfinished answer\uE001y[><]"
            "x\uE000end of the unfinished answer\uE001y");
}

TEST(UnfinishedAnswer, WhatCannotGoOnIsAnError) {
  const Json two = Conversation(
      R"([{"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}])");
  EXPECT_NE(SoFar(kTurns, two).find("error: the last two messages"), std::string::npos);
  const Json one = Conversation(R"([{"role": "assistant", "content": "b"}])");
  EXPECT_NE(SoFar("{{ messages | length }}", one).find("leaves out"), std::string::npos);
}

}  // namespace
}  // namespace kvasir
