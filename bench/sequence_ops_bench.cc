// What the operations on a long cached sequence cost: 32,768 tokens in the shape of Qwen3-0.6B (28
// layers, 8 KV heads of 128). Microseconds, the median of many; beside them a copy of the same
// rows, which is what engines do that do not share blocks. Deliberately without rows: none of
// these operations reads one.
//   sequence_ops_bench [tokens] [codec]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/bench_util.h"
#include "kvasir/base/check.h"
#include "kvasir/kv/kv_batch.h"
#include "kvasir/kv/kv_sequence.h"
#include "kvasir/kv/kv_snapshot.h"
#include "kvasir/kv/speculation.h"

namespace kvasir {
namespace {

constexpr int kLayers = 28;
constexpr int kRepeats = 101;

double Measured(const std::function<void()>& prepare, const std::function<void()>& work) {
  return MedianMicroseconds(
      kRepeats, [&](int) { prepare(); }, [&](int) { work(); });
}

void Report(const char* operation, double microseconds) {
  std::printf("| %s | %.1f |\n", operation, microseconds);
}

void Run(int64_t tokens, KvCodec codec) {
  KvLayerSpec layer;
  layer.layout = {
      .kv_heads = 8, .key_dim = 128, .value_dim = 128, .key_codec = codec, .value_codec = codec};
  const auto spec = std::make_shared<const KvCacheSpec>(KvCacheSpec::Uniform(kLayers, layer));
  KvPool pool({.budget_bytes = 2 * spec->BytesAt(tokens)});
  KvSequence base = Must(KvSequence::Create(&pool, spec));
  KVASIR_CHECK(base.Reserve(tokens).ok());
  base.Advance(tokens);
  std::printf("%lld tokens, %s, %.2f GB, %d repeats\n\n| operation | microseconds |\n|---|---|\n",
              static_cast<long long>(tokens), codec.name().c_str(),
              static_cast<double>(base.nbytes()) / 1e9, kRepeats);

  std::optional<KvSequence> fork;
  std::optional<KvSnapshot> snapshot;
  const auto refork = [&] { fork.emplace(base.Fork()); };
  Report("fork", Measured([&] { fork.reset(); }, refork));
  Report("end of a fork", Measured(refork, [&] { fork.reset(); }));
  Report("snapshot of everything",
         Measured([&] { snapshot.reset(); }, [&] { snapshot = base.Snapshot(); }));
  Report("restore", Measured([&] { fork.reset(); },
                             [&] { fork = Must(KvSequence::Restore(&pool, *snapshot)); }));
  std::optional<std::pair<KvSnapshot, KvSnapshot>> halves;
  Report("split in the middle", Measured([&] { halves.reset(); },
                                         [&] { halves = Must(snapshot->Split(tokens / 2 + 1)); }));
  std::optional<KvSnapshot> merged;
  Report("merge of the halves",
         Measured([&] { merged.reset(); },
                  [&] { merged = Must(KvSnapshot::Merge(halves->first, halves->second)); }));
  Report("trim by 5", Measured(refork, [&] { Must(fork->Trim(5)); }));
  Report("trim by half", Measured(refork, [&] { Must(fork->Trim(tokens / 2)); }));
  Report("one token after a fork (copies 28 tail blocks)",
         Measured(
             [&] {
               refork();
               Must(fork->Trim(5));
             },
             [&] { KVASIR_CHECK(fork->Reserve(1).ok()); }));
  Report("one token later on",
         Measured([&] { fork->Advance(1); }, [&] { KVASIR_CHECK(fork->Reserve(1).ok()); }));
  fork.reset();

  KvBatch batch;
  const auto fill = [&] {
    batch = KvBatch();
    for (SequenceId id = 0; id < 8; ++id) KVASIR_CHECK(batch.Add(id, base.Fork()).ok());
  };
  const std::vector<SequenceId> keep = {6, 1, 3};
  const std::vector<int64_t> counts = {0, 1, 2, 3, 4, 5, 6, 7};
  Report("filter of a batch, 3 of 8 stay",
         Measured(fill, [&] { KVASIR_CHECK(batch.Filter(keep).ok()); }));
  Report("trim of a batch of 8, each by another count",
         Measured(fill, [&] { Must(batch.TrimEach(counts)); }));
  Report("speculation of 8 opened and rolled back", Measured(fill, [&] {
           Speculation speculation = Must(Speculation::Begin(batch.sequences()));
           speculation.Rollback();
         }));
  batch = KvBatch();

  const size_t bytes = base.nbytes();
  std::vector<std::byte> from(bytes), to(bytes);
  std::memset(from.data(), 1, bytes);
  std::memset(to.data(), 2, bytes);
  double best = 1e18;
  for (int i = 0; i < 3; ++i) {
    const auto start = std::chrono::steady_clock::now();
    std::memcpy(to.data(), from.data(), bytes);
    best = std::min(
        best, std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start)
                  .count());
  }
  Report("for comparison: a copy of these rows", best);
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) {
  const auto codec = kvasir::KvCodec::FromName(argc > 2 ? argv[2] : "f16");
  if (!codec.ok()) {
    std::fprintf(stderr, "%s\n", codec.error().message.c_str());
    return 2;
  }
  const int64_t tokens = argc > 1 ? std::atoll(argv[1]) : 32768;
  if (tokens < 256) {
    std::fprintf(stderr, "usage: sequence_ops_bench [tokens >= 256] [codec]\n");
    return 2;
  }
  kvasir::Run(tokens, *codec);
  return 0;
}
