// What clients of `kvasir serve` wait for: batches, shared prefixes, cached conversations, a
// cancel. Deliberately over real sockets with token ids as prompts: no tokenizer of a published
// model is needed, and everything between the socket and the forward pass is in the figures.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "bench/bench_util.h"
#include "bench/shape_model.h"
#include "kvasir/base/json.h"
#include "kvasir/formats/model_config.h"
#include "kvasir/server/test_client.h"
#include "tests/support/server_process.h"

namespace kvasir {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kSharedTokens = 2048;
constexpr int64_t kOwnTokens = 32;
constexpr int kRepetitions = 3;

double Ms(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

// `count` token ids, small enough for any vocabulary; another `kind` differs from the first on.
std::vector<int64_t> Tokens(int64_t kind, int64_t count) {
  std::vector<int64_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back((kind * 104729 + i * 7919 + 13) % 4000);
  return tokens;
}

std::vector<int64_t> Joined(std::vector<int64_t> a, const std::vector<int64_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::string Body(const std::vector<int64_t>& prompt, int64_t max_tokens) {
  return Json(Json::Object{{"prompt", Json::Array(prompt.begin(), prompt.end())},
                           {"max_tokens", max_tokens},
                           {"temperature", 0},
                           {"ignore_eos", true},
                           {"stream", true},
                           {"stream_options", Json::Object{{"include_usage", true}}}})
      .Dump();
}

struct Streamed {
  Clock::time_point sent;
  std::vector<Clock::time_point> texts;  // when each piece of text came
  int64_t generated_tokens = 0;
  int64_t cached_tokens = 0;

  double first_ms() const { return texts.empty() ? 0 : Ms(sent, texts.front()); }
  double total_ms() const { return texts.empty() ? 0 : Ms(sent, texts.back()); }
  // From one token to the next, in the median.
  double step_ms() const {
    std::vector<double> gaps;
    for (size_t i = 1; i < texts.size(); ++i) gaps.push_back(Ms(texts[i - 1], texts[i]));
    return Median(std::move(gaps));
  }
};

class Bench {
 public:
  Bench(std::string program, std::string folder)
      : program_(std::move(program)), folder_(std::move(folder)) {}

  // A server that has cached nothing.
  Status Restart() {
    if (server_) KVASIR_TRY_OK(server_->Stop());
    server_.reset();
    KVASIR_TRY(server_, ServerProcess::Start(program_, {"-m", folder_, "--random-weights",
                                                        "--weights", "q8", "--cache-bytes", "8G"}));
    return {};
  }
  Status Stop() { return server_ ? server_->Stop() : Status(); }
  const ServerProcess& server() const { return *server_; }

  Result<Streamed> Ask(const std::vector<int64_t>& prompt, int64_t max_tokens) const {
    TestClient client(server_->port());
    Streamed streamed;
    streamed.sent = Clock::now();
    client.SendRequest("POST", "/v1/completions", Body(prompt, max_tokens));
    const int status = client.ReadHead().status;
    if (status != 200) return {ErrorCode::kIo, "the answer's status is " + std::to_string(status)};
    std::string event;
    while (client.ReadEvent(&event)) {
      if (event == "data: [DONE]") return streamed;
      const auto json = Json::Parse(event.substr(std::min<size_t>(event.size(), 6)));
      if (!json.ok()) continue;  // a comment
      const Json* usage = json->Find("usage");
      if (usage != nullptr && usage->is_object()) {
        streamed.generated_tokens = usage->Find("completion_tokens")->as_int();
        streamed.cached_tokens =
            usage->Find("prompt_tokens_details")->Find("cached_tokens")->as_int();
      } else if (!json->Find("choices")->as_array()[0].Find("text")->as_string().empty()) {
        streamed.texts.push_back(Clock::now());  // the last event only says why it ended
      }
    }
    return {ErrorCode::kIo, "the stream has no end; last event: " + event};
  }

  // All at once, each on a connection of its own.
  Result<std::vector<Streamed>> AskAll(const std::vector<std::vector<int64_t>>& prompts,
                                       int64_t max_tokens) const {
    std::vector<std::future<Result<Streamed>>> answers;
    for (const auto& prompt : prompts) {
      answers.push_back(std::async(std::launch::async, [&] { return Ask(prompt, max_tokens); }));
    }
    std::vector<Result<Streamed>> done;
    for (auto& answer : answers) done.push_back(answer.get());
    std::vector<Streamed> all;
    for (auto& answer : done) {
      if (!answer.ok()) return answer.error();
      all.push_back(*std::move(answer));
    }
    return all;
  }

 private:
  const std::string program_;
  const std::string folder_;
  std::unique_ptr<ServerProcess> server_;
};

// Tokens per second from the moment when all streams have begun until the first ends.
double SharedRate(const std::vector<Streamed>& streams) {
  Clock::time_point begin = streams[0].texts.front(), end = streams[0].texts.back();
  for (const Streamed& stream : streams) {
    begin = std::max(begin, stream.texts.front());
    end = std::min(end, stream.texts.back());
  }
  double tokens = 0;
  for (const Streamed& stream : streams) {
    tokens += static_cast<double>(
        std::count_if(stream.texts.begin(), stream.texts.end(),
                      [&](Clock::time_point at) { return at > begin && at <= end; }));
  }
  return tokens / (Ms(begin, end) / 1000);
}

double WholeRate(const std::vector<Streamed>& streams) {
  Clock::time_point begin = streams[0].sent, end = begin;
  double tokens = 0;
  for (const Streamed& stream : streams) {
    begin = std::min(begin, stream.sent);
    end = std::max(end, stream.texts.back());
    tokens += static_cast<double>(stream.generated_tokens);
  }
  return tokens / (Ms(begin, end) / 1000);
}

Status Decode(Bench& bench) {
  std::printf(
      "\n| streams | tokens/s, prompts of 128 included | decoding alone |\n|---|---|---|\n");
  KVASIR_TRY_OK(bench.Restart());
  int64_t kind = 1;
  for (const int64_t count : {1, 2, 4, 8, 16}) {
    double whole = 0, decode = 0;
    for (int i = 0; i < kRepetitions; ++i) {
      std::vector<std::vector<int64_t>> prompts;
      for (int64_t stream = 0; stream < count; ++stream) prompts.push_back(Tokens(kind++, 128));
      KVASIR_TRY(const auto cold, bench.AskAll(prompts, 64));
      whole = std::max(whole, WholeRate(cold));
      // The prompts are cached now, so all begin in the same step.
      KVASIR_TRY(const auto warm, bench.AskAll(prompts, 64));
      decode = std::max(decode, SharedRate(warm));
    }
    std::printf("| %lld | %.0f | %.0f |\n", static_cast<long long>(count), whole, decode);
  }
  return {};
}

Status FourClients(Bench& bench) {
  std::printf(
      "\nFour clients at once, 16 tokens each, on 2,048 shared tokens that one has cached:\n");
  KVASIR_TRY_OK(bench.Restart());
  for (int i = 0; i < kRepetitions; ++i) {
    const std::vector<int64_t> shared = Tokens(100 + i, kSharedTokens);
    KVASIR_TRY(const Streamed alone, bench.Ask(Joined(shared, Tokens(200, kOwnTokens)), 1));
    std::vector<std::vector<int64_t>> prompts;
    for (int64_t k = 0; k < 4; ++k) prompts.push_back(Joined(shared, Tokens(200 + k, kOwnTokens)));
    KVASIR_TRY(const auto all, bench.AskAll(prompts, 16));
    double first = 0, total = 0;
    for (const Streamed& stream : all) {
      first = std::max(first, stream.first_ms());
      total = std::max(total, stream.total_ms());
    }
    std::printf(
        "  cold %.0f ms; then the last first token after %.0f ms, everything %.0f ms; cached",
        alone.first_ms(), first, total);
    for (const Streamed& stream : all)
      std::printf(" %lld", static_cast<long long>(stream.cached_tokens));
    std::printf("\n");
  }
  return {};
}

Status CachedPrefix(Bench& bench) {
  std::printf("\nTime to the first token on a cached prefix of 2,048 tokens:\n");
  KVASIR_TRY_OK(bench.Restart());
  for (int i = 0; i < kRepetitions; ++i) {
    const auto shared = Tokens(300 + i, kSharedTokens);
    const auto prompt = Joined(shared, Tokens(400, kOwnTokens));
    KVASIR_TRY(const Streamed cold, bench.Ask(prompt, 1));
    KVASIR_TRY(const Streamed same, bench.Ask(prompt, 32));
    KVASIR_TRY(const Streamed other, bench.Ask(Joined(shared, Tokens(401, kOwnTokens)), 1));
    std::printf(
        "  cold %.0f ms, the same prompt %.1f ms, 32 other tokens at its end %.1f ms;"
        " a decode step there %.1f ms\n",
        cold.first_ms(), same.first_ms(), other.first_ms(), same.step_ms());
  }
  return {};
}

Status OldConversations(Bench& bench) {
  std::printf("\nCold prefill of 2,080 tokens, in ms:\n");
  std::vector<double> empty, crowded;
  for (int i = 0; i < kRepetitions; ++i) {
    KVASIR_TRY_OK(bench.Restart());
    KVASIR_TRY(const Streamed warm_up, bench.Ask(Tokens(490, 64), 4));
    KVASIR_TRY(const Streamed first, bench.Ask(Tokens(500, kSharedTokens + kOwnTokens), 1));
    for (int64_t k = 1; k < 8; ++k) {
      KVASIR_TRY(const Streamed old, bench.Ask(Tokens(500 + k, kSharedTokens + kOwnTokens), 1));
    }
    KVASIR_TRY(const Streamed ninth, bench.Ask(Tokens(508, kSharedTokens + kOwnTokens), 1));
    empty.push_back(first.first_ms());
    crowded.push_back(ninth.first_ms());
    std::printf("  empty server %.0f, with eight old conversations %.0f, ratio %.2f\n",
                empty.back(), crowded.back(), crowded.back() / empty.back());
  }
  std::printf("  ratio of the medians %.2f\n", Median(crowded) / Median(empty));
  return {};
}

Status CancelInPrefill(Bench& bench) {
  std::printf(
      "\nA prompt of 8,000 tokens is left after 1 s; a prompt of 16 tokens at once after it:\n");
  KVASIR_TRY_OK(bench.Restart());
  for (int i = 0; i < kRepetitions; ++i) {
    KVASIR_TRY(const Streamed idle, bench.Ask(Tokens(600 + i, 16), 1));
    TestClient leaver(bench.server().port());
    leaver.SendRequest("POST", "/v1/completions", Body(Tokens(700 + i, 8000), 64));
    std::this_thread::sleep_for(std::chrono::seconds(1));
    leaver.Close();
    KVASIR_TRY(const Streamed next, bench.Ask(Tokens(800 + i, 16), 1));
    std::printf("  first token after %.0f ms; on an idle server %.0f ms\n", next.first_ms(),
                idle.first_ms());
  }
  return {};
}

Status Memory(Bench& bench) {
  KVASIR_TRY_OK(bench.Restart());
  KVASIR_TRY(const ProcessMemory start, ReadProcessMemory(bench.server().pid()));
  KVASIR_TRY(const Streamed answer, bench.Ask(Tokens(900, 64), 64));
  KVASIR_TRY(const ProcessMemory after, ReadProcessMemory(bench.server().pid()));
  std::printf(
      "\nMemory: resident after the start %.0f MiB (%.0f of them not files),"
      " after 64 tokens of prompt and 64 of answer %.0f MiB\n",
      static_cast<double>(start.resident_bytes) / (1 << 20),
      static_cast<double>(start.anonymous_bytes) / (1 << 20),
      static_cast<double>(after.resident_bytes) / (1 << 20));
  return {};
}

struct Scenario {
  const char* name;
  Status (*run)(Bench& bench);
};
constexpr Scenario kScenarios[] = {{"decode", Decode},          {"four", FourClients},
                                   {"prefix", CachedPrefix},    {"old", OldConversations},
                                   {"cancel", CancelInPrefill}, {"memory", Memory}};

Status Run(const std::string& shape, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (std::any_of(std::begin(kScenarios), std::end(kScenarios),
                    [&](const Scenario& scenario) { return scenario.name == name; })) {
      continue;
    }
    return {ErrorCode::kInvalidArgument, "there is no scenario '" + name + "'"};
  }
  constexpr int64_t kLongest = 8064;  // of the prompts here, and their answer
  KVASIR_TRY(const ModelConfig config, ModelConfig::Load(shape));
  const int64_t context = config.max_position_embeddings;
  if (context < kLongest) {
    return {ErrorCode::kInvalidArgument, shape + " has a context of " + std::to_string(context) +
                                             " tokens; " + std::to_string(kLongest) +
                                             " are wanted"};
  }
  std::string folder = (std::filesystem::temp_directory_path() / "serve_bench_XXXXXX").string();
  KVASIR_TRY_OK(MakeShapeModel(shape, &folder));
  Bench bench(KVASIR_PROGRAM, folder);
  Status status;
  for (const Scenario& scenario : kScenarios) {
    if (!names.empty() && std::find(names.begin(), names.end(), scenario.name) == names.end()) {
      continue;
    }
    status = scenario.run(bench);
    if (!status.ok()) break;
  }
  std::filesystem::remove_all(folder);
  KVASIR_TRY_OK(std::move(status));
  return bench.Stop();
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF,
               0);  // it takes minutes, and somebody may be watching a file
  if (argc < 2) {
    std::fprintf(stderr,
                 "usage: serve_bench FOLDER [decode|four|prefix|old|cancel|memory ...]\n"
                 "FOLDER holds a config.json; weights are made up, in 8 bits\n");
    return 2;
  }
  const auto status = kvasir::Run(argv[1], std::vector<std::string>(argv + 2, argv + argc));
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return 1;
}
