// Attention over packed caches: close to a double-precision reference over the decoded rows, and
// the same bits whole, in chunks, on any threads and instruction set.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kvasir/backend/cpu_backend.h"
#include "kvasir/tensor/dtype.h"
#include "kvasir/tensor/packed_codec.h"

namespace kvasir {
namespace {

constexpr KvCodec kF16 = {KvCodec::Kind::kF16};
constexpr KvCodec kF32 = {KvCodec::Kind::kF32};

constexpr AttentionMath kMaths[] = {AttentionMath::kInt16, AttentionMath::kInt8,
                                    AttentionMath::kFloat};

std::unique_ptr<Backend> Make(int threads, std::optional<Isa> isa = {},
                              AttentionMath math = AttentionMath::kAuto,
                              const Prefetching& prefetching = PreferredPrefetching()) {
  auto backend = MakeCpuBackend(
      {.threads = threads, .isa = isa, .attention = math, .prefetching = prefetching});
  KVASIR_CHECK(backend.ok());
  return *std::move(backend);
}

std::vector<float> Random(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw;
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = draw(random);
  return values;
}

FloatRows View(std::vector<float>& values, int64_t cols) {
  return {values.data(), static_cast<int64_t>(values.size()) / cols, cols, cols};
}

struct Case {
  const char* what;
  KvLayout layout;
  int query_heads = 4;
  int64_t rows_before = 0;
  int64_t new_rows = 1;
  int64_t window = 0;  // 0: all
  int64_t head_rows = 0;
  float scale = 0.1f;
  float softcap = 0;
  bool has_sinks = false;
};

// One sequence: its blocks, and the queries of its last rows.
class Sequence {
 public:
  explicit Sequence(const Case& c)
      : case_(c),
        total_(c.rows_before + c.new_rows),
        queries_(Random(c.new_rows * c.query_heads * c.layout.key_dim, 3)),
        key_norm_(Random(c.layout.key_dim, 4)) {
    const KvLayout& layout = c.layout;
    for (int i = 0; i < layout.key_dim / 2; ++i)
      inv_freq_.push_back(1.0f / static_cast<float>(i + 1));
    for (int64_t block = 0; block * kBlockTokens < total_; ++block) {
      // 0xFF bytes are NaN in every float type: stale rows must not leak into results.
      Add(layout.BlockBytes(block), &blocks_);
      if (layout.dense_recent > 0 && block >= FirstRecentBlock()) {
        Add(layout.RecentBlock().BlockBytes(), &recent_);
      }
    }
  }

  void Encode(Backend& backend) {
    const KvLayout& layout = case_.layout;
    auto keys = Random(total_ * layout.kv_heads * layout.key_dim, 1);
    auto values = Random(total_ * layout.kv_heads * layout.value_dim, 2);
    // A few loud channels, as real keys have.
    for (size_t i = 0; i < keys.size(); i += 37) keys[i] *= 8;
    const KvRun fill = Run(0, 0, total_);
    backend.EncodeKv(layout, std::span(&fill, 1), View(keys, layout.kv_heads * layout.key_dim),
                     View(values, layout.kv_heads * layout.value_dim));
  }

  // Output of the queries, `chunk` tokens per call: a run, and each of the last `single_rows`
  // tokens one of its own.
  std::vector<float> Attend(Backend& backend, int64_t chunk, int64_t single_rows = 0) {
    const KvLayout& layout = case_.layout;
    std::vector<float> out(static_cast<size_t>(case_.new_rows * case_.query_heads) *
                           static_cast<size_t>(layout.value_dim));
    for (int64_t begin = 0; begin < case_.new_rows; begin += chunk) {
      const int64_t rows = std::min(chunk, case_.new_rows - begin);
      std::vector<KvRun> runs;
      for (int64_t i = 0; i < rows; i += runs.back().rows) {
        const int64_t count = std::max<int64_t>(rows - single_rows - i, 1);
        runs.push_back(Run(case_.rows_before + begin + i, i, count));
      }
      std::vector<VisibleRows> visible;
      for (int64_t i = 0; i < rows; ++i) visible.push_back(VisibleOf(begin + i));
      const int64_t in = case_.query_heads * layout.key_dim;
      const int64_t width = case_.query_heads * layout.value_dim;
      AttendArgs args;
      args.layout = layout;
      args.query_heads = case_.query_heads;
      args.scale = case_.scale;
      args.softcap = case_.softcap;
      const std::vector<float> sinks = Sinks();
      if (case_.has_sinks) args.sinks = sinks.data();
      args.queries = {queries_.data() + begin * in, rows, in, in};
      args.runs = runs;
      args.visible = visible;
      args.derivation = Derivation();
      args.out = {out.data() + begin * width, rows, width, width};
      backend.Attend(args);
    }
    return out;
  }

