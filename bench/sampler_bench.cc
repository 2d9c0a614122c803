// Prints what one sampled token costs, in milliseconds of CPU time, for a vocabulary of 151,936.
// Deliberately not a test: figures depend on the machine.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <span>
#include <utility>
#include <vector>

#include "kvasir/base/rng.h"
#include "kvasir/sampling/logprobs.h"
#include "kvasir/sampling/sampler.h"

namespace {

constexpr size_t kVocabulary = 151'936;  // Qwen3's
constexpr size_t kHistory = 32'768;
constexpr int kRepeats = 5;
constexpr int kDraws = 20;

double CpuMilliseconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) * 1e-6;
}

// Normal noise (Box and Muller 1958).
std::vector<float> NormalLogits(double deviation) {
  std::vector<float> logits(kVocabulary);
  for (size_t i = 0; i < kVocabulary; ++i) {
    const double radius = std::sqrt(-2.0 * std::log(1.0 - kvasir::UniformDouble(1, i)));
    const double angle = 6.283185307179586 * kvasir::UniformDouble(2, i);
    logits[i] = static_cast<float>(deviation * radius * std::cos(angle));
  }
  return logits;
}

// The best of kRepeats averages over kDraws calls.
template <typename Body>
double Best(const Body& body) {
  double best = 1e9;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const double begin = CpuMilliseconds();
    for (int draw = 0; draw < kDraws; ++draw) body(draw);
    best = std::min(best, (CpuMilliseconds() - begin) / kDraws);
  }
  return best;
}

using Case = std::pair<const char*, kvasir::SamplingOptions>;

std::vector<Case> Cases() {
  std::vector<Case> cases = {
      {"greedy", {}},
      {"temperature 0.7, top_k 50", {.temperature = 0.7, .top_k = 50}},
      {"temperature 1, top_k 40, top_p 0.95, min_p 0.05",
       {.temperature = 1.0, .top_k = 40, .top_p = 0.95, .min_p = 0.05}},
      {"temperature 1, top_k 1000", {.temperature = 1.0, .top_k = 1000}},
      {"temperature 1", {.temperature = 1.0}},
      {"temperature 1, min_p 0.05", {.temperature = 1.0, .min_p = 0.05}},
      {"temperature 1, top_p 0.9", {.temperature = 1.0, .top_p = 0.9}},
  };
  const auto add = [&](const char* name, const auto& set) {
    kvasir::SamplingOptions options = {.temperature = 1.0};
    set(options);
    cases.emplace_back(name, options);
  };
  add("temperature 1, typical_p 0.9", [](auto& options) { options.typical_p = 0.9; });
  add("temperature 1, top_n_sigma 1", [](auto& options) { options.top_n_sigma = 1.0; });
  add("temperature 1, top_k 40, xtc 1", [](auto& options) {
    options.top_k = 40;
    options.xtc = {1.0, 0.05};
  });
  add("dynamic temperature", [](auto& options) { options.dynamic_temperature.range = 0.5; });
  add("mirostat 1", [](auto& options) { options.mirostat.version = 1; });
  add("mirostat 2", [](auto& options) { options.mirostat.version = 2; });
  add("top_k 40, penalties, 32,768 tokens before", [](auto& options) {
    options.top_k = 40;
    options.repetition_penalty = 1.1;
    options.presence_penalty = 0.5;
  });
  add("top_k 40, DRY, 32,768 tokens before", [](auto& options) {
    options.top_k = 40;
    options.dry.multiplier = 0.8;
  });
  return cases;
}

}  // namespace

int main() {
  const std::vector<float> flat = NormalLogits(1.0);
  std::vector<float> peaked = NormalLogits(3.0);
  peaked[77] = 18.0f;
  kvasir::Sampler sampler;
  int64_t checksum = 0;  // keeps the calls
  std::printf("%-50s %8s %8s\n", "milliseconds", "flat", "peaked");
  std::vector<kvasir::Token> tokens(kHistory);
  for (size_t i = 0; i < kHistory; ++i) {
    // A text that repeats itself now and then.
    const size_t source = i % 5000 < 4900 ? i : i % 100;
    tokens[i] = static_cast<kvasir::Token>(kvasir::UniformDouble(3, source) * kVocabulary);
  }
  kvasir::MirostatState mirostat;
  const std::span<const kvasir::Token> all = tokens;
  const kvasir::TokenHistory history = {
      all.first(kHistory / 2), all.subspan(kHistory / 2), {}, nullptr, &mirostat};
  for (const auto& [name, options] : Cases()) {
    const auto draw = [&](const std::vector<float>& logits) {
      return Best(
          [&](int position) { checksum += sampler.Sample(logits, options, position, history); });
    };
    const double flat_ms = draw(flat);
    std::printf("%-50s %8.3f %8.3f\n", name, flat_ms, draw(peaked));
  }
  const double logprobs_ms =
      Best([&](int) { checksum += kvasir::Logprobs(flat).Top(20)[0].token; });
  std::printf("%-50s %8.3f\n", "log-probabilities, top 20", logprobs_ms);
  std::printf("checksum %lld\n", static_cast<long long>(checksum));
  return 0;
}
