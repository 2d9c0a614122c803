// Layers with a state on the CPU (delta nets, Mamba-2, short convolutions): the same bits however
// sequences are cut, batched and spread over threads, on every instruction set, and close to double
// precision.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "kvasir/backend/cpu_backend.h"
#include "kvasir/base/check.h"

namespace kvasir {
namespace {

using Floats = std::vector<float>;

constexpr DeltaShape kShapes[] = {
    {.key_heads = 2, .value_heads = 6, .key_dim = 24, .value_dim = 40, .conv_width = 4},
    {.key_heads = 3, .value_heads = 3, .key_dim = 5, .value_dim = 7, .conv_width = 2},
    {.key_heads = 1, .value_heads = 2, .key_dim = 128, .value_dim = 128, .conv_width = 5},
    {.rule = DeltaShape::Rule::kMamba,
     .key_heads = 2,
     .value_heads = 6,
     .key_dim = 16,
     .value_dim = 40,
     .conv_width = 4},
};

std::unique_ptr<Backend> Make(int threads, std::optional<Isa> isa = {}) {
  auto backend = MakeCpuBackend({.threads = threads, .isa = isa});
  KVASIR_CHECK(backend.ok());
  return *std::move(backend);
}

Floats Random(int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> draw;
  Floats values(static_cast<size_t>(count));
  for (float& value : values) value = draw(random);
  return values;
}

FloatRows View(Floats& values, int64_t cols) {
  return {values.data(), static_cast<int64_t>(values.size()) / cols, cols, cols};
}

struct Weights {
  explicit Weights(const DeltaShape& shape)
      : conv(Random(shape.conv_width * shape.channels(), 1)),
        rates(Random(shape.value_heads, 2)),
        biases(Random(shape.value_heads, 3)),
        conv_biases(Random(shape.channels(), 4)),
        skips(Random(shape.value_heads, 5)) {
    for (float& rate : rates) rate = std::fabs(rate) / 4;
  }
  Floats conv, rates, biases, conv_biases, skips;
};

bool IsMamba(const DeltaShape& shape) { return shape.rule == DeltaShape::Rule::kMamba; }

int64_t OutputsOf(const DeltaShape& shape) { return shape.value_heads * shape.value_dim; }

// The activations of a step, or of the tokens of a sequence.
struct Rows {
  Rows(const DeltaShape& shape, int64_t rows, unsigned seed)
      : shape(shape),
        mixed(Random(rows * shape.channels(), seed)),
        a(Random(rows * shape.value_heads, seed + 1)),
        b(Random(rows * shape.value_heads, seed + 2)),
        out(static_cast<size_t>(rows * OutputsOf(shape)), 7.0f) {}

  // Rows [from, from + count) of another become those from `to` on, results too.
  void Put(const Rows& other, int64_t from, int64_t count, int64_t to) {
    const auto put = [&](const Floats& source, Floats& target, int64_t cols) {
      std::copy_n(source.begin() + from * cols, count * cols, target.begin() + to * cols);
    };
    put(other.mixed, mixed, shape.channels());
    put(other.a, a, shape.value_heads);
    put(other.b, b, shape.value_heads);
    put(other.out, out, OutputsOf(shape));
  }

  void Run(Backend& backend, std::span<const StateRun> runs) {
    const Weights weights(shape);
    const auto rows = static_cast<int64_t>(a.size()) / shape.value_heads;
    Floats convolved(mixed.size());
    Floats gates(static_cast<size_t>(rows * 2 * shape.value_heads));
    backend.DeltaNet({.shape = shape,
                      .runs = runs,
                      .mixed = View(mixed, shape.channels()),
                      .decay_inputs = View(a, shape.value_heads),
                      .step_inputs = IsMamba(shape) ? FloatRows() : View(b, shape.value_heads),
                      .conv = weights.conv,
                      .conv_biases = IsMamba(shape) ? weights.conv_biases : Floats(),
                      .decay_rates = weights.rates,
                      .decay_biases = weights.biases,
                      .skips = weights.skips,
                      .convolved = View(convolved, shape.channels()),
                      .gates = View(gates, 2 * shape.value_heads),
                      .out = View(out, OutputsOf(shape))});
  }

