#include "kvasir/kv/row_codec.h"

#include <cstring>
#include <vector>

#include "kvasir/base/check.h"
#include "kvasir/tensor/dtype.h"
#include "kvasir/tensor/packed_codec.h"
#include "kvasir/tensor/packed_codes.h"
#include "kvasir/tensor/row_norm.h"

namespace kvasir {
namespace {

// Element `index` of a plane whose elements all have this codec.
void Store(KvCodec codec, std::byte* plane, int64_t index, float value) {
  if (codec.kind == KvCodec::Kind::kF32) {
    std::memcpy(plane + index * 4, &value, 4);
    return;
  }
  const uint16_t half = codec.kind == KvCodec::Kind::kF16 ? FloatToF16(value) : FloatToBf16(value);
  std::memcpy(plane + index * 2, &half, 2);
}

float Load(KvCodec codec, const std::byte* plane, int64_t index) {
  if (codec.kind == KvCodec::Kind::kF32) {
    float value;
    std::memcpy(&value, plane + index * 4, 4);
    return value;
  }
  uint16_t half;
  std::memcpy(&half, plane + index * 2, 2);
  return codec.kind == KvCodec::Kind::kF16 ? F16ToFloat(half) : Bf16ToFloat(half);
}

enum class Plane { kKeys, kValues };

// One head of one plane of a block: [dim][64] for dense keys, [64][dim] for dense values.
struct Head {
  Plane plane;
  KvCodec codec;
  int64_t dim;

  int64_t ElementIndex(int64_t d, int64_t slot) const {
    return plane == Plane::kKeys ? d * kBlockTokens + slot : slot * dim + d;
  }
  CodePlace Place(int64_t d, int64_t slot) const {
    const int s = static_cast<int>(slot);
    return plane == Plane::kKeys ? KeyCodePlace(d, s) : ValueCodePlace(d, s);
  }

  void Encode(std::byte* head, int64_t slot, std::span<const float> row) const {
    if (codec.is_packed()) {
      const auto encode = plane == Plane::kKeys ? EncodePackedKeyRow : EncodePackedValueRow;
      encode(codec, head, static_cast<int>(slot), row);
      return;
    }
    for (int64_t d = 0; d < dim; ++d) Store(codec, head, ElementIndex(d, slot), row[d]);
  }

  void Decode(const std::byte* head, int64_t slot, std::span<float> row) const {
    if (codec.is_packed()) {
      const auto decode = plane == Plane::kKeys ? DecodePackedKeyRow : DecodePackedValueRow;
      decode(codec, head, static_cast<int>(slot), row);
      return;
    }
    for (int64_t d = 0; d < dim; ++d) row[d] = Load(codec, head, ElementIndex(d, slot));
  }

  // Bit by bit: `from` and `to` have this codec.
  void Copy(const std::byte* from, int64_t from_slot, std::byte* to, int64_t to_slot) const {
    if (codec.is_packed()) {
      for (int64_t d = 0; d < dim; ++d) {
        StoreCode(to, codec.bits, Place(d, to_slot),
                  LoadCode(from, codec.bits, Place(d, from_slot)));
      }
      const bool affine = codec.kind == KvCodec::Kind::kAffine;
      const int64_t parameters = affine ? 2 * dim / codec.group : 1;
      const size_t size = affine ? codec.ScaleBytes() : sizeof(float);
      for (int64_t i = 0; i < parameters; ++i) {
        const size_t begin = codec.CodeBytes(dim) + i * kBlockTokens * size;
        std::memcpy(to + begin + to_slot * size, from + begin + from_slot * size, size);
      }
      return;
    }
    if (codec.ElementBytes() == sizeof(uint16_t))
      return CopyElements<2>(from, from_slot, to, to_slot);
    CopyElements<4>(from, from_slot, to, to_slot);
  }

