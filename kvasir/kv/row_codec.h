// Rows in and out of a block, one number at a time: the reference that fast encoders are compared
// with, and what lets the cache be used without any backend.
// Deliberately scalar and slow; engines encode with the kernels of their backend.
#ifndef KVASIR_KV_ROW_CODEC_H_
#define KVASIR_KV_ROW_CODEC_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvasir/tensor/kv_layout.h"

namespace kvasir {

// All: `block` is laid out as kv_layout.h says, 0 <= slot < 64.
// key is [kv_heads, key_dim], value is [kv_heads, value_dim], row-major.

// Dense codecs round to nearest even (dtype.h); packed_codec.h has the others. The norms plane, if
// there is one, gets the norms of `key` as given (row_norm.h). From-value keys are not stored.
void EncodeRow(const KvBlockLayout& layout, std::byte* block, int64_t slot,
               std::span<const float> key, std::span<const float> value);
// REQUIRES: keys are stored, not from-value.
void DecodeKey(const KvBlockLayout& layout, const std::byte* block, int64_t slot,
               std::span<float> key);
void DecodeValue(const KvBlockLayout& layout, const std::byte* block, int64_t slot,
                 std::span<float> value);
// Copies a row, norms included and observed queries not. Where both sides have the same codec the
// stored bits are copied; otherwise the row is decoded and encoded.
// REQUIRES: equal kv_heads, key_dim and value_dim; both have norms or neither.
void CopyRow(const KvBlockLayout& from_layout, const std::byte* from, int64_t from_slot,
             const KvBlockLayout& to_layout, std::byte* to, int64_t to_slot);

}  // namespace kvasir

#endif  // KVASIR_KV_ROW_CODEC_H_
