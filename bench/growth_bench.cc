// How a cache grows: one token at a time into every layer, timing each step.
// Prints one line; deliberately not a Google Benchmark: the worst single step is the figure.
//
// Usage: growth_bench [layers] [kv_heads] [head_dim] [tokens]   (default: 28 8 128 32768, f16)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "kvasir/backend/cpu_backend.h"
#include "kvasir/base/system_info.h"
#include "kvasir/kv/kv_pool.h"
#include "kvasir/kv/kv_sequence.h"

namespace kvasir {
namespace {

struct GrowthOptions {
  int layers = 28;
  int kv_heads = 8;
  int head_dim = 128;
  int64_t tokens = 32768;
};

double Milliseconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

// Reserve, encode one row per layer, advance.
Status AppendToken(KvSequence& sequence, Backend& backend, ConstFloatRows row) {
  KVASIR_TRY_OK(sequence.Reserve(1));
  for (size_t i = 0; i < sequence.spec().layers.size(); ++i) {
    const KvRun run = {sequence.Blocks(static_cast<int>(i)), sequence.position(), 0, 1};
    backend.EncodeKv(sequence.spec().layers[i].layout, std::span(&run, 1), row, row);
  }
  sequence.Advance(1);
  return {};
}

Status Measure(const GrowthOptions& options) {
  const KvCodec f16 = {KvCodec::Kind::kF16};
  const KvLayerSpec layer = {
      .layout = {options.kv_heads, options.head_dim, options.head_dim, f16, f16},
      .retention = RetentionSpec::All()};
  const auto spec =
      std::make_shared<const KvCacheSpec>(KvCacheSpec::Uniform(options.layers, layer));
  const size_t cache_bytes = spec->BytesAt(options.tokens);
  KVASIR_TRY(const auto backend, MakeCpuBackend({.threads = 1}));
  KvPool pool({.budget_bytes = 2 * cache_bytes + (size_t{64} << 20)});
  KVASIR_TRY(KvSequence sequence, KvSequence::Create(&pool, spec));
  const int64_t cols = int64_t{options.kv_heads} * options.head_dim;
  const std::vector<float> row(static_cast<size_t>(cols), 0.5f);
  const size_t resident_before = PeakResidentBytes();

  std::vector<double> steps;
  steps.reserve(static_cast<size_t>(options.tokens));
  const auto start = std::chrono::steady_clock::now();
  for (int64_t token = 0; token < options.tokens; ++token) {
    const auto step_start = std::chrono::steady_clock::now();
    KVASIR_TRY_OK(AppendToken(sequence, *backend, {row.data(), 1, cols, cols}));
    steps.push_back(Milliseconds(std::chrono::steady_clock::now() - step_start));
  }
  const double total_ms = Milliseconds(std::chrono::steady_clock::now() - start);
  const size_t resident = PeakResidentBytes() - resident_before;
  std::sort(steps.begin(), steps.end());
  const KvPoolStats stats = pool.Stats();
  std::printf(
      "%d layers x %lld tokens: total %.0f ms, step median %.3f ms, 99.9 %% %.3f ms, worst %.3f "
      "ms; "
      "cache %.0f MiB, peak resident %.2f x, reserved %.2f x, copied %llu bytes\n",
      options.layers, static_cast<long long>(options.tokens), total_ms, steps[steps.size() / 2],
      steps[steps.size() * 999 / 1000], steps.back(), static_cast<double>(cache_bytes) / (1 << 20),
      static_cast<double>(resident) / static_cast<double>(cache_bytes),
      static_cast<double>(stats.reserved_bytes) / static_cast<double>(cache_bytes),
      static_cast<unsigned long long>(stats.copied_bytes));
  return {};
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) {
  kvasir::GrowthOptions options;
  if (argc > 1) options.layers = std::atoi(argv[1]);
  if (argc > 2) options.kv_heads = std::atoi(argv[2]);
  if (argc > 3) options.head_dim = std::atoi(argv[3]);
  if (argc > 4) options.tokens = std::atoll(argv[4]);
  if (options.layers < 1 || options.kv_heads < 1 || options.head_dim < 2 || options.tokens < 1) {
    std::fprintf(stderr, "usage: growth_bench [layers] [kv_heads] [head_dim] [tokens]\n");
    return 2;
  }
  const kvasir::Status status = kvasir::Measure(options);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.error().message.c_str());
  return status.ok() ? 0 : 1;
}
