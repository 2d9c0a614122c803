// The oracle of integer attention: plain loops in exactly the order kernels.h states.
// Deliberately slow: it exists to be read and compared against.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "kvasir/base/scalar_math.h"
#include "kvasir/kernels/integer_steps.h"
#include "kvasir/kernels/table_parts.h"
#include "kvasir/tensor/dtype.h"
#include "kvasir/tensor/packed_codec.h"
#include "kvasir/tensor/packed_codes.h"

namespace kvasir {
namespace {

uint16_t HalfBits(const std::byte* plane, int64_t index) {
  uint16_t bits;
  std::memcpy(&bits, plane + 2 * index, sizeof(bits));
  return bits;
}

// The oracle's arrangement of queries: one int16 per dim, in order.
template <size_t kBytes>
void QuantizeQueries(const IntegerQueryArgs& args) noexcept {
  const int64_t group = args.codec.group;
  const int64_t groups = args.dim / group;
  auto* const codes = reinterpret_cast<int16_t*>(args.out.codes);
  for (int64_t r = 0; r < args.rows; ++r) {
    for (int64_t g = 0; g < groups; ++g) {
      int16_t* const out = codes + r * args.dim + g * group;
      const float* const x = args.queries + r * args.query_stride + g * group;
      uint32_t largest = 0;
      std::array<float, 16> lanes = {};
      for (int64_t d = 0; d < group; ++d) {
        largest = std::max(largest, std::bit_cast<uint32_t>(std::fabs(x[d])));
        lanes[static_cast<size_t>(d) % 16] += x[d];
      }
      const IntegerSteps steps = IntegerStepsOf(largest, IntegerLevelsOf(kBytes).query);
      for (int64_t d = 0; d < group; ++d) {
        out[d] =
            steps.inverse == 0 ? int16_t{0} : static_cast<int16_t>(std::rint(x[d] * steps.inverse));
      }
      args.out.scales[r * groups + g] = steps.scale * args.unit;
      args.out.sums[r * groups + g] = scalar::SumLanes(lanes) * args.unit;
      args.out.starts[r * groups + g] =
          -KeyMiddle(args.codec.bits) * std::accumulate(out, out + group, int32_t{0});
    }
  }
}

void Score(const ScoreTileArgs& args) noexcept {
  const int64_t group = args.codec.group;
  const int64_t groups = args.key_dim / group;
  const auto middle = static_cast<float>(KeyMiddle(args.codec.bits));
  const auto* const codes = reinterpret_cast<const int16_t*>(args.integers.codes);
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int t = 0; t < kBlockTokens; ++t) {
      float score = 0;
      for (int64_t g = 0; g < groups; ++g) {
        int32_t sum = args.integers.starts[row * groups + g];
        for (int64_t d = g * group; d < (g + 1) * group; ++d) {
          sum += codes[row * args.key_dim + d] *
                 static_cast<int32_t>(LoadKeyCode(args.keys, args.codec.bits, d, t));
        }
        const auto [scale, bias] = LoadAffineGroup(args.codec, args.keys, args.key_dim, g, t);
        const float centre = std::fma(middle, scale, bias);
        const float part = static_cast<float>(sum) * args.integers.scales[row * groups + g];
        score = std::fma(scale, part, score);
        score = std::fma(centre, args.integers.sums[row * groups + g], score);
      }
      args.ScoresOf(row)[t] = score;
    }
  }
}

template <int kDegree>
float Exp2(float x) {
  if (std::isnan(x)) return x;
  x = std::max(x, kExp2Min);
  const float n = std::rint(x);
  const float r = x - n;
  float p = Exp2Poly<kDegree>::kTerms[kDegree - 1];
  for (int i = kDegree - 2; i >= 0; --i) p = std::fma(p, r, Exp2Poly<kDegree>::kTerms[i]);
  p = std::fma(p, r, 1.0f);
  return std::bit_cast<float>(std::bit_cast<int32_t>(p) + (static_cast<int32_t>(n) << 23));
}

float CentreOf(AffineGroup group, int bits) {
  const int32_t middle =
      ValueMiddle(static_cast<size_t>(bits)) - (std::signbit(group.scale) ? 1 : 0);
  return std::fma(static_cast<float>(middle), group.scale, group.bias);
}

constexpr float kLowest = -std::numeric_limits<float>::infinity();

