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
    if (!codec.is_packed() || (IsWidened(codec) && dim % kWidenedDims != 0)) return nullptr;
    // The error of 4 bits hides what one byte rounds, and so does that of turbo, whose rows have no
    // loud dims; 2 and 3 bits of affine rows, whose error is larger, lose look-ups by it
    // (docs/benchmarks.md).
    const bool hides_one_byte = codec.kind == KvCodec::Kind::kTurbo || codec.bits == 4;
    const bool one_byte =
        math == AttentionMath::kInt8 || (math == AttentionMath::kAuto && hides_one_byte);
    return table.IntegerForCodec(IsWidened(codec) ? WidenedCodec(codec, dim) : codec,
                                 one_byte ? MultiplierWidth::kOneByte : MultiplierWidth::kTwoBytes);
  }
  // Whether rows of so many dims are multiplied as what they are widened to.
  bool Widens(const KvCodec& codec, int64_t dim) const {
    return IsWidened(codec) && Integer(codec, dim) != nullptr;
  }
  // What rows of so many dims are multiplied as.
  KvCodec Multiplied(const KvCodec& codec, int64_t dim) const {
    return Widens(codec, dim) ? WidenedCodec(codec, dim) : codec;
  }
  // Whether rows of so many dims are multiplied in pairs.
  bool HasPairs(const KvCodec& codec, int64_t dim) const {
    return math != AttentionMath::kFloat && codec.kind == KvCodec::Kind::kBf16 && dim % 2 == 0;
  }
  // The codec of a block's keys. Those that are made of values are made in f16, or in f32 where
  // nothing is rounded besides.
  KvCodec KeyCodec(const KvBlockLayout& layout) const {
    if (layout.StoresKeys()) return layout.key_codec;
    constexpr KvCodec kHalves = {KvCodec::Kind::kF16};
    const bool is_rounded = layout.value_codec.kind != KvCodec::Kind::kF32 &&
                            Integer(kHalves, layout.key_dim) != nullptr;
    return is_rounded ? kHalves : KvCodec{KvCodec::Kind::kF32};
  }
  const IntegerKvKernels* IntegerKeys(const KvBlockLayout& layout) const {
    return Integer(KeyCodec(layout), layout.key_dim);
  }
  const IntegerKvKernels* IntegerValues(const KvBlockLayout& layout) const {
    return Integer(layout.value_codec, layout.value_dim);
  }
  // Whether scores are exponents of 2: keys and values are multiplied as integers.
  bool InBase2(const KvBlockLayout& layout) const {
    return IntegerKeys(layout) != nullptr && IntegerValues(layout) != nullptr;
  }
  // Of keys and values of such blocks.
  void Score(const KvBlockLayout& layout, const ScoreTileArgs& args) const {
    if (HasPairs(layout.key_codec, layout.key_dim)) return table.pair_kv.score_tile(args);
    const IntegerKvKernels* const integer = IntegerKeys(layout);
    (integer != nullptr ? integer->score_tile : table.ForCodec(args.codec).score_tile)(args);
  }
  void Accumulate(const KvBlockLayout& layout, const AccumulateTileArgs& args) const {
    if (HasPairs(layout.value_codec, layout.value_dim)) return table.pair_kv.accumulate_tile(args);
    const IntegerKvKernels* const integer = IntegerValues(layout);
    (integer != nullptr ? integer->accumulate_tile
                        : table.ForCodec(args.codec).accumulate_tile)(args);
  }
};

}  // namespace kvasir

#endif  // KVASIR_BACKEND_TILE_KERNELS_H_
