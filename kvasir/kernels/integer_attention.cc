// Attention tiles of affine caches of 8 and 4 bits in integers: queries and weights are rounded to
// integers per group, products with the codes are exact sums.
// Deliberately only what kernels.h states for IntegerKvKernels: a cache is read as it is stored.
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/kernels/highway_targets.h"
#include "kvasir/kernels/integer_steps.h"
#include "kvasir/kernels/table_parts.h"
#include "kvasir/tensor/packed_codes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/integer_attention.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if KVASIR_KERNEL_TARGET
#include "kvasir/kernels/integer_dot-inl.h"
#include "kvasir/kernels/plane_prefetch-inl.h"

KVASIR_BEFORE_INTEGER();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

constexpr size_t kVectors = 4;
// Query rows that share each word: what the registers hold of their sums of four words and their
// multipliers, beside the codes of one word.
#if HWY_TARGET == HWY_AVX3_DL
template <class Dot>
constexpr size_t kMaxRows = (32 - Dot::kParts) / (Dot::kPlanes * (kVectors + Dot::kParts));
#else
template <class Dot>
constexpr size_t kMaxRows = 2;
#endif
constexpr int64_t kUnitDims = 8;  // of keys

// Rows of the next tile when `left` are left, in tiles of about the same height.
template <class Dot>
int64_t TileRows(int64_t left) {
  constexpr int64_t kMax = kMaxRows<Dot>;
  const int64_t tiles = (left + kMax - 1) / kMax;
  return (left + tiles - 1) / tiles;
}

// The largest |x| of 16 virtual lanes, as bits.
HWY_INLINE uint32_t LargestBits(const VU (&lanes)[kLaneVectors]) {
  VU largest = lanes[0];
  for (size_t i = 1; i < kLaneVectors; ++i) largest = hn::Max(largest, lanes[i]);
  return hn::GetLane(hn::MaxOfLanes(DU(), largest));
}
HWY_INLINE VU MagnitudeBits(VF x) { return hn::BitCast(DU(), hn::Abs(x)); }

// Stores 16 multipliers, those from the k-th on of a row of `count`. Returns their sum.
template <class Dot>
HWY_INLINE VI StoreMultipliers(const VF (&x)[kLaneVectors], IntegerSteps steps, std::byte* row,
                               int64_t count, int64_t k) {
  VI codes[kLaneVectors];
  VI sum = hn::Zero(DI());
  for (size_t v = 0; v < kLaneVectors; ++v) {
    codes[v] = steps.inverse == 0 ? hn::Zero(DI())
                                  : RoundToInt(hn::Mul(x[v], hn::Set(DF(), steps.inverse)));
    sum = hn::Add(sum, codes[v]);
  }
  Dot::Store(codes, row, count, k);
  return sum;
}

template <size_t kBits>
void QuantizeQueries(const IntegerQueryArgs& args) noexcept {
  using Dot = IntegerDot<kBits>;
  const int64_t group = args.codec.group;
  const int64_t groups = args.dim / group;
  for (int64_t r = 0; r < args.rows; ++r) {
    const float* const x = args.queries + r * args.query_stride;
    std::byte* const out = args.out.codes + r * IntegerQueries::CodeBytes(args.dim);
    for (int64_t g = 0; g < groups; ++g) {
      VU largest[kLaneVectors];
      for (VU& v : largest) v = hn::Zero(DU());
      for (int64_t d = g * group; d < (g + 1) * group; d += kVirtualLanes) {
        for (size_t v = 0; v < kLaneVectors; ++v) {
          largest[v] = hn::Max(largest[v], MagnitudeBits(hn::LoadU(DF(), x + d + v * kLanes)));
        }
      }
      const IntegerSteps steps = IntegerStepsOf(LargestBits(largest));
      VI sum = hn::Zero(DI());
      for (int64_t d = g * group; d < (g + 1) * group; d += kVirtualLanes) {
        VF q[kLaneVectors];
        for (size_t v = 0; v < kLaneVectors; ++v) q[v] = hn::LoadU(DF(), x + d + v * kLanes);
        sum = hn::Add(sum, StoreMultipliers<Dot>(q, steps, out, args.dim, d));
      }
      args.out.scales[r * groups + g] = steps.scale;
      args.out.sums[r * groups + g] =
          steps.scale * static_cast<float>(hn::GetLane(hn::SumOfLanes(DI(), sum)));
    }
  }
}

