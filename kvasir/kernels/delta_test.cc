// Kernels of layers with a state: every table has the oracle's bits, tokens may be given in any
// number of calls, the oracle is close to double precision.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"
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

// What a call finds of the tokens before.
enum class Before { kNothing, kInPlace, kElsewhere };
constexpr Before kAllBefore[] = {Before::kNothing, Before::kInPlace, Before::kElsewhere};

using Floats = std::vector<float>;

Floats Draw(int64_t count, uint32_t seed, bool awkward) {
  const auto size = static_cast<size_t>(count);
  return awkward ? AwkwardFloats(size, seed) : RandomFloats(size, seed);
}

std::string NameOf(const KernelTable& table) { return std::string(IsaName(table.isa)); }

// A convolution of `channels`, of which a call takes some; strides are wider than rows.
struct Conv {
  Conv(int64_t rows, int64_t channels, int64_t width, uint32_t seed, bool awkward)
      : rows(rows),
        channels(channels),
        width(width),
        x(Draw(rows * (channels + 3), seed, awkward)),
        weights(Draw(width * channels, seed + 1, false)),
        biases(Draw(channels, seed + 3, false)),
        history(Draw((width - 1) * channels, seed + 2, awkward)),
        next(history.size(), 7.0f),
        out(static_cast<size_t>(rows * (channels + 5)), 7.0f) {}

  // Tokens [begin, end).
  void Run(const KernelTable& table, Before before, int64_t begin, int64_t end,
           int64_t channel_begin, int64_t channel_end) {
    if (before == Before::kInPlace) next = history;
    table.causal_conv({.x = x.data() + begin * (channels + 3),
                       .x_stride = channels + 3,
                       .rows = end - begin,
                       .weights = weights.data(),
                       .weight_stride = channels,
                       .width = width,
                       .biases = has_biases ? biases.data() : nullptr,
                       .has_silu = has_silu,
                       .history = before == Before::kNothing   ? nullptr
                                  : before == Before::kInPlace ? next.data()
                                                               : history.data(),
                       .next_history = next.data(),
                       .history_stride = channels,
                       .channel_begin = channel_begin,
                       .channel_end = channel_end,
                       .out = out.data() + begin * (channels + 5),
                       .out_stride = channels + 5});
  }
  Floats Results() const {
    Floats all = out;
    all.insert(all.end(), next.begin(), next.end());
    return all;
  }

  int64_t rows, channels, width;
  bool has_biases = false;
  bool has_silu = true;
  Floats x, weights, biases, history, next, out;
};

TEST(CausalConv, TablesHaveTheOraclesBits) {
  for (const int64_t channels : {1, 3, 8, 17, 40, 67}) {
    for (const int64_t rows : {1, 2, 3, 4, 9}) {
      for (const int64_t width : {2, 3, 4, 7}) {
        for (const Before before : kAllBefore) {
          for (const bool awkward : {false, true}) {
            Conv given(rows, channels, width, static_cast<uint32_t>(rows + channels), awkward);
            if (awkward) given.x[static_cast<size_t>(rows / 2)] = channels > 8 ? kNan : -kInfinity;
            given.has_biases = (rows + width) % 2 == 0;
            given.has_silu = channels % 2 == 1;
            // Those outside keep what they hold.
            const int64_t begin = channels / 4;
            const int64_t end = channels - channels / 8;
            Conv expected = given;
            expected.Run(Oracle(), before, 0, rows, begin, end);
            for (const KernelTable* table : SimdTables()) {
              Conv actual = given;
              actual.Run(*table, before, 0, rows, begin, end);
              ExpectSameBits(expected.Results(), actual.Results(),
                             NameOf(*table) + ", channels " + std::to_string(channels) + ", rows " +
                                 std::to_string(rows) + ", width " + std::to_string(width));
            }
          }
        }
      }
    }
  }
}

