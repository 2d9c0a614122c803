// kvasir replay: cache traces of other engines against our caches.
#include <cstdio>
#include <filesystem>

#include "kvasir/backend/cpu_backend.h"
#include "kvasir/cli/commands.h"
#include "kvasir/cli/output.h"
#include "kvasir/cli/trace.h"

namespace kvasir {
namespace {

class ReplayCommand final : public Command {
 public:
  std::string name() const override { return "replay"; }
  std::string help() const override {
    return "run cache traces and compare; exit 0 only if all hold, 5 if the rest is not yet there";
  }

  void Declare(Flags& flags) override {
    flags.AddRequired("trace", &files_, "trace files (kvasir-trace/1)");
    flags.Add("--json", &is_json_, "one JSON object per trace");
  }

  Status Run() override {
    // What was recorded is attention in float.
    KVASIR_TRY(const auto backend, MakeCpuBackend({.attention = AttentionMath::kFloat}));
    std::error_code error;
    const std::string scratch = std::filesystem::temp_directory_path(error).string();
    int64_t held = 0, failed = 0, not_yet = 0;
    Status unread;  // of the first file that is no trace
    for (const std::string& file : files_) {
      const TraceResult result = Replay(file, *backend, scratch, &unread);
      held += result.outcome == TraceResult::Outcome::kHolds;
      failed += result.outcome == TraceResult::Outcome::kFails;
      not_yet += result.outcome == TraceResult::Outcome::kNotYet;
      KVASIR_TRY_OK(Report(file, result));
    }
    std::fprintf(stderr, "%lld hold, %lld fail, %lld not yet\n", static_cast<long long>(held),
                 static_cast<long long>(failed), static_cast<long long>(not_yet));
    KVASIR_TRY_OK(unread);
    if (failed > 0) {
      return {ErrorCode::kFailedPrecondition, std::to_string(failed) + " traces do not hold"};
    }
    if (not_yet > 0) {
      return {ErrorCode::kUnsupported,
              std::to_string(not_yet) + " traces need what does not exist yet; the others hold"};
    }
    return {};
  }

 private:
  // A file that cannot be read counts as one that does not hold: the others still run.
  static TraceResult Replay(const std::string& file, Backend& backend, const std::string& scratch,
                            Status* unread) {
    const auto trace = Json::ParseFile(file);
    if (!trace.ok()) {
      if (unread->ok()) *unread = trace.error();
      return {TraceResult::Outcome::kFails, trace.error().message, 0};
    }
    auto result = ReplayTrace(*trace, backend, scratch);
    if (!result.ok()) return {TraceResult::Outcome::kFails, result.error().message, 0};
    return *std::move(result);
  }

  Status Report(const std::string& file, const TraceResult& result) const {
    const char* word = result.outcome == TraceResult::Outcome::kHolds   ? "holds"
                       : result.outcome == TraceResult::Outcome::kFails ? "FAILS"
                                                                        : "not yet";
    if (is_json_) {
      return PrintJson(Json::Object{{"file", file},
                                    {"outcome", word},
                                    {"message", result.message},
                                    {"operations", result.operations}});
    }
    const std::string name = std::filesystem::path(file).stem().string();
    return Print(std::string(word) + "  " + name +
                 (result.message.empty() ? "" : ": " + result.message) + "\n");
  }

  std::vector<std::string> files_;
  bool is_json_ = false;
};

}  // namespace

std::unique_ptr<Command> MakeReplayCommand() { return std::make_unique<ReplayCommand>(); }

}  // namespace kvasir