// Adds a group's sums to the scores of the tokens of one vector of kLanes.
template <size_t kRows>
struct ScoreGroup {
  const PackedPlane& plane;
  int64_t group;
  float scales[kRows];
  float sums[kRows];

  HWY_INLINE void Add(size_t row, int64_t token, VF scale, VF bias, VI total, float* scores) const {
    const DF d;
    float* const out = scores + row * kBlockTokens + static_cast<size_t>(token);
    const VF before = group == 0 ? hn::Zero(d) : hn::LoadU(d, out);
    const VF part = hn::Mul(hn::ConvertTo(d, total), hn::Set(d, scales[row]));
    const VF score = hn::MulAdd(scale, part, before);
    hn::StoreU(hn::MulAdd(bias, hn::Set(d, sums[row]), score), d, out);
  }
};

template <class Dot, size_t kRows>
HWY_NOINLINE void ScoreRows(const ScoreTileArgs& args, const PackedPlane& plane, int64_t row,
                            PlanePrefetch prefetch) {
  constexpr int64_t kWordCodes = Dot::kWordCodes;
  constexpr int64_t kUnitWords = kUnitDims / kWordCodes;  // of one token of a unit
  const int64_t groups = plane.dim / plane.group;
  const std::byte* const queries = args.integers.codes + row * IntegerQueries::CodeBytes(plane.dim);
  for (int64_t g = 0; g < groups; ++g) {
    ScoreGroup<kRows> out = {plane, g, {}, {}};
    for (size_t r = 0; r < kRows; ++r) {
      out.scales[r] = args.integers.scales[(row + static_cast<int64_t>(r)) * groups + g];
      out.sums[r] = args.integers.sums[(row + static_cast<int64_t>(r)) * groups + g];
    }
    for (size_t p = 0; p < kLaneVectors; ++p) {
      typename Dot::Sum sums[kRows][kVectors];
      for (auto& row_sums : sums) {
        for (auto& sum : row_sums) sum = Dot::Zero();
      }
      for (int64_t d = g * plane.group; d < (g + 1) * plane.group; d += kWordCodes) {
        if (p == 0) prefetch.Step();
        const uint32_t* const word =
            plane.codes +
            (d / kUnitDims * static_cast<int64_t>(Dot::kBits) + d % kUnitDims / kWordCodes) *
                kUnitLanes +
            p * kLanes;
        typename Dot::Multipliers multipliers[kRows];
        for (size_t r = 0; r < kRows; ++r) {
          multipliers[r] = Dot::LoadMultipliers(
              queries + static_cast<int64_t>(r) * IntegerQueries::CodeBytes(plane.dim), plane.dim,
              d);
        }
        for (size_t v = 0; v < kVectors; ++v) {
          const auto codes = Dot::Load(word + static_cast<int64_t>(v) * kUnitWords * kUnitLanes);
          for (size_t r = 0; r < kRows; ++r) Dot::Add(codes, multipliers[r], sums[r][v]);
        }
      }
      for (size_t v = 0; v < kVectors; ++v) {
        const auto token = static_cast<int64_t>(v * kVirtualLanes + p * kLanes);
        const VF scale = plane.Parameter(plane.scales, g, token);
        const VF bias = plane.Parameter(plane.biases, g, token);
        for (size_t r = 0; r < kRows; ++r) {
          out.Add(r, token, scale, bias, Dot::Total(sums[r][v]), args.scores + row * kBlockTokens);
        }
      }
    }
  }
}

