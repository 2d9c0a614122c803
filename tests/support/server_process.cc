#include "tests/support/server_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string_view>
#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {
namespace {

constexpr size_t kKeptLogBytes = 16 << 10;
constexpr std::string_view kListening = "listening on http://";

// "VmRSS:     1234 kB" of /proc/PID/status, in bytes; 0 if there is none.
size_t StatusBytes(const std::string& status, const std::string& name) {
  const size_t at = status.find("\n" + name + ":");
  if (at == std::string::npos) return 0;
  return std::strtoull(status.c_str() + at + name.size() + 2, nullptr, 10) << 10;
}

}  // namespace

Result<ProcessMemory> ReadProcessMemory(pid_t pid) {
  const std::string path = "/proc/" + std::to_string(pid) + "/status";
  // As a stream: such files have no size.
  std::ifstream file(path);
  const std::string status{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (StatusBytes(status, "VmRSS") == 0) return {ErrorCode::kIo, path + " does not tell"};
  return ProcessMemory{StatusBytes(status, "VmRSS"), StatusBytes(status, "RssAnon")};
}

Result<std::unique_ptr<ServerProcess>> ServerProcess::Start(const std::string& program,
                                                            const std::vector<std::string>& args) {
  std::vector<std::string> all = {program, "serve", "--port", "0"};
  all.insert(all.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (std::string& arg : all) argv.push_back(arg.data());
  argv.push_back(nullptr);
  int ends[2];
  KVASIR_CHECK(pipe2(ends, O_CLOEXEC) == 0);
  auto server = std::unique_ptr<ServerProcess>(new ServerProcess());
  server->pid_ = fork();
  KVASIR_CHECK(server->pid_ >= 0);
  if (server->pid_ == 0) {
    dup2(ends[1], STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  close(ends[1]);
  server->log_ = ends[0];
  KVASIR_TRY_OK(server->WaitUntilItListens());
  server->reader_ = std::thread([process = server.get()] { process->ReadLog(); });
  return server;
}

Status ServerProcess::WaitUntilItListens() {
  for (;;) {
    const size_t at = log_end_.find(kListening);
    const size_t end = at == std::string::npos ? at : log_end_.find('\n', at);
    if (end != std::string::npos) {
      const size_t colon = log_end_.rfind(':', end);
      port_ = static_cast<uint16_t>(std::strtoul(log_end_.c_str() + colon + 1, nullptr, 10));
      return {};
    }
    char buffer[4096];
    const ssize_t count = read(log_, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return {ErrorCode::kIo, "the server did not start:\n" + log_end_};
    log_end_.append(buffer, static_cast<size_t>(count));
  }
}

void ServerProcess::ReadLog() {
  char buffer[4096];
  for (;;) {
    const ssize_t count = read(log_, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    const std::lock_guard lock(mutex_);
    log_end_.append(buffer, static_cast<size_t>(count));
    if (log_end_.size() > 2 * kKeptLogBytes) log_end_.erase(0, log_end_.size() - kKeptLogBytes);
  }
}

std::string ServerProcess::LogEnd() {
  const std::lock_guard lock(mutex_);
  return log_end_;
}

Status ServerProcess::Stop() {
  kill(pid_, SIGTERM);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  reader_.join();
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
  return {ErrorCode::kFailedPrecondition,
          (WIFSIGNALED(status)
               ? "the server was ended by signal " + std::to_string(WTERMSIG(status))
               : "the server ended with exit code " + std::to_string(WEXITSTATUS(status))) +
              ":\n" + LogEnd()};
}

ServerProcess::~ServerProcess() {
  if (pid_ >= 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  if (reader_.joinable()) reader_.join();
  if (log_ >= 0) close(log_);
}

}  // namespace kvasir
