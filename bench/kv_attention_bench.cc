// Attention of one decoded token over a long cache, per cache format: the shape of Qwen3-0.6B (28
// layers, 8 KV heads of 128, two queries each). Prints milliseconds per token of all layers, GB/s
// and the ratio to f16, measured alternately in one run. Then the cost of encoding rows.
// Deliberately without a model: matmuls would hide what the cache costs.
//   kv_attention_bench [tokens] [threads] [repeats] [format ...]
// "@float", "@int16" or "@int8" behind a format chooses what it is multiplied in, "@l1" or "@l2"
// the cache that what is read next is fetched into; "@x4" makes scores four times as large, so that
// few tokens have most of the weights.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "bench/bench_util.h"
#include "kvasir/backend/cpu_backend.h"
#include "kvasir/base/check.h"
#include "kvasir/tensor/aligned_buffer.h"

namespace kvasir {
namespace {

constexpr int kLayers = 28;
constexpr int kKvHeads = 8;
constexpr int kGroup = 2;
constexpr int kDim = 128;

double Milliseconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - since)
      .count();
}

std::vector<float> RandomFloats(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> out(count);
  for (float& value : out) value = normal(random);
  return out;
}

// How a cache is read.
struct How {
  AttentionMath math = AttentionMath::kAuto;
  Prefetching prefetching = PreferredPrefetching();
  float sharpness = 1;  // the standard deviation of scores

  auto operator<=>(const How&) const = default;
};

// A cache of all layers in one format, its blocks in a shuffled order as a pool hands them out.
class Cache {
 public:
  Cache(std::string name, const How& how, KvCodec keys, KvCodec values, int64_t tokens)
      : name_(std::move(name)),
        how_(how),
        layout_{.kv_heads = kKvHeads,
                .key_dim = kDim,
                .value_dim = kDim,
                .key_codec = keys,
                .value_codec = values},
        tokens_(tokens),
        blocks_per_layer_(static_cast<size_t>((tokens + kBlockTokens - 1) / kBlockTokens)) {
    const size_t count = blocks_per_layer_ * kLayers;
    const size_t bytes = layout_.BlockBytes(0);
    auto memory = AlignedBuffer::Allocate(count * bytes);
    KVASIR_CHECK(memory.ok());
    memory_ = *std::move(memory);
    for (size_t i = 0; i < count; ++i) blocks_.push_back(memory_.data() + i * bytes);
    std::shuffle(blocks_.begin(), blocks_.end(), std::mt19937(2));
  }

  const std::string& name() const { return name_; }
  const How& how() const { return how_; }
  double bytes() const {
    return static_cast<double>(layout_.BlockBytes(0)) * static_cast<double>(blocks_.size());
  }

  // Every block holds the same rows; returns milliseconds per token and layer of encoding them
  // `rows` at a time.
  double Fill(Backend& backend, int64_t rows) {
    std::vector<float> floats = RandomFloats(kBlockTokens * kKvHeads * kDim, 1);
    const ConstFloatRows all = {floats.data(), kBlockTokens, kKvHeads * kDim, kKvHeads * kDim};
    double elapsed = 0;
    constexpr int kRepeats = 20;
    for (int repeat = 0; repeat < kRepeats; ++repeat) {
      const auto start = std::chrono::steady_clock::now();
      for (int64_t row = 0; row < kBlockTokens; row += rows) {
        const KvRun run = {{std::span(blocks_).first(1), 0, {}}, row, row, rows};
        backend.EncodeKv(layout_, std::span(&run, 1), all, all);
      }
      elapsed += Milliseconds(start);
    }
    for (size_t i = 1; i < blocks_.size(); ++i) {
      std::memcpy(blocks_[i], blocks_[0], layout_.BlockBytes(0));
    }
    return elapsed / kRepeats / kBlockTokens;
  }

  // One decoded token, or a chunk of `rows` prefilled ones, in all layers.
  double Attend(Backend& backend, int64_t rows) {
    const std::vector<float> queries = RandomFloats(static_cast<size_t>(rows) * kWidth, 3);
    std::vector<float> out(queries.size());
    std::vector<VisibleRows> visible;
    for (int64_t i = 0; i < rows; ++i) visible.push_back({0, 0, tokens_ - rows + i + 1});
    const auto start = std::chrono::steady_clock::now();
    for (size_t layer = 0; layer < kLayers; ++layer) {
      const std::span<std::byte* const> blocks =
          std::span(blocks_).subspan(layer * blocks_per_layer_, blocks_per_layer_);
      const KvRun run = {{blocks, 0, {}}, tokens_ - rows, 0, rows};
      AttendArgs args;
      args.layout = layout_;
      args.query_heads = kKvHeads * kGroup;
      args.scale = 0.088f * how_.sharpness;
      args.queries = {queries.data(), rows, kWidth, kWidth};
      args.runs = std::span(&run, 1);
      args.visible = visible;
      args.out = {out.data(), rows, kWidth, kWidth};
      backend.Attend(args);
    }
    return Milliseconds(start);
  }