  template <size_t kSize>
  void CopyElements(const std::byte* from, int64_t from_slot, std::byte* to,
                    int64_t to_slot) const {
    for (int64_t d = 0; d < dim; ++d) {
      std::memcpy(to + ElementIndex(d, to_slot) * kSize, from + ElementIndex(d, from_slot) * kSize,
                  kSize);
    }
  }
};

Head KeysOf(const KvBlockLayout& layout) {
  return {Plane::kKeys, layout.key_codec, layout.key_dim};
}
Head ValuesOf(const KvBlockLayout& layout) {
  return {Plane::kValues, layout.value_codec, layout.value_dim};
}

void CopyHead(const Head& from_head, const std::byte* from, int64_t from_slot, const Head& to_head,
              std::byte* to, int64_t to_slot) {
  if (from_head.codec == to_head.codec) return to_head.Copy(from, from_slot, to, to_slot);
  std::vector<float> row(static_cast<size_t>(from_head.dim));
  from_head.Decode(from, from_slot, row);
  to_head.Encode(to, to_slot, row);
}

std::byte* NormOf(const KvBlockLayout& layout, std::byte* block, int64_t slot) {
  return block + layout.NormsOffset() + static_cast<size_t>(slot) * sizeof(float);
}

}  // namespace

void EncodeRow(const KvBlockLayout& layout, std::byte* block, int64_t slot,
               std::span<const float> key, std::span<const float> value) {
  const auto key_dim = static_cast<size_t>(layout.key_dim);
  const auto value_dim = static_cast<size_t>(layout.value_dim);
  KVASIR_CHECK(key.size() == layout.kv_heads * key_dim);
  KVASIR_CHECK(value.size() == layout.kv_heads * value_dim);
  float norm = 0;
  for (size_t head = 0; head < static_cast<size_t>(layout.kv_heads); ++head) {
    const auto head_key = key.subspan(head * key_dim, key_dim);
    if (layout.StoresKeys()) {
      KeysOf(layout).Encode(block + head * layout.KeyHeadBytes(), slot, head_key);
    }
    if (layout.key_norms) norm += RowNorm(head_key);
    ValuesOf(layout).Encode(block + layout.KeyPlaneBytes() + head * layout.ValueHeadBytes(), slot,
                            value.subspan(head * value_dim, value_dim));
  }
  if (layout.key_norms) std::memcpy(NormOf(layout, block, slot), &norm, sizeof(norm));
}

void DecodeKey(const KvBlockLayout& layout, const std::byte* block, int64_t slot,
               std::span<float> key) {
  const auto dim = static_cast<size_t>(layout.key_dim);
  KVASIR_CHECK(layout.StoresKeys() && key.size() == layout.kv_heads * dim);
  for (size_t head = 0; head < static_cast<size_t>(layout.kv_heads); ++head) {
    KeysOf(layout).Decode(block + head * layout.KeyHeadBytes(), slot, key.subspan(head * dim, dim));
  }
}

void DecodeValue(const KvBlockLayout& layout, const std::byte* block, int64_t slot,
                 std::span<float> value) {
  const auto dim = static_cast<size_t>(layout.value_dim);
  KVASIR_CHECK(value.size() == layout.kv_heads * dim);
  const std::byte* plane = block + layout.KeyPlaneBytes();
  for (size_t head = 0; head < static_cast<size_t>(layout.kv_heads); ++head) {
    ValuesOf(layout).Decode(plane + head * layout.ValueHeadBytes(), slot,
                            value.subspan(head * dim, dim));
  }
}

void CopyRow(const KvBlockLayout& from_layout, const std::byte* from, int64_t from_slot,
             const KvBlockLayout& to_layout, std::byte* to, int64_t to_slot) {
  for (size_t head = 0; head < static_cast<size_t>(to_layout.kv_heads); ++head) {
    if (to_layout.StoresKeys() && from_layout.StoresKeys()) {
      CopyHead(KeysOf(from_layout), from + head * from_layout.KeyHeadBytes(), from_slot,
               KeysOf(to_layout), to + head * to_layout.KeyHeadBytes(), to_slot);
    }
    CopyHead(ValuesOf(from_layout),
             from + from_layout.KeyPlaneBytes() + head * from_layout.ValueHeadBytes(), from_slot,
             ValuesOf(to_layout),
             to + to_layout.KeyPlaneBytes() + head * to_layout.ValueHeadBytes(), to_slot);
  }
  if (!to_layout.key_norms) return;
  std::memcpy(NormOf(to_layout, to, to_slot),
              from + from_layout.NormsOffset() + static_cast<size_t>(from_slot) * sizeof(float),
              sizeof(float));
}

}  // namespace kvasir
