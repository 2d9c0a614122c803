// Scores of keys of f16 in integers: both are rounded to 14 bits, a query in steps of its own, a
// key in a power of two of its token. Deliberately only what kernels.h states for IntegerKvKernels;
// half_sums.cc has the values.
#include "kvasir/kernels/highway_targets.h"
#include "kvasir/kernels/table_parts.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/half_scores.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if KVASIR_KERNEL_TARGET
#include "kvasir/kernels/half_words-inl.h"

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

void QuantizeQueries(const IntegerQueryArgs& args) noexcept {
  const DF d;
  const hn::Rebind<uint16_t, DU> halves;
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* const x = args.queries + r * args.query_stride;
    VU largest[1] = {hn::Zero(DU())};
    for (int64_t i = 0; i < args.dim; i += kLanes) {
      largest[0] = hn::Max(largest[0], MagnitudeBits(hn::LoadU(d, x + i)));
    }
    const IntegerSteps steps = IntegerStepsOf(LargestBits(largest), kHalfLevels);
    auto* const codes =
        reinterpret_cast<uint16_t*>(args.out.codes + r * IntegerQueries::CodeBytes(args.dim));
    for (int64_t i = 0; i < args.dim; i += kLanes) {
      const VF q = hn::LoadU(d, x + i);
      const VI code =
          steps.inverse == 0 ? hn::Zero(DI()) : RoundToInt(hn::Mul(q, hn::Set(d, steps.inverse)));
      hn::StoreU(hn::TruncateTo(halves, hn::BitCast(DU(), code)), halves, codes + i);
    }
    args.out.scales[r] = steps.scale * args.unit;
  }
}

// Keys of kCount vectors of tokens as they lie: two dims of each are made a word.
template <size_t kCount>
struct KeyWords {
  const uint16_t* keys;  // of the first token
  PlanePrefetch* next;
  VF rounders[kCount];

  HWY_INLINE KeyWords(const uint16_t* keys, const float* first_rounder, PlanePrefetch* next)
      : keys(keys), next(next) {
    for (size_t v = 0; v < kCount; ++v) {
      rounders[v] = hn::Load(DF(), first_rounder + v * kLanes);
    }
  }
  HWY_INLINE void Step() const { next->Step(); }
  HWY_INLINE VI Get(size_t vector, int64_t step) const {
    const uint16_t* const even = keys + 2 * step * kBlockTokens + vector * kLanes;
    return MakeWords(hn::Add(F16Codec::Decode(even), rounders[vector]),
                     hn::Add(F16Codec::Decode(even + kBlockTokens), rounders[vector]));
  }
};

// Scores of some rows, which are sums until their last.
struct Scores {
  float* scores;              // of the first row and token
  const float* token_scales;  // of the first token
  const float* query_scales;  // of the first row
  bool begins;                // nothing is in `scores`
  bool ends;

  HWY_INLINE VF Begin(size_t row, size_t vector, VF first) const {
    return begins ? first : hn::Add(hn::LoadU(DF(), Of(row, vector)), first);
  }
  HWY_INLINE void Put(size_t row, size_t vector, VF total) const {
    const DF d;
    if (ends) {
      total = hn::Mul(hn::Mul(total, hn::Load(d, token_scales + vector * kLanes)),
                      hn::Set(d, query_scales[row]));
    }
    hn::StoreU(total, d, Of(row, vector));
  }

 private:
  HWY_INLINE float* Of(size_t row, size_t vector) const {
    return scores + row * kBlockTokens + vector * kLanes;
  }
};

// The dims [begin, end) of a block's keys.
struct KeyDims {
  const uint16_t* keys;
  const TokenSteps* tokens;
  int64_t dim;  // of all
  int64_t begin;
  int64_t end;

  HWY_INLINE int64_t steps() const { return (end - begin) / 2; }
  HWY_INLINE WordMultipliers Queries(const ScoreTileArgs& args, int64_t row) const {
    const int64_t stride = IntegerQueries::CodeBytes(dim);
    return {args.integers.codes + row * stride + 2 * begin, stride};
  }
  HWY_INLINE Scores Out(const ScoreTileArgs& args, int64_t row, size_t token) const {
    return {args.scores + row * kBlockTokens + token, tokens->scales + token,
            args.integers.scales + row, begin == 0, end == dim};
  }
};

