// MessageReader: what somebody says next, from a terminal or a pipe.
// Deliberately ignorant of commands: chat knows them.
#ifndef KVASIR_CLI_MESSAGE_READER_H_
#define KVASIR_CLI_MESSAGE_READER_H_

#include <memory>
#include <optional>
#include <string>

#include "kvasir/cli/line_editor.h"

namespace kvasir {

// A message is a line; or all lines between """ at the beginning of one and """ at the end of one,
// without them. At a terminal also what LineEditor gives in one piece, as it is where that has
// several lines.
class MessageReader {
 public:
  MessageReader() : editor_(LineEditor::OfTerminal()) {}

  // The next one without its line end; nothing at the end of input.
  std::optional<std::string> Read();

 private:
  // `is_dropped`: Ctrl-C took back what was typed, and the line is empty.
  std::optional<std::string> ReadLine(const char* prompt, bool* is_dropped);

  const std::unique_ptr<LineEditor> editor_;  // null: plain lines
};

}  // namespace kvasir

#endif  // KVASIR_CLI_MESSAGE_READER_H_
