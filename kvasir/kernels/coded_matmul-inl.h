// Matmul with weights kept as a file coded them (coded_row.h), on activations quantized per row and
// group of 32; one file for each way that scales lie (affine_matmul.cc, block_matmul.cc,
// superblock_matmul.cc) fills its formats' entries.
// Deliberately never sums floats across lanes: integer sums are exact, and the groups of an output
// form one chain of fused multiply-adds (docs/numerics.md).
#if defined(KVASIR_KERNELS_CODED_MATMUL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_CODED_MATMUL_INL_H_
#undef KVASIR_KERNELS_CODED_MATMUL_INL_H_
#else
#define KVASIR_KERNELS_CODED_MATMUL_INL_H_
#endif

#include <cstring>
#include <utility>

#include "hwy/highway.h"
#include "kvasir/kernels/plane_matmul-inl.h"

#undef KVASIR_BEFORE_TILE
#define KVASIR_BEFORE_TILE() KVASIR_BEFORE_BYTE_DOT()
#include "kvasir/kernels/tile_run-inl.h"

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

template <WeightFormat kFormat>
struct CodedTile : TileRun<CodedTile<kFormat>> {
  using Code = Coding<kFormat>;
  using Lines = CodedLines<kFormat>;
  using Scales = CodedScales<kFormat>;
  using Dot = typename Code::Dot;
  using Sum = typename Dot::Sum;
  using Weights = typename Dot::Weights;