  std::vector<double> Reference() const;

 private:
  KvKeyDerivation Derivation() const { return {key_norm_, inv_freq_}; }
  // Above all scores, far below them, and in between.
  std::vector<float> Sinks() const {
    std::vector<float> sinks = Random(case_.query_heads, 5);
    for (size_t i = 0; i < sinks.size(); ++i) sinks[i] += i % 4 == 0 ? 30.0f : i % 4 == 1 ? -50 : 4;
    return sinks;
  }
  int64_t FirstRecentBlock() const {
    return case_.layout.RecentBegin(case_.rows_before) / kBlockTokens;
  }
  void Add(size_t bytes, std::vector<std::byte*>* list) {
    memory_.emplace_back(bytes, std::byte{0xFF});
    list->push_back(memory_.back().data());
  }
  KvRun Run(int64_t first_row, int64_t step_row, int64_t rows) const {
    KvRun run = {{blocks_, 0, {}}, first_row, step_row, rows};
    if (!recent_.empty()) run.recent = {recent_, FirstRecentBlock(), {}};
    return run;
  }
  VisibleRows VisibleOf(int64_t i) const {
    const int64_t end = case_.rows_before + i + 1;
    const int64_t begin = case_.window == 0 ? 0 : std::max<int64_t>(0, end - case_.window);
    return {std::min(case_.head_rows, begin), begin, end};
  }
  // One head of one row as the query of row `reader` finds it.
  std::vector<float> Decode(int64_t row, int64_t head, bool key, int64_t reader) const;