TEST(CausalConv, TokensMayComeInAnyNumberOfCalls) {
  for (const Isa isa : SupportedIsas()) {
    const Conv given(9, 21, 4, 3, false);
    Conv whole = given;
    whole.Run(KernelsFor(isa), Before::kElsewhere, 0, 9, 0, 21);
    for (const int64_t chunk : {1, 2, 4, 5}) {
      Conv cut = given;
      for (int64_t begin = 0; begin < 9; begin += chunk) {
        cut.Run(KernelsFor(isa), Before::kInPlace, begin, std::min<int64_t>(begin + chunk, 9), 0,
                21);
        cut.history = cut.next;
      }
      ExpectSameBits(whole.Results(), cut.Results(), "calls of " + std::to_string(chunk));
    }
  }
}

TEST(CausalConv, NothingBeforeIsZeros) {
  for (const Isa isa : SupportedIsas()) {
    Conv nothing(2, 21, 4, 3, true);
    std::fill(nothing.history.begin(), nothing.history.end(), 0.0f);
    Conv zeros = nothing;
    nothing.Run(KernelsFor(isa), Before::kNothing, 0, 2, 0, 21);
    zeros.Run(KernelsFor(isa), Before::kElsewhere, 0, 2, 0, 21);
    ExpectSameBits(zeros.Results(), nothing.Results(), "nothing before");
  }
}

TEST(CausalConv, BiasesAreAddedAndSiluIsLeftOutWhereAsked) {
  Conv silu(5, 9, 3, 6, false);
  silu.has_biases = true;
  Conv plain = silu;
  plain.has_silu = false;
  Conv unbiased = plain;
  unbiased.has_biases = false;
  for (Conv* conv : {&silu, &plain, &unbiased}) {
    conv->Run(Oracle(), Before::kElsewhere, 0, 5, 0, 9);
  }
  for (int64_t row = 0; row < 5; ++row) {
    for (int64_t c = 0; c < 9; ++c) {
      const size_t at = static_cast<size_t>(row * 14 + c);
      const double sum = plain.out[at];
      EXPECT_NEAR(sum, static_cast<double>(unbiased.out[at]) + silu.biases[c], 1e-5);
      EXPECT_NEAR(silu.out[at], sum / (1 + std::exp(-sum)), 1e-5);
    }
  }
}

TEST(CausalConv, OracleIsCloseToDoublePrecision) {
  Conv conv(8, 30, 4, 5, false);
  conv.Run(Oracle(), Before::kElsewhere, 0, 8, 0, 30);
  for (int64_t row = 0; row < 8; ++row) {
    for (int64_t c = 0; c < 30; ++c) {
      double sum = 0;
      double magnitudes = 0;
      for (int64_t j = 0; j < 4; ++j) {
        const int64_t from = row + j - 3;
        const double input = from < 0 ? conv.history[(from + 3) * 30 + c] : conv.x[from * 33 + c];
        sum += input * conv.weights[j * 30 + c];
        magnitudes += std::fabs(input * conv.weights[j * 30 + c]);
      }
      // silu's slope is 1.1 at most; four roundings of a sum, fewer than ten of the activation.
      const double silu = sum / (1 + std::exp(-sum));
      EXPECT_NEAR(conv.out[row * 35 + c], silu,
                  1.1 * magnitudes * 4 * 0x1p-24 + std::fabs(silu) * 10 * 0x1p-24);
    }
  }
}

