// Elementwise kernels: every table has the oracle's bits, the oracle is close to double precision.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "gtest/gtest.h"
#include "kvasir/base/scalar_math.h"
#include "kvasir/kernels/kernel_test_util.h"

namespace kvasir {
namespace {

using testing::AwkwardFloats;
using testing::ExpectSameBits;
using testing::HashBits;
using testing::kInfinity;
using testing::kNan;
using testing::Oracle;
using testing::PortableFloats;
using testing::RandomFloats;
using testing::SimdTables;

constexpr int64_t kCounts[] = {1,  2,  3,  7,  8,   9,   15,  16,  17,   31,  32,
                               33, 63, 64, 65, 100, 127, 128, 129, 1000, 4096};

// Distance of `actual` from `expected` in units of the last place of the nearest float.
double UlpError(double expected, float actual) {
  const float nearest = static_cast<float>(expected);
  if (std::isinf(nearest)) return std::isinf(actual) ? 0 : 1e9;
  const float magnitude = std::fabs(nearest);
  const double ulp = magnitude < 0x1p-126f
                         ? 0x1p-149
                         : std::nextafter(magnitude, kInfinity) - static_cast<double>(magnitude);
  return std::fabs(static_cast<double>(actual) - expected) / ulp;
}

// Every `stride`-th float between two non-negative ones, with both signs.
void ForEachFloat(float first, float last, uint32_t stride,
                  const std::function<void(float)>& visit) {
  const uint32_t end = std::bit_cast<uint32_t>(last);
  for (uint32_t bits = std::bit_cast<uint32_t>(first); bits <= end; bits += stride) {
    visit(std::bit_cast<float>(bits));
    visit(-std::bit_cast<float>(bits));
  }
}

TEST(ScalarMath, ExpIsWithinOneUlp) {
  // A prime stride: about three million arguments spread over all exponents and mantissas.
  double worst = 0;
  ForEachFloat(0.0f, 110.0f, 743, [&](float x) {
    worst = std::max(worst, UlpError(std::exp(static_cast<double>(x)), scalar::Exp(x)));
  });
  // Half an ulp of the last rounding, a quarter of the one before, 0.06 of the polynomial; a
  // denormal result is rounded once more.
  EXPECT_LT(worst, 1.05);
  RecordProperty("worst_ulp", std::to_string(worst));
}

TEST(ScalarMath, ExpExactCases) {
  EXPECT_EQ(scalar::Exp(0.0f), 1.0f);
  EXPECT_EQ(scalar::Exp(-0.0f), 1.0f);
  EXPECT_EQ(scalar::Exp(-kInfinity), 0.0f);
  EXPECT_FALSE(std::signbit(scalar::Exp(-kInfinity)));
  EXPECT_EQ(scalar::Exp(-200.0f), 0.0f);
  EXPECT_EQ(scalar::Exp(kInfinity), kInfinity);
  EXPECT_EQ(scalar::Exp(88.8f), kInfinity);
  EXPECT_GT(scalar::Exp(-103.0f), 0.0f);
  EXPECT_TRUE(std::isnan(scalar::Exp(kNan)));
}

TEST(ScalarMath, TanhIsWithinThreeUlp) {
  double worst = 0;
  ForEachFloat(0.0f, 20.0f, 743, [&](float x) {
    worst = std::max(worst, UlpError(std::tanh(static_cast<double>(x)), scalar::Tanh(x)));
  });
  // Roundings of e^y - 1 (about 1.2 ulp with the step to a smaller exponent), of the sum below
  // the fraction and of the division.
  EXPECT_LT(worst, 3.0);
  RecordProperty("worst_ulp", std::to_string(worst));
  EXPECT_EQ(scalar::Tanh(kInfinity), 1.0f);
  EXPECT_EQ(scalar::Tanh(-kInfinity), -1.0f);
  EXPECT_TRUE(std::signbit(scalar::Tanh(-0.0f)));
  EXPECT_TRUE(std::isnan(scalar::Tanh(kNan)));
}

TEST(ScalarMath, SoftplusIsWithinThreeUlp) {
  double worst = 0;
  ForEachFloat(0.0f, 110.0f, 743, [&](float x) {
    const double exact = std::log1p(std::exp(static_cast<double>(x)));
    worst = std::max(worst, UlpError(exact, scalar::Softplus(x)));
  });
  // Roundings of e^-|x| (1.05 ulp), of a sum, of the quotient and of the logarithm, some of them
  // with a step to a smaller exponent.
  EXPECT_LT(worst, 3.0);
  RecordProperty("worst_ulp", std::to_string(worst));
  EXPECT_EQ(scalar::Softplus(-kInfinity), 0.0f);
  EXPECT_EQ(scalar::Softplus(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(scalar::Softplus(kNan)));
  for (const float x : {20.0f, 25.5f, 3e38f}) EXPECT_EQ(scalar::Softplus(x), x);
  for (const float x : {-20.0f, -90.0f, -103.5f}) EXPECT_EQ(scalar::Softplus(x), scalar::Exp(x));
}

// Runs `kernel` on copies of x with each table and compares the bits of x afterwards.
void ExpectTablesAgree(const std::vector<float>& x, const std::string& what,
                       const std::function<void(const KernelTable&, float*)>& kernel) {
  std::vector<float> expected = x;
  kernel(Oracle(), expected.data());
  for (const KernelTable* table : SimdTables()) {
    std::vector<float> actual = x;
    kernel(*table, actual.data());
    ExpectSameBits(expected, actual, what + " " + std::string(IsaName(table->isa)));
  }
}

TEST(Elementwise, SimdExpAndTanhHaveTheOraclesBits) {
  std::vector<float> x = {0.0f, -0.0f, kInfinity, -kInfinity, kNan};
  ForEachFloat(0.0f, 110.0f, 9973, [&](float value) { x.push_back(value); });
  const auto count = static_cast<int64_t>(x.size());
  const std::vector<float> ones(x.size(), 1.0f);
  ExpectTablesAgree(x, "tanh", [&](const KernelTable& t, float* v) { t.softcap(v, 1.0f, count); });
  ExpectTablesAgree(x, "exp in silu",
                    [&](const KernelTable& t, float* v) { t.silu_gate(v, ones.data(), count); });
}

TEST(Elementwise, TablesHaveTheOraclesBits) {
  for (int64_t count : kCounts) {
    for (uint32_t seed = 0; seed < 3; ++seed) {
      const auto size = static_cast<size_t>(count);
      const std::vector<float> x = seed == 0 ? RandomFloats(size, 7) : AwkwardFloats(size, seed);
      const std::vector<float> y = RandomFloats(size, 100 + seed);
      const std::string where = std::to_string(count) + " numbers, seed " + std::to_string(seed);
      ExpectTablesAgree(x, "rms_norm " + where, [&](const KernelTable& t, float* v) {
        t.rms_norm(v, y.data(), 1e-6f, count, v);
      });
      ExpectTablesAgree(x, "rms_norm without weight " + where, [&](const KernelTable& t, float* v) {
        t.rms_norm(v, nullptr, 1e-5f, count, v);
      });
      ExpectTablesAgree(x, "silu_gate " + where,
                        [&](const KernelTable& t, float* v) { t.silu_gate(v, y.data(), count); });
      ExpectTablesAgree(x, "clamped_gate " + where, [&](const KernelTable& t, float* v) {
        t.clamped_gate(v, y.data(), count);
      });
      ExpectTablesAgree(
          y, "clamped_gate of awkward factors " + where,
          [&](const KernelTable& t, float* v) { t.clamped_gate(v, x.data(), count); });
      ExpectTablesAgree(x, "sigmoid_gate " + where, [&](const KernelTable& t, float* v) {
        t.sigmoid_gate(v, y.data(), count);
      });
      ExpectTablesAgree(x, "product_gate " + where, [&](const KernelTable& t, float* v) {
        t.product_gate(v, y.data(), count);
      });
      ExpectTablesAgree(
          y, "sigmoid_gate of awkward factors " + where,
          [&](const KernelTable& t, float* v) { t.sigmoid_gate(v, x.data(), count); });
      ExpectTablesAgree(x, "gelu_tanh_gate " + where, [&](const KernelTable& t, float* v) {
        t.gelu_tanh_gate(v, y.data(), count);
      });
      ExpectTablesAgree(x, "add " + where,
                        [&](const KernelTable& t, float* v) { t.add(v, y.data(), count); });
      ExpectTablesAgree(x, "scale " + where,
                        [&](const KernelTable& t, float* v) { t.scale(v, 0.37f, count); });
      ExpectTablesAgree(x, "divide " + where, [&](const KernelTable& t, float* v) {
        t.divide(y.data(), v[0], count, v);
      });
      ExpectTablesAgree(x, "merge " + where, [&](const KernelTable& t, float* v) {
        t.merge(v, 0.7f, y.data(), 1.3f, count);
      });
      ExpectTablesAgree(x, "softcap " + where,
                        [&](const KernelTable& t, float* v) { t.softcap(v, 30.0f, count); });
      ExpectTablesAgree(x, "softmax " + where,
                        [&](const KernelTable& t, float* v) { t.softmax(v, count); });
    }
  }
}

TEST(Elementwise, RopeHasTheOraclesBitsAndRotates) {
  for (int64_t pairs : {1, 2, 3, 8, 15, 16, 20, 32, 33, 40, 64, 96, 128}) {
    const auto size = static_cast<size_t>(pairs);
    const std::vector<float> x = AwkwardFloats(2 * size, 3);
    std::vector<float> cos(size);
    std::vector<float> sin(size);
    for (size_t i = 0; i < size; ++i) {
      cos[i] = std::cos(static_cast<float>(i));
      sin[i] = std::sin(static_cast<float>(i));
    }
    ExpectTablesAgree(x, "rope " + std::to_string(pairs), [&](const KernelTable& t, float* v) {
      t.rope(v, cos.data(), sin.data(), pairs);
    });
  }
  // A quarter turn maps (1, 0) to (0, 1) and (0, 1) to (-1, 0).
  std::vector<float> x = {1, 0, 0, 1};
  const float cos[] = {0, 0};
  const float sin[] = {1, 1};
  Oracle().rope(x.data(), cos, sin, 2);
  ExpectSameBits({0, -1, 1, 0}, x, "quarter turn");
}

TEST(Elementwise, OracleIsCloseToDoublePrecision) {
  constexpr int64_t kCount = 777;
  const std::vector<float> x = RandomFloats(kCount, 1, 2.0f);
  const std::vector<float> y = RandomFloats(kCount, 2);
  double squares = 0;
  double exponentials = 0;
  for (float v : x) squares += static_cast<double>(v) * v;
  for (float v : x) exponentials += std::exp(static_cast<double>(v));
  std::vector<float> norm(kCount);
  Oracle().rms_norm(x.data(), y.data(), 1e-6f, kCount, norm.data());
  std::vector<float> silu = x;
  Oracle().silu_gate(silu.data(), y.data(), kCount);
  std::vector<float> sigmoid = x;
  Oracle().sigmoid_gate(sigmoid.data(), y.data(), kCount);
  std::vector<float> gelu = x;
  Oracle().gelu_tanh_gate(gelu.data(), y.data(), kCount);
  // Also beyond its limits.
  std::vector<float> clamped = x;
  std::vector<float> wide = y;
  for (float& v : clamped) v *= 5;
  for (float& v : wide) v *= 5;
  const std::vector<float> unclamped = clamped;
  Oracle().clamped_gate(clamped.data(), wide.data(), kCount);
  std::vector<float> softmax = x;
  Oracle().softmax(softmax.data(), kCount);
  for (size_t i = 0; i < kCount; ++i) {
    const double v = x[i];
    const double w = y[i];
    // 2^-24 per rounding: a lane of the norm adds 49 squares (their errors average out over the
    // lanes; 20 is ample), the activations make fewer than ten roundings.
    const double norm_exact = v / std::sqrt(squares / kCount + 1e-6) * w;
    EXPECT_NEAR(norm[i], norm_exact, std::fabs(norm_exact) * 20 * 0x1p-24);
    const double silu_exact = v / (1 + std::exp(-v)) * w;
    EXPECT_NEAR(silu[i], silu_exact, std::fabs(silu_exact) * 10 * 0x1p-24);
    const double sigmoid_exact = w / (1 + std::exp(-v));
    EXPECT_NEAR(sigmoid[i], sigmoid_exact, std::fabs(sigmoid_exact) * 10 * 0x1p-24);
    // 1 + tanh cancels where tanh is near -1, so the error is relative to x * w, not the result.
    const double gelu_exact =
        0.5 * v * (1 + std::tanh(0.7978845608028654 * (v + 0.044715 * v * v * v))) * w;
    EXPECT_NEAR(gelu[i], gelu_exact, std::fabs(v * w) * 10 * 0x1p-24);
    const double g = std::min<double>(unclamped[i], 7);
    const double u = std::clamp<double>(wide[i], -7, 7);
    const double clamped_exact = g / (1 + std::exp(-1.702 * g)) * (u + 1);
    // The rounding of the exponent is the relative error of its exponential.
    EXPECT_NEAR(clamped[i], clamped_exact,
                std::fabs(g / (1 + std::exp(-1.702 * g)) * (std::fabs(u) + 1)) *
                    (10 + std::fabs(1.702 * g)) * 0x1p-23);
    const double softmax_exact = std::exp(v) / exponentials;
    // The rounding of x - max, up to 2^-21 here, is the relative error of its exponential.
    EXPECT_NEAR(softmax[i], softmax_exact, softmax_exact * 30 * 0x1p-24);
  }
}

TEST(Elementwise, BitsAreTheSameOnEveryMachine) {
  constexpr int64_t kCount = 1003;
  const std::vector<float> x = PortableFloats(kCount, 1);
  const std::vector<float> y = PortableFloats(kCount, 2);
  for (Isa isa : SupportedIsas()) {
    const KernelTable& table = KernelsFor(isa);
    std::vector<float> all;
    const auto run = [&](auto&& kernel) {
      std::vector<float> v = x;
      kernel(v.data());
      all.insert(all.end(), v.begin(), v.end());
    };
    run([&](float* v) { table.rms_norm(v, y.data(), 1e-6f, kCount, v); });
    run([&](float* v) { table.silu_gate(v, y.data(), kCount); });
    run([&](float* v) { table.gelu_tanh_gate(v, y.data(), kCount); });
    run([&](float* v) { table.rope(v, y.data(), y.data() + 500, 500); });
    run([&](float* v) { table.softcap(v, 3.0f, kCount); });
    run([&](float* v) { table.softmax(v, kCount); });
    // Written by the oracle on x86-64; a change here changes every model's output.
    EXPECT_EQ(HashBits(all), 0xF42116BF6D68C147u) << IsaName(isa);
    all.clear();
    run([&](float* v) { table.clamped_gate(v, y.data(), kCount); });
    EXPECT_EQ(HashBits(all), 0x75A603A0DFA8EFE0u) << IsaName(isa);
    all.clear();
    run([&](float* v) { table.sigmoid_gate(v, y.data(), kCount); });
    EXPECT_EQ(HashBits(all), 0x80E4E45A1111930Du) << IsaName(isa);
  }
}

TEST(Elementwise, ArgmaxTakesTheLowestOfEqualsAndPassesOverNan) {
  struct Case {
    std::vector<float> x;
    int64_t best;
  };
  std::vector<float> long_tie(100, 1.0f);
  long_tie[37] = long_tie[90] = 2.0f;
  const Case cases[] = {
      {{5}, 0},
      {{1, 3, 3, 2}, 1},
      {{kNan, 1, 2}, 2},
      {{kNan, kNan, kNan}, 0},
      {{kNan, -kInfinity}, 1},
      {{-kInfinity, -kInfinity}, 0},
      {{-0.0f, 0.0f}, 0},
      {{0.0f, kInfinity, kNan, kInfinity}, 1},
      {long_tie, 37},
  };
  for (Isa isa : SupportedIsas()) {
    for (const Case& c : cases) {
      EXPECT_EQ(KernelsFor(isa).argmax(c.x.data(), static_cast<int64_t>(c.x.size())), c.best)
          << IsaName(isa);
    }
  }
}

TEST(Elementwise, ArgmaxAgreesOnRandomNumbers) {
  for (int64_t count : kCounts) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
      std::vector<float> x = AwkwardFloats(static_cast<size_t>(count), seed);
      if (seed % 3 == 0) x[seed % x.size()] = kNan;
      for (const KernelTable* table : SimdTables()) {
        EXPECT_EQ(table->argmax(x.data(), count), Oracle().argmax(x.data(), count))
            << IsaName(table->isa) << ", " << count << " numbers, seed " << seed;
      }
    }
  }
}

TEST(Elementwise, NonFiniteNumbersAgree) {
  std::vector<float> x = RandomFloats(70, 5);
  for (float strewn : {kNan, kInfinity, -kInfinity}) {
    x[20] = strewn;
    x[69] = strewn;
    const std::vector<float> ones(x.size(), 1.0f);
    ExpectTablesAgree(x, "softmax", [&](const KernelTable& t, float* v) { t.softmax(v, 70); });
    ExpectTablesAgree(x, "rms_norm", [&](const KernelTable& t, float* v) {
      t.rms_norm(v, ones.data(), 1e-6f, 70, v);
    });
    ExpectTablesAgree(x, "sigmoid_gate",
                      [&](const KernelTable& t, float* v) { t.sigmoid_gate(v, ones.data(), 70); });
    ExpectTablesAgree(x, "gelu_tanh_gate", [&](const KernelTable& t, float* v) {
      t.gelu_tanh_gate(v, ones.data(), 70);
    });
  }
}

}  // namespace
}  // namespace kvasir