  // As quant_matmul.cc; bits above the fourth and biases take registers from the sums.
  static constexpr int kTileRows = HWY_TARGET == HWY_NEON && !KVASIR_HAS_BYTE_DOT ? 2 : 4;
  static constexpr int MaxPanels(int64_t rows, bool is_alone) {
    if (HWY_TARGET == HWY_AVX3_DL) return rows <= 2 ? 4 : 2;
    if (!is_alone) return 1;
    // With more rows arithmetic counts, which spills where codes are put together; with NEON it
    // does so with few rows as well.
    if (HWY_TARGET == HWY_NEON && KVASIR_HAS_BYTE_DOT) return rows <= 2 ? 2 : 1;
    return rows <= 2 ? 4 : Code::kIsAffine && Code::kIsPlain ? 2 : 1;
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

  // Where a group begins.
  struct Group {
    const std::byte* weights = nullptr;
    int64_t panel_bytes = 0;
    const int8_t* x = nullptr;
    int64_t x_stride = 0;
  };

  // The inputs of R rows of a group, and adding the products with the kFour-th four of them.
#if HWY_TARGET == HWY_NEON && KVASIR_HAS_BYTE_DOT
  template <int R>
  struct Inputs {
    GroupCodes<R> codes;
    explicit HWY_INLINE Inputs(const Group& group) {
      LoadGroupCodes<R>(group.x, group.x_stride, codes, std::make_index_sequence<R>());
    }
  };
  template <size_t kFour, int R, int C, size_t... V>
  static HWY_INLINE void AddVectors(const Inputs<R>& x, const Weights (&w)[C], Sum (&sums)[R][C],
                                    std::index_sequence<V...>) {
    (AddFourCodes<Dot, kFour, V>(w[V], x.codes, sums, std::make_index_sequence<R>()), ...);
  }
  template <size_t kFour, int R, int C, size_t... I>
  static HWY_INLINE void AddRows(const Inputs<R>& x, const Weights (&w)[C], Sum (&sums)[R][C],
                                 std::index_sequence<I...>) {
    AddVectors<kFour>(x, w, sums, std::make_index_sequence<C>());
  }
#else
  template <int R>
  struct Inputs {
    const Group& group;
    explicit HWY_INLINE Inputs(const Group& of) : group(of) {}
  };
  template <size_t kFour, int R, int C, size_t... I>
  static HWY_INLINE void AddRows(const Inputs<R>& x, const Weights (&w)[C], Sum (&sums)[R][C],
                                 std::index_sequence<I...>) {
    const int8_t* const four = x.group.x + 4 * kFour;
    (AddRow(FourCodes(four + static_cast<int64_t>(I) * x.group.x_stride), w, sums[I],
            std::make_index_sequence<C>()),
     ...);
  }
#endif

  template <int kLine, bool kHigh, int C, size_t... I>
  static HWY_INLINE void Prepare(const ByteVec (&raw)[C], const ByteVec (&more)[C], Weights (&w)[C],
                                 std::index_sequence<I...>) {
    ((w[I] = Dot::Prepare(Lines::template Codes<kLine, kHigh>(raw[I], more[I]))), ...);
  }

  template <size_t kLine, bool kLow, bool kHigh, int R, int C, size_t kSums>
  static HWY_INLINE void AddLine(const Group& group, const Inputs<R>& x, const ByteVec (&more)[C],
                                 Sum (&sums)[kSums][R][C]) {
    constexpr auto kColumns = std::make_index_sequence<C>();
    constexpr auto kRows = std::make_index_sequence<R>();
    ByteVec raw[C];
    Lines::Load(group.weights, Lines::RawLine(kLine), group.panel_bytes, raw, kColumns);
    Weights w[C];
    if constexpr (kLow) {
      Prepare<kLine, false>(raw, more, w, kColumns);
      AddRows<kLine>(x, w, sums[kLine % kSums], kRows);
    }
    if constexpr (kHigh) {
      Prepare<kLine, true>(raw, more, w, kColumns);
      AddRows<4 + kLine>(x, w, sums[(kLine + 1) % kSums], kRows);
    }
  }

  // Unrolled, as in quant_matmul.cc.
  template <bool kLow, bool kHigh, int R, int C, size_t kSums, size_t... kLine>
  static HWY_INLINE void AddLines(const Group& group, const Inputs<R>& x, const ByteVec (&more)[C],
                                  Sum (&sums)[kSums][R][C], std::index_sequence<kLine...>) {
    (AddLine<kLine, kLow, kHigh>(group, x, more, sums), ...);
  }

  template <int C, size_t... I>
  static HWY_INLINE void ClearRow(Sum (&sums)[C], std::index_sequence<I...>) {
    ((sums[I] = Dot::Start()), ...);
  }
  template <int R, int C, size_t kSums, size_t... I>
  static HWY_INLINE void Clear(Sum (&sums)[kSums][R][C], std::index_sequence<I...>) {
    for (auto& chain : sums) (ClearRow(chain[I], std::make_index_sequence<C>()), ...);
  }

  // acc += (sum - zero) * x_scale * scale
  template <int C, size_t... I>
  static HWY_INLINE void FinishRow(const Sum (&sums)[C], int32_t x_sum, int32_t zero, float x_scale,
                                   const FloatVec (&scales)[C], FloatVec (&acc)[C],
                                   std::index_sequence<I...>) {
    const FloatTag d;
    const FloatVec scale = hn::Set(d, x_scale);
    const IntVec start = hn::Set(IntTag(), zero);
    if constexpr (!Code::kHasMins) {
      ((acc[I] = hn::MulAdd(hn::ConvertTo(d, hn::Sub(Dot::Finish(sums[I], x_sum), start)),
                            hn::Mul(scale, scales[I]), acc[I])),
       ...);
    } else {
      ((acc[I] = hn::MulAdd(hn::ConvertTo(d, Dot::Finish(sums[I], x_sum)),
                            hn::Mul(scale, scales[I]), acc[I])),
       ...);
    }
  }
  template <int C, size_t... I>
  static HWY_INLINE void AddBiases(float x_sum, const FloatVec (&biases)[C], FloatVec (&acc)[C],
                                   std::index_sequence<I...>) {
    const FloatVec sum = hn::Set(FloatTag(), x_sum);
    ((acc[I] = hn::MulAdd(sum, biases[I], acc[I])), ...);
  }

  // Row r of a group whose scale and bias hold for all 32 inputs. Not lambdas: clang instantiates
  // those of templates without their target.
  template <int C>
  static HWY_INLINE void FinishGroupRow(size_t r, const Sum (&row)[C], const CodedBlock& block,
                                        int64_t g, const GroupScales<C>& scales,
                                        FloatVec (&to)[C]) {
    constexpr auto kColumns = std::make_index_sequence<C>();
    const int64_t at = static_cast<int64_t>(r) * block.row_groups + g;
    const float x_scale = block.x_scales[at];
    const int32_t x_sum = block.x_sums[at];
    FinishRow(row, x_sum, Code::kZero * x_sum, x_scale, scales.scale[0], to, kColumns);
    if constexpr (!Code::kHasMins) return;
    AddBiases(x_scale * static_cast<float>(x_sum), scales.bias[0], to, kColumns);
  }
  template <int R, int C, size_t... I>
  static HWY_INLINE void FinishGroup(const Sum (&sums)[R][C], const CodedBlock& block, int64_t g,
                                     const GroupScales<C>& scales, FloatVec (&acc)[R][C],
                                     std::index_sequence<I...>) {
    (FinishGroupRow(I, sums[I], block, g, scales, acc[I]), ...);
  }

  // Row r of half a group.
  template <int kHalf, int C>
  static HWY_INLINE void FinishHalfRow(size_t r, const Sum (&row)[C], const CodedBlock& block,
                                       int64_t g, const GroupScales<C>& scales, FloatVec (&to)[C]) {
    constexpr auto kColumns = std::make_index_sequence<C>();
    const int64_t at = static_cast<int64_t>(r) * block.row_groups + g;
    const int32_t first = block.x_half_sums[at];
    const int32_t x_sum = kHalf == 0 ? first : block.x_sums[at] - first;
    const float x_scale = block.x_scales[at];
    FinishRow(row, x_sum, Code::kZero * x_sum, x_scale, scales.scale[kHalf], to, kColumns);
    if constexpr (!Code::kHasMins) return;
    AddBiases(x_scale * static_cast<float>(x_sum), scales.bias[kHalf], to, kColumns);
  }
  template <int kHalf, int R, int C, size_t... I>
  static HWY_INLINE void FinishHalf(const Sum (&sums)[R][C], const CodedBlock& block, int64_t g,
                                    const GroupScales<C>& scales, FloatVec (&acc)[R][C],
                                    std::index_sequence<I...>) {
    (FinishHalfRow<kHalf>(I, sums[I], block, g, scales, acc[I]), ...);
  }

  template <int R, int C>
  static HWY_INLINE void AddGroup(const CodedBlock& block, const Group& group, int64_t g,
                                  const GroupScales<C>& scales, FloatVec (&acc)[R][C]) {
    constexpr auto kRows = std::make_index_sequence<R>();
    constexpr auto kColumns = std::make_index_sequence<C>();
    const Inputs<R> x(group);
    Sum sums[kSumChains<R, C>][R][C];
    Clear(sums, kRows);
    ByteVec more[C];
    Lines::Load(group.weights, Lines::MoreLine(false), group.panel_bytes, more, kColumns);
    if constexpr (Code::kHasHalves || Code::kHasPairs) {
      AddLines<true, false>(group, x, more, sums, std::make_index_sequence<4>());
      if constexpr (Code::kHasHalves) {
        JoinChains(sums, kRows);
        FinishHalf<0>(sums[0], block, g, scales, acc, kRows);
        Clear(sums, kRows);
      }
      Lines::Load(group.weights, Lines::MoreLine(true), group.panel_bytes, more, kColumns);
      AddLines<false, true>(group, x, more, sums, std::make_index_sequence<4>());
    } else {
      constexpr int kLines = Code::kIsByte ? 8 : 4;
      AddLines<true, !Code::kIsByte>(group, x, more, sums, std::make_index_sequence<kLines>());
    }
    JoinChains(sums, kRows);
    if constexpr (Code::kHasHalves) {
      FinishHalf<1>(sums[0], block, g, scales, acc, kRows);
    } else {
      FinishGroup(sums[0], block, g, scales, acc, kRows);
    }
  }

  template <int P, Fetch kFetch, int R, int C>
  static HWY_INLINE void Accumulate(const CodedBlock& block, FloatVec (&acc)[R][C]) {
    constexpr auto kColumns = std::make_index_sequence<C>();
    const WeightPrefetch prefetch = *block.prefetch;
    const int64_t unit_groups = Code::kIsAffine ? block.unit_groups : Code::kUnitGroups;
    Group group = {block.weights, block.panel_bytes, block.x_codes, block.row_groups * kQuantGroup};
    const std::byte* unit = block.weights;
    int64_t step = 0;
    for (int64_t g = 0; g < block.groups; unit += Code::UnitBytes(unit_groups)) {
      if constexpr (kFetch != Fetch::kNothing && Code::kHasScaleLine) {
        PrefetchPanels<kFetch>(prefetch, step++, std::make_index_sequence<P>());
      }
      const int64_t end = std::min(g + unit_groups, block.groups);
      for (int64_t at = 0; g < end; ++g, ++at) {
        if constexpr (kFetch != Fetch::kNothing) {
          for (int64_t i = 0; i < Code::kSteps; ++i) {
            PrefetchPanels<kFetch>(prefetch, step++, std::make_index_sequence<P>());
          }
        }
        group.weights = unit + Code::kScaleBytes + at * Code::kGroupBytes;
        GroupScales<C> scales;
        Scales::Load(block, unit, at, scales, kColumns);
        AddGroup(block, group, g, scales, acc);
        group.x += kQuantGroup;
      }
    }
  }
};

template <WeightFormat kFormat>
struct CodedKernel : CodedUnits<kFormat> {
  using Tile = CodedTile<kFormat>;
  using Code = Coding<kFormat>;
  static constexpr int kTileRows = Tile::kTileRows;
  static constexpr int64_t kStepBytes = Code::kStepBytes;
  static constexpr int64_t kAheadBytes = Code::kIsByte ? 4096 : 8192;
  // Where codes take long to put together, and with two rows, one stream is waited for.
  static constexpr bool kIsQuick = HWY_TARGET == HWY_AVX3_DL ? Code::kBits > 3 : Code::kIsPlain;
  static constexpr int kStreamRows = kIsQuick ? 1 : 0;
  static constexpr int MaxPanels(int64_t rows, bool is_alone) {
    return Tile::MaxPanels(rows, is_alone);
  }
  using CodedUnits<kFormat>::UnitGroups;
  using CodedUnits<kFormat>::UnitBytes;
  // A line of scales not counted, as in quant_matmul.cc.
  static int64_t BlockUnits(const MatmulArgs& args, int panels) {
    const int64_t line = Code::kHasScaleLine ? Code::kScaleBytes : 0;
    return kBlockBytes / (panels * (UnitBytes(args) - line));
  }