  Case case_;
  int64_t total_;
  std::vector<float> queries_;
  std::vector<float> key_norm_;
  std::vector<float> inv_freq_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<std::byte*> blocks_;
  std::vector<std::byte*> recent_;
};

std::vector<float> Sequence::Decode(int64_t row, int64_t head, bool key, int64_t reader) const {
  const KvLayout& whole = case_.layout;
  if (key && whole.key_codec.kind == KvCodec::Kind::kFromValue) {
    std::vector<float> derived(static_cast<size_t>(whole.key_dim));
    DeriveKey(Derivation(), row, Decode(row, head, false, reader), derived);
    return derived;
  }
  const bool recent = whole.dense_recent > 0 && row >= whole.RecentBegin(reader);
  const int64_t block = row / kBlockTokens;
  const auto slot = static_cast<int>(row % kBlockTokens);
  const KvBlockLayout layout = recent ? whole.RecentBlock() : whole.BlockAt(block);
  const std::byte* data = recent ? recent_[static_cast<size_t>(block - FirstRecentBlock())]
                                 : blocks_[static_cast<size_t>(block)];
  const KvCodec codec = key ? layout.key_codec : layout.value_codec;
  const int64_t dim = key ? layout.key_dim : layout.value_dim;
  data += key ? static_cast<size_t>(head) * layout.KeyHeadBytes()
              : layout.KeyPlaneBytes() + static_cast<size_t>(head) * layout.ValueHeadBytes();
  std::vector<float> out(static_cast<size_t>(dim));
  if (codec.is_packed()) {
    (key ? DecodePackedKeyRow : DecodePackedValueRow)(codec, data, slot, out);
    return out;
  }
  for (int64_t d = 0; d < dim; ++d) {
    const int64_t index = key ? d * kBlockTokens + slot : slot * dim + d;
    const auto at = static_cast<size_t>(index) * codec.ElementBytes();
    uint16_t half;
    std::memcpy(&half, data + at, sizeof(half));
    out[d] = codec.kind == KvCodec::Kind::kBf16 ? Bf16ToFloat(half) : F16ToFloat(half);
    if (codec == kF32) std::memcpy(&out[d], data + at, sizeof(float));
  }
  return out;
}

std::vector<double> Sequence::Reference() const {
  const KvLayout& layout = case_.layout;
  const int64_t group = case_.query_heads / layout.kv_heads;
  std::vector<double> out;
  for (int64_t i = 0; i < case_.new_rows; ++i) {
    const VisibleRows v = VisibleOf(i);
    for (int64_t h = 0; h < case_.query_heads; ++h) {
      const float* q = &queries_[(i * case_.query_heads + h) * layout.key_dim];
      std::vector<double> sums(static_cast<size_t>(layout.value_dim));
      double total = case_.has_sinks ? std::exp(double{Sinks()[static_cast<size_t>(h)]}) : 0;
      for (int64_t row = 0; row < v.end; ++row) {
        if (row >= v.head_end && row < v.begin) continue;
        const std::vector<float> key = Decode(row, h / group, true, v.end - 1);
        const std::vector<float> value = Decode(row, h / group, false, v.end - 1);
        double score = 0;
        for (int64_t d = 0; d < layout.key_dim; ++d) score += static_cast<double>(q[d]) * key[d];
        score *= static_cast<double>(case_.scale);
        const double softcap = case_.softcap;
        if (softcap > 0) score = softcap * std::tanh(score / softcap);
        const double weight = std::exp(score);
        total += weight;
        for (int64_t d = 0; d < layout.value_dim; ++d) sums[d] += weight * value[d];
      }
      for (const double sum : sums) out.push_back(sum / total);
    }
  }
  return out;
}

KvLayout Layout(int64_t key_dim, int64_t value_dim, const KvCodec& keys, const KvCodec& values) {
  return {.kv_heads = 2,
          .key_dim = static_cast<int>(key_dim),
          .value_dim = static_cast<int>(value_dim),
          .key_codec = keys,
          .value_codec = values,
          .dense_codec = kF16};
}

// Every codec for keys and values, alone and mixed, and everything that cuts a sequence in parts.
std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    const KvCodec codec = KvCodec::Affine(bits, 32);
    cases.push_back({"affine", Layout(64, 64, codec, codec), 4, 130, 5});
  }
  for (const int bits : {2, 3, 4}) {
    const KvCodec codec = KvCodec::Turbo(bits);
    cases.push_back({"turbo", Layout(64, 80, codec, codec), 4, 130, 5});
  }
  const KvCodec affine4 = KvCodec::Affine(4, 64);
  const KvCodec rotated = KvCodec::Affine(4, 32, KvCodec::Scales::kF32, true);
  const KvCodec turbo3 = KvCodec::Turbo(3);
  const KvCodec turbo4 = KvCodec::Turbo(4);
  cases.push_back({"rotated", Layout(96, 96, rotated, rotated), 2, 100, 3});
  cases.push_back({"one row", Layout(64, 64, turbo3, turbo4), 4, 0, 1});
  cases.push_back({"mixed", Layout(128, 64, turbo3, affine4), 4, 63, 3});
  cases.push_back({"packed keys", Layout(64, 48, affine4, kF16), 8, 70, 2});
  cases.push_back({"packed values", Layout(80, 64, kF32, turbo4), 2, 70, 2});
  cases.push_back({"long", Layout(64, 64, affine4, turbo4), 2, 1100, 2});
  cases.push_back({"window", Layout(64, 64, turbo4, turbo3), 4, 300, 70, 100});
  cases.push_back({"window and head", Layout(64, 64, affine4, turbo3), 4, 300, 3, 100, 5});
  KvLayout start = Layout(64, 64, turbo4, turbo3);
  start.dense_start = 128;
  cases.push_back({"dense start", start, 4, 90, 130});
  cases.push_back({"dense start, window, head", start, 4, 290, 5, 150, 7});
  start.dense_codec = kF32;
  start.key_codec = kF32;
  cases.push_back({"dense start of values", start, 4, 90, 70});
  KvLayout recent = Layout(64, 64, affine4, turbo4);
  recent.dense_recent = 64;
  cases.push_back({"recent", recent, 4, 200, 70});
  cases.push_back({"recent, short", recent, 4, 3, 4});
  cases.push_back({"recent, window, head", recent, 4, 120, 200, 90, 70});
  recent.dense_start = 64;
  cases.push_back({"start and recent", recent, 4, 0, 230});
  const KvCodec from_value = {KvCodec::Kind::kFromValue};
  cases.push_back({"values only", Layout(64, 64, from_value, kF16), 4, 130, 5});
  cases.push_back(
      {"packed values only, window", Layout(64, 64, from_value, turbo4), 4, 130, 5, 90, 3});
  recent.key_codec = from_value;
  cases.push_back({"values only, start and recent", recent, 4, 0, 230});
  const auto count = cases.size();
  for (size_t i = 0; i < count; i += 2) {
    cases.push_back(cases[i]);
    cases.back().has_sinks = true;
  }
  return cases;
}

// The largest error of attention in `math` against doubles.
double WorstError(const Case& c, AttentionMath math) {
  const auto backend = Make(2, {}, math);
  Sequence sequence(c);
  sequence.Encode(*backend);
  const std::vector<float> out = sequence.Attend(*backend, c.new_rows);
  const std::vector<double> wanted = sequence.Reference();
  double worst = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    const double error = std::fabs(out[i] - wanted[i]);
    worst = std::isnan(error) ? error : std::max(worst, error);
  }
  return worst;
}

