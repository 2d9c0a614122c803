// Scores of affine keys of 8 and 4 bits in integers: queries rounded per group, products with the
// codes as exact sums. Deliberately only what kernels.h states for IntegerKvKernels;
// integer_sums.cc has the values.
#include "kvasir/kernels/highway_targets.h"
#include "kvasir/kernels/table_parts.h"
#include "kvasir/tensor/packed_codes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/integer_scores.cc"
#include <algorithm>
#include <cstdlib>
#include <utility>

#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if KVASIR_KERNEL_TARGET
#include "kvasir/kernels/integer_dot-inl.h"
#include "kvasir/kernels/plane_prefetch-inl.h"

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

constexpr int64_t kUnitDims = 8;
// Groups whose scales are widened together, for all rows; where codes are laid out for them, only
// as many as their words stay in the first-level cache.
constexpr int64_t kBatchGroups = 4;
constexpr int64_t kBatchDims = KVASIR_HAS_BYTE_DOT ? kBatchGroups * 128 : 128;

// Queries rounded to integers, of a run of dims, and balanced (integer_steps.h).
class BalancedRun {
 public:
  // REQUIRES: count is a multiple of kVirtualLanes, at most kBalancedDims.
  BalancedRun(const float* x, int64_t count, float inverse) : count_(count) {
    alignas(64) float errors[kBalancedDims];
    VF lanes[kLaneVectors];
    for (VF& v : lanes) v = hn::Zero(DF());
    for (int64_t d = 0; d < count; d += kVirtualLanes) {
      for (size_t v = 0; v < kLaneVectors; ++v) {
        const int64_t at = d + static_cast<int64_t>(v * kLanes);
        const VF scaled = hn::Mul(hn::LoadU(DF(), x + at), hn::Set(DF(), inverse));
        const VI code = RoundToInt(scaled);
        const VF error = hn::Sub(scaled, hn::ConvertTo(DF(), code));
        lanes[v] = hn::Add(lanes[v], error);
        hn::Store(code, DI(), codes_ + at);
        hn::Store(error, DF(), errors + at);
      }
    }
    const int32_t missing = hn::GetLane(RoundToInt(hn::Set(DF(), SumLanes(lanes))));
    if (missing == 0) return;
    const VF unit = hn::Set(DF(), missing < 0 ? -kBalanceUnits : kBalanceUnits);
    for (int64_t d = 0; d < count; d += kLanes) {
      const VI units = RoundToInt(hn::Mul(hn::Load(DF(), errors + d), unit));
      const VI behind =
          hn::Sub(hn::Set(DI(), static_cast<int32_t>(kBalancedDims - 1 - d)), hn::Iota(DI(), 0));
      hn::Store(hn::Or(hn::ShiftLeft<kBalanceShift>(units), behind), DI(), keys_ + d);
    }
    for (int32_t left = std::abs(missing); left > 0; --left) MoveFarthest(missing < 0 ? -1 : 1);
  }

  // The kLaneVectors vectors from dim d on.
  void Load(int64_t d, VI (&to)[kLaneVectors]) const {
    for (size_t v = 0; v < kLaneVectors; ++v) to[v] = hn::Load(DI(), codes_ + d + v * kLanes);
  }

 private:
  // Moves the code with the largest key, of which there is one, by `step`, and out of the choice.
  HWY_INLINE void MoveFarthest(int32_t step) {
    VI largest = hn::Load(DI(), keys_);
    for (int64_t d = kLanes; d < count_; d += kLanes) {
      largest = hn::Max(largest, hn::Load(DI(), keys_ + d));
    }
    largest = hn::MaxOfLanes(DI(), largest);
    for (int64_t d = 0; d < count_; d += kLanes) {
      const VI keys = hn::Load(DI(), keys_ + d);
      const auto is_it = hn::Eq(keys, largest);
      const VI move = hn::IfThenElseZero(is_it, hn::Set(DI(), step));
      hn::Store(hn::IfThenElse(is_it, hn::Set(DI(), INT32_MIN), keys), DI(), keys_ + d);
      hn::Store(hn::Add(hn::Load(DI(), codes_ + d), move), DI(), codes_ + d);
    }
  }

  const int64_t count_;
  alignas(64) int32_t codes_[kBalancedDims];
  alignas(64) int32_t keys_[kBalancedDims];
};

