#include "kvasir/cli/message_reader.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "kvasir/cli/output.h"

namespace kvasir {
namespace {

constexpr std::string_view kQuote = "\"\"\"";
constexpr const char* kHowToLeave = "(Ctrl-D or /quit leaves)\n";

std::string WithoutLineEnd(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
  return text;
}

// One line of standard input; nothing at the end of input.
std::optional<std::string> ReadPlainLine(const char* prompt) {
  // A terminal gives this much of a longer line and drops the rest.
  constexpr size_t kMostOfTerminal = 4095;
  char* line = nullptr;
  size_t capacity = 0;
  std::optional<std::string> text;
  for (;;) {
    ClearInterrupt();  // one that came during a command
    std::fputs(prompt, stderr);
    errno = 0;
    const ssize_t length = getline(&line, &capacity, stdin);
    if (length < 0 && errno == EINTR) {
      std::clearerr(stdin);
      std::fprintf(stderr, "\n%s", kHowToLeave);
      continue;
    }
    if (length < 0) break;
    text = WithoutLineEnd(std::string(line, static_cast<size_t>(length)));
    if (text->size() < kMostOfTerminal || isatty(STDIN_FILENO) == 0) break;
    std::fprintf(stderr, "the terminal cut this line at %zu bytes; use a pipe for longer ones\n",
                 kMostOfTerminal);
  }
  std::free(line);
  return text;
}

}  // namespace

std::optional<std::string> MessageReader::ReadLine(const char* prompt) {
  if (editor_ == nullptr) return ReadPlainLine(prompt);
  for (bool was_empty = false;;) {
    bool is_dropped = false;
    auto line = editor_->Read(prompt, &is_dropped);
    ClearInterrupt();
    if (!is_dropped) return line;
    if (was_empty) std::fputs(kHowToLeave, stderr);
    was_empty = true;
  }
}

std::optional<std::string> MessageReader::Read() {
  std::optional<std::string> text = ReadLine("> ");
  if (!text || !text->starts_with(kQuote)) return text;
  std::string message = text->substr(kQuote.size());
  while (!message.ends_with(kQuote)) {
    const auto line = ReadLine(". ");
    if (!line) break;
    if (!message.empty()) message += '\n';
    message += *line;
  }
  if (message.ends_with(kQuote)) message.resize(message.size() - kQuote.size());
  return WithoutLineEnd(std::move(message));
}

}  // namespace kvasir
