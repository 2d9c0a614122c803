// Matmul with q8 and q4 weights on activations quantized per row and group of 32
// (quantize_rows.cc). Deliberately never sums floats across lanes: integer sums are exact, and the
// groups of an output form one chain of fused multiply-adds (kernels.h).
#include "kvasir/kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/quant_matmul.cc"
#include <cstring>

#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kvasir/kernels/table_parts.h"

#if KVASIR_KERNEL_TARGET

#include "kvasir/kernels/plane_matmul-inl.h"

#undef KVASIR_BEFORE_TILE
#define KVASIR_BEFORE_TILE() KVASIR_BEFORE_BYTE_DOT()
#include "kvasir/kernels/tile_run-inl.h"

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

struct QuantBlock {
  const int8_t* x_codes = nullptr;  // [rows, inputs], at the block's first group
  const float* x_scales = nullptr;  // [rows, inputs/32], likewise
  const int32_t* x_sums = nullptr;
  int64_t row_groups = 0;              // inputs/32 of a whole row
  const std::byte* weights = nullptr;  // of the first panel, at the block's first pair of groups
  int64_t panel_bytes = 0;
  int64_t groups = 0;  // of the block
  const WeightPrefetch* prefetch = &kNoFetch;
};

// kCodesPerByte is 1 (q8) or 2 (q4).
template <class Dot, int kCodesPerByte>
struct QuantTile : TileRun<QuantTile<Dot, kCodesPerByte>> {
  using Sum = typename Dot::Sum;
  using Weights = typename Dot::Weights;

  static constexpr GroupUnits kUnits =
      UnitsOf(kCodesPerByte == 1 ? WeightFormat::kQ8 : WeightFormat::kQ4);
  static constexpr int64_t kPairBytes = kUnits.unit_bytes();
  // Loads of a group: each brings 4 inputs (low codes) or 4 and 4 more (high codes).
  static constexpr int kSteps = kUnits.code_bytes / 64;

  // Integer sums and float sums of a tile share the registers: 2 x 12 of 32 with AVX-512. NEON
  // without dot products needs two registers per integer sum.
  static constexpr int kTileRows = HWY_TARGET == HWY_AVX3_DL                       ? 6
                                   : HWY_TARGET == HWY_AVX2 || KVASIR_HAS_BYTE_DOT ? 4
                                                                                   : 2;
  // Few rows are bound by memory and want four panels' streams, even where float sums then rest in
  // memory during a group, as they do with narrow vectors. NEON with dot products takes
  // panels one by one and no more than have 16 float sums.
  static constexpr int MaxPanels(int64_t rows, bool is_alone) {
    if (HWY_TARGET == HWY_AVX3_DL) return rows <= 4 ? 4 : 2;
    if (!is_alone) return 1;
    if (HWY_TARGET == HWY_NEON && KVASIR_HAS_BYTE_DOT) return rows == 1 ? 4 : rows == 2 ? 2 : 1;
    return rows <= 2 ? 4 : 2;
  }

  static HWY_INLINE IntVec FourCodes(const int8_t* codes) {
    int32_t four;
    std::memcpy(&four, codes, sizeof(four));
    return hn::Set(IntTag(), four);
  }

  template <int C, size_t... I>
  static HWY_INLINE void AddRow(IntVec x, const Weights (&w)[C], Sum (&sums)[C],
                                std::index_sequence<I...>) {
    ((sums[I] = Dot::Add(sums[I], w[I], x)), ...);
  }

  template <int R, int C, size_t... I>
  static HWY_INLINE void AddRows(const int8_t* x, int64_t x_stride, const Weights (&w)[C],
                                 Sum (&sums)[R][C], std::index_sequence<I...>) {
    (AddRow(FourCodes(x + static_cast<int64_t>(I) * x_stride), w, sums[I],
            std::make_index_sequence<C>()),
     ...);
  }