template <size_t kBits, size_t kBytes>
void QuantizeGroup(const float* x, int64_t first, const IntegerQueryArgs& args, int64_t row,
                   int64_t g) {
  using Dot = IntegerDot<kBits, kBytes>;
  const int64_t group = args.codec.group;
  VU largest[kLaneVectors];
  VF lanes[kLaneVectors];
  for (VU& v : largest) v = hn::Zero(DU());
  for (VF& v : lanes) v = hn::Zero(DF());
  for (int64_t d = first; d < first + group; d += kVirtualLanes) {
    for (size_t v = 0; v < kLaneVectors; ++v) {
      const VF q = hn::LoadU(DF(), x + d + v * kLanes);
      largest[v] = hn::Max(largest[v], MagnitudeBits(q));
      lanes[v] = hn::Add(lanes[v], q);
    }
  }
  const IntegerSteps steps = IntegerStepsOf(LargestBits(largest), QueryLevels(kBytes));
  std::byte* const codes = args.out.codes + row * IntegerQueries::CodeBytes(args.dim);
  VI sum = hn::Zero(DI());
  const auto store = [&](const VI(&rounded)[kLaneVectors], int64_t d) {
    for (const VI& v : rounded) sum = hn::Add(sum, v);
    Dot::StoreQueries(rounded, codes, args.dim, d);
  };
  VI rounded[kLaneVectors];
  if (kBytes == 1 && steps.inverse != 0) {
    for (int64_t begin = first, end; begin < first + group; begin = end) {
      end = std::min(begin + kBalancedDims, first + group);
      const BalancedRun run(x + begin, end - begin, steps.inverse);
      for (int64_t d = begin; d < end; d += kVirtualLanes) {
        run.Load(d - begin, rounded);
        store(rounded, d);
      }
    }
  } else {
    for (int64_t d = first; d < first + group; d += kVirtualLanes) {
      for (size_t v = 0; v < kLaneVectors; ++v) {
        const VF q = hn::LoadU(DF(), x + d + v * kLanes);
        rounded[v] = steps.inverse == 0 ? hn::Zero(DI())
                                        : RoundToInt(hn::Mul(q, hn::Set(DF(), steps.inverse)));
      }
      store(rounded, d);
    }
  }
  const int64_t at = row * (args.dim / group) + g;
  args.out.scales[at] = steps.scale * args.unit;
  args.out.sums[at] = SumLanes(lanes) * args.unit;
  args.out.starts[at] = -KeyMiddle(kBits) * hn::GetLane(hn::SumOfLanes(DI(), sum));
}

template <size_t kBits, size_t kBytes>
void QuantizeQueries(const IntegerQueryArgs& args) noexcept {
  for (int64_t r = 0; r < args.rows; ++r) {
    for (int64_t g = 0; g < args.dim / args.codec.group; ++g) {
      QuantizeGroup<kBits, kBytes>(args.queries + r * args.query_stride, g * args.codec.group, args,
                                   r, g);
    }
  }
}

// The scales and centres of one group of a block's tokens.
struct KeyGroup {
  alignas(64) float scales[kBlockTokens];
  alignas(64) float centres[kBlockTokens];

  void Load(const PackedPlane& plane, int64_t g, size_t bits) {
    const VF middle = hn::Set(DF(), static_cast<float>(KeyMiddle(bits)));
    for (size_t t = 0; t < kBlockTokens; t += kLanes) {
      const VF scale = plane.Parameter(plane.scales, g, static_cast<int64_t>(t));
      const VF bias = plane.Parameter(plane.biases, g, static_cast<int64_t>(t));
      hn::Store(scale, DF(), scales + t);
      hn::Store(hn::MulAdd(middle, scale, bias), DF(), centres + t);
    }
  }
};

// Some rows of queries, from which codes, scales, sums and starts are read.
struct QueryRows {
  const std::byte* codes;
  const float* scales;
  const float* sums;
  const int32_t* starts;
  int64_t dim;
  int64_t groups;
  const int32_t* index;  // of the rows of scores, or null
  float* scores;         // of the first row, or what `index` counts from

  QueryRows(const ScoreTileArgs& args, int64_t row, int64_t groups)
      : codes(args.integers.codes + row * IntegerQueries::CodeBytes(args.key_dim)),
        scales(args.integers.scales + row * groups),
        sums(args.integers.sums + row * groups),
        starts(args.integers.starts + row * groups),
        dim(args.key_dim),
        groups(groups),
        index(args.index == nullptr ? nullptr : args.index + row),
        scores(args.scores + (args.index == nullptr ? row * kBlockTokens : 0)) {}

