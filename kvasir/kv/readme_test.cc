// The code in README.md is code of the example, which is compiled and run.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace kvasir {
namespace {

// The file without leading blanks, so that indentation does not matter.
std::string Unindented(const std::string& path) {
  std::ifstream file(std::string(KVASIR_SOURCE_DIR) + "/" + path);
  EXPECT_TRUE(file.good()) << path;
  std::ostringstream text;
  for (std::string line; std::getline(file, line);) {
    text << line.substr(std::min(line.find_first_not_of(' '), line.size())) << "\n";
  }
  return text.str();
}

TEST(KvReadmeTest, SnippetsAreLinesOfTheExample) {
  const std::string readme = Unindented("kvasir/kv/README.md");
  const std::string example = Unindented("examples/kv_only.cc");
  const std::string fence = "```cpp\n";
  int snippets = 0;
  for (size_t at = readme.find(fence); at != std::string::npos; at = readme.find(fence, at)) {
    at += fence.size();
    const std::string snippet = readme.substr(at, readme.find("```", at) - at);
    EXPECT_NE(example.find(snippet), std::string::npos) << snippet;
    ++snippets;
  }
  EXPECT_EQ(snippets, 2);
}

}  // namespace
}  // namespace kvasir
