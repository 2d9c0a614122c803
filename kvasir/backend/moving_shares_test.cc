// Threads that stall where a share or half of one ends, so that others take over what they have
// left: the bits of matmuls and attention are those of one thread. Deliberately no sleeps: a stall
// is a random number of turns given away, so that who takes what differs from run to run and the
// time it takes means nothing.
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "kvasir/backend/cpu_backend.h"

namespace kvasir {
namespace {

// What the kernels of this file share: they are plain functions.
const KernelTable* g_kernels = nullptr;
std::atomic<uint64_t> g_calls{0};
std::atomic<uint64_t> g_seed{0};
// Which thread multiplied the panels from which on, since the map was emptied.
std::mutex g_mutex;
std::map<int64_t, std::thread::id> g_takers;

// Half of the calls give away up to 256 turns; the others none.
void Stall() {
  uint64_t x = g_seed.load() + g_calls.fetch_add(1) * 0x9E3779B97F4A7C15ull;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  for (uint64_t turns = x >> 63 == 0 ? x >> 40 & 255 : 0; turns > 0; --turns) sched_yield();
}

template <size_t kFormat>
void StallingMatmul(const MatmulArgs& args) noexcept {
  Stall();
  g_kernels->matmul[kFormat](args);
  {
    const std::lock_guard lock(g_mutex);
    g_takers[args.panel_begin] = std::this_thread::get_id();
  }
  Stall();
}
template <size_t kFormat>
void StallingScore(const ScoreTileArgs& args) noexcept {
  g_kernels->kv[kFormat].score_tile(args);
  Stall();
}
template <size_t kWidth, size_t kFormat>
void StallingIntegerScore(const ScoreTileArgs& args) noexcept {
  g_kernels->integer_kv[kWidth][kFormat].score_tile(args);
  Stall();
}

template <size_t... kFormats>
void StallMatmuls(KernelTable* table, std::index_sequence<kFormats...>) {
  const auto one = [](auto& kernel, auto stalling) {
    if (kernel != nullptr) kernel = stalling;
  };
  (one(table->matmul[kFormats], StallingMatmul<kFormats>), ...);
}
template <size_t... kFormats>
void StallScores(KernelTable* table, std::index_sequence<kFormats...>) {
  const auto one = [](auto& kernels, auto stalling) {
    if (kernels.score_tile != nullptr) kernels.score_tile = stalling;
  };
  (one(table->kv[kFormats], StallingScore<kFormats>), ...);
  const auto stall = [&](auto width) {
    constexpr size_t kWidth = decltype(width)::value;
    (one(table->integer_kv[kWidth][kFormats], StallingIntegerScore<kWidth, kFormats>), ...);
  };
  static_assert(kMultiplierWidths == 2);
  stall(std::integral_constant<size_t, 0>());
  stall(std::integral_constant<size_t, 1>());
}

KernelTable Stalling(const KernelTable& kernels) {
  g_kernels = &kernels;
  KernelTable table = kernels;
  StallMatmuls(&table, std::make_index_sequence<kWeightFormats>());
  StallScores(&table, std::make_index_sequence<kKvFormats>());
  return table;
}

std::vector<float> Random(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw;
  std::vector<float> values(count);
  for (float& value : values) value = draw(random);
  return values;
}

FloatRows View(std::vector<float>& values, int64_t cols) {
  return {values.data(), static_cast<int64_t>(values.size()) / cols, cols, cols};
}

class MovingSharesTest : public testing::TestWithParam<Isa> {
 protected:
  static constexpr int kThreads = 5;
  static constexpr unsigned kRuns = 8;

  std::unique_ptr<Backend> Plain() const {
    return std::move(MakeCpuBackend({.threads = 1, .isa = GetParam()})).value();
  }
  std::unique_ptr<Backend> Stalled() const {
    return std::move(MakeCpuBackend({.threads = kThreads, .isa = {}, .kernels = &table_})).value();
  }
  // Every run stalls elsewhere.
  template <typename Run>
  void ExpectSameBits(const Run& run) {
    const std::vector<float> wanted = run(*Plain());
    const auto stalled = Stalled();
    for (unsigned i = 0; i < kRuns; ++i) {
      g_seed = std::random_device()();
      SCOPED_TRACE("seed " + std::to_string(g_seed));
      const uint64_t calls = g_calls;
      const std::vector<float> out = run(*stalled);
      ASSERT_GT(g_calls, calls);
      ASSERT_EQ(out.size(), wanted.size());
      ASSERT_EQ(std::memcmp(out.data(), wanted.data(), wanted.size() * sizeof(float)), 0);
    }
  }