  float* ScoresOf(size_t row) const {
    const auto i = static_cast<int64_t>(row);
    return scores + (index == nullptr ? i : index[i]) * kBlockTokens;
  }
};

// The part kPart of the codes of a word, whose first multiplier of the first row `first` is; those
// of the next row lie `stride` bytes behind.
template <class Dot, size_t kPart>
struct KeyOperands {
  const std::byte* first;
  int64_t stride;
  const uint32_t* word;

  template <bool kTight>
  HWY_INLINE VI Code(size_t v) const {
    constexpr size_t kUnitWords = kUnitDims / Dot::kWordCodes;
    return Dot::Key(Dot::template Codes<kPart, kTight>(word + v * kUnitWords * kUnitLanes));
  }
  HWY_INLINE VI Multiplier(size_t r, size_t s) const {
    return Dot::Multiplier(first + static_cast<int64_t>(r) * stride,
                           stride / IntegerQueries::CodeBytes(1), kPart, s);
  }
  static HWY_INLINE VI Add(VI sum, VI codes, VI multipliers) {
    return Dot::AddKey(sum, codes, multipliers);
  }
};

// Adds the products with a word, from its part kPart on.
template <class Dot, size_t kRows, size_t kPart = 0>
HWY_INLINE void AddWord(const std::byte* first, int64_t stride, const uint32_t* word,
                        TileSums<Dot, kRows>& sums) {
  AddProducts<Dot>(KeyOperands<Dot, kPart>{first, stride, word}, sums);
  if constexpr (kPart + 1 < Dot::kParts) {
    AddWord<Dot, kRows, kPart + 1>(first, stride, word, sums);
  }
}

// Scores of a tile on their way through the groups, which stay in registers.
template <class Dot, size_t kRows>
using TileScores = VF[kRows][kVectors<Dot, kRows>];

// A tile's tokens: vector v has those from first + v * kVirtualLanes on.
struct TileTokens {
  size_t first;

  // The i-th tile of a block: all that a unit of the code plane is wide, before the next units.
  template <size_t kCount>
  static TileTokens Tile(size_t i) {
    return {i / kLaneVectors * kCount * kVirtualLanes + i % kLaneVectors * kLanes};
  }
  size_t operator[](size_t v) const { return first + v * kVirtualLanes; }
};

// Calls body(row, vector) for each of a tile. Recursive over rows, because what a loop over them
// indexes would go through memory.
template <class Dot, size_t kRows, size_t kRow = 0, class Body>
HWY_INLINE void ForEachOfTile(const Body& body) {
  for (size_t v = 0; v < kVectors<Dot, kRows>; ++v) body(kRow, v);
  if constexpr (kRow + 1 < kRows) ForEachOfTile<Dot, kRows, kRow + 1>(body);
}

// Adds the sums of group g to the scores of rows from kRow on.
template <class Dot, size_t kRows, size_t kRow = 0>
HWY_INLINE void AddScores(const QueryRows& rows, const KeyGroup& group, int64_t g,
                          TileTokens tokens, const TileSums<Dot, kRows>& sums,
                          TileScores<Dot, kRows>& scores) {
  const DF d;
  const int64_t at = static_cast<int64_t>(kRow) * rows.groups + g;
  const VF step = hn::Set(d, rows.scales[at]);
  const VF query_sum = hn::Set(d, rows.sums[at]);
  for (size_t v = 0; v < kVectors<Dot, kRows>; ++v) {
    const VF part = hn::Mul(
        hn::ConvertTo(d, Dot::Total(sums[kRow][v][0], sums[kRow][v][Dot::kSums - 1])), step);
    const VF score = hn::MulAdd(hn::Load(d, group.scales + tokens[v]), part, scores[kRow][v]);
    scores[kRow][v] = hn::MulAdd(hn::Load(d, group.centres + tokens[v]), query_sum, score);
  }
  if constexpr (kRow + 1 < kRows) {
    AddScores<Dot, kRows, kRow + 1>(rows, group, g, tokens, sums, scores);
  }
}

// The groups [first, first + count) of a block's keys.
struct GroupBatch {
  int64_t first;
  int64_t count;
  int64_t dims;           // of a group
  const uint32_t* codes;  // of the first
  KeyGroup groups[kBatchGroups];
};

// Words of the codes of so many dims of a block.
template <class Dot>
constexpr int64_t WordsOfDims(int64_t dims) {
  return dims / kUnitDims * static_cast<int64_t>(Dot::kPlaneBits) * kUnitLanes;
}