TEST(DeltaGates, TablesHaveTheOraclesBits) {
  for (const int64_t heads : {1, 3, 7, 8, 9, 16, 31, 32, 48, 64}) {
    for (const bool awkward : {false, true}) {
      Floats a = Draw(heads, 1, awkward);
      Floats b = Draw(heads, 2, awkward);
      for (float& v : b) v *= 4;
      if (awkward) {
        a[0] = kNan;
        b[static_cast<size_t>(heads / 2)] = kNan;
        a.back() = -kInfinity;
        b.back() = kInfinity;
      }
      Floats rates = Draw(heads, 3, awkward);
      for (float& v : rates) v = std::fabs(v);
      const Floats biases = Draw(heads, 4, awkward);
      const auto run = [&](const KernelTable& table) {
        Floats out(static_cast<size_t>(2 * heads));
        table.delta_gates({a.data(), b.data(), rates.data(), biases.data(), heads, out.data(),
                           out.data() + heads});
        // The outputs may be the inputs.
        Floats decays = a;
        Floats steps = b;
        table.delta_gates({decays.data(), steps.data(), rates.data(), biases.data(), heads,
                           decays.data(), steps.data()});
        decays.insert(decays.end(), steps.begin(), steps.end());
        ExpectSameBits(out, decays, "in place");
        return out;
      };
      const Floats expected = run(Oracle());
      for (const KernelTable* table : SimdTables()) {
        ExpectSameBits(expected, run(*table), NameOf(*table) + ", heads " + std::to_string(heads));
      }
    }
  }
}

TEST(DeltaGates, WithoutStepInputsTheStepIsTheSoftplus) {
  constexpr int64_t kHeads = 43;
  const Floats inputs = AwkwardFloats(kHeads, 1);
  const Floats biases = RandomFloats(kHeads, 2, 3);
  Floats rates = RandomFloats(kHeads, 3, 4);
  for (float& v : rates) v = std::fabs(v);
  const auto run = [&](const KernelTable& table) {
    Floats out(2 * kHeads);
    table.delta_gates({inputs.data(), nullptr, rates.data(), biases.data(), kHeads, out.data(),
                       out.data() + kHeads});
    return out;
  };
  const Floats expected = run(Oracle());
  for (const KernelTable* table : SimdTables()) {
    ExpectSameBits(expected, run(*table), NameOf(*table));
  }
  for (size_t i = 0; i < kHeads; ++i) {
    const double x = static_cast<double>(inputs[i]) + biases[i];
    if (!std::isfinite(x) || x > 80) continue;
    EXPECT_NEAR(expected[kHeads + i], std::log1p(std::exp(x)), 1e-6 * (1 + std::fabs(x)));
  }
}

TEST(DeltaGates, OracleIsCloseToDoublePrecision) {
  constexpr int64_t kHeads = 500;
  const Floats a = RandomFloats(kHeads, 1, 5);
  const Floats b = RandomFloats(kHeads, 2, 5);
  Floats rates = RandomFloats(kHeads, 3, 4);
  for (float& v : rates) v = std::fabs(v);
  const Floats biases = RandomFloats(kHeads, 4, 3);
  Floats decays(kHeads);
  Floats steps(kHeads);
  Oracle().delta_gates(
      {a.data(), b.data(), rates.data(), biases.data(), kHeads, decays.data(), steps.data()});
  for (size_t i = 0; i < kHeads; ++i) {
    const double x = static_cast<double>(a[i]) + biases[i];
    const double slope = rates[i] / (1 + std::exp(-x));  // of the exponent, in x
    const double exponent = rates[i] * std::log1p(std::exp(x));
    // The sum's rounding times the slope, and about five of softplus and the product, are the
    // relative error of the exponential. Denormal results are multiples of 2^-149.
    const double decay = std::exp(-exponent);
    EXPECT_NEAR(decays[i], decay,
                decay * (slope * std::fabs(x) + 5 * exponent + 4) * 0x1p-24 + 0x1p-149);
    const double step = 1 / (1 + std::exp(-static_cast<double>(b[i])));
    EXPECT_NEAR(steps[i], step, step * 6 * 0x1p-24);
  }
}

