// Attention, elementwise kernels and those of delta nets on one thread, per instruction set.
// Deliberately without a backend or threads: figures of the loops themselves.
// Caches that are multiplied in integers appear under their names, in floats, and once more with
// the width of their multipliers, such as "affine8:64@int8".
// GB/s counts the cache or row bytes read, FLOP/s two per multiply-add of scores and value sums.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "benchmark/benchmark.h"
#include "kvasir/base/aligned_vector.h"
#include "kvasir/kernels/kernels.h"

namespace kvasir {
namespace {

constexpr int64_t kDim = 128;

std::vector<float> RandomFloats(size_t count) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 0.3f);
  std::vector<float> out(count);
  for (float& value : out) value = normal(random);
  return out;
}

// How a benchmark's cache is stored and multiplied with.
struct Format {
  KvCodec codec;
  std::optional<MultiplierWidth> width = {};  // none: in float

  const IntegerKvKernels* Integer(const KernelTable& table) const {
    return width ? table.IntegerForCodec(codec, *width) : nullptr;
  }
  std::string name() const {
    if (!width) return codec.name();
    return codec.name() + (*width == MultiplierWidth::kOneByte ? "@int8" : "@int16");
  }
};

// Blocks of one KV head in a shuffled order, as a pool hands them out.
class Blocks {
 public:
  Blocks(const KernelTable& table, KvCodec codec, int64_t count)
      : plane_bytes_(codec.HeadBytes(kDim)),
        memory_(2 * plane_bytes_ * static_cast<size_t>(count) + 64) {
    const std::vector<float> rows = RandomFloats(kDim * kBlockTokens);
    const auto misaligned = reinterpret_cast<uintptr_t>(memory_.data()) % 64;
    for (int64_t i = 0; i < count; ++i) {
      std::byte* const block =
          memory_.data() + (64 - misaligned) + static_cast<size_t>(i) * 2 * plane_bytes_;
      EncodeArgs encode = {rows.data(), kDim, kBlockTokens, kDim, 0, block, codec};
      table.ForCodec(codec).encode_keys(encode);
      encode.plane = block + plane_bytes_;
      table.ForCodec(codec).encode_values(encode);
      order_.push_back(block);
    }
    std::shuffle(order_.begin(), order_.end(), std::mt19937(2));
  }

  size_t block_bytes() const { return 2 * plane_bytes_; }
  const std::vector<std::byte*>& order() const { return order_; }
  const std::byte* values(const std::byte* block) const { return block + plane_bytes_; }

 private:
  size_t plane_bytes_;
  std::vector<std::byte> memory_;
  std::vector<std::byte*> order_;
};

struct Queries {
  explicit Queries(int64_t rows)
      : rows(rows),
        queries(RandomFloats(static_cast<size_t>(rows * kDim))),
        scores(static_cast<size_t>(rows * kBlockTokens), 0.01f),
        accumulator(static_cast<size_t>(rows * kDim)),
        begin(static_cast<size_t>(rows), 0),
        end(static_cast<size_t>(rows), kBlockTokens),
        max(static_cast<size_t>(rows), -std::numeric_limits<float>::infinity()),
        sum(static_cast<size_t>(rows)),
        rescale(static_cast<size_t>(rows), 1.0f),
        largest(static_cast<size_t>(rows)) {}

  int64_t rows;
  std::vector<float> queries;
  AlignedVector<float> scores;
  AlignedVector<float> accumulator;
  std::vector<int32_t> begin;
  std::vector<int32_t> end;
  std::vector<float> max;
  std::vector<float> sum;
  std::vector<float> rescale;
  AlignedVector<float> largest;

