// The oracle of attention in pairs of bf16: plain loops, as kernels.h and bf16_pairs.h state them.
// Deliberately slow: it exists to be read and compared against.
#include <cmath>
#include <cstring>

#include "kvasir/kernels/table_parts.h"
#include "kvasir/tensor/bf16_pairs.h"

namespace kvasir {
namespace {

float LoadWeight(const std::byte* plane, int64_t index) {
  uint16_t bits;
  std::memcpy(&bits, plane + index * int64_t{sizeof(bits)}, sizeof(bits));
  return Bf16ToFloat(bf16_pairs::RoundWeight(bits));
}

void ScoreTile(const ScoreTileArgs& args) noexcept {
  const auto* const queries = reinterpret_cast<const float*>(args.rounded);
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* const query = queries + row * args.key_dim;
    for (int64_t t = 0; t < kBlockTokens; ++t) {
      const auto key = [&](int64_t d) { return LoadWeight(args.keys, d * kBlockTokens + t); };
      float score = 0;
      for (int64_t d = 0; d < args.key_dim; d += 2) {
        score = std::fma(query[d + 1], key(d + 1), score);
        score = std::fma(query[d], key(d), score);
      }
      args.scores[row * kBlockTokens + t] = score;
    }
  }
}

void AccumulateTile(const AccumulateTileArgs& args) noexcept {
  for (int64_t row = 0; row < args.rows; ++row) {
    if (args.begin[row] == args.end[row]) continue;
    for (int64_t d = 0; d < args.value_dim; ++d) {
      float sum = 0;
      const auto add = [&](int64_t t) {
        const bool is_seen = t >= args.begin[row] && t < args.end[row];
        const float weight =
            is_seen ? bf16_pairs::RoundInput(args.weights[row * kBlockTokens + t]) : 0;
        const float value = is_seen ? LoadWeight(args.values, t * args.value_dim + d) : 0;
        sum = std::fma(weight, value, sum);
      };
      for (int64_t t = 0; t < kBlockTokens; t += 2) {
        add(t + 1);
        add(t);
      }
      float& out = args.accumulator[row * args.accumulator_stride + d];
      out = std::fma(out, args.rescale[row], sum);
    }
  }
}

}  // namespace

void FillScalarPairs(KernelTable* table) { table->pair_kv = {ScoreTile, AccumulateTile}; }

}  // namespace kvasir