void PrepareScores(const WeighTileArgs& args) noexcept {
  for (int64_t row = 0; row < args.rows; ++row) {
    if (args.begin[row] == args.end[row]) continue;
    float largest = kLowest;
    for (int t = 0; t < kBlockTokens; ++t) {
      float& score = args.ScoresOf(row)[t];
      if (args.softcap > 0) score = scalar::Softcap(score, args.softcap);
      score = t >= args.begin[row] && t < args.end[row] ? score * args.to_base2 : kLowest;
      // A NaN score never becomes the maximum; it reaches the sum and the output.
      if (score > largest) largest = score;
    }
    args.largest[row] = largest + 0.0f;  // one sign of zero
  }
}

void FindDecisive(const WeighTileArgs& args, DecisiveRows& out) noexcept {
  out.decisive_count = out.others_count = 0;
  for (int64_t row = 0; row < args.rows; ++row) {
    if (args.begin[row] == args.end[row]) continue;
    const float max = args.max[row];
    const float largest = args.largest[row];
    if (max == kLowest || largest > max + kReferenceSlack ||
        Exp2<kBlockDegree>(largest - max) > kDecisiveShare * args.sum[row]) {
      out.decisive[out.decisive_count++] = static_cast<int32_t>(row);
    } else {
      out.others[out.others_count++] = static_cast<int32_t>(row);
    }
  }
  if (out.decisive_count == 0) out.others_count = 0;
}

using RowWeights = std::array<float, kBlockTokens>;

// A row's weights and what its tokens [begin, end) make of its state.
template <size_t kBytes>
RowWeights WeighRow(const WeighTileArgs& args, int64_t row, float* top) {
  const float largest = args.largest[row];
  RowWeights weights = {};
  for (int t = args.begin[row]; t < args.end[row]; ++t) {
    weights[static_cast<size_t>(t)] = args.ScoresOf(row)[t];
  }
  const float old_max = args.max[row];
  const float max = largest > old_max + kReferenceSlack ? largest : old_max;
  const float from = max == kLowest ? 0.0f : max;
  const float base = largest == kLowest ? 0.0f : largest;
  std::array<float, 16> lanes = {};
  for (int t = args.begin[row]; t < args.end[row]; ++t) {
    float& weight = weights[static_cast<size_t>(t)];
    weight = Exp2<WeightDegree(kBytes)>(weight - base);
    lanes[static_cast<size_t>(t) % 16] += weight;
  }
  *top = Exp2<kBlockDegree>(largest - from);
  args.max[row] = max;
  args.rescale[row] = old_max == kLowest ? 1.0f : Exp2<kBlockDegree>(old_max - from);
  args.sum[row] = std::fma(*top, scalar::SumLanes(lanes), args.sum[row] * args.rescale[row]);
  return weights;
}

// The oracle's arrangement of weights: one uint16 per token, in order.
template <size_t kBytes>
void RoundGroup(const WeighTileArgs& args, const RowWeights& weights, float top, int64_t row,
                int64_t g) {
  std::array<AffineGroup, kBlockTokens> tokens = {};
  uint32_t largest = 0;
  for (int t = args.begin[row]; t < args.end[row]; ++t) {
    AffineGroup& token = tokens[static_cast<size_t>(t)];
    token = LoadAffineGroup(args.codec, args.values, args.value_dim, g, t);
    largest = std::max(largest, std::bit_cast<uint32_t>(std::fabs(token.scale)));
  }
  const IntegerSteps steps = IntegerStepsOf(largest, IntegerLevelsOf(kBytes).weight);
  const int64_t at = g * args.rows + row;
  auto* const codes = reinterpret_cast<uint16_t*>(args.out.codes + at * IntegerWeights::kCodeBytes);
  std::array<float, 16> lanes = {};
  for (int t = 0; t < kBlockTokens; ++t) {
    const auto token = static_cast<size_t>(t);
    codes[t] = 0;
    if (t < args.begin[row] || t >= args.end[row]) continue;
    const float ratio = steps.inverse == 0 ? 0.0f : std::fabs(tokens[token].scale) * steps.inverse;
    const float rounded = std::fma(weights[token], ratio, kRoundToBits);
    codes[t] = static_cast<uint16_t>(std::bit_cast<uint32_t>(rounded));
    lanes[token % 16] =
        std::fma(weights[token], CentreOf(tokens[token], args.codec.bits), lanes[token % 16]);
  }
  args.out.steps[at] = steps.scale * top;
  args.out.shifts[at] = scalar::SumLanes(lanes) * top;
}