  // What the integer kernels read; done once per tile, not per block.
  void Quantize(const KernelTable& table, const Format& format) {
    const IntegerKvKernels* const kernels = format.Integer(table);
    if (kernels == nullptr) return;
    codes.resize(static_cast<size_t>(rows * IntegerQueries::CodeBytes(kDim)));
    starts.resize(static_cast<size_t>(rows * IntegerGroups(format.codec, kDim)));
    steps.resize(2 * starts.size());
    weight_codes.resize(starts.size() * IntegerWeights::kCodeBytes);
    weight_starts.resize(starts.size());
    weight_steps.resize(2 * starts.size() + static_cast<size_t>(rows + kBlockTokens));
    kernels->quantize_queries({queries.data(), kDim, rows, kDim, format.codec, 1.0f, Integers()});
  }
  void Score(const KernelTable& table, const Format& format, const std::byte* keys,
             const LinesAhead& next = {}) {
    const ScoreTileArgs args = {.queries = queries.data(),
                                .query_stride = kDim,
                                .rows = rows,
                                .keys = keys,
                                .key_dim = kDim,
                                .scores = scores.data(),
                                .next = next,
                                .codec = format.codec,
                                .integers = Integers()};
    const IntegerKvKernels* const kernels = format.Integer(table);
    (kernels != nullptr ? kernels->score_tile : table.ForCodec(format.codec).score_tile)(args);
  }
  void Softmax(const KernelTable& table) {
    table.softmax_tile({scores.data(), rows, begin.data(), end.data(), 0.0f, max.data(), sum.data(),
                        rescale.data()});
  }
  // The softmax that belongs to the format.
  void Weigh(const KernelTable& table, const Format& format, const std::byte* values,
             const LinesAhead& next = {}) {
    const IntegerKvKernels* const kernels = format.Integer(table);
    if (kernels == nullptr) return Softmax(table);
    const WeighTileArgs args = {.scores = scores.data(),
                                .rows = rows,
                                .begin = begin.data(),
                                .end = end.data(),
                                .max = max.data(),
                                .sum = sum.data(),
                                .rescale = rescale.data(),
                                .largest = largest.data(),
                                .values = values,
                                .value_dim = kDim,
                                .codec = format.codec,
                                .next = next,
                                .out = Weights()};
    table.prepare_scores(args);
    kernels->weigh_tile(args);
  }
  void Accumulate(const KernelTable& table, const Format& format, const std::byte* values,
                  const LinesAhead& next = {}) {
    const AccumulateTileArgs args = {.weights = scores.data(),
                                     .rows = rows,
                                     .begin = begin.data(),
                                     .end = end.data(),
                                     .rescale = rescale.data(),
                                     .values = values,
                                     .value_dim = kDim,
                                     .accumulator = accumulator.data(),
                                     .accumulator_stride = kDim,
                                     .next = next,
                                     .codec = format.codec,
                                     .integers = Weights()};
    const IntegerKvKernels* const kernels = format.Integer(table);
    (kernels != nullptr ? kernels->accumulate_tile
                        : table.ForCodec(format.codec).accumulate_tile)(args);
  }

 private:
  IntegerQueries Integers() {
    return {codes.data(), steps.data(), steps.data() + steps.size() / 2, starts.data()};
  }

  IntegerWeights Weights() {
    float* const shifts = weight_steps.data() + weight_starts.size();
    float* const tops = shifts + weight_starts.size();
    return {weight_codes.data(), weight_steps.data(), shifts, weight_starts.data(), tops,
            tops + rows};
  }

  std::vector<std::byte> codes;
  std::vector<float> steps;
  std::vector<int32_t> starts;
  AlignedVector<std::byte> weight_codes;
  std::vector<float> weight_steps;
  std::vector<int32_t> weight_starts;
};

void SetRates(benchmark::State& state, double bytes, double flops) {
  using Counter = benchmark::Counter;
  const auto rate = Counter::kIsIterationInvariantRate;
  if (bytes > 0) state.counters["B/s"] = Counter(bytes, rate);
  if (flops > 0) state.counters["FLOP/s"] = Counter(flops, rate);
}

double TileFlops(int64_t rows) { return 2.0 * kDim * kBlockTokens * static_cast<double>(rows); }

