#include "kvasir/server/chat_job.h"

#include <gtest/gtest.h>

#include "kvasir/base/json.h"

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

}  // namespace
}  // namespace kvasir
