// Attention tiles of packed formats in SIMD: scores and value sums straight from packed codes.
// Deliberately never writes a decoded row: levels live in registers, shared by a tile of queries.
#include <type_traits>
#include <utility>

#include "kvasir/kernels/filled_rows.h"
#include "kvasir/kernels/highway_targets.h"
#include "kvasir/kernels/table_parts.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/packed_attention.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if KVASIR_KERNEL_TARGET
#include "kvasir/kernels/packed_levels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvasir::HWY_NAMESPACE {
namespace {

// Query rows that share each vector of levels, times four such vectors: 8 of 16 registers or 24 of
// 32, at least the eight chains that two multiply-adds per cycle of latency four need.
#if HWY_TARGET == HWY_AVX2
constexpr size_t kMaxRows = 2;
#else
constexpr size_t kMaxRows = 6;
#endif
constexpr size_t kVectors = 4;
constexpr int64_t kUnitDims = 8;     // of keys
constexpr int64_t kUnitWords = 16;   // per bit of a code
constexpr int64_t kHalfTokens = 32;  // of a unit of values

// Rows of the next tile when `left` are left, in tiles of about the same height.
int64_t TileRows(int64_t left) {
  constexpr int64_t kMax = kMaxRows;
  const int64_t tiles = (left + kMax - 1) / kMax;
  return (left + tiles - 1) / tiles;
}

// Fetches the u-th of as many shares of the next plane as this one has units, so that both are done
// together. Without a division in Fetch: it runs once per few cycles.
class Prefetcher {
 public:
  Prefetcher(const LinesAhead& next, const PackedPlane& plane)
      : next_(next.from),
        lines_((next.bytes + next.step - 1) / next.step),
        units_(plane.dim / kUnitDims),
        unit_lines_(lines_ / units_),
        line_step_(next.step),
        into_(next.into) {}

  template <size_t kBits>
  HWY_INLINE void Fetch(int64_t u) const {
    if (next_ == nullptr) return;
    if (unit_lines_ == static_cast<int64_t>(kBits)) {  // the usual case, unrolled
      for (int64_t i = 0; i < static_cast<int64_t>(kBits); ++i) {
        FetchLine(next_ + (u * static_cast<int64_t>(kBits) + i) * line_step_, into_);
      }
    } else {
      for (int64_t i = 0; i < unit_lines_; ++i) {
        FetchLine(next_ + (u * unit_lines_ + i) * line_step_, into_);
      }
    }
    for (int64_t line = units_ * unit_lines_ + u; line < lines_; line += units_) {
      FetchLine(next_ + line * line_step_, into_);
    }
  }

