#include "kvasir/tensor/rotation.h"

#include <bit>
#include <cmath>
#include <cstddef>

#include "kvasir/base/check.h"
#include "kvasir/tensor/kv_codec.h"

namespace kvasir {
namespace {

constexpr int kMaxMix = 31;  // 496 = 16 * 31
constexpr double kPi = 3.14159265358979323846;

// Taylor's series, for |x| <= pi / 2 accurate to a rounding of a double; evaluated by the compiler
// because libm's cosine differs between machines.
constexpr double SmallSine(double x) {
  double term = x;
  double sum = x;
  for (int i = 1; i < 14; ++i) {
    term *= -x * x / ((2 * i) * (2 * i + 1));
    sum += term;
  }
  return sum;
}

// sin(2 pi t) for 0 <= t < 2.
constexpr double SineOfTurns(double t) {
  while (t >= 1) t -= 1;
  if (t > 0.75) return SmallSine(2 * kPi * (t - 1));
  return SmallSine(2 * kPi * (t > 0.25 ? 0.5 - t : t));
}

constexpr double SquareRoot(double x) {
  double root = x;
  for (int i = 0; i < 60; ++i) root = (root + x / root) / 2;
  return root;
}

// Where the matrix of m runs begins: behind those of 1, 3, ..., m - 2.
constexpr size_t MatrixOffset(size_t m) { return m * (m - 1) * (m - 2) / 6; }

constexpr auto MakeMatrices() {
  std::array<float, MatrixOffset(kMaxMix + 2)> out = {};
  for (size_t m = 1; m <= kMaxMix; m += 2) {
    std::array<float, kMaxMix> cas = {};
    for (size_t j = 0; j < m; ++j) {
      const double turns = static_cast<double>(j) / static_cast<double>(m);
      cas[j] = static_cast<float>((SineOfTurns(turns + 0.25) + SineOfTurns(turns)) /
                                  SquareRoot(static_cast<double>(m)));
    }
    for (size_t i = 0; i < m * m; ++i) out[MatrixOffset(m) + i] = cas[i / m * (i % m) % m];
  }
  return out;
}
constexpr auto kMatrices = MakeMatrices();

constexpr RotationSigns MakeSigns() {
  RotationSigns signs = {};
  uint64_t state = 0x4B76617369720897u;
  for (auto& round : signs) {
    for (size_t i = 0; i < round.size(); i += 64) {
      state += 0x9E3779B97F4A7C15u;
      uint64_t z = state;
      z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
      z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
      z ^= z >> 31;
      for (size_t bit = 0; bit < 64; ++bit) {
        round[i + bit] = static_cast<uint32_t>(z >> bit & 1) << 31;
      }
    }
  }
  return signs;
}

// Below: kLanes vectors side by side, [dim][kLanes]; every lane is computed alike.

template <int kLanes>
void FlipSigns(float* x, int64_t dim, int round) {
  const auto& signs = kRotationSigns[static_cast<size_t>(round)];
  for (int64_t i = 0; i < dim; ++i) {
    const uint32_t sign = signs[static_cast<size_t>(i)];
    for (int l = 0; l < kLanes; ++l, ++x)
      *x = std::bit_cast<float>(std::bit_cast<uint32_t>(*x) ^ sign);
  }
}

template <int kLanes>
void MixWithinRuns(float* x, int64_t dim, int64_t run) {
  for (int64_t h = 1; h < run; h *= 2) {
    for (int64_t begin = 0; begin < dim; begin += 2 * h) {
      float* const low = x + begin * kLanes;
      float* const high = low + h * kLanes;
      for (int64_t i = 0; i < h * kLanes; ++i) {
        const float a = low[i];
        const float b = high[i];
        low[i] = a + b;
        high[i] = a - b;
      }
    }
  }
}

template <int kLanes>
void MixAcrossRuns(float* x, const RotationShape& shape) {
  std::array<float, kMaxMix> column;
  for (int64_t k = 0; k < shape.run * kLanes; ++k) {
    const int64_t stride = shape.run * kLanes;
    for (int64_t s = 0; s < shape.mix; ++s) column[static_cast<size_t>(s)] = x[s * stride + k];
    for (int64_t r = 0; r < shape.mix; ++r) {
      const float* row = shape.matrix + r * shape.mix;
      float sum = row[0] * column[0];
      for (int64_t s = 1; s < shape.mix; ++s) {
        sum = std::fma(row[s], column[static_cast<size_t>(s)], sum);
      }
      x[r * stride + k] = sum;
    }
  }
}

template <int kLanes>
void Mix(float* x, int64_t dim, const RotationShape& shape) {
  MixWithinRuns<kLanes>(x, dim, shape.run);
  if (shape.mix > 1) MixAcrossRuns<kLanes>(x, shape);
}

void Scale(float* x, int64_t count, float scale) {
  for (int64_t i = 0; i < count; ++i) x[i] *= scale;
}

template <int kLanes>
void RotateLanesBack(float* x, int64_t dim) {
  const RotationShape shape = RotationShapeOf(dim);
  Scale(x, dim * kLanes, shape.scale);
  for (int round = kRotationRounds - 1; round >= 0; --round) {
    Mix<kLanes>(x, dim, shape);
    FlipSigns<kLanes>(x, dim, round);
  }
}

}  // namespace

constinit const RotationSigns kRotationSigns = MakeSigns();

RotationShape RotationShapeOf(int64_t dim) {
  KVASIR_DCHECK(dim > 0 && dim % 16 == 0 && dim <= kMaxRotationDim);
  const int log2_run = std::countr_zero(static_cast<uint64_t>(dim));
  const int64_t mix = dim >> log2_run;
  // 2^(-1.5 a), rounded once: a power of two, times sqrt(1/2) where a is odd.
  const float odd = log2_run % 2 == 0 ? 1.0f : 0.70710678118654752f;
  return {.run = int64_t{1} << log2_run,
          .mix = mix,
          .scale = std::ldexp(odd, -(3 * log2_run / 2)),
          .matrix = kMatrices.data() + MatrixOffset(static_cast<size_t>(mix))};
}

void Rotate(float* x, int64_t dim) {
  const RotationShape shape = RotationShapeOf(dim);
  Scale(x, dim, shape.scale);
  for (int round = 0; round < kRotationRounds; ++round) {
    FlipSigns<1>(x, dim, round);
    Mix<1>(x, dim, shape);
  }
}

void RotateBack(float* x, int64_t dim) { RotateLanesBack<1>(x, dim); }

void RotateTileBack(float* tile, int64_t dim) { RotateLanesBack<kBlockTokens>(tile, dim); }

}  // namespace kvasir
