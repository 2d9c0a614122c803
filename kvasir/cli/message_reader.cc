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

// One line of standard input; nothing at the end of input. Ctrl-C: it is dropped.
std::optional<std::string> ReadPlainLine(const char* prompt, bool* is_dropped) {
  // A terminal gives this much of a longer line and drops the rest.
  constexpr size_t kMostOfTerminal = 4095;
  std::fputs(prompt, stderr);
  char* line = nullptr;
  size_t capacity = 0;
  errno = 0;
  const ssize_t length = getline(&line, &capacity, stdin);
  *is_dropped = length < 0 && errno == EINTR;
  std::optional<std::string> text;
  if (length >= 0) text = WithoutLineEnd(std::string(line, static_cast<size_t>(length)));
  std::free(line);
  if (*is_dropped) {
    std::clearerr(stdin);
    std::fputs("\n", stderr);
    return std::string();
  }
  if (!text || text->size() < kMostOfTerminal || isatty(STDIN_FILENO) == 0) return text;
  std::fprintf(stderr, "the terminal cut this line at %zu bytes; use a pipe for longer ones\n",
               kMostOfTerminal);
  *is_dropped = true;
  return std::string();
}

}  // namespace

std::optional<std::string> MessageReader::ReadLine(const char* prompt, bool* is_dropped) {
  ClearInterrupt();  // one that came during a command
  auto line =
      editor_ == nullptr ? ReadPlainLine(prompt, is_dropped) : editor_->Read(prompt, is_dropped);
  ClearInterrupt();
  return line;
}

std::optional<std::string> MessageReader::Read() {
  bool is_dropped = false;
  std::optional<std::string> text;
  for (int dropped = 0; (text = ReadLine("> ", &is_dropped)) && is_dropped; ++dropped) {
    if (dropped > 0 || editor_ == nullptr) std::fputs(kHowToLeave, stderr);
  }
  // What was pasted may begin so, too.
  if (!text || !text->starts_with(kQuote) || text->find('\n') != text->npos) return text;
  std::string message = text->substr(kQuote.size());
  while (!message.ends_with(kQuote)) {
    const auto line = ReadLine(". ", &is_dropped);
    if (is_dropped) return std::string();
    if (!line) break;
    if (!message.empty()) message += '\n';
    message += *line;
  }
  if (message.ends_with(kQuote)) message.resize(message.size() - kQuote.size());
  return WithoutLineEnd(std::move(message));
}

}  // namespace kvasir
