// README.md keeps its word: its code is code of the examples, which are compiled and run, and its
// table of bytes is what the codecs take.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "kvasir/tensor/kv_layout.h"

namespace kvasir {
namespace {

// The lines of a file without leading blanks, so that indentation does not matter.
std::vector<std::string> Lines(const std::string& path) {
  std::ifstream file(std::string(KVASIR_SOURCE_DIR) + "/" + path);
  EXPECT_TRUE(file.good()) << path;
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line.substr(std::min(line.find_first_not_of(' '), line.size())));
  }
  return lines;
}

std::string Text(const std::string& path) {
  std::string text;
  for (const std::string& line : Lines(path)) text += line + "\n";
  return text;
}

// Expects every ```<language> block of README.md in the example; returns how many there are.
int CheckSnippets(const std::string& language, const std::string& example_path) {
  const std::string readme = Text("kvasir/kv/README.md");
  const std::string example = Text(example_path);
  const std::string fence = "```" + language + "\n";
  int snippets = 0;
  for (size_t at = readme.find(fence); at != std::string::npos; at = readme.find(fence, at)) {
    at += fence.size();
    const std::string snippet = readme.substr(at, readme.find("```", at) - at);
    EXPECT_NE(example.find(snippet), std::string::npos) << snippet;
    ++snippets;
  }
  return snippets;
}

TEST(KvReadmeTest, SnippetsAreLinesOfTheExamples) {
  EXPECT_EQ(CheckSnippets("cpp", "examples/kv_only.cc"), 1);
  EXPECT_EQ(CheckSnippets("c", "examples/kv_only.c"), 1);
}

TEST(KvReadmeTest, BytesPerTokenAreWhatTheCodecsTake) {
  int rows = 0;
  for (const std::string& line : Lines("kvasir/kv/README.md")) {
    if (!line.starts_with("| `")) continue;
    const size_t end = line.find('`', 3);
    const auto codec = KvCodec::FromName(line.substr(3, end - 3));
    if (!codec.ok()) continue;
    const KvLayout layout = {.kv_heads = 8,
                             .key_dim = 128,
                             .value_dim = 128,
                             .key_codec = *codec,
                             .value_codec = *codec};
    std::istringstream cells(line.substr(line.find('|', end) + 1));
    size_t bytes = 0;
    cells >> bytes;
    EXPECT_EQ(bytes, layout.TokenBytes()) << line;
    ++rows;
  }
  EXPECT_EQ(rows, 14);
}

}  // namespace
}  // namespace kvasir
