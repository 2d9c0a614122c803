// What speculative decoding brings: tokens per second of whole batches with and without drafts,
// by workload and number of streams, alternating in one run.
// Deliberately also a check: a drafter that changes a token of an answer ends the program.
//
//   speculation_bench MODEL DRAFT ITEMS [rounds] [workload] [streams] [processor]
//
// ITEMS holds one JSON object per line with the fields task, prompt and answer
// (models/kvasir-demo/items.jsonl). Prompts are read before the clock starts. The second engine
// without drafts is the control: what it differs from the first by is noise. With `processor` one
// thread works, and its processor time is measured instead of the clock on the wall: for machines
// that have other things to do.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kvasir/base/check.h"
#include "kvasir/base/file.h"
#include "kvasir/engine/draft_source.h"
#include "kvasir/engine/engine.h"

namespace kvasir {
namespace {

constexpr size_t kPoolBytes = size_t{256} << 20;
constexpr int64_t kRequests = 16;  // of a workload, whatever the number of streams
constexpr DraftKind kKinds[] = {DraftKind::kNone, DraftKind::kNone, DraftKind::kNgram,
                                DraftKind::kModel};
constexpr const char* kNames[] = {"none", "control", "ngram", "model"};

template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    std::exit(1);
  }
  return std::move(result).value();
}

// What engines and figures go by.
EngineClock::time_point WallTime() { return EngineClock::now(); }
EngineClock::time_point ProcessorTime() {
  timespec time = {};
  KVASIR_CHECK(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time) == 0);
  return EngineClock::time_point(std::chrono::seconds(time.tv_sec) +
                                 std::chrono::nanoseconds(time.tv_nsec));
}

struct Measure {
  EngineClock::time_point (*now)() = WallTime;
  int threads = 0;  // 0: all
};

struct Workload {
  std::string name;
  std::vector<EngineRequest> requests;
};

// What one drafter did with one workload.
struct Outcome {
  std::vector<double> tokens_per_second;  // by round
  EngineStats stats;                      // of all rounds, timed part
};

// One engine with its own cache and drafter.
class Side {
 public:
  Side(ModelBundle& bundle, DraftKind kind, const std::string& draft, const Measure& measure)
      : pool_({.budget_bytes = kPoolBytes}), now_(measure.now) {
    EngineParts parts = EngineParts::Of(bundle);
    parts.pool = &pool_;
    engine_ = Must(Engine::Create(parts, {.now = measure.now}));
    BundleOptions options;
    options.backend.threads = measure.threads;
    options.kv_budget_bytes = kPoolBytes;
    source_ = Must(DraftSource::Load({kind, draft, options}, bundle));
    engine_->UseDrafter(source_->NewDrafter(&engine_->prefix_tree()));
  }
  ~Side() { engine_.reset(); }

  // Requests [begin, end) of the workload side by side. Adds to the figures.
  void Run(const Workload& workload, size_t begin, size_t end, uint64_t salt,
           std::vector<std::vector<Token>>* answers) {
    for (size_t i = begin; i < end; ++i) {
      EngineRequest warm = workload.requests[i];
      warm.salt = salt;
      warm.max_tokens = 0;  // the prompt is read and nothing said
      Submit(warm, nullptr);
    }
    while (engine_->Step()) {
    }
    const EngineStats before = engine_->Stats();
    for (size_t i = begin; i < end; ++i) {
      EngineRequest request = workload.requests[i];
      request.salt = salt;
      Submit(request, &(*answers)[i]);
    }
    const EngineClock::time_point start = now_();
    while (engine_->Step()) {
    }
    seconds_ += std::chrono::duration<double>(now_() - start).count();
    const EngineStats after = engine_->Stats();
    tokens_ += after.generated_tokens - before.generated_tokens;
    Add(before, after, &outcome_.stats);
  }
  void EndRound() {
    outcome_.tokens_per_second.push_back(static_cast<double>(tokens_) / seconds_);
    tokens_ = 0;
    seconds_ = 0;
  }
  const Outcome& outcome() const { return outcome_; }

