#include "kvasir/server/chat_job.h"

#include <gtest/gtest.h>

#include "kvasir/base/json.h"
#include "kvasir/server/tool_request.h"

namespace kvasir {
namespace {

std::string AsText(const char* messages) {
  std::string all;
  const Json text = ToolsAsText(*Json::Parse(messages), {});
  for (const Json& message : text.as_array()) {
    all += *message.GetString("role") + ":" + *message.GetString("content") + "|";
  }
  return all;
}

// Many templates refuse two turns of one role.
TEST(ToolsAsTextTest, ResultsAndWhatIsSaidToThemAreOneTurn) {
  EXPECT_EQ(
      AsText(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                       {"role": "tool", "content": "1"}, {"role": "function", "content": "2"},
                       {"role": "user", "content": "c"}, {"role": "user", "content": "d"}])"),
      "user:a|assistant:b|"
      "user:<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>\nc\nd|");
  // Two turns that somebody sends as two are his.
  EXPECT_EQ(AsText(R"([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])"),
            "user:a|user:b|");
}

// Templates that write calls without knowing tools would write them once more.
TEST(ToolsAsTextTest, CallsAreTextAndNothingElse) {
  const Json text =
      ToolsAsText(*Json::Parse(R"([{"role": "assistant", "content": null, "tool_calls": [{"id": "1",
        "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]}])"),
                  {});
  EXPECT_EQ(text.Dump(), R"([{"role":"assistant","content":"<tool_call>\n{\"name\":\"f\",)"
                         R"(\"arguments\":{\"a\":1}}\n</tool_call>"}])");
}

// Each could be held to alone. Nobody who sends them again will have more luck.
TEST(ToolRequestTest, ToolsThatAreTooMuchTogetherAreTheRequestsFault) {
  Json::Array tools;
  for (int tool = 0; tool < 512; ++tool) {
    Json::Object properties;
    for (int property = 0; property < 40; ++property) {
      Json::Array values;
      for (int value = 0; value < 8; ++value) {
        values.push_back("value_" + std::to_string(tool * 1000 + property * 10 + value));
      }
      properties.push_back({"p" + std::to_string(property), Json::Object{{"enum", values}}});
    }
    const Json parameters = Json::Object{{"type", "object"}, {"properties", properties}};
    tools.push_back(Json::Object{{"type", "function"},
                                 {"function", Json::Object{{"name", "f" + std::to_string(tool)},
                                                           {"parameters", parameters}}}});
  }
  const auto request = ParseToolRequest(Json::Object{{"tools", tools}});
  ASSERT_TRUE(request.ok()) << request.error().message;
  GrammarSyntax rules;
  const auto calls = CallsExpr(*request, ToolSyntax::kHermes, CallBegin::kWithOpening, &rules);
  ASSERT_FALSE(calls.ok());
  EXPECT_EQ(calls.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(calls.error().message.find("tools["), std::string::npos) << calls.error().message;
}

}  // namespace
}  // namespace kvasir
