// The oracle of integer attention: plain loops in exactly the order kernels.h states.
// Deliberately slow: it exists to be read and compared against.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

#include "kvasir/base/scalar_math.h"
#include "kvasir/kernels/integer_steps.h"
#include "kvasir/kernels/table_parts.h"
#include "kvasir/tensor/packed_codec.h"
#include "kvasir/tensor/packed_codes.h"

namespace kvasir {
namespace {

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
      args.out.scales[r * groups + g] = steps.scale;
      args.out.sums[r * groups + g] = scalar::SumLanes(lanes);
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
      args.scores[row * kBlockTokens + t] = score;
    }
  }
}

// What one group has for the tokens of a block that a row sees; zeros for the others.
struct ValueGroup {
  std::array<AffineGroup, kBlockTokens> tokens;
  IntegerSteps steps;
};

ValueGroup LoadValueGroup(const AccumulateTileArgs& args, int64_t row, int64_t g, float levels) {
  ValueGroup out = {};
  uint32_t largest = 0;
  for (int t = args.begin[row]; t < args.end[row]; ++t) {
    AffineGroup& token = out.tokens[static_cast<size_t>(t)];
    token = LoadAffineGroup(args.codec, args.values, args.value_dim, g, t);
    largest = std::max(largest, std::bit_cast<uint32_t>(std::fabs(token.scale)));
  }
  out.steps = IntegerStepsOf(largest, levels);
  return out;
}

int32_t LevelOf(int32_t code, float scale, int bits) {
  const int32_t middle = ValueMiddle(static_cast<size_t>(bits));
  return std::signbit(scale) ? middle - 1 - code : code - middle;
}
float CentreOf(AffineGroup group, int bits) {
  const int32_t middle =
      ValueMiddle(static_cast<size_t>(bits)) - (std::signbit(group.scale) ? 1 : 0);
  return std::fma(static_cast<float>(middle), group.scale, group.bias);
}

// One row's sums over the dims of group g.
template <size_t kBytes>
void AccumulateGroup(const AccumulateTileArgs& args, int64_t row, int64_t g) {
  const int bits = args.codec.bits;
  const float top = args.top[row];
  const float inverse = top < 0x1p-100f ? 0.0f : 1.0f / top;
  const ValueGroup group = LoadValueGroup(args, row, g, IntegerLevelsOf(kBytes).weight);
  std::array<int32_t, kBlockTokens> codes = {};
  std::array<float, 16> lanes = {};
  for (int t = args.begin[row]; t < args.end[row]; ++t) {
    const auto token = static_cast<size_t>(t);
    const AffineGroup parameters = group.tokens[token];
    const float weight = args.weights[row * kBlockTokens + t];
    const float ratio =
        group.steps.inverse == 0 ? 0.0f : std::fabs(parameters.scale) * group.steps.inverse;
    const float rounded = std::fma(weight * inverse, ratio, kRoundToBits);
    codes[token] = static_cast<int32_t>(std::bit_cast<uint32_t>(rounded) & 0xFFFF);
    lanes[token % 16] = std::fma(weight, CentreOf(parameters, bits), lanes[token % 16]);
  }
  const float shift = scalar::SumLanes(lanes);
  const float step = group.steps.scale * top;
  for (int64_t d = g * args.codec.group; d < (g + 1) * args.codec.group; ++d) {
    int32_t sum = 0;
    for (int t = 0; t < kBlockTokens; ++t) {
      const auto code = static_cast<int32_t>(LoadValueCode(args.values, bits, d, t));
      sum += codes[static_cast<size_t>(t)] *
             LevelOf(code, group.tokens[static_cast<size_t>(t)].scale, bits);
    }
    float& out = args.accumulator[row * args.accumulator_stride + d];
    out = std::fma(static_cast<float>(sum), step, out * args.rescale[row]) + shift;
  }
}

template <size_t kBytes>
void Accumulate(const AccumulateTileArgs& args) noexcept {
  for (int64_t row = 0; row < args.rows; ++row) {
    if (args.begin[row] == args.end[row]) continue;
    for (int64_t g = 0; g < args.value_dim / args.codec.group; ++g) {
      AccumulateGroup<kBytes>(args, row, g);
    }
  }
}

template <size_t kBytes>
void FillWidth(KernelTable* table) {
  for (const int bits : {4, 8}) {
    table->integer_kv[kBytes - 1][KvFormatIndex(KvCodec::Affine(bits, 64))] = {
        QuantizeQueries<kBytes>, Score, Accumulate<kBytes>};
  }
}

}  // namespace

void FillScalarInteger(KernelTable* table) {
  FillWidth<1>(table);
  FillWidth<2>(table);
}

}  // namespace kvasir
