// Many clients at once against `kvasir serve`, decent ones and others. Fails if a request has no
// end, an answer differs from the one to the same request alone, memory grows, or the server counts
// otherwise than its clients. Deliberately without a limit on time: whoever waits a minute for a
// byte gives up, and that is a failure.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/cli/flags.h"
#include "tests/load/load_run.h"
#include "tests/support/server_process.h"

namespace kvasir {
namespace {

constexpr double kMiB = 1 << 20;
// Of one load, in order and again: alone, fewer than the server makes at once, more.
constexpr int kClients[] = {1, 8, 64, 16, 4, 32, 64, 2};
constexpr int64_t kSlices = 16;
constexpr int64_t kWarmSlices = 4;
// A server counts an answer a moment after its last byte.
constexpr int kMostPolls = 100'000;

struct Counts {
  int64_t answered = 0;  // status 200
  int64_t gone = 0;      // status 0
  int64_t prompt_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t busy_places = 0;  // running and waiting
};

int64_t Value(const std::string& metrics, const std::string& name) {
  const size_t at = metrics.find("\n" + name + " ");
  return at == std::string::npos ? 0 : std::atoll(metrics.c_str() + at + name.size() + 2);
}

Result<Counts> ReadCounts(uint16_t port) {
  const WireResponse response = Exchange(port, "GET", "/metrics");
  if (response.status != 200) return {ErrorCode::kIo, "there are no metrics"};
  const std::string& text = response.body;
  return Counts{Value(text, "kvasir_requests_total{status=\"200\"}"),
                Value(text, "kvasir_requests_total{status=\"0\"}"),
                Value(text, "kvasir_prompt_tokens_total"),
                Value(text, "kvasir_generated_tokens_total"),
                Value(text, "kvasir_requests_running") + Value(text, "kvasir_requests_waiting")};
}

class LoadTestCommand final : public Command {
 public:
  std::string name() const override { return "run"; }
  std::string help() const override { return "load a server"; }
  void Declare(Flags& flags) override {
    flags.Add("-m,--model", &model_, "model folder; default: the bundled model");
    flags.Add("--requests", &requests_, "how many, the decent fifth before the others included");
    flags.Add("--seed", &seed_, "the same seed makes the same requests");
    flags.Add("--cache-bytes", &cache_bytes_, "of the server: small, so that it always evicts");
    flags.Add("--most-growth", &most_growth_mib_,
              "MiB that the server may grow after the first quarter; 0: any");
    flags.Add("--port", &port_, "a server that runs already on this machine; 0: start one");
  }

  Status Run() override {
    if (requests_ < 1 || port_ < 0 || port_ > 65535) {
      return {ErrorCode::kInvalidArgument, "--requests must be 1 or more and --port 0 to 65535"};
    }
    if (port_ > 0) {
      KVASIR_TRY_OK(run_.LearnAnswers(static_cast<uint16_t>(port_)));
      return Load(static_cast<uint16_t>(port_));
    }
    // Answers alone: one at a time, by a server of their own.
    KVASIR_TRY(auto alone, StartServer("1"));
    KVASIR_TRY_OK(run_.LearnAnswers(alone->port()));
    KVASIR_TRY_OK(alone->Stop());
    KVASIR_TRY(server_, StartServer("16"));
    KVASIR_TRY_OK(Load(server_->port()));
    return server_->Stop();
  }

 private:
  Result<std::unique_ptr<ServerProcess>> StartServer(const char* parallel) const {
    std::vector<std::string> args = {"--parallel", parallel, "--cache-bytes", cache_bytes_};
    if (!model_.empty()) args.insert(args.end(), {"-m", model_});
    return ServerProcess::Start(KVASIR_PROGRAM, args);
  }

  Status Load(uint16_t port) {
    KVASIR_TRY(const Counts before, ReadCounts(port));
    const int64_t decent = (requests_ + 4) / 5;
    LoadRun::Slice slice = {.port = port, .seed = seed_, .is_decent = true};
    for (const int clients : {64, 16}) {
      slice.clients = clients;
      slice.count = clients == 64 ? decent / 2 : decent - slice.first;
      run_.Run(slice);
      slice.first += slice.count;
    }
    KVASIR_TRY_OK(CompareCounts(port, before));
    slice.is_decent = false;
    for (int64_t i = 0; i < kSlices; ++i) {
      slice.clients = kClients[i % std::size(kClients)];
      slice.count = decent + (requests_ - decent) * (i + 1) / kSlices - slice.first;
      run_.Run(slice);
      slice.first += slice.count;
      KVASIR_TRY_OK(WatchMemory(i, slice.first));
    }
    KVASIR_TRY_OK(CompareCounts(port, before));
    return Report(port);
  }