  template <int C, size_t... I>
  static HWY_INLINE void LoadCodes(const uint8_t* from, int64_t panel_bytes, ByteVec (&raw)[C],
                                   std::index_sequence<I...>) {
    ((raw[I] = hn::Load(ByteTag(), from + static_cast<int64_t>(I / kVecsPerPanel) * panel_bytes +
                                       (I % kVecsPerPanel) * kVecBytes)),
     ...);
  }

  template <int C, size_t... I>
  static HWY_INLINE void LoadScales(const hwy::float16_t* from, int64_t panel_bytes,
                                    FloatVec (&scales)[C], std::index_sequence<I...>) {
    const hn::Rebind<hwy::float16_t, FloatTag> half;
    ((scales[I] = hn::PromoteTo(
          FloatTag(),
          hn::Load(half, from + static_cast<int64_t>(I / kVecsPerPanel) * panel_bytes / 2 +
                             (I % kVecsPerPanel) * kLanes))),
     ...);
  }

  template <int C, size_t... I>
  static HWY_INLINE void Prepare(const ByteVec (&raw)[C], Weights (&w)[C],
                                 std::index_sequence<I...>) {
    ((w[I] = Dot::Prepare(raw[I])), ...);
  }
  template <int C, size_t... I>
  static HWY_INLINE void PrepareLow(const ByteVec (&raw)[C], Weights (&w)[C],
                                    std::index_sequence<I...>) {
    ((w[I] = Dot::Prepare(hn::And(raw[I], hn::Set(ByteTag(), 0x0F)))), ...);
  }
  template <int C, size_t... I>
  static HWY_INLINE void PrepareHigh(const ByteVec (&raw)[C], Weights (&w)[C],
                                     std::index_sequence<I...>) {
    const hn::Repartition<uint16_t, ByteTag> wide;  // x86 shifts no bytes
    ((w[I] =
          Dot::Prepare(hn::And(hn::BitCast(ByteTag(), hn::ShiftRight<4>(hn::BitCast(wide, raw[I]))),
                               hn::Set(ByteTag(), 0x0F)))),
     ...);
  }

  template <size_t kStep, int R, int C, size_t kSums>
  static HWY_INLINE void AddStep(const uint8_t* weights, int64_t panel_bytes, const int8_t* x,
                                 int64_t x_stride, Sum (&sums)[kSums][R][C]) {
    constexpr auto kColumns = std::make_index_sequence<C>();
    constexpr auto kRows = std::make_index_sequence<R>();
    ByteVec raw[C];
    LoadCodes(weights, panel_bytes, raw, kColumns);
    Weights w[C];
    if constexpr (kCodesPerByte == 1) {
      Prepare(raw, w, kColumns);
      AddRows(x, x_stride, w, sums[kStep % kSums], kRows);
    } else {
      PrepareLow(raw, w, kColumns);
      AddRows(x, x_stride, w, sums[0], kRows);
      PrepareHigh(raw, w, kColumns);
      AddRows(x + kQuantGroup / 2, x_stride, w, sums[kSums - 1], kRows);
    }
  }

  template <int C, size_t... I>
  static HWY_INLINE void StartRow(Sum start, Sum (&sums)[C], std::index_sequence<I...>) {
    ((sums[I] = start), ...);
  }
  template <int R, int C, size_t... I>
  static HWY_INLINE void StartRows(const int32_t* x_sums, int64_t stride, Sum (&sums)[R][C],
                                   std::index_sequence<I...>) {
    (StartRow(Dot::Start(x_sums + static_cast<int64_t>(I) * stride), sums[I],
              std::make_index_sequence<C>()),
     ...);
  }