template <class Dot, size_t kRows = kMaxRows<Dot>>
HWY_INLINE void ScoreAnyRows(const ScoreTileArgs& args, const PackedPlane& plane, int64_t row,
                             int64_t rows, const PlanePrefetch& prefetch) {
  if (rows == kRows) return ScoreRows<Dot, kRows>(args, plane, row, prefetch);
  if constexpr (kRows > 1) ScoreAnyRows<Dot, kRows - 1>(args, plane, row, rows, prefetch);
}

// Bytes to fetch of what is read next, where those of this plane are the usual answer.
int64_t NextBytes(int64_t given, const PackedPlane& plane) {
  return given > 0 ? given : plane.lines * 64;
}

template <class Dot>
void Score(const ScoreTileArgs& args) noexcept {
  const PackedPlane plane(args.codec, args.keys, args.key_dim);
  const int64_t steps = plane.dim / static_cast<int64_t>(Dot::kWordCodes);
  for (int64_t row = 0; row < args.rows;) {
    const int64_t rows = TileRows<Dot>(args.rows - row);
    const PlanePrefetch prefetch(row == 0 ? args.next : nullptr, NextBytes(args.next_bytes, plane),
                                 steps);
    ScoreAnyRows<Dot>(args, plane, row, rows, prefetch);
    row += rows;
  }
}

// One group of values for the rows of a tile: the multipliers of the block's tokens.
template <class Dot, size_t kRows>
struct GroupWeights {
  alignas(64) std::byte codes[kRows][IntegerQueries::CodeBytes(kBlockTokens)];
  float scales[kRows];
  float shifts[kRows];
};

// Whether the rows of a tile see every token of the block, as they mostly do.
HWY_INLINE bool SeeAll(const AccumulateTileArgs& args, int64_t row, size_t rows) {
  for (size_t r = static_cast<size_t>(row); r < static_cast<size_t>(row) + rows; ++r) {
    if (args.begin[r] > 0 || args.end[r] < kBlockTokens) return false;
  }
  return true;
}

