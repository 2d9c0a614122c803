// LineEditor: a line typed at a terminal, edited, with the lines before it.
// Deliberately only that: what a line means is its reader's. Wraps libedit.
#ifndef KVASIR_CLI_LINE_EDITOR_H_
#define KVASIR_CLI_LINE_EDITOR_H_

#include <memory>
#include <optional>
#include <string>

namespace kvasir {

class LineEditor {
 public:
  // Null where standard input or standard error is no terminal that lines can be edited on. One at
  // a time, as there is one terminal.
  static std::unique_ptr<LineEditor> OfTerminal();
  ~LineEditor();

  // A line without its end; nothing at the end of input (Ctrl-D on an empty line). A text that is
  // pasted is one piece, whatever lines it has, and Alt-Enter begins one; Ctrl-C drops what was
  // typed: then `is_dropped` is true and the line empty. A line of any length. The prompt goes to
  // standard error.
  std::optional<std::string> Read(const std::string& prompt, bool* is_dropped);

 private:
  class Impl;
  explicit LineEditor(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace kvasir

#endif  // KVASIR_CLI_LINE_EDITOR_H_
