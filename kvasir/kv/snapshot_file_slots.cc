#include "kvasir/kv/snapshot_file_slots.h"

#include <cstring>

#include "kvasir/tensor/packed_codes.h"

namespace kvasir {
namespace {

// Rows [first_slot, 64) of every line of a plane [lines][64] of elements.
void ClearMinor(std::byte* plane, size_t lines, size_t element_bytes, int first_slot) {
  const size_t line_bytes = element_bytes * kBlockTokens;
  for (size_t line = 0; line < lines; ++line) {
    std::memset(plane + line * line_bytes + first_slot * element_bytes, 0,
                (kBlockTokens - first_slot) * element_bytes);
  }
}

// Rows [first_slot, 64) of a plane [64] of lines.
void ClearMajor(std::byte* plane, size_t line_bytes, int first_slot) {
  std::memset(plane + first_slot * line_bytes, 0, (kBlockTokens - first_slot) * line_bytes);
}

// Parameters follow the codes, one line of 64 per kind and group.
void ClearParameters(const KvCodec& codec, std::byte* plane, int dim, int first_slot) {
  std::byte* parameters = plane + codec.CodeBytes(dim);
  if (codec.kind == KvCodec::Kind::kTurbo) {
    ClearMinor(parameters, 1, sizeof(float), first_slot);
  } else {
    ClearMinor(parameters, static_cast<size_t>(dim / codec.group) * 2, codec.ScaleBytes(),
               first_slot);
  }
}

void ClearKeys(const KvCodec& codec, std::byte* plane, int dim, int first_slot) {
  if (codec.is_dense()) ClearMinor(plane, dim, codec.ElementBytes(), first_slot);
  if (!codec.is_packed()) return;
  for (int d = 0; d < dim; ++d) {
    for (int slot = first_slot; slot < kBlockTokens; ++slot) {
      StoreKeyCode(plane, codec.bits, d, slot, 0);
    }
  }
  ClearParameters(codec, plane, dim, first_slot);
}

void ClearValues(const KvCodec& codec, std::byte* plane, int dim, int first_slot) {
  if (codec.is_dense()) ClearMajor(plane, dim * codec.ElementBytes(), first_slot);
  if (!codec.is_packed()) return;
  for (int d = 0; d < dim; ++d) {
    for (int slot = first_slot; slot < kBlockTokens; ++slot) {
      StoreValueCode(plane, codec.bits, d, slot, 0);
    }
  }
  ClearParameters(codec, plane, dim, first_slot);
}

}  // namespace

void ClearSlots(const KvBlockLayout& layout, std::byte* block, int first_slot) {
  for (int head = 0; head < layout.kv_heads; ++head) {
    ClearKeys(layout.key_codec, block + head * layout.KeyHeadBytes(), layout.key_dim, first_slot);
    ClearValues(layout.value_codec, block + layout.KeyPlaneBytes() + head * layout.ValueHeadBytes(),
                layout.value_dim, first_slot);
  }
  if (layout.key_norms) ClearMinor(block + layout.NormsOffset(), 1, sizeof(float), first_slot);
  ClearMajor(block + layout.QueriesOffset(), layout.query_floats * sizeof(float), first_slot);
}

}  // namespace kvasir
