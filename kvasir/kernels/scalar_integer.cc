// The oracle of integer attention: plain loops in exactly the order kernels.h states.
// Deliberately slow: it exists to be read and compared against.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "kvasir/base/scalar_math.h"
#include "kvasir/kernels/integer_steps.h"
#include "kvasir/kernels/table_parts.h"
#include "kvasir/tensor/dtype.h"
#include "kvasir/tensor/packed_codec.h"
#include "kvasir/tensor/packed_codes.h"
#include "kvasir/tensor/turbo_codebooks.h"

namespace kvasir {
namespace {

uint16_t HalfBits(const std::byte* plane, int64_t index) {
  uint16_t bits;
  std::memcpy(&bits, plane + 2 * index, sizeof(bits));
  return bits;
}

// Balances a run of queries that were rounded (integer_steps.h). Not finite: codes are 0 and stay.
void BalanceRun(const float* x, float inverse, std::span<int16_t> codes) {
  std::vector<float> errors(codes.size());
  std::array<float, 16> lanes = {};
  for (size_t d = 0; d < codes.size(); ++d) {
    errors[d] = x[d] * inverse - static_cast<float>(codes[d]);
    lanes[d % 16] += errors[d];
  }
  const auto missing = static_cast<int>(std::rint(scalar::SumLanes(lanes)));
  const int step = missing < 0 ? -1 : 1;
  std::vector<size_t> farthest(codes.size());
  std::iota(farthest.begin(), farthest.end(), size_t{0});
  const auto units = [&](size_t d) {
    return std::rint(errors[d] * (static_cast<float>(step) * kBalanceUnits));
  };
  std::stable_sort(farthest.begin(), farthest.end(),
                   [&](size_t a, size_t b) { return units(a) > units(b); });
  for (size_t i = 0; i < static_cast<size_t>(std::abs(missing)); ++i) {
    codes[farthest[i]] += static_cast<int16_t>(step);
  }
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
      const IntegerSteps steps = IntegerStepsOf(largest, QueryLevels(kBytes));
      for (int64_t d = 0; d < group; ++d) {
        out[d] =
            steps.inverse == 0 ? int16_t{0} : static_cast<int16_t>(std::rint(x[d] * steps.inverse));
      }
      for (int64_t d = 0; kBytes == 1 && steps.inverse != 0 && d < group; d += kBalancedDims) {
        const int64_t count = std::min(kBalancedDims, group - d);
        BalanceRun(x + d, steps.inverse, {out + d, static_cast<size_t>(count)});
      }
      args.out.scales[r * groups + g] = steps.scale * args.unit;
      args.out.sums[r * groups + g] = scalar::SumLanes(lanes) * args.unit;
      args.out.starts[r * groups + g] =
          -KeyMiddle(args.codec.bits) * std::accumulate(out, out + group, int32_t{0});
    }
  }
}

void StoreWidened(const KvCodec& codec, const WidenArgs& args, int64_t g, int64_t t,
                  AffineGroup parameters) {
  const auto groups = args.dim / codec.group;
  auto* const scales = args.out + codec.CodeBytes(args.dim);
  const int64_t at = g * kBlockTokens + t;
  std::memcpy(scales + at * 4, &parameters.scale, sizeof(float));
  std::memcpy(scales + (groups * kBlockTokens + at) * 4, &parameters.bias, sizeof(float));
}

void WidenAffine(const WidenArgs& args) noexcept {
  const KvCodec codec = WidenedCodec(args.codec, args.dim);
  const int bits = args.codec.bits;
  const int32_t offset = KeyMiddle(8) - KeyMiddle(args.codec.bits);
  for (int t = 0; t < kBlockTokens; ++t) {
    for (int64_t d = 0; d < args.dim; ++d) {
      const uint32_t code = LoadKeyCode(args.plane, bits, d, t);
      StoreKeyCode(args.out, 8, d, t, code + static_cast<uint32_t>(offset));
    }
    for (int64_t g = 0; g < args.dim / codec.group; ++g) {
      AffineGroup parameters = LoadAffineGroup(args.codec, args.plane, args.dim, g, t);
      parameters.bias = std::fma(static_cast<float>(-offset), parameters.scale, parameters.bias);
      StoreWidened(codec, args, g, t, parameters);
    }
  }
}