// Adds the products with a unit of dims, and goes on to the next.
template <class Dot, size_t kRows, bool kFetch>
HWY_INLINE void AddUnit(const std::byte*& multipliers, int64_t stride, const uint32_t*& word,
                        PlanePrefetch* fetch, TileSums<Dot, kRows>& sums) {
  if constexpr (kFetch) {
    if (fetch != nullptr) fetch->Step();
  }
  for (int64_t w = 0; w < kUnitDims / static_cast<int64_t>(Dot::kWordCodes); ++w) {
    AddWord<Dot, kRows>(multipliers, stride, word + w * kUnitLanes, sums);
    multipliers += Dot::kWordCodes * Dot::kMultiplierBytes;
  }
  word += WordsOfDims<Dot>(kUnitDims);
}

// Exact sums of the i-th group of a batch.
template <class Dot, size_t kRows, bool kFetch>
HWY_INLINE void SumGroup(const QueryRows& rows, const GroupBatch& batch, int64_t i,
                         TileTokens tokens, PlanePrefetch* prefetch, TileSums<Dot, kRows>& sums) {
  constexpr int64_t kUnitWords = kUnitDims / static_cast<int64_t>(Dot::kWordCodes);
  const int64_t g = batch.first + i;
  int32_t starts[kRows];
  for (size_t r = 0; r < kRows; ++r) {
    starts[r] = Dot::KeyStart(rows.starts[static_cast<int64_t>(r) * rows.groups + g]);
  }
  StartSums<Dot>(starts, sums);
  const int64_t stride = IntegerQueries::CodeBytes(rows.dim);
  const std::byte* multipliers = rows.codes + g * batch.dims * Dot::kMultiplierBytes;
  const uint32_t* word = batch.codes + WordsOfDims<Dot>(i * batch.dims) +
                         tokens.first / kUnitLanes * kUnitWords * kUnitLanes +
                         tokens.first % kUnitLanes;
  const uint32_t* const end = word + WordsOfDims<Dot>(batch.dims);
  PlanePrefetch* const fetch = tokens.first == 0 ? prefetch : nullptr;
  if constexpr (Dot::kKeySpan > 0) {
    constexpr int32_t kNothing[kRows] = {};
    // Groups are multiples of a span.
    while (word != end) {
      TileSums<Dot, kRows> shorts;
      StartSums<Dot>(kNothing, shorts);
#pragma GCC unroll 8
      for (int64_t dim = 0; dim < Dot::kKeySpan; dim += kUnitDims) {
        AddUnit<Dot, kRows, kFetch>(multipliers, stride, word, fetch, shorts);
      }
      JoinSums<Dot>(shorts, sums);
    }
  } else {
    while (word != end) AddUnit<Dot, kRows, kFetch>(multipliers, stride, word, fetch, sums);
  }
}

// Scores of a tile. kFetch: with steps of `prefetch`, if there is one.
template <class Dot, size_t kRows, bool kFetch>
HWY_INLINE void ScoreTile(const QueryRows& rows, const GroupBatch& batch, PlanePrefetch* prefetch) {
  constexpr size_t kCount = kVectors<Dot, kRows>;
  const DF d;
  for (size_t tile = 0; tile < kTokenVectors / kCount; ++tile) {
    const TileTokens tokens = TileTokens::Tile<kCount>(tile);
    TileScores<Dot, kRows> scores;
    float* out[kRows];
    for (size_t r = 0; r < kRows; ++r) out[r] = rows.ScoresOf(r);
    ForEachOfTile<Dot, kRows>([&](size_t r, size_t v) HWY_ATTR {
      scores[r][v] = batch.first == 0 ? hn::Zero(d) : hn::LoadU(d, out[r] + tokens[v]);
    });
    for (int64_t i = 0; i < batch.count; ++i) {
      TileSums<Dot, kRows> sums;
      SumGroup<Dot, kRows, kFetch>(Anew(rows), Anew(batch), i, tokens, prefetch, sums);
      AddScores<Dot, kRows>(Anew(rows), batch.groups[i], batch.first + i, tokens, sums, scores);
    }
    ForEachOfTile<Dot, kRows>([&](size_t r, size_t v)
                                  HWY_ATTR { hn::StoreU(scores[r][v], d, out[r] + tokens[v]); });
  }
}

