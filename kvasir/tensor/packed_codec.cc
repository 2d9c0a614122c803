#include "kvasir/tensor/packed_codec.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "kvasir/base/check.h"
#include "kvasir/tensor/dtype.h"
#include "kvasir/tensor/packed_codes.h"
#include "kvasir/tensor/rotation.h"
#include "kvasir/tensor/turbo_codebooks.h"
#include "kvasir/tensor/turbo_codec.h"

namespace kvasir {
namespace {

constexpr size_t kMaxGroup = 128;

// Where the codes of a plane are: KeyCodePlace or ValueCodePlace.
using PlaceFunction = CodePlace (*)(int64_t dim_index, int slot);

template <PlaceFunction kPlace>
void StoreCodes(const KvCodec& codec, std::byte* plane, int slot, int64_t first_dim,
                std::span<const uint8_t> codes) {
  for (size_t i = 0; i < codes.size(); ++i) {
    StoreCode(plane, codec.bits, kPlace(first_dim + static_cast<int64_t>(i), slot), codes[i]);
  }
}

// `row` is already rotated where the codec rotates.
template <PlaceFunction kPlace>
void EncodeAffine(const KvCodec& codec, std::byte* plane, int slot, std::span<const float> row) {
  std::array<uint8_t, kMaxGroup> buffer;
  const std::span<uint8_t> codes = std::span(buffer).first(codec.group);
  const auto dim = static_cast<int64_t>(row.size());
  for (int64_t g = 0; g < dim / codec.group; ++g) {
    const int64_t first_dim = g * codec.group;
    const AffineGroup group =
        QuantizeAffineGroup(row.subspan(static_cast<size_t>(first_dim), codec.group), codec.bits,
                            codec.scales, codes.data());
    StoreCodes<kPlace>(codec, plane, slot, first_dim, codes);
    StoreAffineGroup(codec, plane, dim, g, slot, group);
  }
}

template <PlaceFunction kPlace>
void EncodeRow(const KvCodec& codec, std::byte* plane, int slot, std::span<const float> row) {
  KVASIR_DCHECK(codec.is_packed() && slot >= 0 && slot < kBlockTokens);
  const auto dim = static_cast<int64_t>(row.size());
  if (codec.kind == KvCodec::Kind::kTurbo) {
    std::array<uint8_t, kMaxRotationDim> codes;
    StoreTurboNorm(codec, plane, dim, slot, EncodeTurbo(row, codec.bits, codes.data()));
    StoreCodes<kPlace>(codec, plane, slot, 0, std::span(codes).first(row.size()));
    return;
  }
  if (!codec.rotated) return EncodeAffine<kPlace>(codec, plane, slot, row);
  std::array<float, kMaxRotationDim> rotated;
  std::copy(row.begin(), row.end(), rotated.begin());
  Rotate(rotated.data(), dim);
  EncodeAffine<kPlace>(codec, plane, slot, std::span(rotated).first(row.size()));
}

template <PlaceFunction kPlace>
void LoadRow(const KvCodec& codec, const std::byte* plane, int slot, std::span<float> row) {
  KVASIR_DCHECK(codec.is_packed() && slot >= 0 && slot < kBlockTokens);
  const auto dim = static_cast<int64_t>(row.size());
  if (codec.kind == KvCodec::Kind::kTurbo) {
    std::array<uint8_t, kMaxRotationDim> codes;
    for (int64_t d = 0; d < dim; ++d) {
      codes[static_cast<size_t>(d)] =
          static_cast<uint8_t>(LoadCode(plane, codec.bits, kPlace(d, slot)));
    }
    return LoadTurbo(codes.data(), LoadTurboNorm(codec, plane, dim, slot), codec.bits, row);
  }
  for (int64_t begin = 0; begin < dim; begin += codec.group) {
    const AffineGroup group = LoadAffineGroup(codec, plane, dim, begin / codec.group, slot);
    for (int64_t d = begin; d < begin + codec.group; ++d) {
      row[static_cast<size_t>(d)] =
          DequantizeAffine(LoadCode(plane, codec.bits, kPlace(d, slot)), group);
    }
  }
}

template <PlaceFunction kPlace>
void DecodeRow(const KvCodec& codec, const std::byte* plane, int slot, std::span<float> row) {
  LoadRow<kPlace>(codec, plane, slot, row);
  if (codec.rotates()) RotateBack(row.data(), static_cast<int64_t>(row.size()));
}

// Bytes from the start of a plane to the scale of a group of a slot; biases lie `scales` further.
struct AffineOffsets {
  size_t scale;
  size_t bias;
};
AffineOffsets OffsetsOf(const KvCodec& codec, int64_t dim, int64_t group_index, int slot) {
  const size_t index = static_cast<size_t>(group_index) * kBlockTokens + static_cast<size_t>(slot);
  const size_t scale = codec.CodeBytes(dim) + index * codec.ScaleBytes();
  const size_t all = static_cast<size_t>(dim) / codec.group * kBlockTokens * codec.ScaleBytes();
  return {scale, scale + all};
}

float LoadScale(const KvCodec& codec, const std::byte* at) {
  if (codec.scales == KvCodec::Scales::kF32) {
    float value;
    std::memcpy(&value, at, sizeof(value));
    return value;
  }
  uint16_t half;
  std::memcpy(&half, at, sizeof(half));
  return F16ToFloat(half);
}

void StoreScale(const KvCodec& codec, std::byte* at, float value) {
  if (codec.scales == KvCodec::Scales::kF32) {
    std::memcpy(at, &value, sizeof(value));
    return;
  }
  const uint16_t half = SaturatingF16(value);
  std::memcpy(at, &half, sizeof(half));
}

// The codes of 8 dims, [8][64], of one unit of a key plane.
void LoadKeyUnit(const std::byte* plane, int bits, int64_t unit, uint32_t* codes) {
  std::array<uint32_t, 8 * kUnitLanes + kUnitLanes> words = {};  // and one row no code reaches into
  const size_t unit_words = static_cast<size_t>(bits) * kUnitLanes;
  std::memcpy(words.data(), plane + static_cast<size_t>(unit) * unit_words * sizeof(uint32_t),
              unit_words * sizeof(uint32_t));
  const uint32_t mask = (1u << bits) - 1;
  for (int i = 0; i < kLaneCodes; ++i) {
    uint32_t* const out = codes + i % 8 * kBlockTokens + i / 8 * kUnitLanes;
    const int shift = i * bits % 32;
    const uint32_t* const low = words.data() + i * bits / 32 * kUnitLanes;
    const uint32_t* const high = low + kUnitLanes;
    if (shift + bits <= 32) {
      for (int lane = 0; lane < kUnitLanes; ++lane) out[lane] = low[lane] >> shift & mask;
    } else {
      for (int lane = 0; lane < kUnitLanes; ++lane) {
        out[lane] = (low[lane] >> shift | high[lane] << (32 - shift)) & mask;
      }
    }
  }
}

}  // namespace

void EncodePackedKeyRow(const KvCodec& codec, std::byte* plane, int slot,
                        std::span<const float> row) {
  EncodeRow<KeyCodePlace>(codec, plane, slot, row);
}
void EncodePackedValueRow(const KvCodec& codec, std::byte* plane, int slot,
                          std::span<const float> row) {
  EncodeRow<ValueCodePlace>(codec, plane, slot, row);
}

void DecodePackedKeyRow(const KvCodec& codec, const std::byte* plane, int slot,
                        std::span<float> row) {
  DecodeRow<KeyCodePlace>(codec, plane, slot, row);
}
void DecodePackedValueRow(const KvCodec& codec, const std::byte* plane, int slot,
                          std::span<float> row) {
  DecodeRow<ValueCodePlace>(codec, plane, slot, row);
}

void DecodePackedKeyPlane(const KvCodec& codec, const std::byte* plane, int64_t dim, float* tile) {
  KVASIR_DCHECK(codec.is_packed() && codec.Validate(dim).ok());
  constexpr int64_t kUnitDims = 8;
  const bool turbo = codec.kind == KvCodec::Kind::kTurbo;
  const float* const levels = turbo ? TurboLevels(dim, codec.bits) : nullptr;
  std::array<AffineGroup, kBlockTokens> groups;
  std::array<float, kBlockTokens> norms;
  for (int slot = 0; turbo && slot < kBlockTokens; ++slot) {
    norms[static_cast<size_t>(slot)] = LoadTurboNorm(codec, plane, dim, slot);
  }
  std::array<uint32_t, kUnitDims * kBlockTokens> codes;
  for (int64_t begin = 0; begin < dim; begin += kUnitDims) {
    for (int slot = 0; !turbo && begin % codec.group == 0 && slot < kBlockTokens; ++slot) {
      groups[static_cast<size_t>(slot)] =
          LoadAffineGroup(codec, plane, dim, begin / codec.group, slot);
    }
    LoadKeyUnit(plane, codec.bits, begin / kUnitDims, codes.data());
    for (size_t i = 0; i < codes.size(); ++i) {
      const size_t slot = i % kBlockTokens;
      tile[static_cast<size_t>(begin) * kBlockTokens + i] =
          turbo ? norms[slot] * levels[codes[i]] : DequantizeAffine(codes[i], groups[slot]);
    }
  }
  if (codec.rotates()) RotateTileBack(tile, dim);
}

void LoadPackedKeyRow(const KvCodec& codec, const std::byte* plane, int slot,
                      std::span<float> row) {
  LoadRow<KeyCodePlace>(codec, plane, slot, row);
}
void LoadPackedValueRow(const KvCodec& codec, const std::byte* plane, int slot,
                        std::span<float> row) {
  LoadRow<ValueCodePlace>(codec, plane, slot, row);
}

AffineGroup LoadAffineGroup(const KvCodec& codec, const std::byte* plane, int64_t dim,
                            int64_t group_index, int slot) {
  const AffineOffsets offsets = OffsetsOf(codec, dim, group_index, slot);
  return {LoadScale(codec, plane + offsets.scale), LoadScale(codec, plane + offsets.bias)};
}

void StoreAffineGroup(const KvCodec& codec, std::byte* plane, int64_t dim, int64_t group_index,
                      int slot, AffineGroup group) {
  const AffineOffsets offsets = OffsetsOf(codec, dim, group_index, slot);
  StoreScale(codec, plane + offsets.scale, group.scale);
  StoreScale(codec, plane + offsets.bias, group.bias);
}

float LoadTurboNorm(const KvCodec& codec, const std::byte* plane, int64_t dim, int slot) {
  float norm;
  std::memcpy(&norm, plane + codec.CodeBytes(dim) + static_cast<size_t>(slot) * sizeof(norm),
              sizeof(norm));
  return norm;
}

void StoreTurboNorm(const KvCodec& codec, std::byte* plane, int64_t dim, int slot, float norm) {
  std::memcpy(plane + codec.CodeBytes(dim) + static_cast<size_t>(slot) * sizeof(norm), &norm,
              sizeof(norm));
}

}  // namespace kvasir