  template <int C, size_t... I>
  static HWY_INLINE void FinishRow(const Sum (&sums)[C], const int32_t* x_sum, float x_scale,
                                   const FloatVec (&w_scales)[C], FloatVec (&acc)[C],
                                   std::index_sequence<I...>) {
    const FloatTag d;
    const FloatVec scale = hn::Set(d, x_scale);
    ((acc[I] = hn::MulAdd(hn::ConvertTo(d, Dot::Finish(sums[I], x_sum)),
                          hn::Mul(scale, w_scales[I]), acc[I])),
     ...);
  }
  template <int R, int C, size_t... I>
  static HWY_INLINE void FinishRows(const Sum (&sums)[R][C], const int32_t* x_sums,
                                    const float* x_scales, int64_t stride,
                                    const FloatVec (&w_scales)[C], FloatVec (&acc)[R][C],
                                    std::index_sequence<I...>) {
    (FinishRow(sums[I], x_sums + static_cast<int64_t>(I) * stride,
               x_scales[static_cast<int64_t>(I) * stride], w_scales, acc[I],
               std::make_index_sequence<C>()),
     ...);
  }

  // Where a group begins.
  struct Group {
    const uint8_t* weights = nullptr;  // codes of the first panel
    const hwy::float16_t* scales = nullptr;
    int64_t panel_bytes = 0;
    const int8_t* x = nullptr;
    int64_t x_stride = 0;
  };