void WidenTurbo(const WidenArgs& args) noexcept {
  const KvCodec codec = WidenedCodec(args.codec, args.dim);
  const TurboBytes& levels = TurboBytesOf(args.dim, args.codec.bits);
  for (int t = 0; t < kBlockTokens; ++t) {
    for (int64_t d = 0; d < args.dim; ++d) {
      const uint32_t code = LoadKeyCode(args.plane, args.codec.bits, d, t);
      StoreKeyCode(args.out, 8, d, t, levels.bytes[code]);
    }
    const float scale = LoadTurboNorm(args.codec, args.plane, args.dim, t) * levels.unit;
    StoreWidened(codec, args, 0, t, {scale, -128 * scale});
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

float Exp2(float x) {
  if (std::isnan(x)) return x;
  x = std::max(x, kExp2Min);
  const float n = std::rint(x);
  const float r = x - n;
  float p = kExp2Terms[std::size(kExp2Terms) - 1];
  for (size_t i = std::size(kExp2Terms) - 1; i-- > 0;) p = std::fma(p, r, kExp2Terms[i]);
  p = std::fma(p, r, 1.0f);
  return std::bit_cast<float>(std::bit_cast<int32_t>(p) + (static_cast<int32_t>(n) << 23));
}

// Of a score that is `distance` steps below the largest.
int32_t WeightOf(float distance) {
  const auto n = static_cast<int32_t>(std::rint(std::clamp(distance, 0.0f, kFarthestWeight)));
  const int32_t fraction = n << (16 - kWeightFractionBits) & 0xFFFF;
  int32_t weight = kWeightTerms[1] - (fraction * kWeightTerms[2] >> 16);
  weight = kWeightTerms[0] - (fraction * weight >> 16);
  weight = kLargestWeight - (fraction * weight >> 16);
  const int32_t powers = n >> kWeightFractionBits;
  return (weight + (1 << powers >> 1)) >> powers;
}

// The total of products of weights and numbers, each pair of tokens exact.
float SumPairs(const std::array<int64_t, kBlockTokens>& products) {
  std::array<int64_t, 16> sums = {};
  for (size_t t = 0; t < kBlockTokens; ++t) sums[PairLaneOf(t)] += products[t];
  std::array<float, 16> lanes = {};
  for (size_t i = 0; i < lanes.size(); ++i) lanes[i] = static_cast<float>(sums[i]);
  return scalar::SumLanes(lanes);
}

int32_t RoundedBy(const IntegerSteps& steps, float x) {
  return steps.inverse == 0 ? 0 : static_cast<int32_t>(std::rint(x * steps.inverse));
}

int32_t WeightCode(int32_t weight, const WeightRounding& rounding, int32_t share) {
  return ((weight >> rounding.shift) * share + (1 << 14)) >> 15;
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
        Exp2(largest - max) > kDecisiveShare * args.sum[row]) {
      out.decisive[out.decisive_count++] = static_cast<int32_t>(row);
    } else {
      out.others[out.others_count++] = static_cast<int32_t>(row);
    }
  }
  if (out.decisive_count == 0) out.others_count = 0;
}

using RowWeights = std::array<int32_t, kBlockTokens>;

// A row's weights, 0 of what it does not see, and what they make of its state.
RowWeights WeighRow(const WeighTileArgs& args, int64_t row, float* top) {
  const float largest = args.largest[row];
  const float old_max = args.max[row];
  const float max = largest > old_max + kReferenceSlack ? largest : old_max;
  const float from = max == kLowest ? 0.0f : max;
  const float base = (largest == kLowest ? 0.0f : largest) * kWeightSteps;
  RowWeights weights = {};
  std::array<int64_t, kBlockTokens> ones = {};
  bool has_nan = false;
  for (int t = args.begin[row]; t < args.end[row]; ++t) {
    const auto token = static_cast<size_t>(t);
    const float distance = std::fma(-args.ScoresOf(row)[t], kWeightSteps, base);
    has_nan = has_nan || std::isnan(distance);
    if (!std::isnan(distance)) ones[token] = weights[token] = WeightOf(distance);
  }
  const float sum =
      (has_nan ? std::numeric_limits<float>::quiet_NaN() : SumPairs(ones)) * kWeightUnit;
  *top = Exp2(largest - from);
  args.max[row] = max;
  args.rescale[row] = old_max == kLowest ? 1.0f : Exp2(old_max - from);
  args.sum[row] = std::fma(*top, sum, args.sum[row] * args.rescale[row]);
  return weights;
}

