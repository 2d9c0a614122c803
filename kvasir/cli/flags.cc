#include "kvasir/cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <string_view>

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
    app_->add_option(name, *target, help)->capture_default_str()->check(Whole<int64_t>());
  }
  void Add(const std::string& name, uint64_t* target, const std::string& help) override {
    app_->add_option(name, *target, help)->capture_default_str()->check(Whole<uint64_t>());
  }
  void Add(const std::string& name, std::optional<int64_t>* target,
           const std::string& help) override {
    app_->add_option(name, *target, help)->check(Whole<int64_t>());
  }
  void Add(const std::string& name, double* target, const std::string& help) override {
    app_->add_option(name, *target, help)->capture_default_str()->check(Real());
  }
  void Add(const std::string& name, bool* target, const std::string& help) override {
    app_->add_flag(name, *target, help);
  }
  void Add(const std::string& name, std::vector<std::string>* target,
           const std::string& help) override {
    // One value each time: the library would read "[a,b]" as a list of two.
    app_->add_option(name, *target, help)->allow_extra_args(false);
  }
  void Add(const std::string& name, std::vector<int64_t>* target,
           const std::string& help) override {
    app_->add_option(name, *target, help)
        ->delimiter(',')
        ->capture_default_str()
        ->check(Whole<int64_t>());
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

  static CLI::Validator Real() {
    return {[](const std::string& text) {
              char* end = nullptr;
              std::strtod(text.c_str(), &end);
              const bool is_number = !text.empty() && *end == '\0';
              return is_number ? std::string() : "'" + text + "' is no number";
            },
            ""};
  }

  // The library takes what is out of range for the nearest number, and -1 for the largest.
  template <typename Number>
  static CLI::Validator Whole() {
    return {[](const std::string& text) {
              Number number = 0;
              const char* const end = text.data() + text.size();
              const auto [rest, error] = std::from_chars(text.data(), end, number);
              if (rest == end && error == std::errc()) return std::string();
              const std::string wrong = "'" + text + "' is no whole number";
              if (std::is_signed_v<Number> && error != std::errc::result_out_of_range) return wrong;
              return wrong + " from " + std::to_string(std::numeric_limits<Number>::min()) +
                     " to " + std::to_string(std::numeric_limits<Number>::max());
            },
            ""};
  }

  CLI::App* app_;
};

}  // namespace

Status CheckRange(std::string_view flag, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return {};
  const std::string range =
      std::to_string(least) + (most == kNoMost ? " or more" : " to " + std::to_string(most));
  return {ErrorCode::kInvalidArgument,
          std::string(flag) + " is " + std::to_string(value) + ", it must be " + range};
}

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

// Empty if `word` may begin a command line: a verb's name, or what is asked of the program itself.
std::string UnknownVerb(const std::vector<std::unique_ptr<Command>>& commands,
                        const std::string& word) {
  if (word == "--help" || word == "-h" || word == "--version") return "";
  std::string names;
  for (const auto& command : commands) {
    if (command->name() == word) return "";
    names.append(names.empty() ? "" : ", ").append(command->name());
  }
  const std::string wrong = word.empty()            ? "a verb is missing"
                            : word.starts_with("-") ? word +
                                                          " stands before the verb, whose "
                                                          "options come behind it"
                                                    : "there is no verb '" + word + "'";
  return wrong + "; there are " + names;
}

// How many letters differ, are too many or are missing (Levenshtein).
size_t Distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

// The option that was most likely meant; empty if none is near.
std::string NearestOption(const CLI::App& verb, std::string_view given) {
  given.remove_prefix(std::min(given.find_first_not_of('-'), given.size()));
  given = given.substr(0, given.find('='));
  std::string nearest;
  // Short names are all near each other.
  size_t least =
      given.size() < 4 ? given.size() / 2 + 1 : std::max<size_t>(2, given.size() / 3) + 1;
  for (const CLI::Option* option : verb.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      if (name == "help") continue;
      const bool begins = std::min(name.size(), given.size()) >= 3 &&
                          (given.starts_with(name) || name.starts_with(given));
      const size_t distance = begins ? 0 : Distance(given, name);
      if (distance >= least) continue;
      least = distance;
      nearest = name;
    }
  }
  return nearest;
}

// What is wrong with the command line, in our words where the library's do not help.
std::string ErrorText(const CLI::App& verb, const CLI::ParseError& error) {
  if (dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr) {
    const std::vector<std::string> extras = verb.remaining(true);
    const auto option = std::ranges::find_if(
        extras, [](const std::string& extra) { return extra.starts_with("-"); });
    if (option == extras.end()) {
      return "'" + (extras.empty() ? std::string() : extras.front()) + "' is not expected here";
    }
    const std::string nearest = NearestOption(verb, *option);
    return "there is no option " + *option +
           (nearest.empty() ? std::string() : "; did you mean --" + nearest + "?");
  }
  const std::string text = error.what();
  constexpr std::string_view kTwice = ": At Most 1 required";
  if (const size_t at = text.find(kTwice); at != text.npos) {
    return text.substr(0, at) + " is given more than once";
  }
  return text;
}

}  // namespace

int RunCommandLine(const std::vector<std::unique_ptr<Command>>& commands, int argc,
                   const char* const* argv) {
  CLI::App app("Kvasir: an inference engine in which the KV cache is the product", "kvasir");
  app.set_version_flag("--version", std::string(KVASIR_VERSION));
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 ok, 1 does not hold or is in the way, 2 usage, 3 not found, 4 corrupt file,\n"
      "5 unsupported, 6 out of memory budget, 7 input/output, 130 cancelled.");
  for (const auto& command : commands) {
    CLI::App* const verb = app.add_subcommand(command->name(), command->help());
    Cli11Flags flags(verb);
    command->Declare(flags);
  }
  const std::string unknown = UnknownVerb(commands, argc > 1 ? argv[1] : "");
  if (!unknown.empty()) {
    std::fprintf(stderr, "kvasir: %s\n", Printable(unknown).c_str());
    return kExitUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) {  // --help, --version
      const int code = app.exit(error);
      return std::fflush(stdout) != 0 || std::ferror(stdout) != 0 ? kExitIo : code;
    }
    const std::vector<CLI::App*> verbs = app.get_subcommands();
    const std::string verb = verbs.empty() ? "" : " " + verbs.front()->get_name();
    const std::string text = ErrorText(verbs.empty() ? app : *verbs.front(), error);
    std::fprintf(stderr, "kvasir%s: %s\n'kvasir%s --help' says what there is\n", verb.c_str(),
                 Printable(text).c_str(), verb.c_str());
    return kExitUsage;
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