// Of rows of normal numbers.
void BenchQuantize(benchmark::State& state, Isa isa, Format format) {
  const KernelTable& table = KernelsFor(isa);
  Queries queries(state.range(0));
  for (auto _ : state) {
    queries.Quantize(table, format);
    benchmark::ClobberMemory();
  }
  SetRates(state, static_cast<double>(queries.rows) * kDim * sizeof(float), 0);
}

void BenchScore(benchmark::State& state, Isa isa, Format format) {
  const KernelTable& table = KernelsFor(isa);
  const Blocks blocks(table, format.codec, 1);
  Queries queries(state.range(0));
  queries.Quantize(table, format);
  for (auto _ : state) {
    queries.Score(table, format, blocks.order()[0]);
    benchmark::DoNotOptimize(queries.scores.data());
  }
  SetRates(state, static_cast<double>(blocks.block_bytes()) / 2, TileFlops(queries.rows));
}

void BenchWeigh(benchmark::State& state, Isa isa, Format format) {
  const KernelTable& table = KernelsFor(isa);
  const Blocks blocks(table, format.codec, 1);
  Queries queries(state.range(0));
  queries.Quantize(table, format);
  for (auto _ : state) {
    queries.Weigh(table, format, blocks.values(blocks.order()[0]));
    benchmark::DoNotOptimize(queries.scores.data());
  }
  SetRates(state, static_cast<double>(queries.rows) * kBlockTokens * 4, 0);
}

void BenchAccumulate(benchmark::State& state, Isa isa, Format format) {
  const KernelTable& table = KernelsFor(isa);
  const Blocks blocks(table, format.codec, 1);
  Queries queries(state.range(0));
  queries.Quantize(table, format);
  queries.Weigh(table, format, blocks.values(blocks.order()[0]));
  for (auto _ : state) {
    queries.Accumulate(table, format, blocks.values(blocks.order()[0]));
    benchmark::DoNotOptimize(queries.accumulator.data());
  }
  SetRates(state, static_cast<double>(blocks.block_bytes()) / 2, TileFlops(queries.rows));
}

// All three over many blocks: 4096 of them are 128 MiB of halves, far more than a cache.
void BenchWalk(benchmark::State& state, Isa isa, Format format) {
  const KernelTable& table = KernelsFor(isa);
  const Blocks blocks(table, format.codec, state.range(1));
  Queries queries(state.range(0));
  queries.Quantize(table, format);
  for (auto _ : state) {
    for (size_t i = 0; i < blocks.order().size(); ++i) {
      const std::byte* block = blocks.order()[i];
      const auto plane = static_cast<int64_t>(blocks.block_bytes() / 2);
      queries.Score(table, format, block, {blocks.values(block), plane});
      const LinesAhead next = {blocks.order()[(i + 1) % blocks.order().size()], plane};
      // Half of what comes next is fetched while weights are made, where that is integers.
      queries.Weigh(table, format, blocks.values(block),
                    format.width ? next.FirstHalf() : LinesAhead());
      queries.Accumulate(table, format, blocks.values(block),
                         format.width ? next.SecondHalf() : next);
    }
    benchmark::DoNotOptimize(queries.accumulator.data());
  }
  const auto count = static_cast<double>(blocks.order().size());
  SetRates(state, count * static_cast<double>(blocks.block_bytes()),
           count * 2 * TileFlops(queries.rows));
}

void BenchEncode(benchmark::State& state, Isa isa, Format format) {
  const KernelTable& table = KernelsFor(isa);
  const Blocks blocks(table, format.codec, 1);
  const std::vector<float> rows = RandomFloats(static_cast<size_t>(state.range(0)) * kDim);
  const EncodeArgs args = {rows.data(),       kDim,        state.range(0), kDim, 0,
                           blocks.order()[0], format.codec};
  for (auto _ : state) {
    table.ForCodec(format.codec).encode_keys(args);
    benchmark::DoNotOptimize(args.plane);
  }
  SetRates(state, static_cast<double>(rows.size() * sizeof(float)), 0);
}

using RowKernel = void (*)(const KernelTable&, float* x, float* y, int64_t count);