  class Block {
   public:
    Block(const MatmulArgs& args, int64_t panel, int panels, int64_t begin, int64_t count)
        : args_(args), panels_(panels), first_group_(begin * UnitGroups(args)) {
      block_.row_groups = args.weights->inputs() / kQuantGroup;
      block_.weights = args.weights->panel(panel) + begin * UnitBytes(args);
      block_.panel_bytes = static_cast<int64_t>(args.weights->panel_bytes());
      block_.unit_groups = UnitGroups(args);
      block_.groups = std::min(count * block_.unit_groups, block_.row_groups - first_group_);
      block_.SetAffine(args.weights->affine());
    }

    void Run(int64_t row, int64_t rows, const WeightPrefetch& prefetch, const TileOutput& output) {
      const int64_t group = row * block_.row_groups + first_group_;
      block_.x_codes = args_.x_codes + group * kQuantGroup;
      block_.x_scales = args_.x_scales + group;
      block_.x_sums = args_.x_sums + group;
      if constexpr (Code::kHasHalves) block_.x_half_sums = args_.x_half_sums + group;
      block_.prefetch = &prefetch;
      CallTile<Tile>(rows, panels_, block_, output);
    }

   private:
    const MatmulArgs& args_;
    const int panels_;
    const int64_t first_group_;
    CodedBlock block_;
  };
};

template <WeightFormat kFormat, Ports kPorts>
void RunCodedMatmul(const MatmulArgs& args) noexcept {
  RunByRows<kFormat, kPorts, CodedKernel<kFormat>>(args);
}

template <WeightFormat... kFormats>
struct CodedFormats {
  template <Ports kPorts>
  static void FillByPorts(KernelTable* table) {
    ((table->matmul[static_cast<int>(kFormats)] = RunCodedMatmul<kFormats, kPorts>), ...);
  }

  static void FillPlanes(KernelTable* table) { FillByPorts<Ports::kShared>(table); }

  static void FillMatmul(KernelTable* table) {
    FillByPorts<HWY_TARGET == HWY_AVX3_DL ? Ports::kApart : Ports::kShared>(table);
  }
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_CODED_MATMUL_INL_H_