  // The server's counts are what its clients saw; of those that left, it may have answered some
  // before it noticed.
  Status CompareCounts(uint16_t port, const Counts& before) const {
    const LoadTotals& totals = run_.totals();
    const int64_t left = totals.of(LoadEnd::kLeft);
    Counts now;
    for (int i = 0; i < kMostPolls; ++i) {
      KVASIR_TRY(now, ReadCounts(port));
      if (now.busy_places == 0 && now.answered - before.answered >= totals.answers) break;
    }
    const int64_t answered = now.answered - before.answered;
    const int64_t ended = answered + now.gone - before.gone;
    const int64_t prompt = now.prompt_tokens - before.prompt_tokens;
    const int64_t generated = now.generated_tokens - before.generated_tokens;
    const bool agrees =
        now.busy_places == 0 && answered >= totals.answers && ended <= totals.answers + left &&
        prompt >= totals.prompt_tokens && generated >= totals.generated_tokens &&
        (left > 0 || (prompt == totals.prompt_tokens && generated == totals.generated_tokens));
    std::printf(
        "counted by the server: %lld answers, %lld clients gone, %lld + %lld tokens; by "
        "the clients: %lld answers, %lld left, %lld + %lld tokens\n",
        static_cast<long long>(answered), static_cast<long long>(now.gone - before.gone),
        static_cast<long long>(prompt), static_cast<long long>(generated),
        static_cast<long long>(totals.answers), static_cast<long long>(left),
        static_cast<long long>(totals.prompt_tokens),
        static_cast<long long>(totals.generated_tokens));
    // What failed is no answer to its client; that is reported in its place.
    if (agrees || totals.of(LoadEnd::kFailed) > 0) return {};
    return {ErrorCode::kFailedPrecondition, "the server's metrics are not what its clients saw; " +
                                                std::to_string(now.busy_places) +
                                                " requests are still there"};
  }

  Status WatchMemory(int64_t slice, int64_t done) {
    if (!server_) return {};
    KVASIR_TRY(const ProcessMemory memory, ReadProcessMemory(server_->pid()));
    if (slice + 1 == kWarmSlices) warm_bytes_ = memory.resident_bytes;
    last_bytes_ = memory.resident_bytes;
    std::printf("%lld requests, resident %.1f MiB\n", static_cast<long long>(done),
                static_cast<double>(memory.resident_bytes) / kMiB);
    return {};
  }

  Status Report(uint16_t port) const {
    const LoadTotals& totals = run_.totals();
    int64_t ended = 0;
    for (size_t i = 0; i < totals.ends.size(); ++i) {
      ended += totals.ends[i];
      std::printf("%s %lld, ", NameOf(static_cast<LoadEnd>(i)),
                  static_cast<long long>(totals.ends[i]));
    }
    std::printf("of %lld requests\n", static_cast<long long>(requests_));
    for (const std::string& problem : totals.problems) std::printf("%s\n", problem.c_str());
    const auto failed = [](const std::string& why) {
      return Status(ErrorCode::kFailedPrecondition, why);
    };
    if (ended != requests_) return failed("requests were lost");
    if (totals.of(LoadEnd::kFailed) > 0) return failed("requests failed");
    if (totals.answers == 0) return failed("nothing was answered");
    if (Exchange(port, "GET", "/health").status != 200) return failed("the server is not well");
    if (!server_) return {};
    const double grown =
        (static_cast<double>(last_bytes_) - static_cast<double>(warm_bytes_)) / kMiB;
    std::printf("resident after a quarter %.1f MiB, at the end %+.1f\n",
                static_cast<double>(warm_bytes_) / kMiB, grown);
    if (most_growth_mib_ > 0 && grown > static_cast<double>(most_growth_mib_)) {
      return failed("the server's memory grows");
    }
    return {};
  }

  std::string model_;
  int64_t requests_ = 10'000;
  uint64_t seed_ = 1;
  std::string cache_bytes_ = "32M";
  int64_t most_growth_mib_ = 16;
  int64_t port_ = 0;

  LoadRun run_;
  std::unique_ptr<ServerProcess> server_;
  size_t warm_bytes_ = 0;
  size_t last_bytes_ = 0;
};

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF,
               0);  // it takes minutes, and somebody may be watching a file
  std::vector<std::unique_ptr<kvasir::Command>> commands;
  commands.push_back(std::make_unique<kvasir::LoadTestCommand>());
  return kvasir::RunCommandLine(commands, argc, argv);
}