// A head's tokens and state; strides are wider than rows.
struct Rule {
  Rule(int64_t rows, int64_t key_dim, int64_t lanes, uint32_t seed, bool awkward)
      : rows(rows),
        key_dim(key_dim),
        lanes(lanes),
        stride(2 * key_dim + lanes + 3),
        x(RandomFloats(static_cast<size_t>(rows * stride), seed,
                       1 / std::sqrt(static_cast<float>(key_dim)))),
        gates(static_cast<size_t>(2 * rows)),
        state(Draw(key_dim * (lanes + 5), seed + 2, awkward)),
        next(state.size(), 7.0f),
        out(static_cast<size_t>(rows * (lanes + 1)), 7.0f) {
    const Floats values = Draw(rows * lanes, seed + 3, awkward);
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(values.data() + row * lanes, lanes, x.data() + row * stride + 2 * key_dim);
      gates[2 * row] = 1 / (1 + 0.1f * static_cast<float>(row % 3));
      gates[2 * row + 1] = 1 / (1 + 0.7f * static_cast<float>(row % 5));
    }
    // Between rows nothing is written.
    for (int64_t r = 0; r < key_dim; ++r) {
      std::fill_n(state.data() + r * (lanes + 5) + lanes, 5, 7.0f);
    }
  }

  // Tokens [begin, end), some lanes.
  void Run(const KernelTable& table, Before before, int64_t begin, int64_t end, int64_t lane,
           int64_t lane_end) {
    if (before == Before::kInPlace) next = state;
    const float* const from = before == Before::kInPlace ? next.data() : state.data();
    const auto rule = is_mamba ? table.mamba_rule : table.delta_rule;
    rule({.rows = end - begin,
          .key_dim = key_dim,
          .lanes = lane_end - lane,
          .queries = x.data() + begin * stride,
          .keys = x.data() + begin * stride + key_dim,
          .values = x.data() + begin * stride + 2 * key_dim + lane,
          .stride = stride,
          .decays = gates.data() + 2 * begin,
          .steps = gates.data() + 2 * begin + 1,
          .gate_stride = 2,
          .skip = 0.75f,
          .state = before == Before::kNothing ? nullptr : from + lane,
          .next = next.data() + lane,
          .state_stride = lanes + 5,
          .out = out.data() + begin * (lanes + 1) + lane,
          .out_stride = lanes + 1});
  }
  void RunAll(const KernelTable& table, Before before) { Run(table, before, 0, rows, 0, lanes); }
  Floats Results() const {
    Floats all = out;
    all.insert(all.end(), next.begin(), next.end());
    return all;
  }

  int64_t rows, key_dim, lanes, stride;
  bool is_mamba = false;
  Floats x;  // [rows, stride]: queries, keys, values
  Floats gates, state, next, out;
};

TEST(DeltaRule, TablesHaveTheOraclesBits) {
  for (const int64_t lanes : {1, 2, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100, 127, 128}) {
    for (const int64_t key_dim : {1, 3, 16, 64}) {
      for (const int64_t rows : {1, 2, 7}) {
        for (const Before before : kAllBefore) {
          for (const bool awkward : {false, true}) {
            Rule given(rows, key_dim, lanes, static_cast<uint32_t>(lanes + rows), awkward);
            for (const bool is_mamba : {false, true}) {
              given.is_mamba = is_mamba;
              Rule expected = given;
              expected.RunAll(Oracle(), before);
              for (const KernelTable* table : SimdTables()) {
                Rule actual = given;
                actual.RunAll(*table, before);
                ExpectSameBits(expected.Results(), actual.Results(),
                               NameOf(*table) + ", lanes " + std::to_string(lanes) + ", key_dim " +
                                   std::to_string(key_dim) + ", rows " + std::to_string(rows) +
                                   (is_mamba ? ", mamba" : ""));
              }
            }
          }
        }
      }
    }
  }
}

// Awkward keys, queries and gates as well, in which little stays finite for long.
TEST(DeltaRule, NonFiniteNumbersAgree) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    Rule given(3, 5, 43, seed, true);
    given.x = AwkwardFloats(given.x.size(), seed + 50);
    given.gates = AwkwardFloats(given.gates.size(), seed + 60);
    if (seed % 4 == 1) given.x[6] = kNan;
    if (seed % 4 == 2) given.x[6] = kInfinity;
    if (seed % 4 == 3) given.gates[2] = kNan;
    given.is_mamba = seed % 3 == 0;
    for (const Before before : kAllBefore) {
      Rule expected = given;
      expected.RunAll(Oracle(), before);
      for (const KernelTable* table : SimdTables()) {
        Rule actual = given;
        actual.RunAll(*table, before);
        ExpectSameBits(expected.Results(), actual.Results(),
                       NameOf(*table) + ", seed " + std::to_string(seed));
      }
    }
  }
}