// The oracle's arrangement of weights: one uint16 per token, in order.
template <size_t kBytes>
void RoundGroup(const WeighTileArgs& args, const RowWeights& weights, float top, int64_t row,
                int64_t g) {
  constexpr WeightRounding kRounding = WeightRoundingOf(kBytes);
  std::array<float, kBlockTokens> scales = {};
  std::array<float, kBlockTokens> centres = {};
  uint32_t largest_scale = 0;
  uint32_t largest_centre = 0;
  for (int t = args.begin[row]; t < args.end[row]; ++t) {
    const auto token = static_cast<size_t>(t);
    const AffineGroup group = LoadAffineGroup(args.codec, args.values, args.value_dim, g, t);
    scales[token] = std::fabs(group.scale);
    centres[token] = CentreOf(group, args.codec.bits);
    largest_scale = std::max(largest_scale, std::bit_cast<uint32_t>(scales[token]));
    largest_centre = std::max(largest_centre, std::bit_cast<uint32_t>(std::fabs(centres[token])));
  }
  const IntegerSteps steps = IntegerStepsOf(largest_scale, kRounding.shares);
  const IntegerSteps centre_steps = IntegerStepsOf(largest_centre, kCentreLevels);
  const int64_t at = g * args.rows + row;
  auto* const codes = reinterpret_cast<uint16_t*>(args.out.codes + at * IntegerWeights::kCodeBytes);
  std::array<int64_t, kBlockTokens> products = {};
  for (size_t t = 0; t < kBlockTokens; ++t) {
    codes[t] =
        static_cast<uint16_t>(WeightCode(weights[t], kRounding, RoundedBy(steps, scales[t])));
    products[t] = int64_t{weights[t]} * RoundedBy(centre_steps, centres[t]);
  }
  args.out.steps[at] = steps.scale * kRounding.unit * top;
  args.out.shifts[at] = SumPairs(products) * (centre_steps.scale * kWeightUnit * top);
}

template <size_t kBytes>
void Weigh(const WeighTileArgs& args) noexcept {
  for (int64_t row = 0; row < args.rows; ++row) {
    args.rescale[row] = 1.0f;
    if (args.begin[row] == args.end[row]) continue;
    float top = 0;
    const RowWeights weights = WeighRow(args, row, &top);
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
    const RowWeights weights = WeighRow(args, row, &top);
    std::array<float, kBlockTokens> scales = {};
    uint32_t largest = 0;
    for (int t = args.begin[row]; t < args.end[row]; ++t) {
      float& scale = scales[static_cast<size_t>(t)];
      scale = StepsOfValue(args.values, t, args.value_dim).scale;
      largest = std::max(largest, std::bit_cast<uint32_t>(std::fabs(scale)));
    }
    const IntegerSteps steps = IntegerStepsOf(largest, kHalfWeightRounding.shares);
    auto* const codes =
        reinterpret_cast<uint16_t*>(args.out.codes + row * IntegerWeights::kCodeBytes);
    for (size_t t = 0; t < kBlockTokens; ++t) {
      codes[t] = static_cast<uint16_t>(
          WeightCode(weights[t], kHalfWeightRounding, RoundedBy(steps, scales[t])));
    }
    args.out.steps[row] = steps.scale * kHalfWeightRounding.unit * top;
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
  for (const int bits : {2, 3, 5, 6}) {
    table->widen[KvFormatIndex(KvCodec::Affine(bits, 64))] = WidenAffine;
  }
  for (const int bits : {2, 3, 4}) table->widen[KvFormatIndex(KvCodec::Turbo(bits))] = WidenTurbo;
  FillWidth<1>(table);
  FillWidth<2>(table);
  table->prepare_scores = PrepareScores;
  table->find_decisive = FindDecisive;
  IntegerHalves(table) = {QuantizeHalfQueries, ScoreHalves, WeighHalves, AccumulateHalves};
}

}  // namespace kvasir
