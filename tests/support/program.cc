#include "tests/support/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "kvasir/base/check.h"

namespace kvasir {
namespace {

struct Pipe {
  Pipe() {
    int ends[2];
    KVASIR_CHECK(pipe2(ends, O_CLOEXEC) == 0);
    read_end = ends[0];
    write_end = ends[1];
  }
  int read_end;
  int write_end;
};

void CloseOnce(int* fd) {
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

// Appends what can be read now; closes the descriptor at its end.
void Drain(int* fd, std::string* to) {
  char buffer[65536];
  const ssize_t count = read(*fd, buffer, sizeof(buffer));
  if (count > 0) {
    to->append(buffer, static_cast<size_t>(count));
  } else if (count == 0 || errno != EINTR) {
    CloseOnce(fd);
  }
}

}  // namespace

Program::Program(const std::vector<std::string>& args) {
  // A program that ends early must not end the test that writes to it.
  signal(SIGPIPE, SIG_IGN);
  std::vector<char*> argv = {const_cast<char*>(KVASIR_PROGRAM)};
  for (const std::string& arg : args) argv.push_back(const_cast<char*>(arg.c_str()));
  argv.push_back(nullptr);
  Pipe in, out, err;
  pid_ = fork();
  KVASIR_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    signal(SIGPIPE, SIG_DFL);  // as a shell starts programs
    dup2(in.read_end, STDIN_FILENO);
    dup2(out.write_end, STDOUT_FILENO);
    dup2(err.write_end, STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(in.read_end);
  close(out.write_end);
  close(err.write_end);
  input_ = in.write_end;
  output_ = out.read_end;
  error_ = err.read_end;
}

Program::~Program() {
  CloseInput();
  CloseOnce(&output_);
  CloseOnce(&error_);
  if (pid_ < 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Program::Write(std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = write(input_, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    text.remove_prefix(static_cast<size_t>(count));
  }
}

void Program::CloseInput() { CloseOnce(&input_); }
void Program::CloseOutput() { CloseOnce(&output_); }
void Program::Signal(int number) { kill(pid_, number); }

bool Program::WaitForOutput(std::string_view text) { return WaitFor(&result_.out, text); }
bool Program::WaitForError(std::string_view text) { return WaitFor(&result_.err, text); }

bool Program::WaitFor(const std::string* stream, std::string_view text) {
  while (stream->find(text) == std::string::npos) {
    if (!ReadSome()) return false;
  }
  return true;
}

bool Program::ReadSome() {
  if (output_ < 0 && error_ < 0) return false;
  pollfd fds[] = {{output_, POLLIN, 0}, {error_, POLLIN, 0}};  // poll skips negative ones
  if (poll(fds, 2, -1) < 0) return errno == EINTR;
  if (fds[0].revents != 0) Drain(&output_, &result_.out);
  if (fds[1].revents != 0) Drain(&error_, &result_.err);
  return true;
}

ProgramResult Program::Finish() {
  CloseInput();
  while (ReadSome()) {
  }
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  if (WIFEXITED(status)) result_.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) result_.signal = WTERMSIG(status);
  return std::move(result_);
}

ProgramResult RunProgram(const std::vector<std::string>& args) { return Program(args).Finish(); }

}  // namespace kvasir
