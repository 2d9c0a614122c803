// Weights and value sums of values of f16 in integers: values are rounded to 14 bits in powers
// of two of their token, weights times these steps to as many in those of their row. Deliberately
// only what kernels.h states for IntegerKvKernels; half_scores.cc has the keys.
#include "kvasir/kernels/filled_rows.h"
#include "kvasir/kernels/highway_targets.h"
#include "kvasir/kernels/table_parts.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/half_sums.cc"
#include <algorithm>
#include <type_traits>

#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if KVASIR_KERNEL_TARGET
#include "kvasir/kernels/half_words-inl.h"
#include "kvasir/kernels/integer_softmax-inl.h"
#include "kvasir/kernels/rescale_rows-inl.h"

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

// How weights of some tokens are rounded: the largest of their scales as a step of weights, and
// each as a share of it.
struct ValueShares {
  alignas(64) int16_t shares[kBlockTokens];
  float step;

  // Seen: AllTokens or TokensBetween.
  template <class Seen>
  HWY_INLINE ValueShares(const TokenSteps& tokens, const Seen& seen) {
    VF scales[kTokenVectors];
#pragma GCC unroll 16
    for (size_t i = 0; i < kTokenVectors; ++i) {
      const size_t token = i * kLanes;
      scales[i] = seen.IfSeen(token, hn::Load(DF(), tokens.scales + token));
    }
    step = RoundToShorts(scales, kHalfWeightRounding.shares, shares) * kHalfWeightRounding.unit;
  }
};

HWY_INLINE void RoundRow(const Shorts& weights, const ValueShares& shares, std::byte* to) {
  Shorts codes;
  for (size_t i = 0; i < kShortVectors; ++i) {
    codes[i] = MulRound(weights[i], LoadShorts(shares.shares, i));
  }
  StoreInOrder(codes, reinterpret_cast<int16_t*>(to));
}

// Rounder of WeighRows and WeighFewRows.
class HalfRounder {
 public:
  class Together;

  HalfRounder(const WeighTileArgs& args, const TokenSteps& tokens)
      : args_(args), tokens_(tokens), all_(tokens, AllTokens()) {}

  HWY_INLINE void RoundOne(int64_t row, const Shorts& weights, bool sees_all, float top) const {
    args_.out.steps[row] = Round(row, weights, sees_all) * top;
  }

 private:
  // Returns the step.
  HWY_INLINE float Round(int64_t row, const Shorts& weights, bool sees_all) const {
    std::byte* const codes = args_.out.codes + row * IntegerWeights::kCodeBytes;
    if (sees_all) {
      RoundRow(weights, all_, codes);
      return all_.step;
    }
    const ValueShares own(tokens_, TokensBetween{args_.begin[row], args_.end[row]});
    RoundRow(weights, own, codes);
    return own.step;
  }

  const WeighTileArgs& args_;
  const TokenSteps& tokens_;
  ValueShares all_;
};

class HalfRounder::Together {
 public:
  HWY_INLINE Together(const HalfRounder& all, const Rows& rows) : all_(all), rows_(rows) {
    for (size_t r = 0; r < rows.padded(); r += kLanes) {
      hn::Store(hn::Set(DF(), all.all_.step), DF(), steps_ + r);
    }
  }

  static bool keeps() { return false; }
  HWY_INLINE void Round(int64_t r, const Shorts& weights, bool sees_all) {
    steps_[r] = all_.Round(rows_.first() + r, weights, sees_all);
  }
  class AllRows {
   public:
    static constexpr int kSteps = 1;
    HWY_INLINE explicit AllRows(Together& together)
        : shares_(together.all_.all_),
          codes_(together.all_.args_.out.codes +
                 together.rows_.first() * IntegerWeights::kCodeBytes) {}
    template <int>
    HWY_INLINE void Step(int64_t r, const Shorts& weights) {
      RoundRow(weights, shares_, codes_ + r * IntegerWeights::kCodeBytes);
    }