  // Unrolled: as a loop GCC 12 copies every sum twice per step, which costs as much as the sums.
  template <int R, int C, size_t kSums, size_t... kStep>
  static HWY_INLINE void AddSteps(const Group& group, Sum (&sums)[kSums][R][C],
                                  std::index_sequence<kStep...>) {
    (AddStep<kStep>(group.weights + kStep * 64, group.panel_bytes, group.x + kStep * 4,
                    group.x_stride, sums),
     ...);
  }

#if HWY_TARGET == HWY_NEON && KVASIR_HAS_BYTE_DOT
  // A row's codes of a group stay in two registers, with whose lanes the instruction multiplies,
  // and panels come one after the other, of many rows their halves, so that sums have room in the
  // others.
  template <size_t kStep, size_t kVector, int R, int C>
  static HWY_INLINE void AddVector(const uint8_t* weights, const GroupCodes<R>& x,
                                   Sum (&sums)[R][C]) {
    constexpr auto kRows = std::make_index_sequence<R>();
    const ByteTag d;
    const ByteVec raw = hn::LoadU(d, weights + kStep * 64 + kVector * kVecBytes);
    if constexpr (kCodesPerByte == 1) {
      AddFourCodes<Dot, kStep, kVector>(Dot::Prepare(raw), x, sums, kRows);
    } else {
      AddFourCodes<Dot, kStep, kVector>(Dot::Prepare(hn::And(raw, hn::Set(d, 0x0F))), x, sums,
                                        kRows);
      AddFourCodes<Dot, kStep + 4, kVector>(Dot::Prepare(hn::ShiftRight<4>(raw)), x, sums, kRows);
    }
  }
  template <size_t kStep, int R, int C, size_t... V>
  static HWY_INLINE void AddPanelStep(const uint8_t* weights, const GroupCodes<R>& x,
                                      Sum (&sums)[R][C], std::index_sequence<V...>) {
    (AddVector<kStep, V>(weights, x, sums), ...);
  }
  template <int R, int C, size_t... kStep>
  static HWY_INLINE void AddPanel(const uint8_t* weights, const GroupCodes<R>& x, Sum (&sums)[R][C],
                                  std::index_sequence<kStep...>) {
    (AddPanelStep<kStep>(weights, x, sums, std::make_index_sequence<C>()), ...);
  }
  template <size_t kFirst, int S, int C, size_t... V>
  static HWY_INLINE void FinishVectors(const Sum (&sums)[S], float x_scale,
                                       const FloatVec (&w_scales)[S], FloatVec (&acc)[C],
                                       std::index_sequence<V...>) {
    const FloatTag d;
    const FloatVec scale = hn::Set(d, x_scale);
    ((acc[kFirst + V] =
          hn::MulAdd(hn::ConvertTo(d, sums[V]), hn::Mul(scale, w_scales[V]), acc[kFirst + V])),
     ...);
  }
  // Vectors [kFirst, kFirst + kCount) of the tile's, all of one panel.
  template <size_t kFirst, int kCount, int R, int C, size_t... I>
  static HWY_INLINE void AddVectors(const QuantBlock& block, int64_t g, const Group& group,
                                    const GroupCodes<R>& x, FloatVec (&acc)[R][C],
                                    std::index_sequence<I...> rows) {
    constexpr auto kVectors = std::make_index_sequence<kCount>();
    constexpr int64_t kVector = kFirst % kVecsPerPanel;
    const int64_t panel = static_cast<int64_t>(kFirst / kVecsPerPanel) * group.panel_bytes;
    Sum sums[R][kCount];
    StartRows(block.x_sums + g, block.row_groups, sums, rows);
    AddPanel(group.weights + panel + kVector * kVecBytes, x, sums,
             std::make_index_sequence<kSteps>());
    FloatVec w_scales[kCount];
    LoadScales(group.scales + panel / 2 + kVector * kLanes, group.panel_bytes, w_scales, kVectors);
    const float* const x_scales = block.x_scales + g;
    (FinishVectors<kFirst>(sums[I], x_scales[static_cast<int64_t>(I) * block.row_groups], w_scales,
                           acc[I], kVectors),
     ...);
  }
  template <size_t kPanel, int R, int C>
  static HWY_INLINE void AddPanelOfGroup(const QuantBlock& block, int64_t g, const Group& group,
                                         const GroupCodes<R>& x, FloatVec (&acc)[R][C]) {
    constexpr auto kRows = std::make_index_sequence<R>();
    constexpr size_t kFirst = kPanel * kVecsPerPanel;
    if constexpr (R <= 2) {
      AddVectors<kFirst, kVecsPerPanel>(block, g, group, x, acc, kRows);
    } else {
      AddVectors<kFirst, kVecsPerPanel / 2>(block, g, group, x, acc, kRows);
      asm volatile("" ::: "memory");  // else both halves' sums are made at once, and spilled
      AddVectors<kFirst + kVecsPerPanel / 2, kVecsPerPanel / 2>(block, g, group, x, acc, kRows);
    }
  }
  template <int R, int C, size_t... kPanel>
  static HWY_INLINE void AddGroup(const QuantBlock& block, int64_t g, const Group& group,
                                  FloatVec (&acc)[R][C], std::index_sequence<kPanel...>) {
    GroupCodes<R> x;
    LoadGroupCodes<R>(group.x, group.x_stride, x, std::make_index_sequence<R>());
    (AddPanelOfGroup<kPanel>(block, g, group, x, acc), ...);
  }
#else
  template <int R, int C, size_t... kPanel>
  static HWY_INLINE void AddGroup(const QuantBlock& block, int64_t g, const Group& group,
                                  FloatVec (&acc)[R][C], std::index_sequence<kPanel...>) {
    constexpr auto kRows = std::make_index_sequence<R>();
    Sum sums[kSumChains<R, C>][R][C];
    for (auto& chain : sums) StartRows(block.x_sums + g, block.row_groups, chain, kRows);
    AddSteps(group, sums, std::make_index_sequence<kSteps>());
    JoinChains(sums, kRows);
    FloatVec w_scales[C];
    LoadScales(group.scales, group.panel_bytes, w_scales, std::make_index_sequence<C>());
    FinishRows(sums[0], block.x_sums + g, block.x_scales + g, block.row_groups, w_scales, acc,
               kRows);
  }
#endif

  template <int P, Fetch kFetch, int R, int C>
  static HWY_INLINE void Accumulate(const QuantBlock& block, FloatVec (&acc)[R][C]) {
    const WeightPrefetch prefetch = *block.prefetch;
    Group group;
    group.panel_bytes = block.panel_bytes;
    group.x = block.x_codes;
    group.x_stride = block.row_groups * kQuantGroup;
    int64_t step = 0;
    for (int64_t g = 0; g < block.groups; ++g) {
      const std::byte* const pair = block.weights + g / 2 * kPairBytes;
      group.weights = reinterpret_cast<const uint8_t*>(pair + kUnits.CodesOf(g % 2));
      group.scales = reinterpret_cast<const hwy::float16_t*>(pair + kUnits.ScalesOf(g % 2));
      if constexpr (kFetch != Fetch::kNothing) {
        // A pair is a line of scales and those of its codes.
        if (g % 2 == 0) PrefetchPanels<kFetch>(prefetch, step++, std::make_index_sequence<P>());
        for (int i = 0; i < kSteps; ++i) {
          PrefetchPanels<kFetch>(prefetch, step++, std::make_index_sequence<P>());
        }
      }
      AddGroup(block, g, group, acc, std::make_index_sequence<P>());
      group.x += kQuantGroup;
    }
  }
};