template <size_t kRows, size_t kCount>
HWY_NOINLINE void ScoreFewRows(const ScoreTileArgs& args, const KeyDims& dims,
                               PlanePrefetch* next) {
  const auto tokens = static_cast<size_t>(args.tokens);
  for (size_t token = 0; token < tokens; token += kCount * kLanes) {
    const KeyWords<kCount> words(dims.keys + token, dims.tokens->rounders + token, next);
    MultiplyWords<kRows, kCount>(dims.Queries(args, 0), words, dims.steps(),
                                 dims.Out(args, 0, token));
  }
}

template <size_t kRows>
HWY_NOINLINE void ScoreRows(const ScoreTileArgs& args, const KeyDims& dims, int64_t row,
                            const uint32_t* packed) {
  constexpr size_t kCount = kWordVectors;
  const auto tokens = static_cast<size_t>(args.tokens);
  for (size_t token = 0; token < tokens; token += kCount * kLanes) {
    MultiplyWords<kRows, kCount>(dims.Queries(args, row), PackedWords{packed + token, kBlockTokens},
                                 dims.steps(), dims.Out(args, row, token));
  }
}

template <size_t kRows = kFewWordRows>
HWY_INLINE void ScoreFew(const ScoreTileArgs& args, const KeyDims& dims, PlanePrefetch* next) {
  if (args.rows == kRows) {
    constexpr size_t kCount = FewVectors(kRows);
    constexpr size_t kHalfCount = HWY_MIN(kCount, kHalfBlock / kLanes);
    return args.tokens > kHalfBlock ? ScoreFewRows<kRows, kCount>(args, dims, next)
                                    : ScoreFewRows<kRows, kHalfCount>(args, dims, next);
  }
  if constexpr (kRows > 1) ScoreFew<kRows - 1>(args, dims, next);
}

template <size_t kRows = kWordRows>
HWY_INLINE void ScoreTile(const ScoreTileArgs& args, const KeyDims& dims, int64_t row,
                          int64_t count, const uint32_t* packed) {
  if (count == kRows) return ScoreRows<kRows>(args, dims, row, packed);
  if constexpr (kRows > 1) ScoreTile<kRows - 1>(args, dims, row, count, packed);
}

template <size_t kTokens>
void Pack(const KeyDims& dims, PlanePrefetch& next, uint32_t* packed) {
  constexpr size_t kCount = kTokens / kLanes;
  const KeyWords<kCount> words(dims.keys + dims.begin * kBlockTokens, dims.tokens->rounders, &next);
  for (int64_t step = 0; step < dims.steps(); ++step) {
    words.Step();
    for (size_t v = 0; v < kCount; ++v) {
      hn::Store(hn::BitCast(DU(), words.Get(v, step)), DU(),
                packed + step * kBlockTokens + v * kLanes);
    }
  }
}

// kTokens: of which there are scores.
template <size_t kTokens>
HWY_NOINLINE void ScoreTokens(const ScoreTileArgs& args) {
  const auto* const keys = reinterpret_cast<const uint16_t*>(args.keys);
  const int64_t dim = args.key_dim;
  const bool few = args.rows <= int64_t{kFewWordRows};
  const size_t width = HWY_MIN(kTokens, FewVectors(args.rows) * kLanes);
  const auto passes = static_cast<int64_t>(few ? kTokens / width : 1);
  PlanePrefetch next(args.next, dim / kKeyStepDims + dim / 2 * passes);
  uint16_t largest[kBlockTokens] = {};
  LargestOfKeys<kTokens>(keys, dim, next, largest);
  const TokenSteps tokens(largest);
  if (few) return ScoreFew(args, {keys, &tokens, dim, 0, dim}, &next);
  alignas(64) uint32_t packed[kPackedColumns / 2 * kBlockTokens];
  for (int64_t begin = 0; begin < dim; begin += kPackedColumns) {
    const KeyDims dims = {keys, &tokens, dim, begin, HWY_MIN(dim, begin + kPackedColumns)};
    Pack<kTokens>(dims, next, packed);
    for (int64_t row = 0; row < args.rows;) {
      const int64_t rows = TileRows<kWordRows>(args.rows - row);
      ScoreTile(args, dims, row, rows, packed);
      row += rows;
    }
  }
}

void Score(const ScoreTileArgs& args) noexcept {
  args.tokens > kHalfBlock ? ScoreTokens<kBlockTokens>(args) : ScoreTokens<kHalfBlock>(args);
}

void FillHalfScores(KernelTable* table) {
  IntegerKvKernels& kernels = IntegerHalves(table);
  kernels.quantize_queries = QuantizeQueries;
  kernels.score_tile = Score;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
#include "kvasir/kernels/table_fill.h"
KVASIR_FILL_BY_ISA(FillHalfScores)
#endif