   private:
    const ValueShares& shares_;
    std::byte* const codes_;
  };
  HWY_INLINE void Finish(const Rows::Numbers& tops) {
    const DF d;
    for (size_t i = 0; i < rows_.padded(); i += kLanes) {
      rows_.Store(hn::Mul(hn::Load(d, steps_ + i), hn::Load(d, tops + i)), i, all_.args_.out.steps);
    }
  }

 private:
  const HalfRounder& all_;
  const Rows& rows_;
  alignas(64) Rows::Numbers steps_;
};

// Behind the last token that one of the rows sees: what lies there is not read.
template <class Args>
int64_t SeenEnd(const Args& args) {
  return *std::max_element(args.end, args.end + args.rows);
}

void Weigh(const WeighTileArgs& args) noexcept {
  const bool few = args.rows <= kFewRows;
  const int64_t seen_end = SeenEnd(args);
  PlanePrefetch fetch(args.next, ValueSteps(seen_end) + WeighSteps(args.rows));
  uint16_t largest[kBlockTokens] = {};
  const auto* const values = reinterpret_cast<const uint16_t*>(args.values);
  if (seen_end == kBlockTokens) {  // the usual case, unrolled
    LargestOfValues(values, args.value_dim, kBlockTokens, fetch, largest);
  } else {
    LargestOfValues(values, args.value_dim, seen_end, fetch, largest);
  }
  const TokenSteps tokens(largest);
  for (size_t t = 0; t < kBlockTokens; t += kLanes) {
    hn::StoreU(hn::Load(DF(), tokens.rounders + t), DF(), args.out.rounders + t);
  }
  const HalfRounder rounder(args, tokens);
  if (few) WeighFewRows(args, fetch, rounder);
  for (int64_t row = 0; !few && row < args.rows;) {
    const Rows rows(args, row);
    WeighRows(args, rows, fetch, rounder);
    row = rows.end();
  }
}

// Values as they lie: two tokens of each dim are made a word.
struct ValueWords {
  const uint16_t* values;  // of the first dim
  int64_t stride;          // from a token to the next
  const float* rounders;
  PlanePrefetch* next;

  HWY_INLINE void Step() const { next->Step(); }
  HWY_INLINE VI Get(size_t vector, int64_t step) const {
    const DF d;
    const uint16_t* const even = values + 2 * step * stride + vector * kLanes;
    return MakeWords(hn::Add(F16Codec::Decode(even), hn::Set(d, rounders[2 * step])),
                     hn::Add(F16Codec::Decode(even + stride), hn::Set(d, rounders[2 * step + 1])));
  }
};

// Steps through all of a block, two tokens each.
using BlockSteps = std::integral_constant<int64_t, kBlockTokens / 2>;

// Value sums of some rows, added to their accumulators.
struct Sums {
  float* accumulator;  // of the first dim
  int64_t stride;      // from a row's accumulator to the next
  const float* steps;  // of the first row

  HWY_INLINE VF Begin(size_t, size_t, VF first) const { return first; }
  HWY_INLINE void Put(size_t row, size_t vector, VF total) const {
    const DF d;
    float* const out = accumulator + static_cast<int64_t>(row) * stride + vector * kLanes;
    hn::StoreU(hn::MulAdd(total, hn::Set(d, steps[row]), hn::LoadU(d, out)), d, out);
  }
};

// Some rows, and up to kPackedColumns of their dims from `first` on.
struct RowDims {
  const AccumulateTileArgs& args;
  int64_t row;
  int64_t first;
  int64_t count;

  HWY_INLINE WordMultipliers Weights() const {
    return {args.integers.codes + row * IntegerWeights::kCodeBytes, IntegerWeights::kCodeBytes};
  }
  HWY_INLINE Sums Out(int64_t dim) const {
    return {args.accumulator + row * args.accumulator_stride + first + dim, args.accumulator_stride,
            args.integers.steps + row};
  }
};

// The words of the dims from `dim` on, of those that `words` has.
HWY_INLINE ValueWords From(const ValueWords& words, int64_t dim) {
  return {words.values + dim, words.stride, words.rounders, words.next};
}
HWY_INLINE PackedWords From(const PackedWords& words, int64_t dim) {
  return {words.words + dim, words.stride};
}