// Its units are pairs of groups.
template <class Tile>
struct QuantKernel {
  static constexpr int kTileRows = Tile::kTileRows;
  static constexpr int64_t kStepBytes = GroupUnits::kLineBytes;
  static constexpr int64_t kAheadBytes = (Tile::kSteps == 8 ? 4 : 16) * Tile::kPairBytes;
  static constexpr int kStreamRows = 2;
  static constexpr int MaxPanels(int64_t rows, bool is_alone) {
    return Tile::MaxPanels(rows, is_alone);
  }
  static int64_t UnitBytes(const MatmulArgs&) { return Tile::kPairBytes; }
  static int64_t Units(const MatmulArgs& args) {
    return (args.weights->inputs() / kQuantGroup + 1) / 2;
  }
  // Scales not counted: a power of two, as inputs are.
  static int64_t BlockUnits(const MatmulArgs&, int panels) {
    return kBlockBytes / (panels * 2 * static_cast<int64_t>(Tile::kUnits.code_bytes));
  }

  class Block {
   public:
    Block(const MatmulArgs& args, int64_t panel, int panels, int64_t begin, int64_t count)
        : args_(args), panels_(panels), first_group_(2 * begin) {
      block_.row_groups = args.weights->inputs() / kQuantGroup;
      block_.weights = args.weights->panel(panel) + begin * Tile::kPairBytes;
      block_.panel_bytes = static_cast<int64_t>(args.weights->panel_bytes());
      block_.groups = std::min(2 * count, block_.row_groups - first_group_);
    }

    void Run(int64_t row, int64_t rows, const WeightPrefetch& prefetch, const TileOutput& output) {
      const int64_t group = row * block_.row_groups + first_group_;
      block_.x_codes = args_.x_codes + group * kQuantGroup;
      block_.x_scales = args_.x_scales + group;
      block_.x_sums = args_.x_sums + group;
      block_.prefetch = &prefetch;
      CallTile<Tile>(rows, panels_, block_, output);
    }

   private:
    const MatmulArgs& args_;
    const int panels_;
    const int64_t first_group_;
    QuantBlock block_;
  };
};

using Q8Kernel = QuantKernel<QuantTile<Q8Dot, 1>>;
using Q4Kernel = QuantKernel<QuantTile<Q4Dot, 2>>;

void FillQuantPlanes(KernelTable* table) {
  table->matmul[static_cast<int>(WeightFormat::kQ8)] =
      RunByRows<WeightFormat::kQ8, Ports::kShared, Q8Kernel>;
  table->matmul[static_cast<int>(WeightFormat::kQ4)] =
      RunByRows<WeightFormat::kQ4, Ports::kShared, Q4Kernel>;
}

void FillQuantMatmul(KernelTable* table) {
  if (HWY_TARGET != HWY_AVX3_DL) return FillQuantPlanes(table);
  table->matmul[static_cast<int>(WeightFormat::kQ8)] = RunMatmul<Q8Kernel>;
  table->matmul[static_cast<int>(WeightFormat::kQ4)] = RunMatmul<Q4Kernel>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
#include "kvasir/kernels/table_fill.h"
KVASIR_FILL_BY_ISA(FillQuantMatmul)
#ifndef KVASIR_BYTE_DOT
KVASIR_FILL_BY_ISA(FillQuantPlanes)
#endif
#endif
