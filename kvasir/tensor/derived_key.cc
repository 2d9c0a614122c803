#include "kvasir/tensor/derived_key.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kvasir/base/check.h"
#include "kvasir/base/trigonometry.h"
#include "kvasir/tensor/dtype.h"
#include "kvasir/tensor/packed_codec.h"

namespace kvasir {
namespace {

// One row of a dense value plane [64][dim].
void LoadDenseRow(KvCodec codec, const std::byte* values, int slot, std::span<float> row) {
  const std::byte* element = values + static_cast<size_t>(slot) * row.size() * codec.ElementBytes();
  for (float& value : row) {
    if (codec.kind == KvCodec::Kind::kF32) {
      std::memcpy(&value, element, sizeof(value));
    } else {
      uint16_t half;
      std::memcpy(&half, element, sizeof(half));
      value = codec.kind == KvCodec::Kind::kF16 ? F16ToFloat(half) : Bf16ToFloat(half);
    }
    element += codec.ElementBytes();
  }
}

}  // namespace

void DeriveKey(const KvKeyDerivation& derivation, Position position, std::span<const float> value,
               std::span<float> key) {
  const size_t dim = derivation.key_norm.size();
  const size_t pairs = derivation.inv_freq.size();
  KVASIR_CHECK(value.size() == key.size() && dim > 0 && key.size() % dim == 0);
  for (size_t i = 0; i < key.size(); ++i) key[i] = derivation.key_norm[i % dim] * value[i];
  for (size_t pair = 0; pair < pairs; ++pair) {
    if (derivation.inv_freq[pair] == 0) continue;
    const auto angle =
        SinCos(static_cast<double>(position) * static_cast<double>(derivation.inv_freq[pair]));
    const auto sin = static_cast<float>(angle.sin);
    const auto cos = static_cast<float>(angle.cos);
    for (size_t head = 0; head < key.size(); head += dim) {
      const float x = key[head + pair];
      const float y = key[head + pair + pairs];
      key[head + pair] = std::fma(-y, sin, x * cos);
      key[head + pair + pairs] = std::fma(x, sin, y * cos);
    }
  }
}

void DeriveKeyTile(const KvKeyDerivation& derivation, const KvBlockLayout& layout,
                   const std::byte* values, std::span<const Position, kBlockTokens> positions,
                   int begin, int end, float* tile) {
  const auto dim = static_cast<size_t>(layout.value_dim);
  std::fill_n(tile, dim * kBlockTokens, 0.0f);
  std::vector<float> value(dim);
  std::vector<float> key(dim);
  for (int slot = begin; slot < end; ++slot) {
    if (layout.value_codec.is_packed()) {
      DecodePackedValueRow(layout.value_codec, values, slot, value);
    } else {
      LoadDenseRow(layout.value_codec, values, slot, value);
    }
    DeriveKey(derivation, positions[static_cast<size_t>(slot)], value, key);
    for (size_t d = 0; d < dim; ++d) tile[d * kBlockTokens + static_cast<size_t>(slot)] = key[d];
  }
}

}  // namespace kvasir