// Steps: of two tokens each, a number or a constant.
template <size_t kRows, size_t kCount, class Words, class Steps>
HWY_INLINE void SumDims(const RowDims& dims, const Words& words, Steps steps, int64_t dim) {
  constexpr auto kWidth = static_cast<int64_t>(kCount * kLanes);
  for (; dim + kWidth <= dims.count; dim += kWidth) {
    MultiplyWords<kRows, kCount>(dims.Weights(), From(words, dim), steps, dims.Out(dim));
  }
  if constexpr (kWidth > kHalfDims) SumDims<kRows, kCount / 2>(dims, words, steps, dim);
}

template <size_t kRows, size_t kCount, class Words, class Steps>
HWY_NOINLINE void SumRows(const RowDims& dims, const Words& words, Steps steps) {
  SumDims<kRows, kCount>(dims, words, steps, 0);
}

template <size_t kRows = kFewWordRows>
HWY_INLINE void SumFew(const RowDims& dims, int64_t count, const ValueWords& words, int64_t steps) {
  if (count == kRows) return SumRows<kRows, FewVectors(kRows)>(dims, words, steps);
  if constexpr (kRows > 1) SumFew<kRows - 1>(dims, count, words, steps);
}
template <size_t kRows = kWordRows>
HWY_INLINE void SumTile(const RowDims& dims, int64_t count, const PackedWords& words) {
  if (count == kRows) return SumRows<kRows, kWordVectors>(dims, words, BlockSteps());
  if constexpr (kRows > 1) SumTile<kRows - 1>(dims, count, words);
}

// Of so many steps; the others are 0.
void Pack(const ValueWords& words, int64_t steps, int64_t dims, uint32_t* packed) {
  for (int64_t step = 0; step < steps; ++step) {
    words.Step();
    for (int64_t dim = 0; dim < dims; dim += kLanes) {
      hn::Store(hn::BitCast(DU(), From(words, dim).Get(0, step)), DU(),
                packed + step * kPackedColumns + dim);
    }
  }
  std::fill(packed + steps * kPackedColumns, packed + BlockSteps() * kPackedColumns, 0u);
}

void Accumulate(const AccumulateTileArgs& args) noexcept {
  const int64_t dim = args.value_dim;
  const bool few = args.rows <= int64_t{kFewWordRows};
  const auto width = static_cast<int64_t>(kLanes * FewVectors(args.rows));
  const int64_t passes =
      few ? (dim + width - 1) / width : (dim + kPackedColumns - 1) / kPackedColumns;
  const int64_t steps = HWY_MAX(1, (SeenEnd(args) + 1) / 2);
  PlanePrefetch next(args.next, steps * passes);
  RescaleRows(args);
  alignas(64) uint32_t packed[BlockSteps() * kPackedColumns];
  for (int64_t first = 0; first < dim; first += kPackedColumns) {
    const int64_t dims = HWY_MIN(kPackedColumns, dim - first);
    const ValueWords words = {reinterpret_cast<const uint16_t*>(args.values) + first, dim,
                              args.integers.rounders, &next};
    if (!few) Pack(words, steps, dims, packed);
    FilledRows filled(args);
    while (const int64_t left = filled.Left()) {
      const RowDims rows = {args, filled.row(), first, dims};
      const int64_t count = few ? left : TileRows<kWordRows>(left);
      if (few) {
        SumFew(rows, count, words, steps);
      } else {
        SumTile(rows, count, PackedWords{packed, kPackedColumns});
      }
      filled.Skip(count);
    }
  }
}

void FillHalfSums(KernelTable* table) {
  IntegerKvKernels& kernels = IntegerHalves(table);
  kernels.weigh_tile = Weigh;
  kernels.accumulate_tile = Accumulate;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
#include "kvasir/kernels/table_fill.h"
KVASIR_FILL_BY_ISA(FillHalfSums)
#endif