 private:
  const std::byte* next_;
  int64_t lines_;
  int64_t units_;
  int64_t unit_lines_;
  int64_t line_step_;
  CacheLevel into_;
};

// One vector of levels is alive at a time: that leaves the registers to the sums.
template <size_t kDim, size_t kVector, class Levels, size_t kRows>
HWY_INLINE void ScoreVector(const Levels& levels, const uint32_t* unit, const VF (&query)[kRows],
                            VF (&part)[kRows][kVectors]) {
  const VF level = LevelAt<kVector* static_cast<size_t>(kUnitDims) + kDim>(levels, unit);
  for (size_t r = 0; r < kRows; ++r) {
    part[r][kVector] = hn::MulAdd(query[r], level, part[r][kVector]);
  }
}

template <size_t kDim, class Levels, size_t kRows>
HWY_INLINE void ScoreDim(const Levels& levels, const uint32_t* unit, const float* queries,
                         int64_t stride, VF (&part)[kRows][kVectors]) {
  VF query[kRows];
  for (size_t r = 0; r < kRows; ++r) query[r] = hn::Set(DF(), queries[r * stride + kDim]);
  ScoreVector<kDim, 0>(levels, unit, query, part);
  ScoreVector<kDim, 1>(levels, unit, query, part);
  ScoreVector<kDim, 2>(levels, unit, query, part);
  ScoreVector<kDim, 3>(levels, unit, query, part);
}

template <class Levels, size_t kRows, size_t... kDim>
HWY_INLINE void ScoreUnit(std::index_sequence<kDim...>, const Levels& levels, const uint32_t* unit,
                          const float* queries, int64_t stride, VF (&part)[kRows][kVectors]) {
  (ScoreDim<kDim>(levels, unit, queries, stride, part), ...);
}

// The 16-lane sum of a group's queries.
float QuerySum(const float* queries, int64_t count) {
  VF lanes[kLaneVectors];
  for (VF& lane : lanes) lane = hn::Zero(DF());
  for (int64_t d = 0; d < count; d += kVirtualLanes) {
    for (size_t v = 0; v < kLaneVectors; ++v) {
      lanes[v] = hn::Add(lanes[v], hn::LoadU(DF(), queries + d + v * kLanes));
    }
  }
  return SumLanes(lanes);
}

// Adds vector kVector of a group's parts to the scores, those of the tokens of lane vector `p`.
// Indices are constants, so that parts never have to be in memory.
template <size_t kVector, size_t kRows>
HWY_INLINE void AddVector(const PackedPlane& plane, int64_t g, size_t p,
                          const VF (&part)[kRows][kVectors], const float (&sums)[kRows],
                          float* scores) {
  const DF d;
  const size_t token = kVector * kVirtualLanes + p * kLanes;
  const VF scale = plane.Parameter(plane.scales, g, static_cast<int64_t>(token));
  if (plane.biases == nullptr) {
    for (size_t r = 0; r < kRows; ++r) {
      hn::StoreU(hn::Mul(scale, part[r][kVector]), d, scores + r * kBlockTokens + token);
    }
    return;
  }
  const VF bias = plane.Parameter(plane.biases, g, static_cast<int64_t>(token));
  for (size_t r = 0; r < kRows; ++r) {
    float* const out = scores + r * kBlockTokens + token;
    const VF before = g == 0 ? hn::Zero(d) : hn::LoadU(d, out);
    const VF score = hn::MulAdd(scale, part[r][kVector], before);
    hn::StoreU(hn::MulAdd(bias, hn::Set(d, sums[r]), score), d, out);
  }
}

template <size_t kRows>
HWY_INLINE void AddGroup(const PackedPlane& plane, int64_t g, size_t p,
                         const VF (&part)[kRows][kVectors], const float (&sums)[kRows],
                         float* scores) {
  AddVector<0>(plane, g, p, part, sums, scores);
  AddVector<1>(plane, g, p, part, sums, scores);
  AddVector<2>(plane, g, p, part, sums, scores);
  AddVector<3>(plane, g, p, part, sums, scores);
}

template <class Levels, size_t kRows>
HWY_NOINLINE void ScoreRows(const ScoreTileArgs& args, const PackedPlane& plane, int64_t row,
                            const Prefetcher& prefetcher) {
  const Levels levels(args.codec, plane.dim);
  const float* const queries = args.queries + row * args.query_stride;
  const int64_t group_units = plane.group / kUnitDims;
  const int64_t groups = plane.dim / plane.group;
  for (int64_t g = 0; g < groups; ++g) {
    float sums[kRows] = {};
    if (plane.biases != nullptr) {
      for (size_t r = 0; r < kRows; ++r) {
        sums[r] = QuerySum(queries + r * args.query_stride + g * plane.group, plane.group);
      }
    }
    for (size_t p = 0; p < kLaneVectors; ++p) {
      VF part[kRows][kVectors];
      for (auto& row_part : part) {
        for (VF& v : row_part) v = hn::Zero(DF());
      }
      for (int64_t u = g * group_units; u < (g + 1) * group_units; ++u) {
        if (p == 0) prefetcher.Fetch<Levels::kBits>(u);
        ScoreUnit(std::make_index_sequence<kUnitDims>(), levels,
                  plane.codes + u * kUnitWords * static_cast<int64_t>(Levels::kBits) + p * kLanes,
                  queries + u * kUnitDims, args.query_stride, part);
      }
      AddGroup(plane, g, p, part, sums, args.scores + row * kBlockTokens);
    }
  }
}

template <class Levels, size_t kRows = kMaxRows>
HWY_INLINE void ScoreAnyRows(const ScoreTileArgs& args, const PackedPlane& plane, int64_t row,
                             int64_t rows, const Prefetcher& prefetcher) {
  if (rows == kRows) return ScoreRows<Levels, kRows>(args, plane, row, prefetcher);
  if constexpr (kRows > 1) {
    ScoreAnyRows<Levels, kRows - 1>(args, plane, row, rows, prefetcher);
  }
}

template <class Levels>
void ScorePacked(const ScoreTileArgs& args) noexcept {
  const PackedPlane plane(args.codec, args.keys, args.key_dim);
  for (int64_t row = 0; row < args.rows;) {
    const int64_t rows = TileRows(args.rows - row);
    const Prefetcher prefetcher(row == 0 ? args.next : LinesAhead(), plane);
    ScoreAnyRows<Levels>(args, plane, row, rows, prefetcher);
    row += rows;
  }
}

// Per row of a tile and token of the block: the weight times the scale of one group.
template <size_t kRows>
struct GroupWeights {
  alignas(64) float weights[kRows][kBlockTokens];
  float shifts[kRows];
};

template <size_t kRows>
HWY_INLINE void LoadGroupWeights(const AccumulateTileArgs& args, const PackedPlane& plane,
                                 int64_t row, int64_t g, GroupWeights<kRows>& out) {
  const DF d;
  VF shifts[kRows][kLaneVectors];
  for (auto& row_shifts : shifts) {
    for (VF& v : row_shifts) v = hn::Zero(d);
  }
  for (size_t i = 0; i < kBlockTokens / kLanes; ++i) {
    const int64_t token = static_cast<int64_t>(i * kLanes);
    const VF scale = plane.Parameter(plane.scales, g, token);
    const VF bias = plane.biases == nullptr ? hn::Zero(d) : plane.Parameter(plane.biases, g, token);
    const VF position = hn::Iota(d, static_cast<float>(token));
    for (size_t r = 0; r < kRows; ++r) {
      const size_t tile_row = static_cast<size_t>(row) + r;
      const auto visible =
          hn::And(hn::Ge(position, hn::Set(d, static_cast<float>(args.begin[tile_row]))),
                  hn::Lt(position, hn::Set(d, static_cast<float>(args.end[tile_row]))));
      const VF weight =
          hn::IfThenElseZero(visible, hn::LoadU(d, args.weights + tile_row * kBlockTokens + token));
      hn::Store(hn::Mul(weight, hn::IfThenElseZero(visible, scale)), d, out.weights[r] + token);
      VF& shift = shifts[r][i % kLaneVectors];
      shift = hn::MulAdd(weight, hn::IfThenElseZero(visible, bias), shift);
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    out.shifts[r] = plane.biases == nullptr ? 0.0f : SumLanes(shifts[r]);
  }
}

// Units of the next plane to fetch during half a unit of kCount vectors, evenly: a burst of
// prefetches would be dropped or wait. At most one per 8 tokens.
template <size_t kCount>
constexpr size_t FetchesPerHalf() {
  return kCount * kLanes / kUnitWords;
}

template <size_t kToken, class Levels, size_t kRows, size_t kCount>
HWY_INLINE void SumToken(const Levels& levels, const uint32_t* const (&units)[kCount],
                         const float* weights, const Prefetcher& prefetcher, int64_t fetch_unit,
                         VF (&acc)[kRows][kCount]) {
  if constexpr (FetchesPerHalf<kCount>() > 0) {
    constexpr size_t kTokens = kHalfTokens / FetchesPerHalf<kCount>();
    if constexpr (kToken % kTokens == 0) {
      prefetcher.template Fetch<Levels::kBits>(fetch_unit + kToken / kTokens);
    }
  }
  VF level[kCount];
  for (size_t v = 0; v < kCount; ++v) level[v] = LevelAt<kToken>(levels, units[v]);
  for (size_t r = 0; r < kRows; ++r) {
    const VF weight = hn::Set(DF(), weights[r * kBlockTokens + kToken]);
    for (size_t v = 0; v < kCount; ++v) acc[r][v] = hn::MulAdd(weight, level[v], acc[r][v]);
  }
}

template <class Levels, size_t kRows, size_t kCount, size_t... kToken>
HWY_INLINE void SumHalf(std::index_sequence<kToken...>, const Levels& levels,
                        const uint32_t* const (&units)[kCount], const float* weights,
                        const Prefetcher& prefetcher, int64_t fetch_unit,
                        VF (&acc)[kRows][kCount]) {
  (SumToken<kToken>(levels, units, weights, prefetcher, fetch_unit, acc), ...);
}

// Value sums of the dims [dim, dim + kCount * kLanes), which are in one group.
template <class Levels, size_t kRows, size_t kCount>
HWY_INLINE void SumDims(const AccumulateTileArgs& args, const PackedPlane& plane,
                        const Levels& levels, const GroupWeights<kRows>& weights, int64_t row,
                        int64_t dim, const Prefetcher& prefetcher) {
  const DF d;
  constexpr int64_t kWords = kUnitWords * Levels::kBits;
  VF acc[kRows][kCount];
  float* const out = args.accumulator + row * args.accumulator_stride + dim;
  for (size_t r = 0; r < kRows; ++r) {
    const VF rescale = hn::Set(d, args.rescale[row + static_cast<int64_t>(r)]);
    for (size_t v = 0; v < kCount; ++v) {
      acc[r][v] = hn::Mul(hn::LoadU(d, out + r * args.accumulator_stride + v * kLanes), rescale);
    }
  }
  for (int64_t half = 0; half < 2; ++half) {
    const uint32_t* units[kCount];
    for (size_t v = 0; v < kCount; ++v) {
      const int64_t first = dim + static_cast<int64_t>(v * kLanes);
      units[v] = plane.codes + (first / kUnitWords * 2 + half) * kWords + first % kUnitWords;
    }
    constexpr int64_t kFetches = FetchesPerHalf<kCount>();
    if (kFetches == 0 && half == 0 && dim % kUnitDims == 0) {
      prefetcher.Fetch<Levels::kBits>(dim / kUnitDims);
    }
    SumHalf(std::make_index_sequence<kHalfTokens>(), levels, units,
            weights.weights[0] + half * kHalfTokens, prefetcher, dim / kUnitDims + half * kFetches,
            acc);
  }
  for (size_t r = 0; r < kRows; ++r) {
    const VF shift = hn::Set(d, weights.shifts[r]);
    for (size_t v = 0; v < kCount; ++v) {
      hn::StoreU(hn::Add(acc[r][v], shift), d, out + r * args.accumulator_stride + v * kLanes);
    }
  }
}

template <class Levels, size_t kRows>
HWY_NOINLINE void SumRows(const AccumulateTileArgs& args, const PackedPlane& plane, int64_t row,
                          const Prefetcher& prefetcher) {
  constexpr int64_t kStep = kVectors * kLanes;
  const Levels levels(args.codec, plane.dim);
  const int64_t groups = plane.dim / plane.group;
  for (int64_t g = 0; g < groups; ++g) {
    GroupWeights<kRows> weights;
    LoadGroupWeights(args, plane, row, g, weights);
    int64_t dim = g * plane.group;
    const int64_t end = dim + plane.group;
    for (; dim + kStep <= end; dim += kStep) {
      SumDims<Levels, kRows, kVectors>(args, plane, levels, weights, row, dim, prefetcher);
    }
    for (; dim < end; dim += kLanes) {
      SumDims<Levels, kRows, 1>(args, plane, levels, weights, row, dim, prefetcher);
    }
  }
}

template <class Levels, size_t kRows = kMaxRows>
HWY_INLINE void SumAnyRows(const AccumulateTileArgs& args, const PackedPlane& plane, int64_t row,
                           int64_t rows, const Prefetcher& prefetcher) {
  if (rows == kRows) return SumRows<Levels, kRows>(args, plane, row, prefetcher);
  if constexpr (kRows > 1) SumAnyRows<Levels, kRows - 1>(args, plane, row, rows, prefetcher);
}

template <class Levels>
void AccumulatePacked(const AccumulateTileArgs& args) noexcept {
  const PackedPlane plane(args.codec, args.values, args.value_dim);
  LinesAhead next = args.next;
  FilledRows filled(args);
  while (const int64_t left = filled.Left()) {
    const int64_t rows = TileRows(left);
    SumAnyRows<Levels>(args, plane, filled.row(), rows, Prefetcher(next, plane));
    next = {};
    filled.Skip(rows);
  }
}

template <class Levels>
void FillFormat(const KvCodec& codec, KernelTable* table) {
  KvCodecKernels& kernels = table->kv[KvFormatIndex(codec)];
  kernels.score_tile = ScorePacked<Levels>;
  kernels.accumulate_tile = AccumulatePacked<Levels>;
}

template <size_t... kBits>
void FillAffine(std::index_sequence<kBits...>, KernelTable* table) {
  (FillFormat<AffineLevels<kBits>>(KvCodec::Affine(kBits, 64), table), ...);
}

template <size_t... kBits>
void FillTurbo(std::index_sequence<kBits...>, KernelTable* table) {
  (FillFormat<TableLevels<kBits>>(KvCodec::Turbo(kBits), table), ...);
}

}  // namespace

void FillPackedAttention(KernelTable* table) {
  FillAffine(std::index_sequence<2, 3, 4, 5, 6, 8>(), table);
  FillTurbo(std::index_sequence<2, 3, 4>(), table);
}

}  // namespace kvasir::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
#include "kvasir/kernels/table_fill.h"
KVASIR_FILL_BY_ISA(FillPackedAttention)
#endif