template <class Dot, size_t kRows, bool kSeeAll>
HWY_INLINE void LoadGroupWeights(const AccumulateTileArgs& args, const PackedPlane& plane,
                                 int64_t row, int64_t g, PlanePrefetch& prefetch,
                                 GroupWeights<Dot, kRows>& out) {
  const DF d;
  constexpr size_t kTokenVectors = kBlockTokens / kLanes;
  VF products[kRows][kTokenVectors];
  VU largest[kRows][kLaneVectors];
  VF shifts[kRows][kLaneVectors];
  for (size_t r = 0; r < kRows; ++r) {
    for (VU& v : largest[r]) v = hn::Zero(DU());
    for (VF& v : shifts[r]) v = hn::Zero(d);
  }
  for (size_t i = 0; i < kTokenVectors; ++i) {
    if (i % kLaneVectors == 0) prefetch.Step();
    const auto token = static_cast<int64_t>(i * kLanes);
    const VF scale = plane.Parameter(plane.scales, g, token);
    const VF bias = plane.Parameter(plane.biases, g, token);
    for (size_t r = 0; r < kRows; ++r) {
      const size_t tile_row = static_cast<size_t>(row) + r;
      VF weight = hn::LoadU(d, args.weights + tile_row * kBlockTokens + token);
      VF weight_scale = scale;
      VF weight_bias = bias;
      if constexpr (!kSeeAll) {
        const VF position = hn::Iota(d, static_cast<float>(token));
        const auto visible =
            hn::And(hn::Ge(position, hn::Set(d, static_cast<float>(args.begin[tile_row]))),
                    hn::Lt(position, hn::Set(d, static_cast<float>(args.end[tile_row]))));
        weight = hn::IfThenElseZero(visible, weight);
        weight_scale = hn::IfThenElseZero(visible, scale);
        weight_bias = hn::IfThenElseZero(visible, bias);
      }
      const VF product = hn::Mul(weight, weight_scale);
      products[r][i] = product;
      largest[r][i % kLaneVectors] = hn::Max(largest[r][i % kLaneVectors], MagnitudeBits(product));
      VF& shift = shifts[r][i % kLaneVectors];
      shift = hn::MulAdd(weight, weight_bias, shift);
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    const IntegerSteps steps = IntegerStepsOf(LargestBits(largest[r]));
    for (size_t i = 0; i < kTokenVectors; i += kLaneVectors) {
      VF x[kLaneVectors];
      for (size_t v = 0; v < kLaneVectors; ++v) x[v] = products[r][i + v];
      StoreMultipliers<Dot>(x, steps, out.codes[r], kBlockTokens, static_cast<int64_t>(i * kLanes));
    }
    out.scales[r] = steps.scale;
    out.shifts[r] = SumLanes(shifts[r]);
  }
}

// Value sums of the dims [dim, dim + kCount * kLanes), which are in one group.
template <class Dot, size_t kRows, size_t kCount>
HWY_INLINE void SumDims(const AccumulateTileArgs& args, const PackedPlane& plane,
                        const GroupWeights<Dot, kRows>& weights, int64_t row, int64_t dim,
                        PlanePrefetch& prefetch) {
  const DF d;
  constexpr int64_t kUnitWords = static_cast<int64_t>(Dot::kBits) * kUnitLanes;
  const uint32_t* units[kCount];
  for (size_t v = 0; v < kCount; ++v) {
    const int64_t first = dim + static_cast<int64_t>(v * kLanes);
    units[v] = plane.codes + first / kUnitLanes * 2 * kUnitWords + first % kUnitLanes;
  }
  typename Dot::Sum sums[kRows][kCount];
  for (auto& row_sums : sums) {
    for (auto& sum : row_sums) sum = Dot::Zero();
  }
  // The two units of the halves of a block follow each other: 2 * kBits words of a lane.
  for (int64_t w = 0; w < 2 * static_cast<int64_t>(Dot::kBits); ++w) {
    prefetch.Step();
    typename Dot::Multipliers multipliers[kRows];
    for (size_t r = 0; r < kRows; ++r) {
      multipliers[r] = Dot::LoadMultipliers(weights.codes[r], kBlockTokens,
                                            w * static_cast<int64_t>(Dot::kWordCodes));
    }
    for (size_t v = 0; v < kCount; ++v) {
      const auto codes = Dot::Load(units[v] + w * kUnitLanes);
      for (size_t r = 0; r < kRows; ++r) Dot::Add(codes, multipliers[r], sums[r][v]);
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    float* const out =
        args.accumulator + (row + static_cast<int64_t>(r)) * args.accumulator_stride + dim;
    const VF rescale = hn::Set(d, args.rescale[row + static_cast<int64_t>(r)]);
    const VF scale = hn::Set(d, weights.scales[r]);
    const VF shift = hn::Set(d, weights.shifts[r]);
    for (size_t v = 0; v < kCount; ++v) {
      const VF before = hn::Mul(hn::LoadU(d, out + v * kLanes), rescale);
      const VF sum = hn::MulAdd(hn::ConvertTo(d, Dot::Total(sums[r][v])), scale, before);
      hn::StoreU(hn::Add(sum, shift), d, out + v * kLanes);
    }
  }
}

// Value sums of one group.
template <class Dot, size_t kRows>
HWY_INLINE void SumGroup(const AccumulateTileArgs& args, const PackedPlane& plane,
                         const GroupWeights<Dot, kRows>& weights, int64_t row, int64_t g,
                         PlanePrefetch& prefetch) {
  constexpr int64_t kStep = kVectors * kLanes;
  constexpr int64_t kHalfStep = kStep / 2;  // groups are multiples of 32 dims
  int64_t dim = g * plane.group;
  const int64_t end = dim + plane.group;
  for (; dim + kStep <= end; dim += kStep) {
    SumDims<Dot, kRows, kVectors>(args, plane, weights, row, dim, prefetch);
  }
  for (; dim < end; dim += kHalfStep) {
    SumDims<Dot, kRows, kVectors / 2>(args, plane, weights, row, dim, prefetch);
  }
}

template <class Dot, size_t kRows>
HWY_NOINLINE void SumRows(const AccumulateTileArgs& args, const PackedPlane& plane, int64_t row,
                          PlanePrefetch prefetch) {
  // From a weight to its multiplier is a long chain: those of some groups are made together.
  constexpr int64_t kGroups = 4;
  const bool see_all = SeeAll(args, row, kRows);
  const int64_t groups = plane.dim / plane.group;
  for (int64_t first = 0; first < groups; first += kGroups) {
    GroupWeights<Dot, kRows> weights[kGroups];
    const int64_t count = HWY_MIN(kGroups, groups - first);
    for (int64_t i = 0; i < count; ++i) {
      if (see_all) {
        LoadGroupWeights<Dot, kRows, true>(args, plane, row, first + i, prefetch, weights[i]);
      } else {
        LoadGroupWeights<Dot, kRows, false>(args, plane, row, first + i, prefetch, weights[i]);
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      SumGroup(args, plane, weights[i], row, first + i, prefetch);
    }
  }
}

template <class Dot, size_t kRows = kMaxRows<Dot>>
HWY_INLINE void SumAnyRows(const AccumulateTileArgs& args, const PackedPlane& plane, int64_t row,
                           int64_t rows, const PlanePrefetch& prefetch) {
  if (rows == kRows) return SumRows<Dot, kRows>(args, plane, row, prefetch);
  if constexpr (kRows > 1) SumAnyRows<Dot, kRows - 1>(args, plane, row, rows, prefetch);
}

template <class Dot>
void Accumulate(const AccumulateTileArgs& args) noexcept {
  const PackedPlane plane(args.codec, args.values, args.value_dim);
  constexpr int64_t kStep = kVectors * kLanes;
  // 16 tokens of a group's weights each, then a word of kStep dims each.
  const int64_t steps = plane.dim / plane.group * (kBlockTokens / kUnitLanes) +
                        (plane.dim + kStep - 1) / kStep * 2 * static_cast<int64_t>(Dot::kBits);
  const std::byte* next = args.next;
  for (int64_t row = 0; row < args.rows;) {
    int64_t filled = 0;
    while (row + filled < args.rows && args.begin[row + filled] < args.end[row + filled]) ++filled;
    if (filled == 0) {
      ++row;
      continue;
    }
    const int64_t rows = TileRows<Dot>(filled);
    SumAnyRows<Dot>(args, plane, row, rows,
                    PlanePrefetch(next, NextBytes(args.next_bytes, plane), steps));
    next = nullptr;
    row += rows;
  }
}

template <size_t kBits>
void FillFormat(KernelTable* table) {
  table->integer_kv[KvFormatIndex(KvCodec::Affine(kBits, 64))] = {
      QuantizeQueries<kBits>, Score<IntegerDot<kBits>>, Accumulate<IntegerDot<kBits>>};
}

}  // namespace

void FillIntegerAttention(KernelTable* table) {
  FillFormat<4>(table);
  FillFormat<8>(table);
}

}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
namespace kvasir {

void FillIntegerAttention(Isa isa, KernelTable* table) {
#if HWY_TARGETS & HWY_AVX3_DL
  if (isa == Isa::kAvx512) return N_AVX3_DL::FillIntegerAttention(table);
#endif
#if HWY_TARGETS & HWY_AVX2
  if (isa == Isa::kAvx2) return N_AVX2::FillIntegerAttention(table);
#endif
#if HWY_TARGETS & HWY_NEON
  if (isa == Isa::kNeon) return N_NEON::FillIntegerAttention(table);
#endif
  KVASIR_CHECK(false);
}

}  // namespace kvasir
#endif  // HWY_ONCE
