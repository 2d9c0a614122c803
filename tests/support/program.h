// Runs the built program as a shell would: arguments in; output, errors and exit code out.
// Deliberately without a shell: nothing needs quoting and signals reach the program itself.
#ifndef KVASIR_TESTS_SUPPORT_PROGRAM_H_
#define KVASIR_TESTS_SUPPORT_PROGRAM_H_

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace kvasir {

struct ProgramResult {
  int exit_code = -1;  // -1: ended by a signal
  int signal = 0;      // the one that ended it
  std::string out;
  std::string err;
};

// One run of the program. Ends it when destroyed before Finish.
class Program {
 public:
  explicit Program(const std::vector<std::string>& args);
  ~Program();
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  void Write(std::string_view text);
  void CloseInput();
  // Stops reading standard output: the program's next write to it fails.
  void CloseOutput();
  // Blocks until standard output (or standard error) contains `text`; false if it ended before.
  bool WaitForOutput(std::string_view text);
  bool WaitForError(std::string_view text);
  void Signal(int number);
  // Closes its input, reads all it prints and waits for its end.
  ProgramResult Finish();

 private:
  bool WaitFor(const std::string* stream, std::string_view text);
  // Waits for more of either stream; false once both have ended.
  bool ReadSome();

  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
  int error_ = -1;
  ProgramResult result_;
};

// Runs to the end with nothing on standard input.
ProgramResult RunProgram(const std::vector<std::string>& args);

}  // namespace kvasir

#endif  // KVASIR_TESTS_SUPPORT_PROGRAM_H_
