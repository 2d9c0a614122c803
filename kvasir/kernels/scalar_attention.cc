// The attention oracle: plain loops and std::fma in exactly the order kernels.h states.
// Deliberately slow: it exists to be read and compared against.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "kvasir/base/scalar_math.h"
#include "kvasir/kernels/table_parts.h"
#include "kvasir/tensor/dtype.h"

namespace kvasir {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

template <KvCodec::Kind kKind>
struct Element {
  using Stored = uint16_t;
  static float Decode(Stored bits) {
    return kKind == KvCodec::Kind::kF16 ? F16ToFloat(bits) : Bf16ToFloat(bits);
  }
  static Stored Encode(float value) {
    return kKind == KvCodec::Kind::kF16 ? FloatToF16(value) : FloatToBf16(value);
  }
};
template <>
struct Element<KvCodec::Kind::kF32> {
  using Stored = float;
  static float Decode(Stored value) { return value; }
  static Stored Encode(float value) { return value; }
};

template <KvCodec::Kind kKind>
float LoadElement(const std::byte* plane, int64_t index) {
  typename Element<kKind>::Stored stored;
  std::memcpy(&stored, plane + index * static_cast<int64_t>(sizeof(stored)), sizeof(stored));
  return Element<kKind>::Decode(stored);
}

template <KvCodec::Kind kKind>
void StoreElement(float value, std::byte* plane, int64_t index) {
  const typename Element<kKind>::Stored stored = Element<kKind>::Encode(value);
  std::memcpy(plane + index * static_cast<int64_t>(sizeof(stored)), &stored, sizeof(stored));
}

template <KvCodec::Kind kKind>
void EncodeKeys(const EncodeArgs& args) noexcept {
  for (int64_t i = 0; i < args.count; ++i) {
    for (int64_t d = 0; d < args.dim; ++d) {
      StoreElement<kKind>(args.rows[i * args.row_stride + d], args.plane,
                          d * kBlockTokens + args.slot + i);
    }
  }
}

template <KvCodec::Kind kKind>
void EncodeValues(const EncodeArgs& args) noexcept {
  for (int64_t i = 0; i < args.count; ++i) {
    for (int64_t d = 0; d < args.dim; ++d) {
      StoreElement<kKind>(args.rows[i * args.row_stride + d], args.plane,
                          (args.slot + i) * args.dim + d);
    }
  }
}

template <KvCodec::Kind kKind>
void ScoreTile(const ScoreTileArgs& args) noexcept {
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t t = 0; t < kBlockTokens; ++t) {
      float score = 0;
      for (int64_t d = 0; d < args.key_dim; ++d) {
        score = std::fma(args.queries[row * args.query_stride + d],
                         LoadElement<kKind>(args.keys, d * kBlockTokens + t), score);
      }
      args.scores[row * kBlockTokens + t] = score;
    }
  }
}

void SoftmaxRow(const SoftmaxTileArgs& args, int64_t row) {
  float* scores = args.scores + row * kBlockTokens;
  const int32_t begin = args.begin[row];
  const int32_t end = args.end[row];
  const float old_max = args.max[row];
  float largest = -kInfinity;
  for (int32_t t = begin; t < end; ++t) {
    if (args.softcap > 0) scores[t] = scalar::Softcap(scores[t], args.softcap);
    // A NaN score never becomes the maximum; it reaches the sum and the output below.
    if (scores[t] > largest) largest = scores[t];
  }
  float max = std::max(old_max, largest);
  max += 0.0f;  // one sign of zero, whichever order a table looked for the maximum in
  // As long as every score was -infinity nothing has been seen: weights are exp(-inf) = 0.
  const float base = max == -kInfinity ? 0.0f : max;
  std::array<float, 16> lanes = {};
  for (int32_t t = 0; t < kBlockTokens; ++t) {
    scores[t] = t >= begin && t < end ? scalar::Exp(scores[t] - base) : 0.0f;
    lanes[t % 16] += scores[t];
  }
  args.rescale[row] = scalar::Exp(old_max - base);
  args.sum[row] = std::fma(args.sum[row], args.rescale[row], scalar::SumLanes(lanes));
  args.max[row] = max;
}

void SoftmaxTile(const SoftmaxTileArgs& args) noexcept {
  for (int64_t row = 0; row < args.rows; ++row) {
    if (args.begin[row] < args.end[row]) {
      SoftmaxRow(args, row);
    } else {
      args.rescale[row] = 1.0f;
    }
  }
}

template <KvCodec::Kind kKind>
void AccumulateTile(const AccumulateTileArgs& args) noexcept {
  for (int64_t row = 0; row < args.rows; ++row) {
    if (args.begin[row] == args.end[row]) continue;
    for (int64_t d = 0; d < args.value_dim; ++d) {
      float* accumulator = args.accumulator + row * args.accumulator_stride + d;
      *accumulator *= args.rescale[row];
      for (int32_t t = args.begin[row]; t < args.end[row]; ++t) {
        *accumulator =
            std::fma(args.weights[row * kBlockTokens + t],
                     LoadElement<kKind>(args.values, t * args.value_dim + d), *accumulator);
      }
    }
  }
}

template <KvCodec::Kind kKind>
void FillCodec(KernelTable* table) {
  constexpr auto kIndex = static_cast<size_t>(kKind);
  table->kv[kIndex].encode_keys = EncodeKeys<kKind>;
  table->kv[kIndex].encode_values = EncodeValues<kKind>;
  table->kv[kIndex].score_tile = ScoreTile<kKind>;
  table->kv[kIndex].accumulate_tile = AccumulateTile<kKind>;
}

}  // namespace

void FillScalarAttention(KernelTable* table) {
  FillCodec<KvCodec::Kind::kF32>(table);
  FillCodec<KvCodec::Kind::kF16>(table);
  FillCodec<KvCodec::Kind::kBf16>(table);
  table->softmax_tile = SoftmaxTile;
}

}  // namespace kvasir
