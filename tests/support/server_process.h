// ServerProcess: `kvasir serve` as its own process on a free port of this machine.
// Deliberately knows no HTTP: it says where the server listens and what memory it takes.
#ifndef KVASIR_TESTS_SUPPORT_SERVER_PROCESS_H_
#define KVASIR_TESTS_SUPPORT_SERVER_PROCESS_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "kvasir/base/result.h"

namespace kvasir {

// Memory of a running process, of /proc.
struct ProcessMemory {
  size_t resident_bytes = 0;
  size_t anonymous_bytes = 0;  // of them: without mapped files
};
// ERRORS: kIo, if there is no such process or no /proc.
Result<ProcessMemory> ReadProcessMemory(pid_t pid);

class ServerProcess {
 public:
  // Runs `program serve --port 0 args...` and waits until it listens. ERRORS: kIo with what it
  // said, if it ends before.
  static Result<std::unique_ptr<ServerProcess>> Start(const std::string& program,
                                                      const std::vector<std::string>& args);
  // Kills it if it still runs.
  ~ServerProcess();

  uint16_t port() const { return port_; }
  pid_t pid() const { return pid_; }
  // Asks it to stop as Ctrl-C does and waits for its end. ERRORS: kFailedPrecondition with the end
  // of its log, unless it ends with exit code 0.
  Status Stop();

 private:
  ServerProcess() = default;
  // Reads what the server says, so that it never waits for a reader.
  void ReadLog();
  std::string LogEnd();
  Status WaitUntilItListens();

  pid_t pid_ = -1;
  int log_ = -1;
  uint16_t port_ = 0;
  std::thread reader_;
  std::mutex mutex_;
  std::string log_end_;
};

}  // namespace kvasir

#endif  // KVASIR_TESTS_SUPPORT_SERVER_PROCESS_H_
