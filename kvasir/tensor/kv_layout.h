// How one block of a KV cache lies in memory: 64 consecutive rows of one layer.
// Deliberately only arithmetic on sizes; who owns a block and what it means is kvasir/kv.
//
//   block  = key plane, then value plane
//   key plane   [kv_heads][key_dim][64 tokens]     token-minor: scores run over tokens
//   value plane [kv_heads][64 tokens][value_dim]   token-major: sums run over value_dim
#ifndef KVASIR_TENSOR_KV_LAYOUT_H_
#define KVASIR_TENSOR_KV_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kvasir/base/result.h"

namespace kvasir {

// One attention tile: 64 scores are four AVX-512 vectors, and 64 rows of 128 halves (16 KiB) fit
// the first-level cache twice over.
inline constexpr int kBlockTokens = 64;

// How a row (one head of one token) is stored. A value: codecs with parameters add fields.
struct KvCodec {
  enum class Kind { kF32, kF16, kBf16 };
  Kind kind = Kind::kF16;

  // Bytes of `dim` elements of one token and head. Every codec stores whole bytes per row.
  size_t RowBytes(int64_t dim) const { return static_cast<size_t>(dim) * ElementBytes(); }
  size_t ElementBytes() const { return kind == Kind::kF32 ? 4 : 2; }
  // "f32", "f16" or "bf16"
  std::string_view name() const;
  // ERRORS: kInvalidArgument, listing the names that exist.
  static Result<KvCodec> FromName(std::string_view name);

  friend bool operator==(const KvCodec&, const KvCodec&) = default;
};

// Shape and storage of one layer's cache.
struct KvLayout {
  int kv_heads = 0;
  int key_dim = 0;    // head_dim of keys (and queries)
  int value_dim = 0;  // head_dim of values
  KvCodec key_codec;
  KvCodec value_codec;

  size_t KeyHeadBytes() const { return key_codec.RowBytes(key_dim) * kBlockTokens; }
  size_t ValueHeadBytes() const { return value_codec.RowBytes(value_dim) * kBlockTokens; }
  size_t KeyPlaneBytes() const { return KeyHeadBytes() * static_cast<size_t>(kv_heads); }
  size_t ValuePlaneBytes() const { return ValueHeadBytes() * static_cast<size_t>(kv_heads); }
  size_t BlockBytes() const { return KeyPlaneBytes() + ValuePlaneBytes(); }
  // Bytes one token adds to this layer.
  size_t TokenBytes() const { return BlockBytes() / kBlockTokens; }

  friend bool operator==(const KvLayout&, const KvLayout&) = default;
};

// What a query may attend to, in row numbers: [0, head_end) and [begin, end).
// REQUIRES: 0 <= head_end <= begin <= end. Without kept head rows head_end is 0.
struct VisibleRows {
  int64_t head_end = 0;
  int64_t begin = 0;
  int64_t end = 0;

  int64_t count() const { return head_end + end - begin; }
  friend bool operator==(const VisibleRows&, const VisibleRows&) = default;
};

}  // namespace kvasir

#endif  // KVASIR_TENSOR_KV_LAYOUT_H_