 private:
  void Submit(const EngineRequest& request, std::vector<Token>* answer) {
    EngineCallbacks callbacks;
    callbacks.on_finish = [answer](EngineResult result) {
      KVASIR_CHECK(result.status.ok());
      if (answer != nullptr) *answer = result.answers[0].tokens;
    };
    Must(engine_->Submit(request, callbacks));
  }
  static void Add(const EngineStats& before, const EngineStats& after, EngineStats* sum) {
    sum->steps += after.steps - before.steps;
    sum->drafted_tokens += after.drafted_tokens - before.drafted_tokens;
    sum->accepted_drafts += after.accepted_drafts - before.accepted_drafts;
    for (size_t i = 0; i < sum->draft_depths.size(); ++i) {
      sum->draft_depths[i] += after.draft_depths[i] - before.draft_depths[i];
    }
  }

  KvPool pool_;
  EngineClock::time_point (*const now_)();
  std::unique_ptr<DraftSource> source_;
  std::unique_ptr<Engine> engine_;
  Outcome outcome_;
  int64_t tokens_ = 0;  // of this round
  double seconds_ = 0;
};

std::vector<Workload> Workloads(const ModelBundle& bundle, const std::string& items_path) {
  std::map<std::string, std::vector<std::string>> prompts;  // by task
  const std::string text = Must(ReadFile(items_path));
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    const Json item = Must(Json::Parse(text.substr(begin, end - begin)));
    prompts[Must(item.GetString("task"))].push_back(Must(item.GetString("prompt")));
    begin = end + 1;
  }
  const auto chat = [&](const std::string& content) {
    return Must(
        bundle.ChatTokens(Json::Array{Json::Object{{"role", "user"}, {"content", content}}}));
  };
  const auto make = [&](std::string name, const std::vector<std::string>& tasks, int64_t max_tokens,
                        double temperature) {
    Workload workload = {std::move(name), {}};
    for (size_t i = 0; workload.requests.size() < kRequests; ++i) {
      const std::vector<std::string>& of_task = prompts.at(tasks[i % tasks.size()]);
      EngineRequest request;
      request.prompt = chat(of_task[i / tasks.size() % of_task.size()]);
      request.max_tokens = max_tokens;
      // Answers of equal length, so that all streams stay busy: the model goes on with the chat.
      request.ignore_stop_tokens = true;
      request.sampling.temperature = temperature;
      request.sampling.seed = i;
      workload.requests.push_back(std::move(request));
    }
    return workload;
  };
  std::vector<Workload> workloads;
  workloads.push_back(make("chat", {"instruction", "facts", "said", "count"}, 96, 0));
  workloads.push_back(make("chat, temperature 0.8", {"instruction", "facts", "said"}, 96, 0.8));
  workloads.push_back(make("copy", {"copy"}, 96, 0));
  workloads.push_back(make("look-up in a list", {"kv", "passkey"}, 96, 0));
  workloads.push_back(make("JSON", {"json"}, 96, 0));
  workloads.push_back(make("random, temperature 3", {"instruction", "copy"}, 96, 3));
  return workloads;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// All requests, `streams` at a time, by each side in turn. False if an answer is not the first's.
bool RunRound(const Workload& workload, size_t streams, uint64_t salt,
              std::vector<std::unique_ptr<Side>>& sides) {
  const size_t count = workload.requests.size();
  std::vector<std::vector<std::vector<Token>>> answers(sides.size());
  for (auto& of_side : answers) of_side.resize(count);
  for (size_t begin = 0; begin < count; begin += streams) {
    for (size_t i = 0; i < sides.size(); ++i) {
      // Whoever goes first has colder caches: everybody in turn.
      const size_t side = (i + begin / streams) % sides.size();
      sides[side]->Run(workload, begin, std::min(begin + streams, count), salt, &answers[side]);
    }
  }
  for (const auto& side : sides) side->EndRound();
  return std::all_of(answers.begin(), answers.end(),
                     [&](const auto& of_side) { return of_side == answers[0]; });
}

