#include "kvasir/cli/flags.h"

#include <CLI/CLI.hpp>
#include <cstdio>

#include "kvasir/cli/printable.h"

namespace kvasir {
namespace {

class Cli11Flags final : public Flags {
 public:
  explicit Cli11Flags(CLI::App* app) : app_(app) {}

  void Add(const std::string& name, std::string* target, const std::string& help) override {
    app_->add_option(name, *target, help)->capture_default_str()->check(NotEmpty());
  }
  void Add(const std::string& name, std::optional<std::string>* target,
           const std::string& help) override {
    app_->add_option(name, *target, help);
  }
  void Add(const std::string& name, int64_t* target, const std::string& help) override {
    app_->add_option(name, *target, help)->capture_default_str();
  }
  void Add(const std::string& name, uint64_t* target, const std::string& help) override {
    app_->add_option(name, *target, help)->capture_default_str();
  }
  void Add(const std::string& name, std::optional<int64_t>* target,
           const std::string& help) override {
    app_->add_option(name, *target, help);
  }
  void Add(const std::string& name, double* target, const std::string& help) override {
    app_->add_option(name, *target, help)->capture_default_str();
  }
  void Add(const std::string& name, bool* target, const std::string& help) override {
    app_->add_flag(name, *target, help);
  }
  void Add(const std::string& name, std::vector<std::string>* target,
           const std::string& help) override {
    app_->add_option(name, *target, help);
  }
  void Add(const std::string& name, std::vector<int64_t>* target,
           const std::string& help) override {
    app_->add_option(name, *target, help)->delimiter(',')->capture_default_str();
  }
  void AddRequired(const std::string& name, std::string* target, const std::string& help) override {
    app_->add_option(name, *target, help)->required()->check(NotEmpty());
  }
  void AddRequired(const std::string& name, std::vector<std::string>* target,
                   const std::string& help) override {
    app_->add_option(name, *target, help)->required()->check(NotEmpty());
  }

 private:
  static CLI::Validator NotEmpty() {
    return {[](const std::string& text) { return std::string(text.empty() ? "is empty" : ""); },
            ""};
  }

  CLI::App* app_;
};

}  // namespace

int ExitCodeOf(const Status& status) {
  if (status.ok()) return kExitOk;
  switch (status.error().code) {
    case ErrorCode::kInvalidArgument:
      return kExitUsage;
    case ErrorCode::kNotFound:
      return kExitNotFound;
    case ErrorCode::kCorrupt:
      return kExitCorrupt;
    case ErrorCode::kUnsupported:
      return kExitUnsupported;
    case ErrorCode::kResourceExhausted:
      return kExitExhausted;
    case ErrorCode::kFailedPrecondition:
      return kExitFailed;
    case ErrorCode::kIo:
      return kExitIo;
    case ErrorCode::kCancelled:
      return kExitCancelled;
  }
  return kExitFailed;
}

namespace {

// Empty if `word` may begin a command line: a verb's name or a flag.
std::string UnknownVerb(const std::vector<std::unique_ptr<Command>>& commands,
                        const std::string& word) {
  std::string names;
  for (const auto& command : commands) {
    if (command->name() == word) return "";
    names.append(names.empty() ? "" : ", ").append(command->name());
  }
  return word.starts_with("-") ? "" : "there is no verb '" + word + "'; there are " + names;
}

}  // namespace

int RunCommandLine(const std::vector<std::unique_ptr<Command>>& commands, int argc,
                   const char* const* argv) {
  CLI::App app("Kvasir: an inference engine in which the KV cache is the product", "kvasir");
  app.set_version_flag("--version", std::string(KVASIR_VERSION));
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 ok, 1 a comparison failed, 2 usage, 3 not found, 4 corrupt file,\n"
      "5 unsupported, 6 out of memory budget, 7 input/output, 130 cancelled.");
  for (const auto& command : commands) {
    CLI::App* const verb = app.add_subcommand(command->name(), command->help());
    Cli11Flags flags(verb);
    command->Declare(flags);
  }
  const std::string unknown = argc > 1 ? UnknownVerb(commands, argv[1]) : "";
  if (!unknown.empty()) {
    std::fprintf(stderr, "kvasir: %s\n", Printable(unknown).c_str());
    return kExitUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? kExitOk : kExitUsage;
  }
  for (const auto& command : commands) {
    if (!app.got_subcommand(command->name())) continue;
    const Status status = command->Run();
    if (!status.ok()) {
      std::fprintf(stderr, "kvasir %s: %s\n", command->name().c_str(),
                   Printable(status.error().message).c_str());
    }
    return ExitCodeOf(status);
  }
  return kExitUsage;
}

}  // namespace kvasir
