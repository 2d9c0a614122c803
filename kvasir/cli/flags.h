// Flags: what a verb declares and the command line fills in.
// Deliberately a thin layer: the parser behind it (CLI11) is seen by flags.cc only.
#ifndef KVASIR_CLI_FLAGS_H_
#define KVASIR_CLI_FLAGS_H_

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/result.h"

namespace kvasir {

// Options of one verb. `name` is "-m,--model" or "--seed" or, for a positional, "trace".
// The current value of the target is the default that --help shows; units belong into the help.
// A text that is given must not be empty, as what an unset variable gave, but where it is optional.
class Flags {
 public:
  virtual ~Flags() = default;
  virtual void Add(const std::string& name, std::string* target, const std::string& help) = 0;
  virtual void Add(const std::string& name, std::optional<std::string>* target,
                   const std::string& help) = 0;
  virtual void Add(const std::string& name, int64_t* target, const std::string& help) = 0;
  virtual void Add(const std::string& name, uint64_t* target, const std::string& help) = 0;
  // Without a default.
  virtual void Add(const std::string& name, std::optional<int64_t>* target,
                   const std::string& help) = 0;
  virtual void Add(const std::string& name, double* target, const std::string& help) = 0;
  // A switch without a value.
  virtual void Add(const std::string& name, bool* target, const std::string& help) = 0;
  // May be given several times.
  virtual void Add(const std::string& name, std::vector<std::string>* target,
                   const std::string& help) = 0;
  // "1,4,8"
  virtual void Add(const std::string& name, std::vector<int64_t>* target,
                   const std::string& help) = 0;
  // As the string form, but leaving it out is an error.
  virtual void AddRequired(const std::string& name, std::string* target,
                           const std::string& help) = 0;
  virtual void AddRequired(const std::string& name, std::vector<std::string>* target,
                           const std::string& help) = 0;
};

inline constexpr int64_t kNoMost = std::numeric_limits<int64_t>::max();
inline constexpr int64_t kMostThreads = 1024;
// ERRORS: kInvalidArgument outside [least, most], naming the flag.
Status CheckRange(std::string_view flag, int64_t value, int64_t least, int64_t most);

// A verb: declares its options, then runs.
class Command {
 public:
  virtual ~Command() = default;
  virtual std::string name() const = 0;
  virtual std::string help() const = 0;
  virtual void Declare(Flags& flags) = 0;
  virtual Status Run() = 0;
};

// Exit codes, one per way a script can react.
enum ExitCode {
  kExitOk = 0,
  kExitFailed = 1,  // kFailedPrecondition, and comparisons that do not hold
  kExitUsage = 2,   // wrong flags, kInvalidArgument
  kExitNotFound = 3,
  kExitCorrupt = 4,
  kExitUnsupported = 5,
  kExitExhausted = 6,
  kExitIo = 7,
  kExitCancelled = 130,  // as a shell reports Ctrl-C
};
int ExitCodeOf(const Status& status);

// Parses argv, runs the verb that it names, prints errors to stderr and returns the exit code.
int RunCommandLine(const std::vector<std::unique_ptr<Command>>& commands, int argc,
                   const char* const* argv);

}  // namespace kvasir

#endif  // KVASIR_CLI_FLAGS_H_
