// What choosing the rows of a budget costs: scores of all layers, then the selection, one thread.
// Deliberately without moving a row: that is the sequence's part. Columns: tokens, layers.
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "kvasir/kv/row_codec.h"
#include "kvasir/kv/row_scores.h"
#include "kvasir/kv/select_rows.h"

namespace kvasir {
namespace {

constexpr int kKvHeads = 8;
constexpr int kQueryHeads = 16;
constexpr int kDim = 128;

// One layer of random rows.
struct Cache {
  KvLayerSpec spec;
  std::vector<std::byte> storage;
  std::vector<std::byte*> blocks;
  std::vector<Position> positions;
};

KvLayerSpec SpecFor(RowScore score, KvCodec codec, int64_t rows) {
  KvLayerSpec spec;
  spec.layout = {.kv_heads = kKvHeads,
                 .key_dim = kDim,
                 .value_dim = kDim,
                 .key_codec = codec,
                 .value_codec = codec,
                 .key_norms = UsesKeyNorms(score)};
  spec.retention = {.kind = RetentionSpec::Kind::kBudget,
                    .size = rows / 2,
                    .keep = 4,
                    .interval = rows / 2,
                    .recent = 128,
                    .score = score};
  if (NeedsQueries(score)) {
    spec.layout.query_floats = kQueryHeads * kDim;
    spec.layout.observed_block = rows / kBlockTokens - 1;
  }
  spec.inv_freq.assign(kDim / 2, 0.01f);
  return spec;
}

void Fill(Cache& cache, int64_t rows) {
  const KvLayout& layout = cache.spec.layout;
  size_t bytes = 0;
  for (int64_t i = 0; i < rows / kBlockTokens; ++i) bytes += layout.BlockBytes(i);
  cache.storage.resize(bytes);
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> row(kKvHeads * kDim);
  std::byte* at = cache.storage.data();
  for (int64_t i = 0; i < rows / kBlockTokens; ++i) {
    const KvBlockLayout block = layout.BlockAt(i);
    for (int slot = 0; slot < kBlockTokens; ++slot) {
      for (float& x : row) x = normal(random);
      EncodeRow(block, at, slot, row, row);
      cache.positions.push_back(i * kBlockTokens + slot);
    }
    std::vector<float> queries(static_cast<size_t>(kBlockTokens) * block.query_floats, 0.5f);
    if (!queries.empty()) {
      std::memcpy(at + block.QueriesOffset(), queries.data(), queries.size() * sizeof(float));
    }
    at += block.BlockBytes();
  }
}

// Every layer has its own memory, as in an engine: nothing is warm from the layer before.
std::vector<Cache> Copies(const Cache& cache, int64_t layers) {
  std::vector<Cache> copies(static_cast<size_t>(layers), cache);
  for (Cache& copy : copies) {
    std::byte* at = copy.storage.data();
    for (size_t i = 0; i < copy.positions.size() / kBlockTokens; ++i) {
      copy.blocks.push_back(at);
      at += copy.spec.layout.BlockBytes(static_cast<int64_t>(i));
    }
  }
  return copies;
}

void BM_Choose(benchmark::State& state, RowScore score, KvCodec codec) {
  const int64_t rows = state.range(0);
  Cache cache;
  cache.spec = SpecFor(score, codec, rows);
  Fill(cache, rows);
  const std::vector<Cache> layers = Copies(cache, state.range(1));
  for (auto _ : state) {
    std::vector<float> scores(static_cast<size_t>(rows), 0.0f);
    for (const Cache& layer : layers) {
      AddRowScores(score,
                   {.spec = &layer.spec,
                    .blocks = {.blocks = layer.blocks},
                    .positions = layer.positions,
                    .next = rows},
                   scores);
    }
    benchmark::DoNotOptimize(SelectRows(scores, cache.positions, cache.spec.retention));
  }
}

void Register() {
  const KvCodec f16 = {KvCodec::Kind::kF16};
  for (const RowScore score :
       {RowScore::kKnorm, RowScore::kStreaming, RowScore::kRandom, RowScore::kKeyDiff,
        RowScore::kLagKv, RowScore::kTova, RowScore::kExpectedAttention}) {
    for (const KvCodec codec : {f16, KvCodec::Affine(4, 64), KvCodec::Turbo(4)}) {
      const std::string name = "choose/" + std::string(RowScoreName(score)) + "/" + codec.name();
      benchmark::RegisterBenchmark(name.c_str(), BM_Choose, score, codec)
          ->Unit(benchmark::kMillisecond)
          ->Args({1280, 28})
          ->Args({8192, 36});
    }
  }
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) {
  kvasir::Register();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
