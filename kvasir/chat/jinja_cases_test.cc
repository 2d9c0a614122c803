// Some thousand small templates against what Python's jinja2 3.1.6 made of them
// (testdata/make_jinja_cases.py).
// Deliberately not judging messages: where Python fails, failing is enough.
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/file.h"
#include "kvasir/chat/chat_template.h"

namespace kvasir {
namespace {

constexpr int64_t kCaseSeconds = 1736944496;  // 2025-01-15 12:34:56, as in the script

std::vector<Json> ReadCases() {
  const auto file =
      ReadFile(std::string(KVASIR_SOURCE_DIR) + "/kvasir/chat/testdata/jinja_cases.jsonl");
  EXPECT_TRUE(file.ok());
  std::vector<Json> lines;
  for (size_t begin = 0; file.ok() && begin < file->size();) {
    const size_t end = std::min(file->find('\n', begin), file->size());
    auto line = Json::Parse(std::string_view(*file).substr(begin, end - begin));
    EXPECT_TRUE(line.ok());
    lines.push_back(std::move(line).value());
    begin = end + 1;
  }
  return lines;
}

Result<std::string> RenderCase(const std::string& source, const Json& variables) {
  KVASIR_TRY(const auto parsed, ChatTemplate::Parse(source, "case"));
  RenderOptions options;
  options.local_seconds = kCaseSeconds;
  KVASIR_TRY(const TextSegments segments, parsed->Render(variables, options));
  return Concatenate(segments);
}

TEST(JinjaCasesTest, AgreeWithPython) {
  const std::vector<Json> cases = ReadCases();
  ASSERT_GT(cases.size(), 1000u);
  const Json& variables = *cases[0].Find("variables");
  for (size_t i = 1; i < cases.size(); ++i) {
    const std::string& source = cases[i].Find("template")->as_string();
    SCOPED_TRACE(source);
    const auto result = RenderCase(source, variables);
    if (const Json* output = cases[i].Find("output")) {
      EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
      EXPECT_EQ(result.ok() ? *result : "", output->as_string());
    } else {
      EXPECT_FALSE(result.ok()) << (result.ok() ? *result : "");
    }
  }
}

}  // namespace
}  // namespace kvasir
