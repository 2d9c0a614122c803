#include "kvasir/backend/cpu_backend.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

namespace kvasir {
namespace {

std::unique_ptr<Backend> Make(int threads, std::optional<Isa> isa = {}) {
  auto backend = MakeCpuBackend({.threads = threads, .isa = isa});
  KVASIR_CHECK(backend.ok());
  return *std::move(backend);
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

TEST(CpuBackendTest, OptionsAreChecked) {
  EXPECT_EQ(MakeCpuBackend({.threads = -1, .isa = {}}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(MakeCpuBackend({.threads = 5000, .isa = {}}).error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(Make(2)->Describe().find("2 threads"), std::string::npos);
}

// A factor that no power of two hides, with bands of rows, a bias and rows looked up.
TEST(CpuBackendTest, ScalesOfAdoptedMatricesMultiplySumsBeforeTheBias) {
  const auto backend = Make(3);
  constexpr float kScale = 1.7f;
  const auto w = Random(50 * 64, 2);
  const auto bias = Random(50, 4);
  const TensorView view = {DType::kF32, {50, 64}, reinterpret_cast<const std::byte*>(w.data())};
  const auto adopted = [&](float scale) {
    return *backend->Adopt(*PackedMatrix::Pack(view, WeightFormat::kQ8),
                           {.scale = scale, .input_order = nullptr});
  };
  const auto plain = adopted(1);
  const auto scaled = adopted(kScale);
  for (const int64_t rows : {1, 7, 401}) {
    SCOPED_TRACE(rows);
    auto x = Random(static_cast<size_t>(rows * 64), 1);
    std::vector<float> sums(rows * 50), out(rows * 50), without(rows * 50);
    const MatmulJob jobs[] = {{plain.get(), nullptr, View(sums, 50)},
                              {scaled.get(), bias.data(), View(out, 50)},
                              {scaled.get(), nullptr, View(without, 50)}};
    backend->Matmul(View(x, 64), jobs);
    for (size_t i = 0; i < sums.size(); ++i) {
      const float product = sums[i] * kScale;
      ASSERT_EQ(without[i], product);
      ASSERT_EQ(out[i], product + bias[i % 50]);
    }
  }
  const Token token = 33;
  std::vector<float> row(64), scaled_row(64);
  backend->Embed(*plain, std::span(&token, 1), 2, View(row, 64));
  backend->Embed(*scaled, std::span(&token, 1), 2, View(scaled_row, 64));
  for (size_t i = 0; i < row.size(); ++i) ASSERT_EQ(scaled_row[i], row[i] / 2 * kScale * 2);
}

// Three orders at once, one of them none, with bands of rows and rows looked up.
TEST(CpuBackendTest, MatricesTakeTheirInputsInTheirOrders) {
  const auto backend = Make(3);
  std::mt19937 random(5);
  const auto w = Random(50 * 64, 2);
  const TensorView view = {DType::kF32, {50, 64}, reinterpret_cast<const std::byte*>(w.data())};
  const auto adopted = [&](const InputOrder& order) {
    return *backend->Adopt(*PackedMatrix::Pack(view, WeightFormat::kQ8), {1, order});
  };
  std::vector<int32_t> first(64);
  std::iota(first.begin(), first.end(), 0);
  std::vector<int32_t> second = first;
  std::shuffle(first.begin(), first.end(), random);
  std::shuffle(second.begin(), second.end(), random);
  const auto shared = [](const std::vector<int32_t>& order) {
    return std::make_shared<const std::vector<int32_t>>(order);
  };
  const auto plain = adopted(nullptr);
  // Equal ones are one, whoever they belong to.
  const std::unique_ptr<const WeightMatrix> ordered[] = {
      adopted(shared(first)), adopted(shared(second)), adopted(shared(first))};
  for (const int64_t rows : {1, 7, 401}) {
    SCOPED_TRACE(rows);
    auto x = Random(static_cast<size_t>(rows * 64), 1);
    std::vector<float> out[4];
    for (auto& of_job : out) of_job.resize(static_cast<size_t>(rows * 50));
    const MatmulJob jobs[] = {{ordered[0].get(), nullptr, View(out[0], 50)},
                              {plain.get(), nullptr, View(out[1], 50)},
                              {ordered[1].get(), nullptr, View(out[2], 50)},
                              {ordered[2].get(), nullptr, View(out[3], 50)}};
    backend->Matmul(View(x, 64), jobs);
    const std::vector<int32_t>* const orders[] = {&first, nullptr, &second, &first};
    for (size_t job = 0; job < 4; ++job) {
      std::vector<float> own = x;
      for (size_t i = 0; orders[job] != nullptr && i < own.size(); ++i) {
        own[i] = x[i / 64 * 64 + static_cast<size_t>((*orders[job])[i % 64])];
      }
      std::vector<float> wanted(out[job].size());
      const MatmulJob alone[] = {{plain.get(), nullptr, View(wanted, 50)}};
      backend->Matmul(View(own, 64), alone);
      ASSERT_EQ(out[job], wanted) << job;
    }
  }
  const Token token = 33;
  std::vector<float> row(64), ordered_row(64);
  backend->Embed(*plain, std::span(&token, 1), 1, View(row, 64));
  backend->Embed(*ordered[0], std::span(&token, 1), 1, View(ordered_row, 64));
  for (size_t i = 0; i < row.size(); ++i) {
    ASSERT_EQ(ordered_row[static_cast<size_t>(first[i])], row[i]);
  }
}

// Each expert in an order of its own, but for what goes down.
TEST(CpuBackendTest, ExpertsTakeTheirInputsInTheirOrders) {
  const auto backend = Make(3);
  std::mt19937 random(6);
  constexpr int64_t kRows = 9;
  std::vector<std::unique_ptr<const WeightMatrix>> matrices;
  const auto adopt = [&](int64_t outputs, const InputOrder& order) {
    const auto w = Random(static_cast<size_t>(outputs * 64), 7);
    const TensorView view = {
        DType::kF32, {outputs, 64}, reinterpret_cast<const std::byte*>(w.data())};
    matrices.push_back(*backend->Adopt(*PackedMatrix::Pack(view, WeightFormat::kQ8), {1, order}));
    return matrices.back().get();
  };
  std::vector<InputOrder> orders;
  std::vector<ExpertWeights> ordered;
  std::vector<ExpertWeights> plain;
  for (int expert = 0; expert < 3; ++expert) {
    std::vector<int32_t> order(64);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random);
    orders.push_back(std::make_shared<const std::vector<int32_t>>(order));
    const WeightMatrix* const down = adopt(64, nullptr);
    ordered.push_back({adopt(64, orders.back()), adopt(64, orders.back()), down});
    plain.push_back({adopt(64, nullptr), adopt(64, nullptr), down});
  }
  auto x = Random(kRows * 64, 1);
  auto own = x;
  std::vector<int32_t> chosen;
  for (int64_t row = 0; row < kRows; ++row) {
    chosen.push_back(static_cast<int32_t>(random() % 3));
    const std::vector<int32_t>& order = *orders[static_cast<size_t>(chosen.back())];
    for (int64_t k = 0; k < 64; ++k) {
      own[row * 64 + k] = x[row * 64 + order[static_cast<size_t>(k)]];
    }
  }
  const std::vector<float> weights(kRows, 0.5f);
  std::vector<float> out(x.size());
  std::vector<float> wanted(x.size());
  const auto run = [&](const std::vector<ExpertWeights>& experts, std::vector<float>& from,
                       std::vector<float>& to) {
    backend->Experts({.experts = experts,
                      .activation = GateActivation::kSilu,
                      .x = View(from, 64),
                      .per_row = 1,
                      .chosen = chosen,
                      .weights = weights,
                      .out = View(to, 64)});
  };
  run(ordered, x, out);
  run(plain, own, wanted);
  EXPECT_EQ(out, wanted);
  EXPECT_NE(out[0], 0.0f);
}

TEST(CpuBackendTest, MatmulJobsShareTheirInput) {
  const auto backend = Make(3);
  const auto w1 = Random(50 * 64, 2);
  const auto w2 = Random(9 * 64, 3);
  const auto bias = Random(9, 4);
  const auto pack = [&](const std::vector<float>& w, int64_t outputs) {
    return *backend->PackRows(
        DenseWeights({DType::kF32, {outputs, 64}, reinterpret_cast<const std::byte*>(w.data())}),
        WeightFormat::kF32);
  };
  const auto packed1 = pack(w1, 50);
  const auto packed2 = pack(w2, 9);
  // One band of rows, two and three.
  for (const int64_t rows : {7, 401, 580}) {
    SCOPED_TRACE(rows);
    auto x = Random(static_cast<size_t>(rows * 64), 1);
    std::vector<float> out1(rows * 50), out2(rows * 9);
    const MatmulJob jobs[] = {{packed1.get(), nullptr, View(out1, 50)},
                              {packed2.get(), bias.data(), View(out2, 9)}};
    const uint64_t before = backend->weight_bytes_read();
    backend->Matmul(View(x, 64), jobs);
    EXPECT_EQ(backend->weight_bytes_read() - before, packed1->bytes() + packed2->bytes());
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t n = 0; n < 50; ++n) {
        float sum = 0;
        for (int64_t k = 0; k < 64; ++k) sum = std::fma(x[r * 64 + k], w1[n * 64 + k], sum);
        ASSERT_EQ(out1[r * 50 + n], sum);
      }
      for (int64_t n = 0; n < 9; ++n) {
        float sum = 0;
        for (int64_t k = 0; k < 64; ++k) sum = std::fma(x[r * 64 + k], w2[n * 64 + k], sum);
        ASSERT_EQ(out2[r * 9 + n], sum + bias[n]);
      }
    }
  }
}

// Only the first outputs: nothing behind them is computed, written or read.
TEST(CpuBackendTest, AMatmulMayBeOfTheFirstOutputsOnly) {
  const auto backend = Make(2);
  for (const WeightFormat format :
       {WeightFormat::kF32, WeightFormat::kBf16Dot, WeightFormat::kQ8, WeightFormat::kQ4}) {
    const auto weights = *backend->PackRandom(200, 64, format, 0.3f, 5);
    const auto bias = Random(200, 6);
    for (const int64_t rows : {1, 5, 300}) {
      auto x = Random(static_cast<size_t>(rows * 64), 1);
      std::vector<float> all(static_cast<size_t>(rows * 200));
      const MatmulJob whole[] = {{weights.get(), bias.data(), View(all, 200)}};
      backend->Matmul(View(x, 64), whole);
      for (const int64_t few : {16, 96, 192}) {
        std::vector<float> some(all.size(), 7.0f);
        const MatmulJob part[] = {{weights.get(), bias.data(), {some.data(), rows, few, 200}}};
        const uint64_t before = backend->weight_bytes_read();
        backend->Matmul(View(x, 64), part);
        EXPECT_LT(backend->weight_bytes_read() - before, weights->bytes());
        for (size_t i = 0; i < some.size(); ++i) {
          const bool is_wanted = static_cast<int64_t>(i) % 200 < few;
          ASSERT_EQ(some[i], is_wanted ? all[i] : 7.0f) << few << " " << i;
        }
      }
    }
  }
}

// Rows of 512 inputs, which are whole cache lines when quantized: alone, made by one thread, by all
// of few and of many.
TEST(CpuBackendTest, RowsOfABatchHaveTheBitsThatTheyHaveAlone) {
  constexpr int64_t kInputs = 512;
  constexpr int64_t kOutputs = 70;
  const auto w = Random(kOutputs * kInputs, 2);
  auto x = Random(600 * kInputs, 1);
  const auto multiply = [&](int threads, WeightFormat format, int64_t first, int64_t rows) {
    const auto backend = Make(threads);
    const TensorView view = {
        DType::kF32, {kOutputs, kInputs}, reinterpret_cast<const std::byte*>(w.data())};
    const auto packed = *backend->PackRows(DenseWeights(view), format);
    std::vector<float> out(static_cast<size_t>(rows * kOutputs));
    const MatmulJob jobs[] = {{packed.get(), nullptr, View(out, kOutputs)}};
    backend->Matmul({x.data() + first * kInputs, rows, kInputs, kInputs}, jobs);
    return out;
  };
  for (const WeightFormat format : {WeightFormat::kQ8, WeightFormat::kQ4, WeightFormat::kBf16Dot}) {
    const auto alone = multiply(1, format, 2, 1);
    for (const int threads : {2, 3}) {
      for (const int64_t rows : {3, 17, 60, 600}) {
        const auto out = multiply(threads, format, 0, rows);
        EXPECT_TRUE(std::equal(alone.begin(), alone.end(), out.begin() + 2 * kOutputs))
            << WeightFormatName(format) << " " << threads << " threads, " << rows << " rows";
      }
    }
  }
}

// A cache of two sequences' blocks, and queries at the end of each.
struct AttentionCase {
  KvLayout layout;
  int query_heads = 4;
  int64_t rows_before = 0;  // cache rows before the step's
  int64_t new_rows = 1;
  int64_t window = 0;  // 0: all
  int64_t head_rows = 0;
  std::byte stale = std::byte{0xFF};  // what was in blocks before: NaN in every float type
};

struct AttentionRun {
  std::vector<float> out;
  std::vector<double> wanted;
};

// Who writes the step's rows.
enum class Writer { kEncodeKv, kAttend };

AttentionRun RunAttention(const AttentionCase& c, Backend& backend,
                          Writer writer = Writer::kEncodeKv) {
  const int64_t total = c.rows_before + c.new_rows;
  const KvLayout& layout = c.layout;
  auto keys = Random(static_cast<size_t>(total * layout.kv_heads * layout.key_dim), 1);
  auto values = Random(static_cast<size_t>(total * layout.kv_heads * layout.value_dim), 2);
  auto queries = Random(static_cast<size_t>(total * c.query_heads * layout.key_dim), 3);
  std::vector<std::vector<std::byte>> memory;
  std::vector<std::byte*> blocks;
  for (int64_t row = 0; row < total; row += kBlockTokens) {
    memory.emplace_back(layout.BlockBytes(0), c.stale);
    blocks.push_back(memory.back().data());
  }
  const ConstFloatRows all_keys = View(keys, layout.kv_heads * layout.key_dim);
  const ConstFloatRows all_values = View(values, layout.kv_heads * layout.value_dim);
  const KvRun fill = {{blocks, 0}, 0, 0, writer == Writer::kAttend ? c.rows_before : total};
  if (fill.rows > 0) backend.EncodeKv(layout, std::span(&fill, 1), all_keys, all_values);

  AttentionRun run;
  run.out.resize(static_cast<size_t>(c.new_rows * c.query_heads * layout.value_dim));
  const KvRun step = {{blocks, 0}, c.rows_before, 0, c.new_rows};
  std::vector<VisibleRows> visible;
  for (int64_t i = 0; i < c.new_rows; ++i) {
    const int64_t end = c.rows_before + i + 1;
    const int64_t begin = c.window == 0 ? 0 : std::max<int64_t>(0, end - c.window);
    const int64_t head_end = std::min(c.head_rows, begin);
    visible.push_back({head_end, begin, end});
  }
  AttendArgs args;
  args.layout = layout;
  args.query_heads = c.query_heads;
  args.scale = 0.3f;
  const ConstFloatRows all_queries = View(queries, c.query_heads * layout.key_dim);
  args.queries = all_queries.Part(c.rows_before, c.new_rows);
  args.runs = std::span(&step, 1);
  args.visible = visible;
  args.out = View(run.out, c.query_heads * layout.value_dim);
  if (writer == Writer::kAttend) {
    args.new_keys = all_keys.Part(c.rows_before, c.new_rows);
    args.new_values = all_values.Part(c.rows_before, c.new_rows);
  }
  backend.Attend(args);

  const int64_t group = c.query_heads / layout.kv_heads;
  for (int64_t i = 0; i < c.new_rows; ++i) {
    for (int64_t h = 0; h < c.query_heads; ++h) {
      const float* q = args.queries.row(i) + h * layout.key_dim;
      std::vector<double> weights(static_cast<size_t>(total), 0);
      double max = -1e300, sum = 0;
      const auto sees = [&](int64_t j) {
        const VisibleRows& v = visible[static_cast<size_t>(i)];
        return j < v.head_end || (j >= v.begin && j < v.end);
      };
      for (int64_t j = 0; j < total; ++j) {
        const float* k = &keys[(j * layout.kv_heads + h / group) * layout.key_dim];
        for (int64_t d = 0; d < layout.key_dim; ++d) weights[j] += 0.3 * q[d] * k[d];
        if (sees(j)) max = std::max(max, weights[j]);
      }
      for (int64_t j = 0; j < total; ++j) {
        weights[j] = sees(j) ? std::exp(weights[j] - max) : 0;
        sum += weights[j];
      }
      for (int64_t d = 0; d < layout.value_dim; ++d) {
        double value = 0;
        for (int64_t j = 0; j < total; ++j) {
          value +=
              weights[j] / sum * values[(j * layout.kv_heads + h / group) * layout.value_dim + d];
        }
        run.wanted.push_back(value);
      }
    }
  }
  return run;
}

std::vector<AttentionCase> AttentionCases() {
  const KvCodec f32 = {KvCodec::Kind::kF32};
  const KvLayout small = {2, 32, 48, f32, f32};
  const KvLayout one_head = {1, 64, 64, f32, f32};
  const KvLayout five_heads = {5, 32, 32, f32, f32};
  return {{small, 4, 0, 1},
          {small, 4, 63, 1},
          {small, 8, 64, 130},
          {small, 2, 1000, 60},
          {small, 4, 500, 9, 100},
          {small, 4, 500, 9, 100, 4},
          {small, 4, 20, 2, 10, 4},
          {one_head, 4, 5000, 1},
          {one_head, 4, 3000, 2, 1500},
          {one_head, 1, 2047, 2},
          {one_head, 4, 90, 3, 5, 70},
          {five_heads, 5, 2100, 3},
          {five_heads, 10, 3000, 7, 1200, 5}};
}

TEST(CpuBackendTest, AttentionMatchesADoubleReference) {
  const auto backend = Make(2);
  for (const AttentionCase& c : AttentionCases()) {
    const AttentionRun run = RunAttention(c, *backend);
    double worst = 0;
    for (size_t i = 0; i < run.out.size(); ++i) {
      worst = std::max(worst, std::fabs(run.out[i] - run.wanted[i]));
    }
    // Scores carry about sqrt(64) roundings of 2^-24 relative, values as many again.
    EXPECT_LT(worst, 5e-6) << c.rows_before << "+" << c.new_rows << " window " << c.window;
  }
}

TEST(CpuBackendTest, AttentionBitsDoNotDependOnThreadsOrIsa) {
  for (const AttentionCase& c : AttentionCases()) {
    const std::vector<float> wanted = RunAttention(c, *Make(1)).out;
    for (const Isa isa : SupportedIsas()) {
      for (const int threads : {1, 2, 7}) {
        const auto out = RunAttention(c, *Make(threads, isa)).out;
        EXPECT_EQ(std::memcmp(out.data(), wanted.data(), wanted.size() * sizeof(float)), 0)
            << IsaName(isa) << " with " << threads << " threads";
      }
    }
  }
}

TEST(CpuBackendTest, RowsThatAttentionWritesAreThoseItReads) {
  for (const AttentionCase& c : AttentionCases()) {
    const std::vector<float> wanted = RunAttention(c, *Make(1)).out;
    for (const int threads : {1, 2, 7}) {
      const auto out = RunAttention(c, *Make(threads), Writer::kAttend).out;
      EXPECT_EQ(std::memcmp(out.data(), wanted.data(), wanted.size() * sizeof(float)), 0)
          << c.rows_before << "+" << c.new_rows << " with " << threads << " threads";
    }
  }
}

// Of a block that is begun only some is read, by halves, by eights or by pairs: whatever that is,
// neither what was there before nor how many rows came with it shows.
TEST(CpuBackendTest, ABlockThatIsBegunIsReadAsFarAsItIsWritten) {
  const KvCodec f32 = {KvCodec::Kind::kF32};
  for (const KvCodec codec : {KvCodec{KvCodec::Kind::kF16}, KvCodec{KvCodec::Kind::kBf16}, f32,
                              KvCodec::Affine(8, 32), KvCodec::Affine(4, 32)}) {
    for (const int64_t last : {0, 8, 15, 31, 32, 33, 63, 64, 95, 96}) {
      for (const int query_heads : {4, 20}) {
        AttentionCase c = {{2, 32, 32, codec, codec}, query_heads, 0, last + 1};
        const std::vector<float> all = RunAttention(c, *Make(1, Isa::kScalar)).out;
        c.rows_before = last;
        c.new_rows = 1;
        const std::span wanted = std::span(all).last(static_cast<size_t>(query_heads) * 32);
        for (const Isa isa : SupportedIsas()) {
          for (const std::byte stale : {std::byte{0xFF}, std::byte{0}}) {
            c.stale = stale;
            const auto out = RunAttention(c, *Make(2, isa), Writer::kAttend).out;
            EXPECT_EQ(std::memcmp(out.data(), wanted.data(), wanted.size_bytes()), 0)
                << IsaName(isa) << ", " << codec.name() << ", row " << last << ", " << query_heads
                << " heads";
          }
        }
      }
    }
  }
}

// The blocks that a step of several sequences writes: runs of one row, of a few, and across blocks.
// `many`: rows of a further run.
std::vector<std::vector<std::byte>> WrittenBlocks(const KvLayout& layout, int threads,
                                                  Writer writer = Writer::kEncodeKv,
                                                  int64_t many = 0) {
  struct Rows {
    int64_t first;
    int64_t count;
  };
  std::vector<Rows> all = {{0, 1}, {63, 3}, {31, 2}, {127, 1}};
  if (many > 0) all.push_back({0, many});
  std::vector<std::vector<std::byte>> memory(2 * all.size(),
                                             std::vector<std::byte>(layout.BlockBytes(0)));
  std::vector<std::byte*> blocks;
  for (auto& block : memory) blocks.push_back(block.data());
  std::vector<KvRun> runs;
  int64_t step_row = 0;
  for (const Rows& rows : all) {
    const std::span<std::byte* const> own(blocks.data() + 2 * runs.size(), 2);
    runs.push_back({{own, 0}, rows.first, step_row, rows.count});
    step_row += rows.count;
  }
  auto keys = Random(static_cast<size_t>(step_row * layout.kv_heads * layout.key_dim), 1);
  auto values = Random(static_cast<size_t>(step_row * layout.kv_heads * layout.value_dim), 2);
  const ConstFloatRows new_keys = View(keys, layout.kv_heads * layout.key_dim);
  const ConstFloatRows new_values = View(values, layout.kv_heads * layout.value_dim);
  if (writer == Writer::kEncodeKv) {
    Make(threads)->EncodeKv(layout, runs, new_keys, new_values);
    return memory;
  }
  auto queries = Random(static_cast<size_t>(step_row * layout.kv_heads * layout.key_dim), 3);
  std::vector<float> out(static_cast<size_t>(step_row * layout.kv_heads * layout.value_dim));
  std::vector<VisibleRows> visible;
  for (const KvRun& run : runs) {
    // From the new rows on: what is before them was never written.
    for (int64_t i = 0; i < run.rows; ++i) {
      visible.push_back({0, run.first_row, run.first_row + i + 1});
    }
  }
  Make(threads)->Attend({.layout = layout,
                         .new_keys = new_keys,
                         .new_values = new_values,
                         .query_heads = layout.kv_heads,
                         .queries = View(queries, layout.kv_heads * layout.key_dim),
                         .runs = runs,
                         .visible = visible,
                         .out = View(out, layout.kv_heads * layout.value_dim)});
  return memory;
}

TEST(CpuBackendTest, RowsOfSeveralSequencesAreWrittenTheSameByAnyThreads) {
  for (const KvCodec codec : {KvCodec{KvCodec::Kind::kF16}, KvCodec::Affine(8, 64)}) {
    KvLayout layout;
    layout.kv_heads = 3;
    layout.key_dim = layout.value_dim = 64;
    layout.key_codec = layout.value_codec = codec;
    const auto alone = WrittenBlocks(layout, 1);
    for (const auto& block : {alone[0], alone[2], alone[3], alone[4], alone[7]}) {
      EXPECT_NE(block, std::vector<std::byte>(block.size()));
    }
    EXPECT_EQ(WrittenBlocks(layout, 2), alone);
    EXPECT_EQ(WrittenBlocks(layout, 5), alone);
  }
}

TEST(CpuBackendTest, AttentionWritesWhatEncodeKvWrites) {
  for (const KvCodec codec : {KvCodec{KvCodec::Kind::kF16}, KvCodec::Affine(8, 64)}) {
    for (const bool key_norms : {false, true}) {
      KvLayout layout;
      layout.kv_heads = 3;
      layout.key_dim = layout.value_dim = 64;
      layout.key_codec = layout.value_codec = codec;
      layout.key_norms = key_norms;
      for (const int64_t many : {0, 100}) {
        const auto wanted = WrittenBlocks(layout, 1, Writer::kEncodeKv, many);
        for (const int threads : {1, 2, 5}) {
          EXPECT_EQ(WrittenBlocks(layout, threads, Writer::kAttend, many), wanted) << threads;
        }
      }
    }
  }
}

TEST(CpuBackendTest, HalfPrecisionCachesStayClose) {
  for (const auto kind : {KvCodec::Kind::kF16, KvCodec::Kind::kBf16}) {
    const KvCodec codec = {kind};
    const AttentionRun run = RunAttention({{2, 32, 32, codec, codec}, 4, 300, 5}, *Make(1));
    for (size_t i = 0; i < run.out.size(); ++i) {
      // bf16 keeps 8 bits: scores of size 2 move by 2^-8, and so do values.
      ASSERT_NEAR(run.out[i], run.wanted[i], 0.02);
    }
  }
}

TEST(CpuBackendTest, RandomWeightsAreAFunctionOfTheSeed) {
  const auto one = Make(1);
  const auto two = Make(2);
  const auto a = *one->PackRandom(40, 64, WeightFormat::kQ8, 0.5f, 9);
  const auto b = *two->PackRandom(40, 64, WeightFormat::kQ8, 0.5f, 9);
  std::vector<float> x(64), y(64);
  const Token token = 37;
  one->Embed(*a, std::span(&token, 1), 1, View(x, 64));
  two->Embed(*b, std::span(&token, 1), 1, View(y, 64));
  EXPECT_EQ(x, y);
}

TEST(CpuBackendTest, RouteTakesTheMostProbableAndTheLowestOfEquals) {
  const auto backend = Make(1);
  const float nan = std::nanf("");
  std::vector<float> scores = {1, 3, 3, 2, /**/ nan, nan, nan, nan};
  const std::vector<float> scales = {1, 10, 100, 1000};
  std::vector<int32_t> chosen(2 * 3, -1);
  std::vector<float> weights(2 * 3);
  backend->Route({.scores = View(scores, 4),
                  .per_row = 3,
                  .normalizes = true,
                  .expert_scales = scales,
                  .chosen = chosen,
                  .weights = weights});
  EXPECT_EQ(std::vector<int32_t>(chosen.begin(), chosen.begin() + 3),
            (std::vector<int32_t>{1, 2, 3}));
  const float sum = 2 + std::exp(-1.0f);
  EXPECT_NEAR(weights[0], 10 / sum, 1e-5);
  EXPECT_NEAR(weights[1], 100 / sum, 1e-4);
  EXPECT_NEAR(weights[2], 1000 * std::exp(-1.0f) / sum, 1e-3);
  // Whatever a row of nonsense chooses, it exists.
  for (size_t i = 3; i < 6; ++i) EXPECT_TRUE(chosen[i] >= 0 && chosen[i] < 4);
}

// Whose group is not among the best is not chosen, however good it is.
TEST(CpuBackendTest, RouteWithinTheBestGroups) {
  const auto backend = Make(1);
  const auto route = [&](RouteArgs args, std::vector<float> scores) {
    std::vector<int32_t> chosen(2, -1);
    std::vector<float> weights(2);
    args.scores = View(scores, 9);
    args.per_row = 2;
    args.groups = 3;
    args.groups_per_row = 1;
    args.chosen = chosen;
    args.weights = weights;
    backend->Route(args);
    return chosen;
  };
  // The best is in the first group, the two best of a group in the second, all of the third.
  const std::vector<float> scores = {3, -3, -3, /**/ 2, 2.5, -5, /**/ 1, 1, 1.5};
  EXPECT_EQ(route({}, scores), (std::vector<int32_t>{0, 1}));
  RouteArgs sigmoids;
  sigmoids.kind = RouteArgs::Scores::kSigmoid;
  EXPECT_EQ(route(sigmoids, scores), (std::vector<int32_t>{4, 3}));
  const std::vector<float> biases = {0, 0, 0, 0, 0, 0, 1, 1, 0};
  sigmoids.choice_biases = biases;
  EXPECT_EQ(route(sigmoids, scores), (std::vector<int32_t>{6, 7}));
  // The first of equals; and whatever nonsense chooses, it exists.
  EXPECT_EQ(route({}, std::vector<float>(9, 1.0f)), (std::vector<int32_t>{0, 1}));
  const float nan = std::nanf("");
  sigmoids.choice_biases = {};
  for (const int32_t expert : route(sigmoids, std::vector<float>(9, nan))) {
    EXPECT_TRUE(expert >= 0 && expert < 9);
  }
}

// Each matrix has rows of its own, and gives what it gives alone.
TEST(CpuBackendTest, MatmulEachIsMatmulOfEach) {
  const auto backend = Make(2);
  constexpr int64_t kRows = 3;
  constexpr int64_t kInputs = 64;
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kQ8}) {
    std::vector<std::unique_ptr<const WeightMatrix>> matrices;
    for (const int64_t outputs : {48, 16}) {
      matrices.push_back(*backend->PackRandom(outputs, kInputs, format, 1, 7));
    }
    std::vector<float> x(2 * kRows * kInputs);
    for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(static_cast<float>(i));
    std::vector<float> together(kRows * (48 + 16));
    const FloatRows all = View(together, 48 + 16);
    const MatmulJob jobs[] = {{matrices[0].get(), nullptr, {all.data, kRows, 48, all.stride}},
                              {matrices[1].get(), nullptr, {all.data + 48, kRows, 16, all.stride}}};
    const FloatRows inputs = View(x, kInputs);
    backend->MatmulEach(inputs, jobs);
    for (int64_t i = 0; i < 2; ++i) {
      const int64_t outputs = matrices[static_cast<size_t>(i)]->outputs();
      std::vector<float> alone(static_cast<size_t>(kRows * outputs));
      const MatmulJob job[] = {
          {matrices[static_cast<size_t>(i)].get(), nullptr, View(alone, outputs)}};
      backend->Matmul(inputs.Part(i * kRows, kRows), job);
      for (int64_t row = 0; row < kRows; ++row) {
        for (int64_t k = 0; k < outputs; ++k) {
          EXPECT_EQ(all.row(row)[48 * i + k], alone[static_cast<size_t>(row * outputs + k)]);
        }
      }
    }
  }
}

// Biases choose, but weigh nothing; what is chosen weighs by its sigmoid.
TEST(CpuBackendTest, RouteBySigmoidsAndBiases) {
  const auto backend = Make(1);
  const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const std::vector<float> biases = {0, 2, 0, 0};
  const auto route = [&](RouteArgs args, std::vector<float> scores) {
    std::vector<int32_t> chosen(2, -1);
    std::vector<float> weights(2);
    args.scores = View(scores, 4);
    args.per_row = 2;
    args.kind = RouteArgs::Scores::kSigmoid;
    args.chosen = chosen;
    args.weights = weights;
    backend->Route(args);
    return std::pair(chosen, weights);
  };
  const std::vector<float> scores = {1, -3, 2, 0};
  const auto [plain, of_plain] = route({}, scores);
  EXPECT_EQ(plain, (std::vector<int32_t>{2, 0}));
  EXPECT_NEAR(of_plain[0], sigmoid(2), 1e-6);
  const auto [chosen, weights] = route({.choice_biases = biases, .scale = 2}, scores);
  EXPECT_EQ(chosen, (std::vector<int32_t>{1, 2}));
  EXPECT_NEAR(weights[0], 2 * sigmoid(-3), 1e-6);
  EXPECT_NEAR(weights[1], 2 * sigmoid(2), 1e-6);
  const auto [same, normed] =
      route({.choice_biases = biases, .normalizes = true, .sum_eps = 0.5f}, scores);
  EXPECT_EQ(same, chosen);
  EXPECT_NEAR(normed[1], sigmoid(2) / (sigmoid(-3) + sigmoid(2) + 0.5), 1e-6);
  // Nonsense comes last, and the lowest of equals first.
  const float nan = std::nanf("");
  EXPECT_EQ(route({.choice_biases = biases}, {nan, nan, 1, 1}).first, (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(route({.choice_biases = biases}, {nan, nan, nan, nan}).first,
            (std::vector<int32_t>{0, 0}));
}

// Every row against its experts run alone, in rows of one: the same bits, however rows are grouped.
TEST(CpuBackendTest, ExpertsEqualEveryRowAlone) {
  constexpr int64_t kRows = 9, kHidden = 64, kSize = 32;
  constexpr int kExperts = 5, kPerRow = 2;
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kQ4}) {
    const auto backend = Make(3);
    std::vector<std::unique_ptr<const WeightMatrix>> matrices;
    std::vector<ExpertWeights> experts;
    for (int i = 0; i < kExperts; ++i) {
      const auto seed = static_cast<uint64_t>(3 * i);
      matrices.push_back(*backend->PackRandom(kSize, kHidden, format, 0.2f, seed));
      matrices.push_back(*backend->PackRandom(kSize, kHidden, format, 0.2f, seed + 1));
      matrices.push_back(*backend->PackRandom(kHidden, kSize, format, 0.2f, seed + 2));
      const auto* const own = &matrices[static_cast<size_t>(3 * i)];
      experts.push_back({own[0].get(), own[1].get(), own[2].get()});
    }
    auto x = Random(kRows * kHidden, 5);
    // Expert 3 has no rows, expert 0 many.
    std::vector<int32_t> chosen;
    for (int64_t r = 0; r < kRows; ++r) {
      chosen.push_back(r % 3 == 0 ? 4 : 0);
      chosen.push_back(r % 2 == 0 ? 1 : 2);
    }
    auto weights = Random(kRows * kPerRow, 6);
    std::vector<float> out(kRows * kHidden);
    backend->Experts({.experts = experts,
                      .activation = GateActivation::kSilu,
                      .x = View(x, kHidden),
                      .per_row = kPerRow,
                      .chosen = chosen,
                      .weights = weights,
                      .out = View(out, kHidden)});
    uint64_t read = 0;  // once each
    for (size_t i = 0; i < matrices.size(); ++i) read += i / 3 == 3 ? 0 : matrices[i]->bytes();
    EXPECT_EQ(backend->weight_bytes_read(), read);
    for (size_t r = 0; r < kRows; ++r) {
      std::vector<float> row(x.begin() + static_cast<int64_t>(r * kHidden),
                             x.begin() + static_cast<int64_t>((r + 1) * kHidden));
      std::vector<float> wanted(kHidden, 0.0f);
      for (size_t k = r * kPerRow; k < (r + 1) * kPerRow; ++k) {
        const ExpertWeights& expert = experts[static_cast<size_t>(chosen[k])];
        std::vector<float> gate(kSize), up(kSize), down(kHidden);
        const MatmulJob in[] = {{expert.gate, nullptr, View(gate, kSize)},
                                {expert.up, nullptr, View(up, kSize)}};
        backend->Matmul(View(row, kHidden), in);
        backend->Gate(GateActivation::kSilu, View(gate, kSize), View(up, kSize));
        const MatmulJob last[] = {{expert.down, nullptr, View(down, kHidden)}};
        backend->Matmul(View(gate, kSize), last);
        for (size_t d = 0; d < kHidden; ++d) wanted[d] += weights[k] * down[d];
      }
      EXPECT_EQ(std::memcmp(wanted.data(), &out[r * kHidden], kHidden * sizeof(float)), 0) << r;
    }
  }
}

// One row more than before, which would double a vector.
TEST(CpuBackendTest, ScratchStaysWithinItsBound) {
  constexpr int64_t kHidden = 512;
  constexpr int64_t kIntermediate = 256;
  constexpr int64_t kWide = 3072;
  constexpr int64_t kRows = 130;
  constexpr int kPerRow = 4;
  const auto w = Random(16 * kWide, 2);
  const TensorView view = {DType::kF32, {16, kWide}, reinterpret_cast<const std::byte*>(w.data())};
  for (const bool has_order : {false, true}) {
    const auto backend = Make(2);
    InputOrder order;
    if (has_order) {
      std::vector<int32_t> reversed(kWide);
      std::iota(reversed.rbegin(), reversed.rend(), 0);
      order = std::make_shared<const std::vector<int32_t>>(std::move(reversed));
    }
    const auto rounded = *backend->PackRows(DenseWeights(view), WeightFormat::kBf16Dot);
    const auto quantized =
        *backend->Adopt(*PackedMatrix::Pack(view, WeightFormat::kQ8), {1, order});
    std::vector<std::unique_ptr<const WeightMatrix>> matrices;
    std::vector<ExpertWeights> experts;
    for (int i = 0; i < 8; ++i) {
      const auto random = [&](int64_t outputs, int64_t inputs) {
        matrices.push_back(
            *backend->PackRandom(outputs, inputs, WeightFormat::kQ8, 1.0f, matrices.size()));
        return matrices.back().get();
      };
      const WeightMatrix* const gate = random(kIntermediate, kHidden);
      const WeightMatrix* const up = random(kIntermediate, kHidden);
      experts.push_back({gate, up, random(kHidden, kIntermediate)});
    }
    for (const int64_t rows : {kRows - 1, kRows}) {
      auto x = Random(static_cast<size_t>(rows * kWide), 1);
      std::vector<float> first(static_cast<size_t>(rows * 16)), second(first.size());
      const MatmulJob jobs[] = {{rounded.get(), nullptr, View(first, 16)},
                                {quantized.get(), nullptr, View(second, 16)}};
      backend->Matmul(View(x, kWide), jobs);
      std::vector<int32_t> chosen(static_cast<size_t>(rows * kPerRow));
      for (size_t i = 0; i < chosen.size(); ++i) chosen[i] = static_cast<int32_t>(i % 8);
      const std::vector<float> weights(chosen.size(), 0.25f);
      std::vector<float> out(static_cast<size_t>(rows * kHidden));
      backend->Experts({.experts = experts,
                        .x = {x.data(), rows, kHidden, kWide},
                        .per_row = kPerRow,
                        .chosen = chosen,
                        .weights = weights,
                        .out = View(out, kHidden)});
      const StepShape shape = {.rows = rows,
                               .inputs = kWide,
                               .experts_of_row = kPerRow,
                               .expert_hidden = kHidden,
                               .expert_intermediate = kIntermediate};
      EXPECT_LE(backend->scratch_bytes(), backend->ScratchBound(shape)) << rows;
      EXPECT_GE(backend->scratch_bytes(), backend->ScratchBound(shape) / 4) << rows;
    }
  }
}

}  // namespace
}  // namespace kvasir