TEST(DeltaRule, TokensMayComeInAnyNumberOfCallsAndLanesAlone) {
  for (const Isa isa : SupportedIsas()) {
    for (const bool is_mamba : {false, true}) {
      const KernelTable& table = KernelsFor(isa);
      Rule given(13, 32, 77, 1, false);
      given.is_mamba = is_mamba;
      Rule whole = given;
      whole.RunAll(table, Before::kElsewhere);
      for (const int64_t chunk : {1, 2, 5}) {
        Rule cut = given;
        for (int64_t begin = 0; begin < 13; begin += chunk) {
          cut.Run(table, Before::kInPlace, begin, std::min<int64_t>(begin + chunk, 13), 0, 77);
          cut.state = cut.next;
        }
        ExpectSameBits(whole.Results(), cut.Results(), "calls of " + std::to_string(chunk));
      }
      for (const int64_t width : {1, 5, 32}) {
        Rule cut = given;
        for (int64_t lane = 0; lane < 77; lane += width) {
          cut.Run(table, Before::kElsewhere, 0, 13, lane, std::min<int64_t>(lane + width, 77));
        }
        ExpectSameBits(whole.Results(), cut.Results(), "lanes by " + std::to_string(width));
      }
    }
  }
}

TEST(DeltaRule, NothingBeforeIsZeros) {
  for (const Isa isa : SupportedIsas()) {
    Rule nothing(3, 9, 41, 2, false);
    nothing.x[11] = kInfinity;  // of a key: times zero it is NaN
    for (float& s : nothing.state) s = s == 7.0f ? s : 0.0f;
    Rule zeros = nothing;
    nothing.Run(KernelsFor(isa), Before::kNothing, 0, 3, 0, 41);
    zeros.Run(KernelsFor(isa), Before::kElsewhere, 0, 3, 0, 41);
    ExpectSameBits(zeros.Results(), nothing.Results(), "nothing before");
  }
}

TEST(DeltaRule, OracleIsCloseToDoublePrecision) {
  constexpr int64_t kRows = 200;
  constexpr int64_t kDim = 48;
  constexpr int64_t kLanes = 20;
  Rule rule(kRows, kDim, kLanes, 4, false);
  for (int64_t row = 0; row < kRows; ++row) {
    // Keys of length 1, as a delta net has them: with steps of at most 1 errors do not grow.
    float* const key = rule.x.data() + row * rule.stride + kDim;
    double squares = 0;
    for (int64_t r = 0; r < kDim; ++r) squares += static_cast<double>(key[r]) * key[r];
    for (int64_t r = 0; r < kDim; ++r) key[r] /= static_cast<float>(std::sqrt(squares));
  }
  rule.RunAll(Oracle(), Before::kElsewhere);
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    std::vector<double> state(kDim);
    for (int64_t r = 0; r < kDim; ++r) state[r] = rule.state[r * (kLanes + 5) + lane];
    double largest = 0;
    for (int64_t row = 0; row < kRows; ++row) {
      const float* const q = rule.x.data() + row * rule.stride;
      const float* const k = q + kDim;
      double sum = 0;
      double out = 0;
      for (int64_t r = 0; r < kDim; ++r) sum += (state[r] *= rule.gates[2 * row]) * k[r];
      const double delta = rule.gates[2 * row + 1] * (q[2 * kDim + lane] - sum);
      for (int64_t r = 0; r < kDim; ++r) {
        out += (state[r] += k[r] * delta) * q[r];
        largest = std::max(largest, std::fabs(state[r]));
      }
      // A third of the tokens forget nothing and the others a tenth or a sixth, so about ten
      // tokens' roundings are there at once: two of each number of the state, and those of sums of
      // 48 products, with queries of about length 1. They average out; 100 in all is ample.
      ASSERT_NEAR(rule.out[row * (kLanes + 1) + lane], out, 100 * largest * 0x1p-24) << row;
    }
    for (int64_t r = 0; r < kDim; ++r) {
      ASSERT_NEAR(rule.next[r * (kLanes + 5) + lane], state[r], 100 * largest * 0x1p-24) << r;
    }
  }
}