void BenchRow(benchmark::State& state, Isa isa, RowKernel kernel) {
  const std::vector<float> original = RandomFloats(static_cast<size_t>(state.range(0)));
  const KernelTable& table = KernelsFor(isa);
  std::vector<float> x = original;
  std::vector<float> y = original;
  for (auto _ : state) {
    // In place again and again, the numbers would decay into slow denormals.
    std::copy(original.begin(), original.end(), x.begin());
    kernel(table, x.data(), y.data(), state.range(0));
    benchmark::DoNotOptimize(x.data());
  }
  SetRates(state, static_cast<double>(x.size() * sizeof(float)), 0);
}

void RegisterRows(Isa isa) {
  struct Row {
    const char* name;
    RowKernel kernel;
    int64_t count;
  };
  const Row rows[] = {
      {"rms_norm",
       [](const KernelTable& t, float* x, float* y, int64_t n) { t.rms_norm(x, y, 1e-6f, n, x); },
       4096},
      {"silu_gate",
       [](const KernelTable& t, float* x, float* y, int64_t n) { t.silu_gate(x, y, n); }, 8192},
      {"clamped_gate",
       [](const KernelTable& t, float* x, float* y, int64_t n) { t.clamped_gate(x, y, n); }, 8192},
      {"sigmoid_gate",
       [](const KernelTable& t, float* x, float* y, int64_t n) { t.sigmoid_gate(x, y, n); }, 8192},
      {"gelu_tanh_gate",
       [](const KernelTable& t, float* x, float* y, int64_t n) { t.gelu_tanh_gate(x, y, n); },
       8192},
      {"rope",
       [](const KernelTable& t, float* x, float* y, int64_t n) { t.rope(x, y, y + n / 2, n / 2); },
       128},
      {"softmax", [](const KernelTable& t, float* x, float*, int64_t n) { t.softmax(x, n); },
       151936},
      {"argmax",
       [](const KernelTable& t, float* x, float*, int64_t n) {
         benchmark::DoNotOptimize(t.argmax(x, n));
       },
       151936},
  };
  for (const Row& row : rows) {
    benchmark::RegisterBenchmark(
        (std::string(row.name) + "/" + std::string(IsaName(isa))).c_str(),
        [isa, kernel = row.kernel](benchmark::State& state) { BenchRow(state, isa, kernel); })
        ->Arg(row.count);
  }
}

// A gated delta net's head: its state stays where it is if there are many tokens, and comes from
// memory if there is one, as when 512 heads take turns. Seven operations of a number of the state.
void BenchDeltaRule(benchmark::State& state, Isa isa) {
  const int64_t rows = state.range(0);
  const int64_t heads = rows == 1 ? 512 : 1;
  const std::vector<float> tokens = RandomFloats(static_cast<size_t>(rows * 3 * kDim));
  AlignedVector<float> states(static_cast<size_t>(heads * kDim * kDim), 0.1f);
  const std::vector<float> gates(static_cast<size_t>(rows), 0.5f);
  std::vector<float> out(static_cast<size_t>(rows * kDim));
  for (auto _ : state) {
    for (int64_t head = 0; head < heads; ++head) {
      float* const of_head = states.data() + head * kDim * kDim;
      KernelsFor(isa).delta_rule({.rows = rows,
                                  .key_dim = kDim,
                                  .lanes = kDim,
                                  .queries = tokens.data(),
                                  .keys = tokens.data() + kDim,
                                  .values = tokens.data() + 2 * kDim,
                                  .stride = 3 * kDim,
                                  .decays = gates.data(),
                                  .steps = gates.data(),
                                  .gate_stride = 1,
                                  .state = of_head,
                                  .next = of_head,
                                  .state_stride = kDim,
                                  .out = out.data(),
                                  .out_stride = kDim});
    }
    benchmark::DoNotOptimize(out.data());
  }
  const auto numbers = static_cast<double>(heads * kDim * kDim);
  SetRates(state, numbers * sizeof(float), 7 * numbers * static_cast<double>(rows));
}