template <size_t kBytes>
void Weigh(const WeighTileArgs& args) noexcept {
  for (int64_t row = 0; row < args.rows; ++row) {
    args.rescale[row] = 1.0f;
    if (args.begin[row] == args.end[row]) continue;
    float top = 0;
    const RowWeights weights = WeighRow<kBytes>(args, row, &top);
    for (int64_t g = 0; g < args.value_dim / args.codec.group; ++g) {
      RoundGroup<kBytes>(args, weights, top, row, g);
    }
  }
}

int32_t LevelOf(int32_t code, float scale, int bits) {
  const int32_t middle = ValueMiddle(static_cast<size_t>(bits));
  return std::signbit(scale) ? middle - 1 - code : code - middle;
}

// One row's sums over the dims of group g.
void AccumulateGroup(const AccumulateTileArgs& args, int64_t row, int64_t g) {
  const int bits = args.codec.bits;
  const int64_t at = g * args.rows + row;
  const auto* const codes =
      reinterpret_cast<const uint16_t*>(args.integers.codes + at * IntegerWeights::kCodeBytes);
  for (int64_t d = g * args.codec.group; d < (g + 1) * args.codec.group; ++d) {
    int32_t sum = 0;
    for (int t = args.begin[row]; t < args.end[row]; ++t) {
      const auto code = static_cast<int32_t>(LoadValueCode(args.values, bits, d, t));
      const float scale = LoadAffineGroup(args.codec, args.values, args.value_dim, g, t).scale;
      sum += codes[t] * LevelOf(code, scale, bits);
    }
    float& out = args.AccumulatorOf(row)[d];
    out = std::fma(static_cast<float>(sum), args.integers.steps[at], out * args.rescale[row]) +
          args.integers.shifts[at];
  }
}

void Accumulate(const AccumulateTileArgs& args) noexcept {
  for (int64_t row = 0; row < args.rows; ++row) {
    if (args.begin[row] == args.end[row]) continue;
    for (int64_t g = 0; g < args.value_dim / args.codec.group; ++g) AccumulateGroup(args, row, g);
  }
}

// Rows of f16. The steps of a token, whose numbers lie `stride` apart.
HalfSteps StepsOfToken(const std::byte* plane, int64_t first, int64_t stride, int64_t dim) {
  uint16_t largest = 0;
  for (int64_t d = 0; d < dim; ++d) {
    const auto magnitude = static_cast<uint16_t>(HalfBits(plane, first + d * stride) & 0x7FFF);
    largest = std::max(largest, magnitude);
  }
  return HalfStepsOf(largest);
}
HalfSteps StepsOfKey(const std::byte* keys, int64_t t, int64_t dim) {
  return StepsOfToken(keys, t, kBlockTokens, dim);
}
HalfSteps StepsOfValue(const std::byte* values, int64_t t, int64_t dim) {
  return StepsOfToken(values, t * dim, 1, dim);
}
// Wide, as one that is not finite has any bits.
int64_t CodeOfHalf(const std::byte* plane, int64_t index, float rounder) {
  const auto bits = std::bit_cast<uint32_t>(F16ToFloat(HalfBits(plane, index)) + rounder);
  return static_cast<int16_t>(static_cast<uint16_t>(bits));
}

void QuantizeHalfQueries(const IntegerQueryArgs& args) noexcept {
  auto* const codes = reinterpret_cast<int16_t*>(args.out.codes);
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* const x = args.queries + r * args.query_stride;
    uint32_t largest = 0;
    for (int64_t d = 0; d < args.dim; ++d) {
      largest = std::max(largest, std::bit_cast<uint32_t>(std::fabs(x[d])));
    }
    const IntegerSteps steps = IntegerStepsOf(largest, kHalfLevels);
    for (int64_t d = 0; d < args.dim; ++d) {
      codes[r * args.dim + d] =
          steps.inverse == 0 ? int16_t{0} : static_cast<int16_t>(std::rint(x[d] * steps.inverse));
    }
    args.out.scales[r] = steps.scale * args.unit;
  }
}