 private:
  static constexpr int64_t kWidth = kKvHeads * kGroup * kDim;

  std::string name_;
  How how_;
  KvLayout layout_;
  int64_t tokens_;
  size_t blocks_per_layer_;
  AlignedBuffer memory_;
  std::vector<std::byte*> blocks_;
};

// The fastest: whatever else runs on the machine only ever adds time.
double Best(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

// What follows a format, each part behind an "@".
How HowFromName(std::string_view parts) {
  How how;
  while (!parts.empty()) {
    const std::string_view part = parts.substr(1, parts.find('@', 1) - 1);
    parts.remove_prefix(1 + part.size());
    if (part.starts_with('l')) {
      how.prefetching = Must(PrefetchingFromName(part));
    } else if (part.starts_with('x')) {
      how.sharpness = std::strtof(std::string(part.substr(1)).c_str(), nullptr);
    } else {
      how.math = Must(AttentionMathFromName(part));
    }
  }
  return how;
}

// "turbo3" or keys and values apart: "turbo3/turbo4".
std::unique_ptr<Cache> MakeCache(const std::string& name, int64_t tokens) {
  const std::string formats = name.substr(0, name.find('@'));
  const size_t slash = formats.find('/');
  const KvCodec keys = Must(KvCodec::FromName(formats.substr(0, slash)));
  const KvCodec values =
      Must(KvCodec::FromName(slash == std::string::npos ? formats : formats.substr(slash + 1)));
  const How how = HowFromName(std::string_view(name).substr(formats.size()));
  return std::make_unique<Cache>(name, how, keys, values, tokens);
}

// One per way to read, which share nothing but the machine.
class Backends {
 public:
  explicit Backends(int threads) : threads_(threads) {}

  Backend& For(const How& how) {
    std::unique_ptr<Backend>& backend = by_how_[how];
    if (backend == nullptr) {
      backend = Must(MakeCpuBackend(
          {.threads = threads_, .attention = how.math, .prefetching = how.prefetching}));
    }
    return *backend;
  }

 private:
  const int threads_;
  std::map<How, std::unique_ptr<Backend>> by_how_;
};

void PrintAttention(Backends& backends, std::vector<std::unique_ptr<Cache>>& caches, int64_t rows,
                    int repeats) {
  std::vector<std::vector<double>> times(caches.size());
  for (int repeat = 0; repeat < repeats; ++repeat) {
    for (size_t i = 0; i < caches.size(); ++i) {
      times[i].push_back(caches[i]->Attend(backends.For(caches[i]->how()), rows));
    }
  }
  std::printf("\n%lld new tokens:     ms  x f16   GB/s  bytes bound x\n",
              static_cast<long long>(rows));
  const double base = Best(times[0]);
  for (size_t i = 0; i < caches.size(); ++i) {
    const double time = Best(times[i]);
    std::printf("%-16s %8.2f %6.2f %6.1f %6.2f\n", caches[i]->name().c_str(), time, base / time,
                caches[i]->bytes() / time / 1e6, caches[0]->bytes() / caches[i]->bytes());
  }
}

constexpr int64_t kLeastTokens = 256;  // as many are new at once

int Run(int argc, char** argv) {
  const int64_t tokens = argc > 1 ? std::atoll(argv[1]) : 16384;
  const int threads = argc > 2 ? std::atoi(argv[2]) : 2;
  const int repeats = argc > 3 ? std::atoi(argv[3]) : 7;
  if (tokens < kLeastTokens || threads < 1 || repeats < 1) {
    std::fprintf(stderr,
                 "usage: kv_attention_bench [tokens >= %lld] [threads] [repeats] [codec ...]\n",
                 static_cast<long long>(kLeastTokens));
    return 2;
  }
  std::vector<std::string> names = {"f16"};
  for (int i = 4; i < argc; ++i) names.emplace_back(argv[i]);
  if (names.size() == 1) {
    names.insert(names.end(), {"affine8:64", "affine6:64", "affine5:64", "affine4:64", "affine3:64",
                               "affine2:64", "turbo4", "turbo3/turbo4", "turbo3", "turbo2"});
  }
  Backends backends(threads);
  Backend& backend = backends.For({});
  std::printf("%s, %lld tokens\n", backend.Describe().c_str(), static_cast<long long>(tokens));
  std::printf("encoding, us per token of all layers: one by one, by 64\n");
  std::vector<std::unique_ptr<Cache>> caches;
  for (const std::string& name : names) {
    caches.push_back(MakeCache(name, tokens));
    const double block = caches.back()->Fill(backend, kBlockTokens);
    const double single = caches.back()->Fill(backend, 1);
    std::printf("%-16s %8.1f %8.1f\n", name.c_str(), single * kLayers * 1e3, block * kLayers * 1e3);
  }
  PrintAttention(backends, caches, 1, repeats);
  PrintAttention(backends, caches, 256, 1);
  return 0;
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) { return kvasir::Run(argc, argv); }
