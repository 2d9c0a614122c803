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

// Both functions: `block` is laid out as kv_layout.h says, 0 <= slot < 64.
// key is [kv_heads, key_dim], value is [kv_heads, value_dim], row-major.

// Rounds to nearest even (dtype.h).
void EncodeRow(const KvBlockLayout& layout, std::byte* block, int64_t slot, std::span<const float> key,
               std::span<const float> value);
void DecodeKey(const KvBlockLayout& layout, const std::byte* block, int64_t slot, std::span<float> key);
void DecodeValue(const KvBlockLayout& layout, const std::byte* block, int64_t slot,
                 std::span<float> value);

}  // namespace kvasir

#endif  // KVASIR_KV_ROW_CODEC_H_
