// The attention kernels that a codec and a kind of attention call for, and how they fetch.
// Deliberately only the choice: the tiles are those of kernels.h.
#ifndef KVASIR_BACKEND_TILE_KERNELS_H_
#define KVASIR_BACKEND_TILE_KERNELS_H_

#include "kvasir/backend/attention_math.h"
#include "kvasir/kernels/integer_steps.h"
#include "kvasir/kernels/kernels.h"

namespace kvasir {

struct TileKernels {
  const KernelTable& table;
  AttentionMath math;
  KvLevels fetch_into;

  // The same with one byte wherever integers are.
  TileKernels WithOneByte() const { return {table, AttentionMath::kInt8, fetch_into}; }
  // Both planes of a block go into the same cache, the one that is for its values.
  CacheLevel FetchInto(const KvBlockLayout& layout) const {
    return layout.value_codec.is_dense() ? fetch_into.dense : fetch_into.packed;
  }
  // Whether two bytes are for the rows for which a block is decisive, and one for all others.
  bool IsAdaptive(const KvBlockLayout& layout) const {
    if (math != AttentionMath::kAuto || IntegerValues(layout) == nullptr) return false;
    const TileKernels one_byte = WithOneByte();
    return one_byte.IntegerKeys(layout) != IntegerKeys(layout) ||
           one_byte.IntegerValues(layout) != IntegerValues(layout);
  }
  // Of rows of so many dims. Null: float.
  const IntegerKvKernels* Integer(const KvCodec& codec, int64_t dim) const {
    if (math == AttentionMath::kFloat) return nullptr;
    if (codec.kind == KvCodec::Kind::kF16) {
      return dim % kHalfDims == 0 ? table.IntegerForCodec(codec, MultiplierWidth::kTwoBytes)
                                  : nullptr;
    }
    if (!codec.is_packed()) return nullptr;
    const bool one_byte =
        math == AttentionMath::kInt8 || (math == AttentionMath::kAuto && codec.bits == 4);
    return table.IntegerForCodec(codec,
                                 one_byte ? MultiplierWidth::kOneByte : MultiplierWidth::kTwoBytes);
  }
  // Whether rows of so many dims are multiplied in pairs.
  bool HasPairs(const KvCodec& codec, int64_t dim) const {
    return math != AttentionMath::kFloat && codec.kind == KvCodec::Kind::kBf16 && dim % 2 == 0;
  }
  void Score(const ScoreTileArgs& args) const {
    if (HasPairs(args.codec, args.key_dim)) return table.pair_kv.score_tile(args);
    const IntegerKvKernels* const integer = Integer(args.codec, args.key_dim);
    (integer != nullptr ? integer->score_tile : table.ForCodec(args.codec).score_tile)(args);
  }
  const IntegerKvKernels* IntegerKeys(const KvBlockLayout& layout) const {
    return Integer(layout.key_codec, layout.key_dim);
  }
  const IntegerKvKernels* IntegerValues(const KvBlockLayout& layout) const {
    return Integer(layout.value_codec, layout.value_dim);
  }
  // Whether scores are exponents of 2: keys and values are multiplied as integers.
  bool InBase2(const KvBlockLayout& layout) const {
    return IntegerKeys(layout) != nullptr && IntegerValues(layout) != nullptr;
  }
  void Accumulate(const AccumulateTileArgs& args) const {
    if (HasPairs(args.codec, args.value_dim)) return table.pair_kv.accumulate_tile(args);
    const IntegerKvKernels* const integer = Integer(args.codec, args.value_dim);
    (integer != nullptr ? integer->accumulate_tile
                        : table.ForCodec(args.codec).accumulate_tile)(args);
  }
};

}  // namespace kvasir

#endif  // KVASIR_BACKEND_TILE_KERNELS_H_