TEST(PackedAttentionTest, MatchesADoubleReferenceOverDecodedRows) {
  for (const Case& c : Cases()) {
    const std::string what = std::string(c.what) + ", " + c.layout.key_codec.name() + " and " +
                             c.layout.value_codec.name();
    // Sums of up to 128 terms of magnitude up to 20, each rounded to 2^-24 relatively, make scores
    // and so weights uncertain by about 1e-5; values are of order 1.
    EXPECT_LT(WorstError(c, AttentionMath::kFloat), 3e-5) << what;
    // A weight of 15 bits is off by up to 1 / 65512 of the largest, and as far are the share of its
    // scale and the code that both make: each 9e-6 as a standard deviation, times a level and its
    // scale, about 3, of 64 weights 2e-4, all three 3.6e-4. Queries add less, and powers of two
    // whose errors of 8e-5 are as often above as below. Four such deviations. One byte: 32767 / 255
    // times as much of one of them. Over rows of f16 queries and weights are rounded to a quarter
    // of these steps.
    const bool has_halves =
        c.layout.key_codec == kF16 || c.layout.value_codec == kF16 ||
        ((c.layout.dense_start > 0 || c.layout.dense_recent > 0) && c.layout.dense_codec == kF16);
    // Levels of turbo in bytes are off by up to half of a 73rd of the largest, 0.004 of a dim's
    // standard deviation; a score of a query and a key of norms 8 and 14, times 0.1, by 0.006 as a
    // standard deviation, and a weight as much relatively. Five of them.
    const bool has_turbo = c.layout.key_codec.kind == KvCodec::Kind::kTurbo ||
                           c.layout.value_codec.kind == KvCodec::Kind::kTurbo;
    const double limit = has_turbo ? 3e-2 : has_halves ? 3.2e-3 : 1.4e-3;
    EXPECT_LT(WorstError(c, AttentionMath::kInt16), limit) << what;
    EXPECT_LT(WorstError(c, AttentionMath::kInt8), 128.5 * 8e-4) << what;
  }
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

void ExpectSameBitsHowever(const Case& c, AttentionMath math) {
  const std::string what = std::string(c.what) + ", " + c.layout.key_codec.name() + " and " +
                           c.layout.value_codec.name() + " with math " +
                           std::to_string(static_cast<int>(math));
  const auto one = Make(1, {}, math);
  Sequence sequence(c);
  sequence.Encode(*one);
  const std::vector<float> wanted = sequence.Attend(*one, c.new_rows);
  for (const int64_t chunk : {1, 7, 64}) {
    EXPECT_TRUE(SameBits(wanted, sequence.Attend(*one, chunk))) << what << " by " << chunk;
  }
  // Every row a run of its own, and the last three beside one run of the others.
  for (const int64_t singles : {c.new_rows, int64_t{3}}) {
    EXPECT_TRUE(SameBits(wanted, sequence.Attend(*one, c.new_rows, singles)))
        << what << ", " << singles << " runs";
  }
  for (const Isa isa : SupportedIsas()) {
    for (const int threads : {2, 7}) {
      // It takes ten times as long as the others, which show what threads do.
      if (isa == Isa::kScalar && threads == 7) continue;
      const CacheLevel level = threads == 2 ? CacheLevel::kFirst : CacheLevel::kSecond;
      const auto other = Make(threads, isa, math, {.kv = {level, level}});
      Sequence again(c);
      again.Encode(*other);
      EXPECT_TRUE(SameBits(wanted, again.Attend(*other, c.new_rows)))
          << what << ", " << IsaName(isa) << " with " << threads << " threads";
    }
  }
}

TEST(PackedAttentionTest, BitsDoNotDependOnChunksRunsThreadsOrIsa) {
  for (const Case& c : Cases()) {
    for (const AttentionMath math : kMaths) ExpectSameBitsHowever(c, math);
  }
}

// Integers round what they multiply with, so a test that compares the two must see a difference.
TEST(PackedAttentionTest, IntegersAreUsedForPackedRowsOfMultiplesOf32Dims) {
  std::vector<KvCodec> codecs;
  for (const int bits : {2, 3, 4, 5, 6, 8}) codecs.push_back(KvCodec::Affine(bits, 32));
  for (const int bits : {2, 3, 4}) codecs.push_back(KvCodec::Turbo(bits));
  for (const KvCodec& codec : codecs) {
    for (const int dim : {64, 80}) {
      if (!codec.Validate(dim).ok()) continue;
      const Case c = {"packed", Layout(dim, dim, codec, codec), 4, 130, 5};
      std::vector<std::vector<float>> outs;
      for (const AttentionMath math : kMaths) {
        const auto backend = Make(1, {}, math);
        Sequence sequence(c);
        sequence.Encode(*backend);
        outs.push_back(sequence.Attend(*backend, c.new_rows));
      }
      for (const size_t i : {0, 1}) {
        EXPECT_EQ(SameBits(outs[i], outs[i + 1]), dim == 80) << codec.name() << ", dim " << dim;
      }
    }
  }
}

// Caches with bf16 on one side or both, and beside packed rows.
std::vector<Case> PairCases() {
  const KvCodec bf16 = {KvCodec::Kind::kBf16};
  std::vector<Case> cases = {{"decode", Layout(128, 128, bf16, bf16), 4, 300, 1},
                             {"prefill", Layout(64, 96, bf16, bf16), 4, 0, 230},
                             {"window, head", Layout(64, 64, bf16, bf16), 4, 290, 80, 150, 7},
                             {"a group of eight", Layout(80, 80, bf16, bf16), 16, 100, 21},
                             {"keys only", Layout(64, 64, bf16, kF16), 4, 130, 70},
                             {"values only", Layout(64, 64, kF16, bf16), 4, 130, 70},
                             {"an odd head", Layout(33, 33, bf16, bf16), 4, 70, 5}};
  // Packed rows of such dims are in float.
  KvLayout start = Layout(80, 80, KvCodec::Turbo(3), KvCodec::Turbo(4));
  start.dense_start = 128;
  start.dense_recent = 64;
  start.dense_codec = bf16;
  cases.push_back({"start and recent", start, 4, 0, 330});
  return cases;
}

TEST(PairAttentionTest, BitsDoNotDependOnChunksRunsThreadsOrIsa) {
  for (const Case& c : PairCases()) ExpectSameBitsHowever(c, AttentionMath::kAuto);
}

TEST(PairAttentionTest, IsCloseToADoubleReferenceAndNotTheFloats) {
  for (const Case& c : PairCases()) {
    const bool is_odd = c.layout.key_dim % 2 != 0;
    const std::string what = c.what;
    EXPECT_LT(WorstError(c, AttentionMath::kFloat), 3e-5) << what;
    // A query is off by up to 2^-9 relatively in each dim, so a score of 64 to 128 products of
    // order 0.1 by 2^-9 as a standard deviation, and a weight as much relatively; its own rounding
    // adds as much again. Values are of order 1; six such deviations.
    const double error = WorstError(c, AttentionMath::kAuto);
    EXPECT_LT(error, 6 * 0x1p-8) << what;
    if (is_odd) {
      EXPECT_LT(error, 3e-5) << what;
    } else {
      EXPECT_GT(error, 1e-4) << what;
    }
  }
}

// Caches with f16 on one side or both, and before and behind rows of 8 bits.
std::vector<Case> HalfCases() {
  const KvCodec affine8 = KvCodec::Affine(8, 64);
  std::vector<Case> cases = {{"decode", Layout(128, 128, kF16, kF16), 4, 300, 1},
                             {"prefill", Layout(64, 96, kF16, kF16), 4, 0, 230},
                             {"wide heads", Layout(272, 256, kF16, kF16), 4, 70, 40},
                             {"window, head", Layout(64, 64, kF16, kF16), 4, 290, 80, 150, 7},
                             {"a group of eight", Layout(80, 80, kF16, kF16), 16, 100, 21},
                             {"keys only", Layout(64, 64, kF16, affine8), 4, 130, 70},
                             {"values only", Layout(64, 64, kF32, kF16), 4, 130, 70},
                             {"keys of 24 dims", Layout(24, 48, kF16, kF16), 4, 70, 20},
                             {"an odd head", Layout(33, 33, kF16, kF16), 4, 70, 5}};
  KvLayout start = Layout(64, 64, affine8, affine8);
  start.dense_start = 128;
  start.dense_recent = 64;
  cases.push_back({"start and recent", start, 4, 0, 330});
  // The same keys in scores of another unit: values of such dims are in float.
  start.key_codec = kF16;
  start.value_codec = KvCodec::Turbo(4);
  start.value_dim = 80;
  cases.push_back({"start and recent of values", start, 4, 0, 330});
  return cases;
}

TEST(HalfAttentionTest, BitsDoNotDependOnChunksRunsThreadsOrIsa) {
  for (const Case& c : HalfCases()) ExpectSameBitsHowever(c, AttentionMath::kAuto);
}

TEST(HalfAttentionTest, IsCloseToADoubleReferenceAndNotTheFloats) {
  for (const Case& c : HalfCases()) {
    const std::string what = c.what;
    EXPECT_LT(WorstError(c, AttentionMath::kFloat), 3e-5) << what;
    // Loud channels of up to 32 make steps of 2^-8, so that a key is off by 2^-8 / sqrt(12) as a
    // standard deviation, a score of order 0.1 times the square root of its dims as much, and a
    // weight as much relatively; queries, values and weights add less each. Values are of order 1;
    // six such deviations.
    const double limit = 6 * 0.1 * std::sqrt(c.layout.key_dim) * 0x1p-8 / std::sqrt(12);
    const double error = WorstError(c, AttentionMath::kInt16);
    EXPECT_LT(error, limit) << what;
    if (what == "an odd head") {
      EXPECT_LT(error, 3e-5) << what;
    } else {
      EXPECT_GT(error, 3e-5) << what;
    }
  }
}

// Caches with 8 bits on one side or both: over several partitions, in windows, capped, and beside
// rows of other formats.
std::vector<Case> AdaptiveCases() {
  const KvCodec affine8 = KvCodec::Affine(8, 64);
  const KvCodec affine4 = KvCodec::Affine(4, 64);
  const KvCodec rotated = KvCodec::Affine(8, 32, KvCodec::Scales::kF32, true);
  const KvCodec bf16 = {KvCodec::Kind::kBf16};
  const KvCodec from_value = {KvCodec::Kind::kFromValue};
  std::vector<Case> cases = {
      {"decode", Layout(128, 128, affine8, affine8), 4, 1300, 2},
      {"prefill", Layout(64, 128, affine8, affine8), 4, 0, 230},
      {"window, head", Layout(64, 64, affine8, affine8), 4, 290, 80, 150, 7},
      {"a group of eight", Layout(64, 64, affine8, affine8), 16, 300, 21},
      {"tiles of two sizes", Layout(64, 64, affine8, affine8), 16, 0, 330},
      {"partitions of all lengths", Layout(64, 64, affine8, affine8), 4, 12270, 40},
      {"rotated", Layout(96, 96, rotated, rotated), 2, 400, 33},
      {"keys only", Layout(64, 64, affine8, kF16), 4, 330, 70},
      {"values only", Layout(64, 64, kF16, affine8), 4, 330, 70},
      {"values only, keys in pairs", Layout(64, 64, bf16, affine8), 4, 330, 70},
      {"values only, keys from them", Layout(64, 64, from_value, affine8), 4, 330, 7},
      {"values of 4 bits", Layout(64, 64, affine8, affine4), 4, 330, 70},
      {"keys of 4 bits", Layout(64, 64, affine4, affine8), 4, 330, 70}};
  Case capped = {"capped", Layout(64, 64, affine8, affine8), 4, 330, 70};
  capped.softcap = 2;
  cases.push_back(capped);
  Case sinks = {"sinks", Layout(64, 64, affine8, affine8), 16, 2300, 70};
  sinks.has_sinks = true;
  cases.push_back(sinks);
  KvLayout start = Layout(64, 64, affine8, affine8);
  start.dense_start = 128;
  start.dense_recent = 64;
  cases.push_back({"start and recent", start, 4, 0, 430});
  return cases;
}

TEST(AdaptiveAttentionTest, BitsDoNotDependOnChunksRunsThreadsOrIsa) {
  for (Case c : AdaptiveCases()) {
    for (const float scale : {0.1f, 1.0f}) {
      c.scale = scale;
      ExpectSameBitsHowever(c, AttentionMath::kAuto);
    }
  }
}

// The root of the mean square of the error of attention against doubles.
double MeanError(const Case& c, AttentionMath math) {
  const auto backend = Make(2, {}, math);
  Sequence sequence(c);
  sequence.Encode(*backend);
  const std::vector<float> out = sequence.Attend(*backend, c.new_rows);
  const std::vector<double> wanted = sequence.Reference();
  double squares = 0;
  for (size_t i = 0; i < out.size(); ++i) squares += (out[i] - wanted[i]) * (out[i] - wanted[i]);
  return std::sqrt(squares / static_cast<double>(out.size()));
}

// One byte makes errors 10 to 1000 times as large as two. Where it decides little they reach the
// output by the share of what the block adds: with weights spread over many tokens (0.02) all
// blocks but the first of a partition take one byte, with weights on few (1) one block has nearly
// all. The shares leave a little room above what these inputs give.
TEST(AdaptiveAttentionTest, TwoBytesAreTakenWhereTheyMatter) {
  const KvCodec affine8 = KvCodec::Affine(8, 64);
  Case c = {"", Layout(128, 128, affine8, affine8), 4, 1300, 20};
  for (const auto& [scale, share] :
       {std::pair(0.02f, 1.0), std::pair(0.1f, 0.75), std::pair(1.0f, 0.25)}) {
    c.scale = scale;
    const double one_byte = MeanError(c, AttentionMath::kInt8);
    const double two_bytes = MeanError(c, AttentionMath::kInt16);
    const double adaptive = MeanError(c, AttentionMath::kAuto);
    EXPECT_LT(adaptive, share * one_byte) << scale;
    EXPECT_GT(adaptive, 2 * two_bytes) << scale;
  }
}

TEST(AdaptiveAttentionTest, ASingleBlockTakesTwoBytes) {
  const KvCodec affine8 = KvCodec::Affine(8, 64);
  const Case c = {"", Layout(64, 64, affine8, affine8), 4, 30, 34};
  std::vector<std::vector<float>> outs;
  for (const AttentionMath math : {AttentionMath::kAuto, AttentionMath::kInt16}) {
    const auto backend = Make(1, {}, math);
    Sequence sequence(c);
    sequence.Encode(*backend);
    outs.push_back(sequence.Attend(*backend, c.new_rows));
  }
  EXPECT_TRUE(SameBits(outs[0], outs[1]));
}

// The norms of a row's keys are summed over the kv heads, whoever wrote the row.
TEST(PackedAttentionTest, KeyNormsAreKeptBesideTheRows) {
  KvLayout layout = Layout(64, 64, KvCodec::Turbo(3), kF16);
  layout.key_norms = true;
  const auto backend = Make(1);
  std::vector<std::vector<std::byte>> memory(3, std::vector<std::byte>(layout.BlockBytes(0)));
  std::vector<std::byte*> blocks;
  for (auto& block : memory) blocks.push_back(block.data());
  auto rows = Random(150 * 128, 5);
  const KvRun run = {{blocks, 0, {}}, 20, 0, 150};
  backend->EncodeKv(layout, std::span(&run, 1), View(rows, 128), View(rows, 128));
  for (int64_t i = 0; i < 150; ++i) {
    double wanted = 0;
    for (int64_t head = 0; head < 2; ++head) {
      double squares = 0;
      for (int64_t d = 0; d < 64; ++d) squares += std::pow(rows[i * 128 + head * 64 + d], 2);
      wanted += std::sqrt(squares);
    }
    float norm;
    std::memcpy(&norm,
                memory[(20 + i) / 64].data() + layout.BlockAt(0).NormsOffset() +
                    static_cast<size_t>((20 + i) % 64) * sizeof(float),
                sizeof(norm));
    ASSERT_NEAR(norm, wanted, 1e-5) << i;  // a few roundings of 2^-24 of a number below 32
  }
}

// Softmax states of many ranges and partitions wait for each other: of 400 sequences together these
// would take 40 MB.
TEST(AttentionScratchTest, StatesOfManyRangesAreBounded) {
  constexpr int64_t kRuns = 400;
  const Case c = {"many runs", Layout(32, 512, kF16, kF16), 4, 12000, kRuns};
  Sequence sequence(c);
  const auto alone = Make(1);
  sequence.Encode(*alone);
  const std::vector<float> out = sequence.Attend(*alone, 1);
  for (const int threads : {1, 3}) {
    const auto backend = Make(threads);
    EXPECT_EQ(sequence.Attend(*backend, kRuns, kRuns), out);
    const size_t bound =
        backend->ScratchBound({.rows = 1, .query_heads = c.query_heads, .layers = {{2, 512}}});
    EXPECT_LE(backend->scratch_bytes(), bound + (size_t{16} << 20)) << threads;
    EXPECT_GE(backend->scratch_bytes(), size_t{12} << 20) << threads;
  }
}

// So many that not all states fit: the new rows of those that wait are there in time as well.
TEST(AttentionScratchTest, SequencesThatWaitForOthersFindTheirNewRows) {
  constexpr size_t kRuns = 320;
  constexpr int64_t kRowsBefore = 12000;
  const KvLayout layout = Layout(32, 512, kF16, kF16);
  const int64_t key_width = layout.kv_heads * layout.key_dim;
  const int64_t width = layout.kv_heads * layout.value_dim;
  // All but the last block is everybody's.
  const int64_t blocks = kRowsBefore / kBlockTokens + 1;
  std::vector<std::vector<std::byte>> shared(static_cast<size_t>(blocks),
                                             std::vector<std::byte>(layout.BlockBytes(0)));
  std::vector<std::byte*> prefix;
  for (auto& block : shared) prefix.push_back(block.data());
  auto keys = Random(kRowsBefore * key_width, 1);
  auto values = Random(kRowsBefore * width, 2);
  const KvRun fill = {{prefix, 0, {}}, 0, 0, kRowsBefore};
  Make(2)->EncodeKv(layout, std::span(&fill, 1), View(keys, key_width), View(values, width));

  auto new_keys = Random(kRuns * key_width, 3);
  auto new_values = Random(kRuns * width, 4);
  auto queries = Random(2 * kRuns * key_width, 5);
  const std::vector<VisibleRows> visible(kRuns, {0, 0, kRowsBefore + 1});
  const auto attend = [&](int threads, bool writes) {
    std::vector<std::vector<std::byte>> last(kRuns, shared.back());
    std::vector<std::vector<std::byte*>> own(kRuns, prefix);
    std::vector<KvRun> runs;
    for (size_t i = 0; i < kRuns; ++i) {
      own[i].back() = last[i].data();
      runs.push_back({{own[i], 0, {}}, kRowsBefore, static_cast<int64_t>(i), 1});
    }
    std::vector<float> out(2 * kRuns * static_cast<size_t>(width));
    AttendArgs args;
    args.layout = layout;
    args.query_heads = 2 * layout.kv_heads;
    args.scale = 0.1f;
    args.queries = View(queries, 2 * key_width);
    args.runs = runs;
    args.visible = visible;
    args.out = View(out, 2 * width);
    const auto backend = Make(threads);
    if (writes) {
      args.new_keys = View(new_keys, key_width);
      args.new_values = View(new_values, width);
    } else {
      backend->EncodeKv(layout, runs, View(new_keys, key_width), View(new_values, width));
    }
    backend->Attend(args);
    EXPECT_GE(backend->scratch_bytes(), size_t{12} << 20);
    return out;
  };
  const std::vector<float> out = attend(1, false);
  EXPECT_EQ(attend(1, true), out);
  EXPECT_EQ(attend(3, true), out);
}

// Many rows, a few of several runs, fewer tiles than threads, and layers that differ.
TEST(AttentionScratchTest, StaysWithinItsBound) {
  constexpr KvCodec kBf16 = {KvCodec::Kind::kBf16};
  constexpr int64_t kRows = 300;
  const KvCodec affine8 = KvCodec::Affine(8, 64);
  const KvCodec turbo4 = KvCodec::Turbo(4);
  KvLayout layouts[] = {Layout(128, 128, kF32, kF32),   Layout(128, 128, affine8, affine8),
                        Layout(256, 256, kF16, kF16),   Layout(128, 128, kBf16, kBf16),
                        Layout(64, 64, turbo4, turbo4), Layout(512, 512, affine8, kF16)};
  layouts[1].kv_heads = 8;
  layouts[4].dense_start = 128;
  layouts[4].dense_codec = kBf16;
  layouts[5].kv_heads = 1;
  constexpr int kQueryHeads = 8;
  std::vector<Sequence> sequences;
  for (const KvLayout& layout : layouts) {
    sequences.emplace_back(Case{"", layout, kQueryHeads, 700, kRows});
    sequences.back().Encode(*Make(2));
  }
  for (const int threads : {1, 2, 16}) {
    const auto every = Make(threads);
    StepShape of_all = {.rows = kRows, .query_heads = kQueryHeads, .layers = {}};
    for (size_t i = 0; i < sequences.size(); ++i) {
      const KvLayout& layout = layouts[i];
      const auto own = Make(threads);
      const StepShape shape = {
          .rows = kRows, .query_heads = kQueryHeads, .layers = {{layout.kv_heads, layout.key_dim}}};
      of_all.layers.push_back(shape.layers[0]);
      for (const int64_t chunk : {kRows - 1, kRows, int64_t{20}, int64_t{40}, int64_t{2}}) {
        sequences[i].Attend(*own, chunk);
        sequences[i].Attend(*every, chunk);
        // States that wait for others are not in it: of three partitions at most.
        const size_t states = size_t{3} * sizeof(float) * kRows * kQueryHeads * (512 + 18);
        EXPECT_LE(own->scratch_bytes(), own->ScratchBound(shape) + (threads > 2 ? states : 0))
            << layout.key_codec.name() << " " << threads << " threads, chunks of " << chunk;
        EXPECT_LE(every->scratch_bytes(), every->ScratchBound(of_all) + (threads > 2 ? states : 0))
            << layout.key_codec.name() << " " << threads << " threads, chunks of " << chunk;
      }
      // Not so much more that budgets would reserve it in vain. With more threads than cores not
      // all have had work.
      if (threads == 1) {
        EXPECT_GE(own->scratch_bytes(), own->ScratchBound(shape) / 4) << layout.key_codec.name();
      }
    }
  }
}

}  // namespace
}  // namespace kvasir