void ScoreHalves(const ScoreTileArgs& args) noexcept {
  const auto* const codes = reinterpret_cast<const int16_t*>(args.integers.codes);
  for (int t = 0; t < kBlockTokens; ++t) {
    const HalfSteps steps = StepsOfKey(args.keys, t, args.key_dim);
    for (int64_t row = 0; row < args.rows; ++row) {
      float score = 0;
      for (int64_t first = 0; first < args.key_dim; first += kHalfSum) {
        int64_t part = 0;
        for (int64_t d = first; d < std::min(first + kHalfSum, args.key_dim); ++d) {
          part += codes[row * args.key_dim + d] *
                  CodeOfHalf(args.keys, d * kBlockTokens + t, steps.rounder);
        }
        score = first == 0 ? static_cast<float>(part) : score + static_cast<float>(part);
      }
      args.scores[row * kBlockTokens + t] = score * steps.scale * args.integers.scales[row];
    }
  }
}

void WeighHalves(const WeighTileArgs& args) noexcept {
  for (int64_t t = 0; t < kBlockTokens; ++t) {
    args.out.rounders[t] = StepsOfValue(args.values, t, args.value_dim).rounder;
  }
  for (int64_t row = 0; row < args.rows; ++row) {
    args.rescale[row] = 1.0f;
    if (args.begin[row] == args.end[row]) continue;
    float top = 0;
    const RowWeights weights = WeighRow<2>(args, row, &top);
    std::array<float, kBlockTokens> scales = {};
    uint32_t largest = 0;
    for (int t = args.begin[row]; t < args.end[row]; ++t) {
      float& scale = scales[static_cast<size_t>(t)];
      scale = StepsOfValue(args.values, t, args.value_dim).scale;
      largest = std::max(largest, std::bit_cast<uint32_t>(std::fabs(scale)));
    }
    const IntegerSteps steps = IntegerStepsOf(largest, kHalfLevels);
    auto* const codes =
        reinterpret_cast<uint16_t*>(args.out.codes + row * IntegerWeights::kCodeBytes);
    for (size_t t = 0; t < kBlockTokens; ++t) {
      const float ratio = steps.inverse == 0 ? 0.0f : scales[t] * steps.inverse;
      const float rounded = std::fma(weights[t], ratio, kRoundToBits);
      codes[t] = static_cast<uint16_t>(std::bit_cast<uint32_t>(rounded));
    }
    args.out.steps[row] = steps.scale * top;
  }
}

void AccumulateHalves(const AccumulateTileArgs& args) noexcept {
  for (int64_t row = 0; row < args.rows; ++row) {
    if (args.begin[row] == args.end[row]) continue;
    const auto* const codes =
        reinterpret_cast<const uint16_t*>(args.integers.codes + row * IntegerWeights::kCodeBytes);
    for (int64_t d = 0; d < args.value_dim; ++d) {
      float sum = 0;
      for (int64_t first = 0; first < kBlockTokens; first += kHalfSum) {
        int64_t part = 0;
        for (int64_t t = std::max<int64_t>(first, args.begin[row]);
             t < std::min<int64_t>(first + kHalfSum, args.end[row]); ++t) {
          part +=
              codes[t] * CodeOfHalf(args.values, t * args.value_dim + d, args.integers.rounders[t]);
        }
        sum = first == 0 ? static_cast<float>(part) : sum + static_cast<float>(part);
      }
      float& out = args.accumulator[row * args.accumulator_stride + d];
      out = std::fma(sum, args.integers.steps[row], out * args.rescale[row]);
    }
  }
}

template <size_t kBytes>
void FillWidth(KernelTable* table) {
  for (const int bits : {4, 8}) {
    table->integer_kv[kBytes - 1][KvFormatIndex(KvCodec::Affine(bits, 64))] = {
        QuantizeQueries<kBytes>, Score, Weigh<kBytes>, Accumulate};
  }
}

}  // namespace

void FillScalarInteger(KernelTable* table) {
  FillWidth<1>(table);
  FillWidth<2>(table);
  table->prepare_scores = PrepareScores;
  table->find_decisive = FindDecisive;
  IntegerHalves(table) = {QuantizeHalfQueries, ScoreHalves, WeighHalves, AccumulateHalves};
}

}  // namespace kvasir
