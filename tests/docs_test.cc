// The documents keep their word: their C++ and CMake is code of the repository, their links lead
// somewhere, and the commands they show exit as they say. Deliberately not a test of what commands
// print: answers change with the bundled model.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace kvasir {
namespace {

namespace fs = std::filesystem;

const fs::path kRoot = KVASIR_SOURCE_DIR;

std::vector<std::string> Lines(const fs::path& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

// Without leading blanks, so that indentation does not matter.
std::string Unindented(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    text += line.substr(std::min(line.find_first_not_of(' '), line.size())) + "\n";
  }
  return text;
}

// Files under `folders` whose names end in one of `extensions`.
std::vector<fs::path> Files(const std::vector<std::string>& folders,
                            const std::set<std::string>& extensions) {
  std::vector<fs::path> files;
  for (const std::string& folder : folders) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      if (extensions.count(entry.path().extension().string()) != 0) files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<fs::path> Documents() {
  std::vector<fs::path> documents =
      Files({"docs", "kvasir", "models", "testdata", "tools", "tests"}, {".md"});
  for (const char* name : {"README.md", "CONTRIBUTING.md", "CHANGELOG.md"}) {
    documents.push_back(kRoot / name);
  }
  return documents;
}

// The fenced blocks of a document that begin with ```<language>.
std::vector<std::vector<std::string>> Blocks(const fs::path& document,
                                             const std::string& language) {
  std::vector<std::vector<std::string>> blocks;
  bool is_inside = false;
  bool is_wanted = false;
  for (const std::string& line : Lines(document)) {
    if (line.starts_with("```")) {
      is_wanted = !is_inside && line == "```" + language;
      is_inside = !is_inside;
      if (is_wanted) blocks.emplace_back();
    } else if (is_inside && is_wanted) {
      blocks.back().push_back(line);
    }
  }
  return blocks;
}

// The lines of a block between empty ones, each group as one text.
std::vector<std::string> Runs(std::vector<std::string> block) {
  block.push_back("");
  std::vector<std::string> runs;
  std::vector<std::string> run;
  for (const std::string& line : block) {
    if (!line.empty()) {
      run.push_back(line);
    } else if (!run.empty()) {
      runs.push_back(Unindented(run));
      run.clear();
    }
  }
  return runs;
}

// Each run of lines of a ```cpp or ```cmake block stands in one source file.
TEST(DocsTest, CodeIsCodeOfTheRepository) {
  std::vector<std::string> sources;
  for (const fs::path& path : Files({"kvasir", "examples", "tests"}, {".h", ".cc", ".txt"})) {
    sources.push_back(Unindented(Lines(path)));
  }
  const auto is_in_a_source = [&](const std::string& run) {
    return std::any_of(sources.begin(), sources.end(), [&](const std::string& source) {
      return source.find(run) != std::string::npos;
    });
  };
  std::vector<fs::path> documents = Files({"docs/how-to"}, {".md"});
  documents.push_back(kRoot / "README.md");
  documents.push_back(kRoot / "docs/architecture.md");
  int runs = 0;
  for (const fs::path& document : documents) {
    for (const char* language : {"cpp", "cmake"}) {
      for (const auto& block : Blocks(document, language)) {
        for (const std::string& run : Runs(block)) {
          EXPECT_TRUE(is_in_a_source(run)) << document << ":\n" << run;
          ++runs;
        }
      }
    }
  }
  EXPECT_GT(runs, 0);
}

// The anchor that GitHub gives a heading: lower case, without punctuation, "-" for a blank.
std::string AnchorOf(const std::string& heading) {
  std::string anchor;
  for (const unsigned char c : heading) {
    if (c == ' ') {
      anchor += '-';
    } else if (std::isalnum(c) != 0 || c == '-' || c == '_' || c >= 0x80) {
      anchor += static_cast<char>(std::tolower(c));
    }
  }
  return anchor;
}

// Lines that are no code between fences.
std::vector<std::string> Prose(const fs::path& document) {
  std::vector<std::string> prose;
  bool is_code = false;
  for (const std::string& line : Lines(document)) {
    if (line.starts_with("```")) is_code = !is_code;
    if (!is_code) prose.push_back(line);
  }
  return prose;
}

bool HasAnchor(const fs::path& document, const std::string& anchor) {
  for (const std::string& line : Prose(document)) {
    const size_t level = line.find_first_not_of('#');
    if (level == 0 || level == std::string::npos || line[level] != ' ') continue;
    if (AnchorOf(line.substr(level + 1)) == anchor) return true;
  }
  return false;
}

TEST(DocsTest, LinksLeadSomewhere) {
  for (const fs::path& document : Documents()) {
    for (const std::string& line : Prose(document)) {
      for (size_t at = line.find("]("); at != std::string::npos; at = line.find("](", at + 2)) {
        const std::string link = line.substr(at + 2, line.find(')', at) - at - 2);
        if (link.find("://") != std::string::npos) continue;
        const size_t hash = link.find('#');
        const std::string file = link.substr(0, hash);
        const fs::path target = file.empty() ? document : document.parent_path() / file;
        EXPECT_TRUE(fs::exists(target)) << document << ": " << link;
        if (hash == std::string::npos || !fs::exists(target)) continue;
        EXPECT_TRUE(HasAnchor(target, link.substr(hash + 1))) << document << ": " << link;
      }
    }
  }
}

// A folder laid out as an installation: the program under bin, the repository's data beside it.
class Installation {
 public:
  Installation() {
    std::string name = (fs::temp_directory_path() / "kvasir_docs_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) return;
    folder_ = name;
    fs::create_directory(folder_ / "bin");
    fs::copy_file(KVASIR_PROGRAM, folder_ / "bin" / "kvasir");
    for (const char* data : {"models", "testdata"}) {
      fs::create_directory_symlink(kRoot / data, folder_ / data);
    }
  }
  ~Installation() {
    std::error_code error;
    fs::remove_all(folder_, error);
  }
  bool is_made() const { return !folder_.empty(); }

  // The exit code of a shell line run in the folder.
  int Run(const std::string& command) const {
    const std::string line = "cd '" + folder_.string() + "' && PATH=\"$PWD/bin:$PATH\" && (" +
                             command + "\n) >output 2>&1 </dev/null";
    const int status = std::system(line.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string Output() const { return Unindented(Lines(folder_ / "output")); }

 private:
  fs::path folder_;
};

// Lines "$ kvasir ..." of ```console blocks; "# exit N" at the end says which exit code is right.
TEST(DocsTest, CommandsExitAsTheySay) {
  const Installation installation;
  ASSERT_TRUE(installation.is_made());
  int commands = 0;
  for (const char* name : {"README.md", "docs/cli.md"}) {
    for (const auto& block : Blocks(kRoot / name, "console")) {
      for (const std::string& line : block) {
        if (!line.starts_with("$ ")) continue;
        const std::string mark = "# exit ";
        const size_t at = line.find(mark);
        const int wanted = at == std::string::npos ? 0 : std::atoi(line.c_str() + at + mark.size());
        EXPECT_EQ(installation.Run(line.substr(2)), wanted) << name << ": " << line << "\n"
                                                            << installation.Output();
        ++commands;
      }
    }
  }
  EXPECT_GT(commands, 0);
}

}  // namespace
}  // namespace kvasir