void Print(const Workload& workload, size_t streams,
           const std::vector<std::unique_ptr<Side>>& sides) {
  std::printf("%-24s %2zu streams: none %7.0f tok/s", workload.name.c_str(), streams,
              Median(sides[0]->outcome().tokens_per_second));
  for (size_t kind = 1; kind < sides.size(); ++kind) {
    const Outcome& outcome = sides[kind]->outcome();
    std::vector<double> ratios;
    for (size_t i = 0; i < outcome.tokens_per_second.size(); ++i) {
      ratios.push_back(outcome.tokens_per_second[i] / sides[0]->outcome().tokens_per_second[i]);
    }
    std::printf(" | %s x%.3f", kNames[kind], Median(ratios));
    if (kKinds[kind] == DraftKind::kNone) continue;
    int64_t rounds = 0;
    for (const int64_t count : outcome.stats.draft_depths) rounds += count;
    const double drafted = static_cast<double>(outcome.stats.drafted_tokens);
    const double accepted = static_cast<double>(outcome.stats.accepted_drafts);
    std::printf(" (first round %.2f), %2.0f %% right, %.2f kept, depths", ratios[0],
                drafted > 0 ? 100 * accepted / drafted : 0.0,
                rounds > 0 ? accepted / static_cast<double>(rounds) : 0.0);
    constexpr size_t kEnds[] = {1, 2, 3, 5, 9, 17};  // 0, 1, 2, 3-4, 5-8, 9-16
    size_t depth = 0;
    for (const size_t end : kEnds) {
      int64_t count = 0;
      for (; depth < end; ++depth) count += outcome.stats.draft_depths[depth];
      std::printf(
          "%s%.0f", depth == 1 ? " " : "/",
          rounds > 0 ? 100.0 * static_cast<double>(count) / static_cast<double>(rounds) : 0.0);
    }
  }
  std::printf("\n");
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(
        stderr,
        "usage: speculation_bench MODEL DRAFT ITEMS [rounds] [workload] [streams] [processor]\n");
    return 2;
  }
  const int rounds = argc > 4 ? std::max(1, std::atoi(argv[4])) : 3;
  Measure measure;
  if (argc > 7 && std::string(argv[7]) == "processor") measure = {ProcessorTime, 1};
  BundleOptions options;
  options.backend.threads = measure.threads;
  options.kv_budget_bytes = kPoolBytes;
  const auto bundle = Must(ModelBundle::Load(argv[1], options));
  const std::string wanted = argc > 5 ? argv[5] : "";
  const size_t wanted_streams = argc > 6 ? std::strtoul(argv[6], nullptr, 10) : 0;
  std::printf("depths: percent of rounds with 0 / 1 / 2 / 3-4 / 5-8 / 9-16 drafts\n");
  uint64_t salt = 1;
  for (const Workload& workload : Workloads(*bundle, argv[3])) {
    if (!workload.name.starts_with(wanted)) continue;
    for (const size_t streams : {1, 2, 4, 8}) {
      if (wanted_streams != 0 && streams != wanted_streams) continue;
      std::vector<std::unique_ptr<Side>> sides;
      for (const DraftKind kind : kKinds) {
        sides.push_back(std::make_unique<Side>(*bundle, kind, argv[2], measure));
      }
      for (int round = 0; round < rounds; ++round, ++salt) {
        if (RunRound(workload, streams, salt, sides)) continue;
        std::fprintf(stderr, "drafts changed an answer\n");
        return 1;
      }
      Print(workload, streams, sides);
    }
  }
  return 0;
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) { return kvasir::Main(argc, argv); }
