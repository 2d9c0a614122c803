#include "kvasir/kvio/mlx_rows.h"

#include <cstring>

#include "kvasir/tensor/packed_codes.h"

namespace kvasir {
namespace {

enum class Plane { kKeys, kValues };

// One head's plane of a block: where its elements, codes and parameters are.
struct HeadPlane {
  Plane plane;
  KvCodec codec;
  int dim;

  size_t ElementOffset(int d, int slot) const {
    const auto index = plane == Plane::kKeys ? static_cast<size_t>(d) * kBlockTokens + slot
                                             : static_cast<size_t>(slot) * dim + d;
    return index * codec.ElementBytes();
  }
  // Scales come first, then biases: parameter group_count() + g is the bias of group g.
  size_t ParameterOffset(int index, int slot) const {
    return codec.CodeBytes(dim) +
           (static_cast<size_t>(index) * kBlockTokens + slot) * codec.ScaleBytes();
  }
  int group_count() const { return dim / codec.group; }
  void StoreCode(std::byte* at, int d, int slot, uint32_t code) const {
    if (plane == Plane::kKeys) {
      StoreKeyCode(at, codec.bits, d, slot, code);
    } else {
      StoreValueCode(at, codec.bits, d, slot, code);
    }
  }
  uint32_t LoadCode(const std::byte* at, int d, int slot) const {
    return plane == Plane::kKeys ? LoadKeyCode(at, codec.bits, d, slot)
                                 : LoadValueCode(at, codec.bits, d, slot);
  }
};

HeadPlane KeysOf(const KvBlockLayout& layout) {
  return {Plane::kKeys, layout.key_codec, layout.key_dim};
}
HeadPlane ValuesOf(const KvBlockLayout& layout) {
  return {Plane::kValues, layout.value_codec, layout.value_dim};
}

// Bytes of one row of one head.
const std::byte* RowOf(const TensorView& tensor, int head, int64_t row) {
  const int64_t index = (head * tensor.shape[2] + row) * tensor.shape[3];
  return tensor.data + index * static_cast<int64_t>(DTypeBytes(tensor.dtype));
}

// A parameter as stored in MLX's type; bf16 is widened.
void CopyParameter(const TensorView& tensor, const std::byte* from, std::byte* to) {
  if (tensor.dtype != DType::kBf16) {
    std::memcpy(to, from, DTypeBytes(tensor.dtype));
    return;
  }
  uint16_t half;
  std::memcpy(&half, from, sizeof(half));
  const float value = Bf16ToFloat(half);
  std::memcpy(to, &value, sizeof(value));
}

void RowToHead(const MlxPlane& source, int head, int64_t row, const HeadPlane& plane, std::byte* to,
               int slot) {
  const std::byte* from = RowOf(source.rows, head, row);
  if (plane.codec.is_dense()) {
    const size_t bytes = plane.codec.ElementBytes();
    for (int d = 0; d < plane.dim; ++d) {
      std::memcpy(to + plane.ElementOffset(d, slot), from + d * bytes, bytes);
    }
    return;
  }
  std::vector<uint32_t> words(static_cast<size_t>(source.rows.shape[3]));
  std::memcpy(words.data(), from, words.size() * sizeof(uint32_t));
  std::vector<uint8_t> codes(static_cast<size_t>(plane.dim));
  UnpackRow(words.data(), plane.codec.bits, codes);
  for (int d = 0; d < plane.dim; ++d) plane.StoreCode(to, d, slot, codes[d]);
  const std::byte* scales = RowOf(source.scales, head, row);
  const std::byte* biases = RowOf(source.biases, head, row);
  const size_t bytes = DTypeBytes(source.scales.dtype);
  for (int group = 0; group < plane.group_count(); ++group) {
    CopyParameter(source.scales, scales + group * bytes, to + plane.ParameterOffset(group, slot));
    CopyParameter(source.biases, biases + group * bytes,
                  to + plane.ParameterOffset(plane.group_count() + group, slot));
  }
}

template <typename T>
void Append(std::vector<std::byte>* out, const T* from, size_t bytes) {
  const auto* first = reinterpret_cast<const std::byte*>(from);
  out->insert(out->end(), first, first + bytes);
}

void AppendRow(const HeadPlane& plane, const std::byte* from, int slot, MlxRowBytes* out) {
  if (plane.codec.is_dense()) {
    for (int d = 0; d < plane.dim; ++d) {
      Append(&out->rows, from + plane.ElementOffset(d, slot), plane.codec.ElementBytes());
    }
    return;
  }
  std::vector<uint8_t> codes;
  for (int d = 0; d < plane.dim; ++d) {
    codes.push_back(static_cast<uint8_t>(plane.LoadCode(from, d, slot)));
  }
  std::vector<uint32_t> words(static_cast<size_t>(RowWords(plane.dim, plane.codec.bits)));
  PackRow(codes, plane.codec.bits, words.data());
  Append(&out->rows, words.data(), words.size() * sizeof(uint32_t));
  for (int group = 0; group < plane.group_count(); ++group) {
    Append(&out->scales, from + plane.ParameterOffset(group, slot), plane.codec.ScaleBytes());
    Append(&out->biases, from + plane.ParameterOffset(plane.group_count() + group, slot),
           plane.codec.ScaleBytes());
  }
}

}  // namespace

void MlxRowToBlock(const MlxLayerCache& layer, int64_t row, const KvBlockLayout& layout,
                   std::byte* block, int slot) {
  for (int head = 0; head < layout.kv_heads; ++head) {
    RowToHead(layer.keys, head, row, KeysOf(layout), block + head * layout.KeyHeadBytes(), slot);
    RowToHead(layer.values, head, row, ValuesOf(layout),
              block + layout.KeyPlaneBytes() + head * layout.ValueHeadBytes(), slot);
  }
}

void AppendKeyRow(const KvBlockLayout& layout, const std::byte* block, int head, int slot,
                  MlxRowBytes* out) {
  AppendRow(KeysOf(layout), block + head * layout.KeyHeadBytes(), slot, out);
}

void AppendValueRow(const KvBlockLayout& layout, const std::byte* block, int head, int slot,
                    MlxRowBytes* out) {
  AppendRow(ValuesOf(layout), block + layout.KeyPlaneBytes() + head * layout.ValueHeadBytes(), slot,
            out);
}

}  // namespace kvasir
