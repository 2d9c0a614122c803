#include "kvasir/kv/row_codec.h"

#include <cstring>

#include "kvasir/base/check.h"
#include "kvasir/tensor/dtype.h"

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

// Elements from the start of a plane: [kv_heads][key_dim][64] and [kv_heads][64][value_dim].
int64_t KeyIndex(const KvBlockLayout& layout, int64_t head, int64_t dim, int64_t slot) {
  return (head * layout.key_dim + dim) * kBlockTokens + slot;
}
int64_t ValueIndex(const KvBlockLayout& layout, int64_t head, int64_t dim, int64_t slot) {
  return (head * kBlockTokens + slot) * layout.value_dim + dim;
}

}  // namespace

void EncodeRow(const KvBlockLayout& layout, std::byte* block, int64_t slot, std::span<const float> key,
               std::span<const float> value) {
  KVASIR_CHECK(key.size() == static_cast<size_t>(layout.kv_heads) * layout.key_dim);
  KVASIR_CHECK(value.size() == static_cast<size_t>(layout.kv_heads) * layout.value_dim);
  const float* k = key.data();
  const float* v = value.data();
  std::byte* value_plane = block + layout.KeyPlaneBytes();
  for (int head = 0; head < layout.kv_heads; ++head) {
    for (int d = 0; d < layout.key_dim; ++d) {
      Store(layout.key_codec, block, KeyIndex(layout, head, d, slot), *k++);
    }
    for (int d = 0; d < layout.value_dim; ++d) {
      Store(layout.value_codec, value_plane, ValueIndex(layout, head, d, slot), *v++);
    }
  }
}

void DecodeKey(const KvBlockLayout& layout, const std::byte* block, int64_t slot, std::span<float> key) {
  KVASIR_CHECK(key.size() == static_cast<size_t>(layout.kv_heads) * layout.key_dim);
  float* out = key.data();
  for (int head = 0; head < layout.kv_heads; ++head) {
    for (int d = 0; d < layout.key_dim; ++d) {
      *out++ = Load(layout.key_codec, block, KeyIndex(layout, head, d, slot));
    }
  }
}

void DecodeValue(const KvBlockLayout& layout, const std::byte* block, int64_t slot,
                 std::span<float> value) {
  KVASIR_CHECK(value.size() == static_cast<size_t>(layout.kv_heads) * layout.value_dim);
  const std::byte* value_plane = block + layout.KeyPlaneBytes();
  float* out = value.data();
  for (int head = 0; head < layout.kv_heads; ++head) {
    for (int d = 0; d < layout.value_dim; ++d) {
      *out++ = Load(layout.value_codec, value_plane, ValueIndex(layout, head, d, slot));
    }
  }
}

}  // namespace kvasir