  const KernelTable table_ = Stalling(KernelsFor(GetParam()));
};

// Two matrices with odd numbers of tiles, the last ones of fewer panels, the last panels of fewer
// outputs: rows of one, of a tile, of several and of two bands.
TEST_P(MovingSharesTest, Matmuls) {
  constexpr int64_t kInputs = 256;
  constexpr int64_t kMost = 16 * 4 * 6 + 16 * 2 + 5;
  const auto values = Random(kMost * kInputs, 2);
  for (const WeightFormat format :
       {WeightFormat::kF32, WeightFormat::kBf16Dot, WeightFormat::kQ8, WeightFormat::kQ4}) {
    for (const int64_t rows : {1, 6, 19, 390}) {
      SCOPED_TRACE(std::to_string(static_cast<int>(format)) + " rows " + std::to_string(rows));
      auto x = Random(static_cast<size_t>(rows * kInputs), 1);
      ExpectSameBits([&](Backend& backend) {
        std::vector<std::unique_ptr<const WeightMatrix>> weights;
        for (const int64_t outputs : {kMost, int64_t{16 * 4 * 5}}) {
          const TensorView view = {
              DType::kF32, {outputs, kInputs}, reinterpret_cast<const std::byte*>(values.data())};
          weights.push_back(std::move(backend.PackRows(DenseWeights(view), format)).value());
        }
        std::vector<float> first(static_cast<size_t>(rows * weights[0]->outputs()));
        std::vector<float> second(static_cast<size_t>(rows * weights[1]->outputs()));
        const MatmulJob jobs[] = {{weights[0].get(), nullptr, View(first, weights[0]->outputs())},
                                  {weights[1].get(), nullptr, View(second, weights[1]->outputs())}};
        backend.Matmul(View(x, kInputs), jobs);
        first.insert(first.end(), second.begin(), second.end());
        return first;
      });
    }
  }
}

// More tiles than threads, and fewer: then partitions are shared out.
TEST_P(MovingSharesTest, Attention) {
  struct Case {
    KvCodec codec;
    int64_t rows_before, new_rows;
  };
  const KvCodec f32 = {KvCodec::Kind::kF32};
  const KvCodec packed = KvCodec::Affine(8, 64);
  for (const Case& c : {Case{f32, 100, 40}, {f32, 5000, 1}, {packed, 100, 40}, {packed, 5000, 1}}) {
    SCOPED_TRACE(std::to_string(c.rows_before) + "+" + std::to_string(c.new_rows));
    ExpectSameBits([&](Backend& backend) {
      const KvLayout layout = {2, 64, 64, c.codec, c.codec};
      const int query_heads = 4;
      const int64_t total = c.rows_before + c.new_rows;
      auto keys = Random(static_cast<size_t>(total * 2 * 64), 1);
      auto values = Random(static_cast<size_t>(total * 2 * 64), 2);
      auto queries = Random(static_cast<size_t>(c.new_rows * query_heads * 64), 3);
      std::vector<std::vector<std::byte>> memory;
      std::vector<std::byte*> blocks;
      for (int64_t row = 0; row < total; row += kBlockTokens) {
        memory.emplace_back(layout.BlockBytes(0));
        blocks.push_back(memory.back().data());
      }
      const KvRun fill = {{blocks, 0}, 0, 0, total};
      backend.EncodeKv(layout, std::span(&fill, 1), View(keys, 128), View(values, 128));
      std::vector<float> out(queries.size());
      const KvRun step = {{blocks, 0}, c.rows_before, 0, c.new_rows};
      std::vector<VisibleRows> visible;
      for (int64_t i = 0; i < c.new_rows; ++i) visible.push_back({0, 0, c.rows_before + i + 1});
      AttendArgs args;
      args.layout = layout;
      args.query_heads = query_heads;
      args.scale = 0.3f;
      args.queries = View(queries, query_heads * 64);
      args.runs = std::span(&step, 1);
      args.visible = visible;
      args.out = View(out, query_heads * 64);
      backend.Attend(args);
      return out;
    });
  }
}

// That stalls move anything at all: the same panels are not always the same thread's.
TEST_P(MovingSharesTest, SharesDoMove) {
  if (std::thread::hardware_concurrency() < 2) GTEST_SKIP() << "there is one core";
  const auto stalled = Stalled();
  std::vector<float> x = Random(256, 1);
  const auto values = Random(16 * 4 * 40 * 256, 2);
  const TensorView view = {
      DType::kF32, {16 * 4 * 40, 256}, reinterpret_cast<const std::byte*>(values.data())};
  const auto weights = std::move(stalled->PackRows(DenseWeights(view), WeightFormat::kF32)).value();
  std::vector<float> out(16 * 4 * 40);
  const MatmulJob job = {weights.get(), nullptr, View(out, 16 * 4 * 40)};
  std::set<std::map<int64_t, std::thread::id>> seen;
  for (unsigned i = 0; i < 200 && seen.size() < 2; ++i) {
    g_seed = i;
    g_takers.clear();
    stalled->Matmul(View(x, 256), std::span(&job, 1));
    seen.insert(g_takers);
  }
  EXPECT_GE(seen.size(), 2u) << "every run cut its work in the same way";
}

INSTANTIATE_TEST_SUITE_P(Isas, MovingSharesTest, testing::ValuesIn(SupportedIsas()),
                         [](const auto& info) { return std::string(IsaName(info.param)); });

}  // namespace
}  // namespace kvasir