  DeltaShape shape;
  Floats mixed, a, b, out;
};

Floats StateOf(const DeltaShape& shape, unsigned seed) {
  return Random(static_cast<int64_t>(shape.state_bytes() / sizeof(float)), seed);
}

std::byte* BytesOf(Floats& values) { return reinterpret_cast<std::byte*>(values.data()); }

bool SameBits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Runs a whole sequence in one step; `state` is what it leaves.
void RunWhole(Backend& backend, Rows& tokens, Floats& state) {
  const auto rows = static_cast<int64_t>(tokens.a.size()) / tokens.shape.value_heads;
  const StateRun run = {BytesOf(state), BytesOf(state), 0, rows};
  tokens.Run(backend, std::span(&run, 1));
}

TEST(DeltaNetTest, SequencesMayBeCutAnywhere) {
  constexpr int64_t kTokens = 23;
  const auto backend = Make(3);
  for (const DeltaShape& shape : kShapes) {
    const Floats before = StateOf(shape, 9);
    Rows whole(shape, kTokens, 10);
    Floats after = before;
    RunWhole(*backend, whole, after);
    for (const int64_t chunk : {1, 2, 3, 7, 22}) {
      SCOPED_TRACE(chunk);
      Rows tokens(shape, kTokens, 10);
      Floats state = before;
      for (int64_t begin = 0; begin < kTokens; begin += chunk) {
        const int64_t rows = std::min(chunk, kTokens - begin);
        // Behind rows that are nobody's.
        Rows step(shape, rows + 2, 77);
        step.Put(tokens, begin, rows, 2);
        Floats next(state.size(), std::numeric_limits<float>::quiet_NaN());
        const StateRun run = {BytesOf(state), BytesOf(next), 2, rows};
        step.Run(*backend, std::span(&run, 1));
        tokens.Put(step, 2, rows, begin);
        for (int64_t i = 0; i < 2 * OutputsOf(shape); ++i) ASSERT_EQ(step.out[i], 7.0f);
        state = next;
      }
      ASSERT_TRUE(SameBits(tokens.out, whole.out));
      ASSERT_TRUE(SameBits(state, after));
    }
  }
}

TEST(DeltaNetTest, SequencesOfAStepDoNotMatterToEachOther) {
  const int64_t lengths[] = {5, 1, 17, 1, 2};
  const int64_t places[] = {3, 26, 8, 0, 1};  // row 25 is nobody's
  constexpr int64_t kRows = 27;
  for (const int threads : {1, 2, 3, 8}) {
    SCOPED_TRACE(threads);
    const auto backend = Make(threads);
    for (const DeltaShape& shape : kShapes) {
      Rows step(shape, kRows, 1);
      std::vector<Rows> alone;
      std::vector<Floats> states;
      std::vector<Floats> together;
      for (unsigned i = 0; i < 5; ++i) {
        alone.emplace_back(shape, lengths[i], 10 + i);
        step.Put(alone[i], 0, lengths[i], places[i]);
        states.push_back(StateOf(shape, 20 + i));
      }
      together = states;
      std::vector<StateRun> runs;
      for (size_t i = 0; i < 5; ++i) {
        runs.push_back({BytesOf(together[i]), BytesOf(together[i]), places[i], lengths[i]});
      }
      step.Run(*backend, runs);
      for (size_t i = 0; i < 5; ++i) {
        SCOPED_TRACE(i);
        RunWhole(*backend, alone[i], states[i]);
        Rows from_step(shape, lengths[i], 0);
        from_step.Put(step, places[i], lengths[i], 0);
        ASSERT_TRUE(SameBits(from_step.out, alone[i].out));
        ASSERT_TRUE(SameBits(together[i], states[i]));
      }
    }
  }
}

TEST(DeltaNetTest, ThreadsAndInstructionSetsDoNotMatter) {
  for (const DeltaShape& shape : kShapes) {
    for (const int64_t rows : {1, 33}) {
      const auto run = [&](int threads, Isa isa, Floats* state) {
        Rows tokens(shape, rows, 3);
        *state = StateOf(shape, 4);
        RunWhole(*Make(threads, isa), tokens, *state);
        return tokens.out;
      };
      Floats expected_state;
      const Floats expected = run(1, Isa::kScalar, &expected_state);
      for (const Isa isa : SupportedIsas()) {
        for (const int threads : {1, 2, 3}) {
          Floats state;
          const Floats out = run(threads, isa, &state);
          ASSERT_TRUE(SameBits(out, expected)) << IsaName(isa) << ", threads " << threads;
          ASSERT_TRUE(SameBits(state, expected_state)) << IsaName(isa) << ", threads " << threads;
        }
      }
    }
  }
}

TEST(DeltaNetTest, StatesElsewhereStayAndNoneIsZeros) {
  const auto backend = Make(2);
  for (const DeltaShape& shape : kShapes) {
    for (const int64_t rows : {1, 2, 9}) {
      const auto run = [&](const std::byte* state, std::byte* next) {
        Rows tokens(shape, rows, 5);
        const StateRun run = {state, next, 0, rows};
        tokens.Run(*backend, std::span(&run, 1));
        return tokens.out;
      };
      const Floats before = StateOf(shape, 6);
      Floats state = before;
      Floats elsewhere(state.size(), 7.0f);
      const Floats out = run(BytesOf(state), BytesOf(elsewhere));
      ASSERT_TRUE(SameBits(state, before));
      ASSERT_TRUE(SameBits(run(BytesOf(state), BytesOf(state)), out));
      ASSERT_TRUE(SameBits(state, elsewhere));

      Floats zeros(state.size());
      Floats none(state.size(), 7.0f);
      const Floats from_none = run(nullptr, BytesOf(none));
      ASSERT_TRUE(SameBits(run(BytesOf(zeros), BytesOf(zeros)), from_none));
      ASSERT_TRUE(SameBits(zeros, none));
    }
  }
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// The layer in double precision, from its definition.
std::vector<double> Reference(const Rows& tokens, const Floats& before) {
  const DeltaShape& shape = tokens.shape;
  const Weights weights(shape);
  const int64_t channels = shape.channels();
  const int64_t kept = shape.conv_width - 1;
  std::vector<double> inputs(before.begin(), before.begin() + kept * channels);
  inputs.insert(inputs.end(), tokens.mixed.begin(), tokens.mixed.end());
  std::vector<double> states(before.begin() + kept * channels, before.end());
  std::vector<double> out;
  const int64_t rows = static_cast<int64_t>(tokens.a.size()) / shape.value_heads;
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<double> x(static_cast<size_t>(channels));
    for (int64_t c = 0; c < channels; ++c) {
      double sum = IsMamba(shape) ? weights.conv_biases[c] : 0;
      for (int64_t j = 0; j < shape.conv_width; ++j) {
        sum += inputs[(row + j) * channels + c] * weights.conv[j * channels + c];
      }
      x[c] = sum * Sigmoid(sum);
    }
    for (int64_t head = 0; !IsMamba(shape) && head < 2 * shape.key_heads; ++head) {
      double* const values = x.data() + head * shape.key_dim;
      double squares = 1e-6;
      for (int64_t i = 0; i < shape.key_dim; ++i) squares += values[i] * values[i];
      if (head < shape.key_heads) squares *= static_cast<double>(shape.key_dim);
      for (int64_t i = 0; i < shape.key_dim; ++i) values[i] /= std::sqrt(squares);
    }
    for (int64_t head = 0; head < shape.value_heads; ++head) {
      const int64_t at = row * shape.value_heads + head;
      const double softplus =
          std::log1p(std::exp(static_cast<double>(tokens.a[at]) + weights.biases[head]));
      const double decay = std::exp(-weights.rates[head] * softplus);
      const double beta = IsMamba(shape) ? softplus : Sigmoid(tokens.b[at]);
      const int64_t key_head = head / (shape.value_heads / shape.key_heads);
      const double* const q = x.data() + key_head * shape.key_dim;
      const double* const k = q + shape.key_heads * shape.key_dim;
      const double* const v =
          x.data() + 2 * shape.key_heads * shape.key_dim + head * shape.value_dim;
      double* const state = states.data() + head * shape.key_dim * shape.value_dim;
      for (int64_t lane = 0; lane < shape.value_dim; ++lane) {
        double sum = 0;
        double result = 0;
        for (int64_t r = 0; r < shape.key_dim; ++r) {
          sum += (state[r * shape.value_dim + lane] *= decay) * k[r];
        }
        if (IsMamba(shape)) {
          sum = 0;
          result = weights.skips[head] * v[lane];
        }
        for (int64_t r = 0; r < shape.key_dim; ++r) {
          double& s = state[r * shape.value_dim + lane];
          s += k[r] * beta * (v[lane] - sum);
          result += s * q[r];
        }
        out.push_back(result);
      }
    }
  }
  out.insert(out.end(), inputs.end() - kept * channels, inputs.end());
  out.insert(out.end(), states.begin(), states.end());
  return out;
}

TEST(DeltaNetTest, IsCloseToDoublePrecision) {
  const auto backend = Make(2);
  for (const DeltaShape& shape : kShapes) {
    Rows tokens(shape, 50, 8);
    Floats state = StateOf(shape, 9);
    const std::vector<double> expected = Reference(tokens, state);
    RunWhole(*backend, tokens, state);
    Floats actual = tokens.out;
    actual.insert(actual.end(), state.begin(), state.end());
    ASSERT_EQ(actual.size(), expected.size());
    for (size_t i = 0; i < actual.size(); ++i) {
      // Numbers of the state are up to 5 and keys have length 1, so a token adds a few units of
      // 2^-22, those of some tens of tokens are there at once, and they average out. Keys of
      // Mamba-2 are longer, and what it forgets slowly grows.
      const double size = IsMamba(shape) ? 4 + std::fabs(expected[i]) : 1;
      ASSERT_NEAR(actual[i], expected[i], 5e-6 * size) << i;
    }
  }
}

// One sequence cut in pieces, beside another of one token, on any instruction set and threads: what
// one table makes of it whole, which is what its definition says.
TEST(ShortConvTest, CutsThreadsAndInstructionSetsDoNotMatter) {
  constexpr int64_t kTokens = 19;
  for (const int64_t width : {2, 3, 5}) {
    for (const int64_t channels : {5, 64, 100}) {
      const Floats x = Random(kTokens * channels, 1);
      const Floats other = Random(channels, 2);
      const Floats conv = Random(width * channels, 3);
      const Floats biases = Random(channels, 4);
      const Floats before = Random((width - 1) * channels, 5);
      Floats history = before;
      history.insert(history.end(), x.begin(), x.end());
      std::vector<double> expected;
      for (int64_t row = 0; row < kTokens; ++row) {
        for (int64_t c = 0; c < channels; ++c) {
          double sum = biases[c];
          for (int64_t j = 0; j < width; ++j) {
            sum += static_cast<double>(history[(row + j) * channels + c]) * conv[j * channels + c];
          }
          expected.push_back(sum);
        }
      }
      Floats first;
      for (const Isa isa : SupportedIsas()) {
        for (const int64_t chunk : {kTokens, int64_t{1}, int64_t{7}}) {
          const auto backend = Make(chunk == 7 ? 3 : 1, isa);
          Floats state = before;
          Floats out;
          for (int64_t begin = 0; begin < kTokens; begin += chunk) {
            const int64_t rows = std::min(chunk, kTokens - begin);
            Floats step = other;
            step.insert(step.end(), x.begin() + begin * channels,
                        x.begin() + (begin + rows) * channels);
            Floats results(step.size());
            Floats others(state.size(), 7.0f);
            const StateRun runs[] = {{BytesOf(state), BytesOf(state), 1, rows},
                                     {nullptr, BytesOf(others), 0, 1}};
            backend->ShortConv({.runs = runs,
                                .width = width,
                                .x = View(step, channels),
                                .conv = conv,
                                .biases = biases,
                                .out = View(results, channels)});
            out.insert(out.end(), results.begin() + channels, results.end());
            for (int64_t i = 0; i < (width - 2) * channels; ++i) ASSERT_EQ(others[i], 0.0f);
            ASSERT_TRUE(std::equal(other.begin(), other.end(), others.end() - channels));
          }
          ASSERT_TRUE(
              std::equal(state.begin(), state.end(), history.end() - (width - 1) * channels));
          if (first.empty()) first = out;
          ASSERT_TRUE(SameBits(out, first)) << IsaName(isa) << ", chunks of " << chunk;
        }
      }
      for (size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(first[i], expected[i], 5e-6) << i;
    }
  }
}

TEST(DeltaNetTest, OfNoRunsIsNothing) {
  Rows tokens(kShapes[0], 3, 1);
  const Floats before = tokens.out;
  tokens.Run(*Make(2), {});
  EXPECT_TRUE(SameBits(tokens.out, before));
}

TEST(DeltaNetTest, GatesThatAreSigmoids) {
  for (const int threads : {1, 3}) {
    const auto backend = Make(threads);
    constexpr int64_t kRows = 40;
    constexpr int64_t kCols = 300;
    const Floats x = Random(kRows * kCols, 1);
    Floats rows = x;
    Floats of_rows = Random(kRows, 2);
    backend->GateRows(View(rows, kCols), View(of_rows, 1));
    const Floats inputs = Random(kRows * kCols, 3);
    Floats gates = inputs;
    Floats up = x;
    backend->Gate(GateActivation::kSigmoid, View(gates, kCols), View(up, kCols));
    for (size_t i = 0; i < x.size(); ++i) {
      // Fewer than ten roundings of 2^-24.
      const double row = x[i] * Sigmoid(of_rows[i / kCols]);
      ASSERT_NEAR(rows[i], row, std::fabs(row) * 1e-6);
      const double gated = x[i] * Sigmoid(inputs[i]);
      ASSERT_NEAR(gates[i], gated, std::fabs(gated) * 1e-6);
    }
  }
}

}  // namespace
}  // namespace kvasir
