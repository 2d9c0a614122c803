// The oracle of integer attention: plain loops in exactly the order kernels.h states.
// Deliberately slow: it exists to be read and compared against.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "kvasir/base/scalar_math.h"
#include "kvasir/kernels/integer_steps.h"
#include "kvasir/kernels/table_parts.h"
#include "kvasir/tensor/packed_codec.h"
#include "kvasir/tensor/packed_codes.h"

namespace kvasir {
namespace {

// Codes of `count` floats; returns the steps.
IntegerSteps Quantize(const float* x, int64_t count, int16_t* codes) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < count; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(std::fabs(x[i])));
  }
  const IntegerSteps steps = IntegerStepsOf(largest);
  for (int64_t i = 0; i < count; ++i) {
    codes[i] =
        steps.inverse == 0 ? int16_t{0} : static_cast<int16_t>(std::rint(x[i] * steps.inverse));
  }
  return steps;
}

// The oracle's arrangement: one int16 per dim, in order.
void QuantizeQueries(const IntegerQueryArgs& args) noexcept {
  const int64_t group = args.codec.group;
  const int64_t groups = args.dim / group;
  auto* const codes = reinterpret_cast<int16_t*>(args.out.codes);
  for (int64_t r = 0; r < args.rows; ++r) {
    for (int64_t g = 0; g < groups; ++g) {
      int16_t* const out = codes + r * args.dim + g * group;
      const float* const x = args.queries + r * args.query_stride + g * group;
      const IntegerSteps steps = Quantize(x, group, out);
      int32_t sum = 0;
      for (int64_t d = 0; d < group; ++d) sum += out[d];
      args.out.scales[r * groups + g] = steps.scale;
      args.out.sums[r * groups + g] = steps.scale * static_cast<float>(sum);
    }
  }
}

void Score(const ScoreTileArgs& args) noexcept {
  const int64_t group = args.codec.group;
  const int64_t groups = args.key_dim / group;
  const auto* const codes = reinterpret_cast<const int16_t*>(args.integers.codes);
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int t = 0; t < kBlockTokens; ++t) {
      float score = 0;
      for (int64_t g = 0; g < groups; ++g) {
        int32_t sum = 0;
        for (int64_t d = g * group; d < (g + 1) * group; ++d) {
          sum += codes[row * args.key_dim + d] *
                 static_cast<int32_t>(LoadKeyCode(args.keys, args.codec.bits, d, t));
        }
        const auto [scale, bias] = LoadAffineGroup(args.codec, args.keys, args.key_dim, g, t);
        const float part = static_cast<float>(sum) * args.integers.scales[row * groups + g];
        score = std::fma(scale, part, score);
        score = std::fma(bias, args.integers.sums[row * groups + g], score);
      }
      args.scores[row * kBlockTokens + t] = score;
    }
  }
}

// One row's sums over the dims of group g.
void AccumulateGroup(const AccumulateTileArgs& args, int64_t row, int64_t g) {
  std::array<float, kBlockTokens> products = {};
  std::array<float, 16> lanes = {};
  for (int t = args.begin[row]; t < args.end[row]; ++t) {
    const float weight = args.weights[row * kBlockTokens + t];
    const auto [scale, bias] = LoadAffineGroup(args.codec, args.values, args.value_dim, g, t);
    products[static_cast<size_t>(t)] = weight * scale;
    lanes[static_cast<size_t>(t) % 16] = std::fma(weight, bias, lanes[static_cast<size_t>(t) % 16]);
  }
  std::array<int16_t, kBlockTokens> codes;
  const IntegerSteps steps = Quantize(products.data(), kBlockTokens, codes.data());
  const float shift = scalar::SumLanes(lanes);
  const int64_t group = args.codec.group;
  for (int64_t d = g * group; d < (g + 1) * group; ++d) {
    int32_t sum = 0;
    for (int t = 0; t < kBlockTokens; ++t) {
      sum += codes[static_cast<size_t>(t)] *
             static_cast<int32_t>(LoadValueCode(args.values, args.codec.bits, d, t));
    }
    float& out = args.accumulator[row * args.accumulator_stride + d];
    out = std::fma(static_cast<float>(sum), steps.scale, out * args.rescale[row]) + shift;
  }
}

void Accumulate(const AccumulateTileArgs& args) noexcept {
  for (int64_t row = 0; row < args.rows; ++row) {
    if (args.begin[row] == args.end[row]) continue;
    for (int64_t g = 0; g < args.value_dim / args.codec.group; ++g) AccumulateGroup(args, row, g);
  }
}

}  // namespace

void FillScalarInteger(KernelTable* table) {
  for (const int bits : {4, 8}) {
    table->integer_kv[KvFormatIndex(KvCodec::Affine(bits, 64))] = {QuantizeQueries, Score,
                                                                   Accumulate};
  }
}

}  // namespace kvasir
