// What speculative decoding brings: tokens per second of whole batches with and without drafts,
// by workload and number of streams, alternating in one run.
// Deliberately also a check: a drafter that changes a token of an answer ends the program.
//
//   speculation_bench MODEL DRAFT ITEMS [rounds] [workload] [streams] [measure]
//
// ITEMS holds one JSON object per line with the fields task, prompt and answer
// (models/kvasir-demo/items.jsonl). Prompts are read before the clock starts. The second engine
// without drafts is the control: what it differs from the first by is noise. The engines go on
// in turn. Behind each ratio stand how far it is uncertain and the least and the most of all
// rounds. Measures are those of MeasureFromName; 0 streams are all numbers of them, "" is every
// workload.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "bench/bench_util.h"
#include "bench/draft_side.h"
#include "kvasir/base/file.h"

namespace kvasir {
namespace {

constexpr size_t kRequests = 16;  // of a workload, whatever the number of streams
constexpr int64_t kAnswerTokens = 96;
constexpr DraftKind kKinds[] = {DraftKind::kNone, DraftKind::kNone, DraftKind::kNgram,
                                DraftKind::kModel};
constexpr const char* kNames[] = {"none", "control", "ngram", "model"};

struct Workload {
  std::string name;
  std::vector<EngineRequest> requests;
};

// Source text of a class with a getter and a setter for each field, as completion is asked to go on
// with: the members of the last field are still to be written.
std::string CodePrompt(size_t seed) {
  static constexpr const char* kThings[] = {"Piano", "Garden", "Robot", "Market", "Lamp", "Basket"};
  static constexpr const char* kFields[] = {"colour", "owner",  "weight", "price",
                                            "city",   "height", "label",  "age"};
  static constexpr const char* kTypes[] = {"str", "int", "float"};
  const std::string thing = kThings[seed % std::size(kThings)];
  const auto field = [&](size_t i) {
    return std::string(kFields[(seed * 3 + i) % std::size(kFields)]);
  };
  constexpr size_t kMembers = 6;
  std::string text = "class " + thing + ":\n    def __init__(self";
  for (size_t i = 0; i < kMembers; ++i) text += ", " + field(i);
  text += "):\n";
  for (size_t i = 0; i < kMembers; ++i)
    text += "        self." + field(i) + " = " + field(i) + "\n";
  for (size_t i = 0; i + 1 < kMembers; ++i) {
    const std::string type = kTypes[(seed + i) % std::size(kTypes)];
    text += "\n    def get_" + field(i) + "(self) -> " + type + ":\n        return self." +
            field(i) + "\n\n    def set_" + field(i) + "(self, " + field(i) + ": " + type +
            "):\n        self." + field(i) + " = " + field(i) + "\n";
  }
  return text + "\n    def get_" + field(kMembers - 1);
}

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
  const auto prompt_of = [&](const std::vector<std::string>& tasks, size_t i) {
    if (tasks.empty()) {
      return bundle.tokenizer()->Encode(CodePrompt(i), {.add_special = true});
    }
    const std::string& task = tasks[i % tasks.size()];
    const std::vector<std::string>& of_task = prompts[task];
    if (of_task.empty()) {
      std::fprintf(stderr, "%s: has no item of task '%s'\n", items_path.c_str(), task.c_str());
      std::exit(2);
    }
    return chat(of_task[i / tasks.size() % of_task.size()]);
  };
  // Without tasks: code to go on with.
  const auto make = [&](std::string name, const std::vector<std::string>& tasks,
                        double temperature) {
    Workload workload = {std::move(name), {}};
    std::map<std::vector<Token>, uint64_t> asked;  // how often
    for (size_t i = 0; workload.requests.size() < kRequests; ++i) {
      EngineRequest request;
      request.prompt = prompt_of(tasks, i);
      request.max_tokens = kAnswerTokens;
      // Answers of equal length, so that all streams stay busy: the model goes on with the chat.
      request.ignore_stop_tokens = true;
      request.sampling.temperature = temperature;
      request.sampling.seed = i;
      request.salt = asked[request.prompt]++;
      workload.requests.push_back(std::move(request));
    }
    return workload;
  };
  std::vector<Workload> workloads;
  workloads.push_back(make("chat", {"instruction", "facts", "said", "count"}, 0));
  workloads.push_back(make("chat, temperature 0.8", {"instruction", "facts", "said"}, 0.8));
  workloads.push_back(make("code", {}, 0));
  workloads.push_back(make("copy", {"copy"}, 0));
  workloads.push_back(make("look-up in a list", {"kv", "passkey"}, 0));
  workloads.push_back(make("JSON", {"json"}, 0));
  workloads.push_back(make("random, temperature 3", {"instruction", "copy"}, 3));
  return workloads;
}

using Sides = std::vector<std::unique_ptr<DraftSide>>;

// All requests, `streams` at a time, by all sides in turn. False if an answer is not the first's.
bool RunRound(const Workload& workload, size_t streams, uint64_t salt, const Sides& sides) {
  std::vector<DraftSide*> of_all;
  for (const auto& side : sides) of_all.push_back(side.get());
  const std::vector<Answers> answers = RunInTurn(of_all, workload.requests, streams, salt);
  bool are_equal = true;
  for (const Answers& of_side : answers) are_equal &= of_side == answers[0];
  for (const auto& side : sides) side->EndRound();
  return are_equal;
}

void Print(const Workload& workload, size_t streams, const Measure& measure, const Sides& sides) {
  std::printf("%-24s %2zu streams: none %7.0f %s", workload.name.c_str(), streams,
              Median(sides[0]->tokens_per_second()), measure.unit.c_str());
  for (size_t kind = 1; kind < sides.size(); ++kind) {
    const std::vector<double> ratios = sides[kind]->RatiosTo(*sides[0]);
    std::printf(" | %s x%s (rounds %s", kNames[kind],
                sides[kind]->RatioTo(*sides[0]).Describe().c_str(), DescribeSpread(ratios).c_str());
    if (kKinds[kind] == DraftKind::kNone) {
      std::printf(")");
      continue;
    }
    std::printf(", first round %.3f), %s", ratios[0], sides[kind]->DescribeDrafts().c_str());
  }
  std::printf("\n");
  std::fflush(stdout);
}

int Main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(
        stderr,
        "usage: speculation_bench MODEL DRAFT ITEMS [rounds] [workload] [streams] [measure]\n");
    return 2;
  }
  const int rounds = argc > 4 ? std::max(1, std::atoi(argv[4])) : 3;
  const Measure measure = Must(MeasureFromName(argc > 7 ? argv[7] : ""));
  BundleOptions options;
  options.backend.threads = measure.threads;
  options.kv_budget_bytes = kSidePoolBytes;
  const auto bundle = Must(ModelBundle::Load(argv[1], options));
  const std::string wanted = argc > 5 ? argv[5] : "";
  const size_t wanted_streams = argc > 6 ? std::strtoul(argv[6], nullptr, 10) : 0;
  if (wanted_streams > 8 || (wanted_streams & (wanted_streams - 1)) != 0) {
    std::fprintf(stderr, "streams are 1, 2, 4 or 8; 0 is each of them\n");
    return 2;
  }
  std::printf("%s\n", kDraftFigures);
  uint64_t salt = 1;
  bool is_any = false;
  for (const Workload& workload : Workloads(*bundle, argv[3])) {
    if (!workload.name.starts_with(wanted)) continue;
    is_any = true;
    for (const size_t streams : {1, 2, 4, 8}) {
      if (wanted_streams != 0 && streams != wanted_streams) continue;
      Sides sides;
      for (const DraftKind kind : kKinds) {
        sides.push_back(std::make_unique<DraftSide>(*bundle, measure));
        sides.back()->UseSource(Must(DraftSource::Load({kind, argv[2], options}, *bundle)));
      }
      for (int round = 0; round < rounds; ++round, ++salt) {
        if (RunRound(workload, streams, salt, sides)) continue;
        std::fprintf(stderr, "drafts changed an answer\n");
        return 1;
      }
      Print(workload, streams, measure, sides);
    }
  }
  if (is_any) return 0;
  std::fprintf(stderr, "no workload begins with '%s'\n", wanted.c_str());
  return 2;
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) { return kvasir::Main(argc, argv); }
