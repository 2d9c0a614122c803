// kvasir chat: its commands, files and messages from a pipe, and lines typed at a terminal.
// Deliberately not the answers' words but where they show what was asked.
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvasir/base/check.h"
#include "kvasir/base/file.h"
#include "kvasir/formats/test_files.h"
#include "tests/support/program.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;

const std::string kDemo = std::string(KVASIR_SOURCE_DIR) + "/models/kvasir-demo";

bool Contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

ProgramResult Chat(const std::string& input, const std::string& model = kDemo,
                   const char* most_tokens = "16") {
  Program program({"chat", "-m", model, "-n", most_tokens, "--temp", "0"});
  program.Write(input + "/quit\n");
  return program.Finish();
}

// The program at a terminal of its own.
class Terminal {
 public:
  explicit Terminal(const std::vector<std::string>& args, const char* kind = "xterm") {
    std::vector<char*> argv = {const_cast<char*>(KVASIR_PROGRAM)};
    for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
    argv.push_back(nullptr);
    winsize size = {.ws_row = 24, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
    pid_ = forkpty(&fd_, nullptr, nullptr, &size);
    KVASIR_CHECK(pid_ >= 0);
    if (pid_ == 0) {
      setenv("TERM", kind, 1);
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  ~Terminal() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(fd_);
  }
  void Signal(int number) const { kill(pid_, number); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void Write(std::string_view text) {
    while (!text.empty()) {
      const ssize_t count = write(fd_, text.data(), std::min<size_t>(text.size(), 512));
      KVASIR_CHECK(count > 0);
      text.remove_prefix(static_cast<size_t>(count));
      Drain(0);
    }
  }
  // Until it shows `text` after what was waited for before; false if it ends before that.
  bool WaitFor(std::string_view text) {
    for (;;) {
      const size_t at = shown_.find(text, seen_);
      if (at != std::string::npos) {
        seen_ = at + text.size();
        return true;
      }
      if (!Drain(60'000)) return false;
    }
  }
  const std::string& shown() const { return shown_; }
  // Its exit code; -1: a signal ended it. Does not return before it has ended.
  int WaitForEnd() {
    while (Drain(1000)) {
    }
    int status = 0;
    KVASIR_CHECK(waitpid(pid_, &status, 0) == pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  // False at its end, or where nothing comes for so long.
  bool Drain(int wait_ms) {
    pollfd ready = {.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&ready, 1, wait_ms) <= 0) return false;
    char buffer[4096];
    const ssize_t count = read(fd_, buffer, sizeof(buffer));
    if (count > 0) shown_.append(buffer, static_cast<size_t>(count));
    return count > 0;
  }

  int fd_ = -1;
  pid_t pid_ = -1;
  std::string shown_;
  size_t seen_ = 0;
};

constexpr const char* kReady = "\x1b[?2004h> ";  // the editor waits for a line

TEST(ChatTerminalTest, LinesAreEdited) {
  Terminal terminal({"chat", "-m", kDemo, "-n", "16", "--temp", "0"});
  ASSERT_TRUE(terminal.WaitFor(kReady)) << terminal.shown();
  terminal.Write("/statx\x7fs\r");
  ASSERT_TRUE(terminal.WaitFor("branch 0 of 1")) << terminal.shown();
  ASSERT_TRUE(terminal.WaitFor(kReady));
  terminal.Write("\x1b[A\r");  // the line before, again
  ASSERT_TRUE(terminal.WaitFor("branch 0 of 1")) << terminal.shown();
  ASSERT_TRUE(terminal.WaitFor(kReady));
  terminal.Write("/quit\x03");  // dropped
  ASSERT_TRUE(terminal.WaitFor(kReady)) << terminal.shown();
  terminal.Write("/fork\r");
  ASSERT_TRUE(terminal.WaitFor("branch 1 of 2")) << terminal.shown();
  ASSERT_TRUE(terminal.WaitFor(kReady));
  terminal.Write("\x04");
  EXPECT_EQ(terminal.WaitForEnd(), 0);
}

// Longer than a terminal keeps of a line.
TEST(ChatTerminalTest, LinesMayBeLong) {
  Terminal terminal({"chat", "-m", kDemo, "-n", "16", "--temp", "0"});
  ASSERT_TRUE(terminal.WaitFor(kReady)) << terminal.shown();
  std::string text;
  while (text.size() < 5000) text += "The sea is calm. ";
  terminal.Write(text + "The pass key is 48213. What is the pass key?\r");
  ASSERT_TRUE(terminal.WaitFor("pass key?")) << terminal.shown();
  EXPECT_TRUE(terminal.WaitFor("48213")) << terminal.shown().substr(terminal.shown().size() - 300);
}

TEST(ChatTerminalTest, WhatIsPastedIsOneMessage) {
  Terminal terminal({"chat", "-m", kDemo, "-n", "16", "--temp", "0"});
  ASSERT_TRUE(terminal.WaitFor(kReady)) << terminal.shown();
  terminal.Write("\x1b[200~The pass key is 48213.\r/quit\rWhat is the pass key?\x1b[201~\r");
  ASSERT_TRUE(terminal.WaitFor("What is the pass key?")) << terminal.shown();
  ASSERT_TRUE(terminal.WaitFor("48213")) << terminal.shown();
  ASSERT_TRUE(terminal.WaitFor(kReady));
  terminal.Write("one\x1b\r/quit\r");  // Alt-Enter
  ASSERT_TRUE(terminal.WaitFor(kReady)) << terminal.shown();
  terminal.Write("/undo\r");
  EXPECT_TRUE(terminal.WaitFor("back from")) << terminal.shown();
}

TEST(ChatTerminalTest, WhatIsPastedMayBeginWithQuotes) {
  Terminal terminal({"chat", "-m", kDemo, "-n", "16", "--temp", "0"});
  ASSERT_TRUE(terminal.WaitFor(kReady)) << terminal.shown();
  terminal.Write("\x1b[200~\"\"\"The pass key is 48213.\"\"\"\rWhat is the pass key?\x1b[201~\r");
  ASSERT_TRUE(terminal.WaitFor("What is the pass key?")) << terminal.shown();
  ASSERT_TRUE(terminal.WaitFor("48213")) << terminal.shown();
}

TEST(ChatTerminalTest, SignalsLeaveTheTerminalAsItWas) {
  Terminal terminal({"chat", "-m", kDemo});
  ASSERT_TRUE(terminal.WaitFor(kReady)) << terminal.shown();
  terminal.Signal(SIGINT);  // nothing ends
  usleep(100'000);
  terminal.Write("/stats\r");
  ASSERT_TRUE(terminal.WaitFor("branch 0 of 1")) << terminal.shown();
  ASSERT_TRUE(terminal.WaitFor(kReady));
  terminal.Signal(SIGTERM);
  EXPECT_EQ(terminal.WaitForEnd(), -1);
  EXPECT_TRUE(terminal.shown().ends_with("\x1b[?2004l")) << terminal.shown();
}

TEST(ChatTerminalTest, ATerminalThatCannotEditTakesLines) {
  Terminal terminal({"chat", "-m", kDemo, "-n", "16", "--temp", "0"}, "dumb");
  ASSERT_TRUE(terminal.WaitFor("> ")) << terminal.shown();
  EXPECT_FALSE(Contains(terminal.shown(), "\x1b["));
  terminal.Write("/stats\n");
  EXPECT_TRUE(terminal.WaitFor("branch 0 of 1")) << terminal.shown();
}

TEST(ChatTerminalTest, AModelDoesNotControlIt) {
  const ScratchFolder scratch;
  const std::string grammar = scratch.Write("g.gbnf", R"(root ::= "a\x1b]0;x\x07b\u009bc\td")");
  const std::vector<std::string> args = {"generate",       "-m",   kDemo, "-p", "Hi", "-n", "64",
                                         "--grammar-file", grammar};
  Terminal terminal(args);
  ASSERT_TRUE(terminal.WaitFor("KV cache")) << terminal.shown();
  EXPECT_TRUE(Contains(terminal.shown(), "a ]0;x b  c\td")) << terminal.shown();
  EXPECT_TRUE(Contains(RunProgram(args).out,
                       "a\x1b]0;x\x07"
                       "b\u009bc\td"));
}

TEST(ChatMessagesTest, SeveralLinesAndSlashes) {
  const ProgramResult several =
      Chat("\"\"\"The pass key is 48213.\n/quit\nWhat is the pass key?\"\"\"\n/stats\n");
  EXPECT_EQ(several.exit_code, 0) << several.err;
  EXPECT_TRUE(Contains(several.out, "48213")) << several.out;
  EXPECT_TRUE(Contains(several.err, "branch 0 of 1")) << several.err;
  const ProgramResult commands =
      Chat("//quit is a word\n/save\n/switch\n/fork \n/drop 0 \n/quit x\n");
  EXPECT_EQ(std::count(commands.out.begin(), commands.out.end(), '\n'), 2) << commands.out;
  for (const char* wanted : {"/save needs a file", "/switch needs the number", "branch 1 of 2",
                             "branch 0 of 1", "/quit: unknown, or takes nothing"}) {
    EXPECT_TRUE(Contains(commands.err, wanted)) << wanted << " is not in\n" << commands.err;
  }
}

TEST(ChatMessagesTest, WhatIsCutOffIsSaid) {
  const ProgramResult result = Chat("Hello.\n", kDemo, "2");
  EXPECT_TRUE(Contains(result.err, "(cut off after 2 tokens: -n allows more)")) << result.err;
  EXPECT_FALSE(Contains(Chat("Hello.\n").err, "cut off"));
}

TEST(ChatMessagesTest, ImpossibleSamplingIsSaidFirst) {
  for (const auto& [flag, value] : {std::pair{"--temp", "nan"}, std::pair{"--temp", "-5"},
                                    std::pair{"--top-p", "2"}, std::pair{"--top-k", "-7"}}) {
    const ProgramResult result = RunProgram({"chat", "-m", "nowhere", flag, value});
    EXPECT_EQ(result.exit_code, 2) << flag;
    EXPECT_TRUE(Contains(result.err, flag)) << result.err;
  }
}

// As templates that leave out what a model thought before.
TEST(ChatFileTest, AConversationThatTheTemplateShortensComesBack) {
  const ScratchFolder scratch;
  const std::string model = scratch.File("model");
  fs::copy(kDemo, model);
  scratch.Write("model/chat_template.jinja",
                "{% for m in messages %}<start_of_turn>{{ m.role }}\n"
                "{{ m.content if m.role == 'user' else m.content[-3:] }}<end_of_turn>\n"
                "{% endfor %}<start_of_turn>model\n");
  const std::string file = scratch.File("talk.kv");
  const ProgramResult saved =
      Chat("The pass key is 48213. What is the pass key?\nHello.\n/save " + file + "\n", model);
  ASSERT_TRUE(Contains(saved.err, "tokens saved")) << saved.err;
  const ProgramResult loaded = Chat("/load " + file + "\n/undo\n/undo\n/undo\n", model);
  EXPECT_TRUE(Contains(loaded.err, "branch 1, ")) << loaded.err;
  EXPECT_TRUE(Contains(loaded.err, "to 0 tokens")) << loaded.err;
  EXPECT_TRUE(Contains(loaded.err, "there is no turn to undo")) << loaded.err;
}

TEST(ChatFileTest, OtherFilesAreLeftAlone) {
  const ScratchFolder scratch;
  const std::string notes = scratch.Write("notes.txt", "mine");
  const ProgramResult result = Chat("Hello.\n/save " + notes + "\n/save " + scratch.File("a.kv") +
                                    "\n/save " + scratch.File("a.kv") + "\n");
  EXPECT_TRUE(Contains(result.err, "is no saved cache")) << result.err;
  EXPECT_EQ(*ReadFile(notes), "mine");
  EXPECT_FALSE(Contains(result.err, "a.kv exists")) << result.err;
}

}  // namespace
}  // namespace kvasir