TEST(MambaRule, OracleIsCloseToDoublePrecision) {
  constexpr int64_t kRows = 100;
  constexpr int64_t kDim = 24;
  constexpr int64_t kLanes = 11;
  Rule rule(kRows, kDim, kLanes, 4, false);
  rule.is_mamba = true;
  for (int64_t row = 0; row < kRows; ++row) rule.gates[2 * row] *= 0.9f;
  rule.RunAll(Oracle(), Before::kElsewhere);
  for (int64_t lane = 0; lane < kLanes; ++lane) {
    std::vector<double> state(kDim);
    for (int64_t r = 0; r < kDim; ++r) state[r] = rule.state[r * (kLanes + 5) + lane];
    for (int64_t row = 0; row < kRows; ++row) {
      const float* const q = rule.x.data() + row * rule.stride;
      const float* const k = q + kDim;
      const double value = q[2 * kDim + lane];
      double out = 0.75 * value;
      for (int64_t r = 0; r < kDim; ++r) {
        state[r] = state[r] * rule.gates[2 * row] + k[r] * rule.gates[2 * row + 1] * value;
        out += state[r] * q[r];
      }
      // Numbers of about 1, a dozen tokens' roundings of which are there at once.
      ASSERT_NEAR(rule.out[row * (kLanes + 1) + lane], out, 1e-5) << row;
    }
    for (int64_t r = 0; r < kDim; ++r) {
      ASSERT_NEAR(rule.next[r * (kLanes + 5) + lane], state[r], 1e-5) << r;
    }
  }
}

TEST(DeltaNet, BitsAreTheSameOnEveryMachine) {
  for (const Isa isa : SupportedIsas()) {
    const KernelTable& table = KernelsFor(isa);
    Conv conv(9, 43, 4, 1, false);
    conv.x = PortableFloats(conv.x.size(), 1);
    conv.weights = PortableFloats(conv.weights.size(), 2);
    conv.history = PortableFloats(conv.history.size(), 3);
    conv.Run(table, Before::kElsewhere, 0, 9, 0, 43);
    // Written by the oracle on x86-64; a change here changes the output of models with such layers.
    EXPECT_EQ(HashBits(conv.Results()), 0xD795795F34F7572Au) << IsaName(isa);

    Rule rule(9, 24, 43, 1, false);
    rule.x = PortableFloats(rule.x.size(), 4);
    for (float& v : rule.x) v /= 16;
    rule.state = PortableFloats(rule.state.size(), 5);
    Floats rates = PortableFloats(rule.gates.size(), 6);
    for (float& v : rates) v = std::fabs(v);
    const Floats inputs = PortableFloats(rule.gates.size(), 7);
    const Floats biases = PortableFloats(rule.gates.size(), 8);
    Floats gates(2 * rule.gates.size());
    const auto heads = static_cast<int64_t>(rule.gates.size());
    table.delta_gates({inputs.data(), biases.data(), rates.data(), biases.data(), heads,
                       gates.data(), gates.data() + heads});
    EXPECT_EQ(HashBits(gates), 0xF53E6C4E0A70F73Fu) << IsaName(isa);
    for (int64_t row = 0; row < 9; ++row) {
      rule.gates[2 * row] = gates[row];
      rule.gates[2 * row + 1] = gates[heads + row];
    }
    rule.RunAll(table, Before::kElsewhere);
    EXPECT_EQ(HashBits(rule.Results()), 0x4DFD93AF96471266u) << IsaName(isa);
  }
}

}  // namespace
}  // namespace kvasir