// Of a sequence's tokens, in 2,048 channels.
void BenchCausalConv(benchmark::State& state, Isa isa) {
  constexpr int64_t kChannels = 2048;
  constexpr int64_t kWidth = 4;
  const int64_t rows = state.range(0);
  const std::vector<float> x = RandomFloats(static_cast<size_t>(rows * kChannels));
  const std::vector<float> weights = RandomFloats(static_cast<size_t>(kWidth * kChannels));
  std::vector<float> history(static_cast<size_t>((kWidth - 1) * kChannels));
  std::vector<float> out(x.size());
  for (auto _ : state) {
    KernelsFor(isa).causal_conv({.x = x.data(),
                                 .x_stride = kChannels,
                                 .rows = rows,
                                 .weights = weights.data(),
                                 .weight_stride = kChannels,
                                 .width = kWidth,
                                 .history = history.data(),
                                 .next_history = history.data(),
                                 .history_stride = kChannels,
                                 .channel_begin = 0,
                                 .channel_end = kChannels,
                                 .out = out.data(),
                                 .out_stride = kChannels});
    benchmark::DoNotOptimize(out.data());
  }
  SetRates(state, static_cast<double>(x.size() * sizeof(float)), 0);
}

using TileBenchmark = void (*)(benchmark::State&, Isa, Format);

benchmark::internal::Benchmark* Register(const char* name, TileBenchmark body, Isa isa,
                                         Format format) {
  const std::string full =
      std::string(name) + "/" + std::string(IsaName(isa)) + "/" + format.name();
  return benchmark::RegisterBenchmark(full.c_str(),
                                      [=](benchmark::State& state) { body(state, isa, format); });
}

void RegisterTiles(Isa isa, const Format& format) {
  for (int64_t rows : {1, 2, 4, 7, 8, 16, 64}) {
    Register("score_tile", BenchScore, isa, format)->Arg(rows);
    Register("accumulate_tile", BenchAccumulate, isa, format)->Arg(rows);
    if (format.width) Register("weigh_tile", BenchWeigh, isa, format)->Arg(rows);
    Register("walk", BenchWalk, isa, format)->Args({rows, 4096});
    Register("walk", BenchWalk, isa, format)->Args({rows, 8});
  }
}

void RegisterAll() {
  for (Isa isa : SupportedIsas()) {
    if (isa == Isa::kScalar) continue;  // the oracle's speed is nobody's concern
    for (const char* name :
         {"f16", "bf16", "f32", "affine8:64", "affine6:64", "affine5:64", "affine4:64",
          "affine3:64", "affine2:64", "turbo4", "turbo3", "turbo2"}) {
      const KvCodec codec = *KvCodec::FromName(name);
      for (const auto width : {MultiplierWidth::kOneByte, MultiplierWidth::kTwoBytes}) {
        if (KernelsFor(isa).IntegerForCodec(codec, width) == nullptr) continue;
        RegisterTiles(isa, {codec, width});
        Register("quantize_queries", BenchQuantize, isa, {codec, width})->Arg(64);
      }
      RegisterTiles(isa, {codec});
      Register("encode_keys", BenchEncode, isa, {codec})->Arg(1);
      Register("encode_keys", BenchEncode, isa, {codec})->Arg(kBlockTokens);
    }
    for (int64_t rows : {1, 8, 64}) Register("softmax_tile", BenchWeigh, isa, Format{})->Arg(rows);
    RegisterRows(isa);
    const auto with_isa = [isa](const char* name, void (*body)(benchmark::State&, Isa)) {
      return benchmark::RegisterBenchmark(
          (std::string(name) + "/" + std::string(IsaName(isa))).c_str(),
          [=](benchmark::State& state) { body(state, isa); });
    };
    with_isa("delta_rule", BenchDeltaRule)->Arg(1)->Arg(512);
    with_isa("causal_conv", BenchCausalConv)->Arg(1)->Arg(512);
  }
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  kvasir::RegisterAll();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
