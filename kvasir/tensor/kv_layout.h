// How the cache of one layer lies in memory: in blocks of 64 consecutive rows.
// Deliberately only arithmetic on sizes; who owns a block and what it means is kvasir/kv.
//
//   block   = key plane, value plane, then what else rows carry
//   planes    [kv_heads] heads, each as its codec lays out 64 rows (kv_codec.h)
//   norms     f32 [64]: per row the sum over kv_heads of the key's L2 norm      (if key_norms)
//   queries   f32 [64][query_floats]: the queries of the tokens of these rows   (if any)
#ifndef KVASIR_TENSOR_KV_LAYOUT_H_
#define KVASIR_TENSOR_KV_LAYOUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kvasir/tensor/kv_codec.h"

namespace kvasir {

// What the rows of one block share.
struct KvBlockLayout {
  int kv_heads = 0;
  int key_dim = 0;    // head_dim of keys (and queries)
  int value_dim = 0;  // head_dim of values
  KvCodec key_codec;
  KvCodec value_codec;
  bool key_norms = false;
  int query_floats = 0;

  // False: keys are from-value.
  bool StoresKeys() const { return key_codec.kind != KvCodec::Kind::kFromValue; }
  size_t KeyHeadBytes() const { return key_codec.HeadBytes(key_dim); }
  size_t ValueHeadBytes() const { return value_codec.HeadBytes(value_dim); }
  size_t KeyPlaneBytes() const { return KeyHeadBytes() * static_cast<size_t>(kv_heads); }
  size_t ValuePlaneBytes() const { return ValueHeadBytes() * static_cast<size_t>(kv_heads); }
  // Where the norms and the queries begin.
  size_t NormsOffset() const { return KeyPlaneBytes() + ValuePlaneBytes(); }
  size_t QueriesOffset() const {
    return NormsOffset() + (key_norms ? sizeof(float) * kBlockTokens : 0);
  }
  size_t BlockBytes() const {
    return QueriesOffset() + sizeof(float) * kBlockTokens * static_cast<size_t>(query_floats);
  }

  friend bool operator==(const KvBlockLayout&, const KvBlockLayout&) = default;
};

// Shape and storage of one layer's cache. The layout of a block is a function of its index alone,
// so it is the same whoever wrote the block, alone or in a batch.
struct KvLayout {
  int kv_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  // How rows from dense_start on are stored.
  KvCodec key_codec;
  KvCodec value_codec;

  // Rows below dense_start are stored in dense_codec. A multiple of 64. (MLX's quantized_kv_start;
  // MLX converts those rows too once the sequence reaches the start, here they stay.)
  int64_t dense_start = 0;
  // The last rows are stored in dense_codec as well, and queries read them from there: those from
  // RecentBegin on. A multiple of 64; 0: off.
  int64_t dense_recent = 0;
  KvCodec dense_codec;

  // Per-row extras, for retentions that rank rows (kv/row_scores.h).
  bool key_norms = false;
  // Queries of one token, in floats, that the block observed_block carries; no other block does.
  int query_floats = 0;
  int64_t observed_block = -1;

  // REQUIRES: block >= 0.
  KvBlockLayout BlockAt(int64_t block) const;
  size_t BlockBytes(int64_t block) const { return BlockAt(block).BlockBytes(); }
  // Layout of the blocks that hold the recent rows once more.
  KvBlockLayout RecentBlock() const;
  // First row that the query of row `row` reads from the recent copies: at least dense_recent
  // rows, its own included, from a block border on. REQUIRES: dense_recent > 0, row >= 0.
  int64_t RecentBegin(int64_t row) const {
    return std::max<int64_t>(0, (row + 1 - dense_recent) / kBlockTokens * kBlockTokens);
  }
  // Bytes one token adds to this layer in the long run: those of the packed rows.
  size_t TokenBytes() const;
  // OK if every codec can store its rows and the positions are whole blocks.
  // ERRORS: kInvalidArgument, naming the field.
  Status Validate() const;

  friend bool operator==(const KvLayout&, const KvLayout&) = default;
};

// What a query may attend to, in row numbers: [0, head_end) and [begin, end).
// REQUIRES: 0 <= head_end <= begin <= end; end is the query's own row + 1. Without kept head rows
// head_end is 0.
struct VisibleRows {
  int64_t head_end = 0;
  int64_t begin = 0;
  int64_t end = 0;

  int64_t count() const { return head_end + end - begin; }
  friend bool operator==(const VisibleRows&, const VisibleRows&) = default;
};

}  // namespace kvasir

#endif  // KVASIR_TENSOR_KV_LAYOUT_H_