template <class Dot, size_t kRows>
HWY_NOINLINE void ScoreRows(const QueryRows& rows, const GroupBatch& batch,
                            PlanePrefetch* prefetch) {
  ScoreTile<Dot, kRows, true>(rows, batch, prefetch);
}

// `count` tiles of full height from a row on, with nothing between their products that need not
// be there.
template <class Dot>
HWY_NOINLINE void ScoreTiles(const ScoreTileArgs& args, int64_t row, int64_t count,
                             const GroupBatch& batch) {
  constexpr size_t kRows = kMaxScoreRows<Dot>;
  const int64_t groups = args.key_dim / batch.dims;
  for (int64_t end = row + count * static_cast<int64_t>(kRows); row < end; row += kRows) {
    ScoreTile<Dot, kRows, false>(QueryRows(args, row, groups), batch, nullptr);
  }
}

#if KVASIR_HAS_BYTE_DOT
template <class Dot>
HWY_INLINE void ScoreFullTiles(const ScoreTileArgs& args, int64_t row, int64_t count,
                               GroupBatch& batch) {
  ScoreTiles<Dot>(args, row, count, batch);
}
#else
template <class Dot>
HWY_NOINLINE void ScoreFullTiles(const ScoreTileArgs& args, int64_t row, int64_t count,
                                 GroupBatch& batch) {
  // A group can have more dims: turbo's has all.
  if (count < kLaidOutTiles || batch.count * batch.dims > kBatchDims) {
    return ScoreTiles<Dot>(args, row, count, batch);
  }
  alignas(64) uint32_t laid_out[WordsOfDims<LaidOut<Dot>>(kBatchDims)];
  LaidOut<Dot>::LayOut(batch.codes, batch.count * batch.dims * kBlockTokens, laid_out);
  const uint32_t* const codes = std::exchange(batch.codes, laid_out);
  ScoreTiles<LaidOut<Dot>>(args, row, count, batch);
  batch.codes = codes;
}
#endif

template <class Dot, size_t kRows = kMaxScoreRows<Dot>>
HWY_INLINE void ScoreAnyRows(const QueryRows& rows, int64_t count, const GroupBatch& batch,
                             PlanePrefetch* prefetch) {
  if (count == kRows) return ScoreRows<Dot, kRows>(rows, batch, prefetch);
  if constexpr (kRows > 1) ScoreAnyRows<Dot, kRows - 1>(rows, count, batch, prefetch);
}

template <size_t kBits, size_t kBytes>
void Score(const ScoreTileArgs& args) noexcept {
  using Dot = IntegerDot<kBits, kBytes>;
  const PackedPlane plane(args.codec, args.keys, args.key_dim);
  const int64_t groups = plane.dim / plane.group;
  PlanePrefetch fetch(args.next, plane.dim / kUnitDims);
  GroupBatch batch;
  batch.dims = plane.group;
  const int64_t most = std::clamp<int64_t>(kBatchDims / plane.group, 1, kBatchGroups);
  for (batch.first = 0; batch.first < groups; batch.first += most) {
    batch.count = HWY_MIN(most, groups - batch.first);
    batch.codes = plane.codes + WordsOfDims<Dot>(batch.first * plane.group);
    for (int64_t i = 0; i < batch.count; ++i) batch.groups[i].Load(plane, batch.first + i, kBits);
    constexpr int64_t kMaxRows = kMaxScoreRows<Dot>;
    // What is fetched ahead is fetched during the first tile.
    for (int64_t row = 0; row < args.rows;) {
      const int64_t left = args.rows - row;
      if (const int64_t full = row == 0 ? 0 : FullTiles<kMaxRows>(left); full > 0) {
        ScoreFullTiles<Dot>(args, row, full, batch);
        row += full * kMaxRows;
        continue;
      }
      const int64_t rows = TileRows<kMaxRows>(left);
      ScoreAnyRows<Dot>(QueryRows(args, row, groups), rows, batch,
                        row == 0 && args.next.from != nullptr ? &fetch : nullptr);
      row += rows;
    }
  }
}

template <size_t kBits, size_t kBytes>
struct Entries {
  static void Put(IntegerKvKernels& kernels) {
    kernels.quantize_queries = QuantizeQueries<kBits, kBytes>;
    kernels.score_tile = Score<kBits, kBytes>;
  }
};

void FillIntegerScores(KernelTable* table) { FillIntegers<Entries>(table); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
#include "kvasir/kernels/table_fill.h"
KVASIR_FILL_BY_ISA(FillIntegerScores)
#endif
