// Many rows times coded weights: the codes of a block are put together to bytes or words once, its
// scales and biases to float32, and every tile of rows multiplies with those.
// Deliberately the same operations as tiles that put codes together themselves
// (coded_matmul-inl.h), hence the same bits.
#if defined(KVASIR_KERNELS_CODE_PLANE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_CODE_PLANE_INL_H_
#undef KVASIR_KERNELS_CODE_PLANE_INL_H_
#else
#define KVASIR_KERNELS_CODE_PLANE_INL_H_
#endif

#include <cstring>

#include "hwy/highway.h"
#include "kvasir/kernels/coded_lines-inl.h"

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

// With AVX-512 what planes spare depends on the CPU: where products share ports with conversions,
// additions and scales (Intel's), those of tiles as well; elsewhere (Zen 4) only what puts codes
// together.
enum class Ports { kShared, kApart };

#if HWY_TARGET != HWY_NEON

// How products of codes up to kMost are added up, of a row and kLanes outputs, in steps that stand
// 64 bytes apart for 16 outputs:
//   kSteps                of 32 inputs
//   kSpan                 steps whose products are added up before they are sums
//   Vec                   products of a row and kLanes outputs
//   Products(w, x, start), Add(products, w, x), Join(products)
//   kStarts               whether products start from what is missing at last (`start`)
//   kOffset               what codes are smaller by when they are multiplied
#if KVASIR_HAS_BYTE_DOT

// Bytes, which one instruction multiplies and adds up in 32 bits.
template <int kMost>
struct PlaneProducts {
  using Vec = decltype(IntVec::raw);
  static constexpr bool kIsWords = false;
  static constexpr int kSteps = 8;
  static constexpr int kSpan = 8;
  static constexpr bool kStarts = true;
  static constexpr int32_t kOffset = 0;

  static HWY_INLINE Vec Products(ByteVec w, IntVec x, IntVec start) {
    return AddByteProducts(start.raw, w.raw, x.raw);
  }
  static HWY_INLINE Vec Add(Vec products, ByteVec w, IntVec x) {
    return AddByteProducts(products, w.raw, x.raw);
  }
  static HWY_INLINE IntVec Join(Vec products) { return IntVec{products}; }
};

#else

// Bytes, of four inputs a step. The pairs of kSpan steps fit 16 bits: with codes up to 15 those of
// a group, 8 * 2 * 15 * 127 = 30480; up to 31 of four steps, 4 * 2 * 31 * 127 = 31496; up to 63 of
// two, 2 * 2 * 63 * 127 = 32004.
template <int kMost>
struct PlaneProducts {
  using Vec = __m256i;
  static constexpr bool kIsWords = false;
  static constexpr int kSteps = 8;
  static constexpr int kSpan = kMost <= 15 ? 8 : kMost <= 31 ? 4 : 2;
  static constexpr bool kStarts = false;
  static constexpr int32_t kOffset = 0;
  static_assert(kSpan * 2 * kMost * 127 <= 32767);

  static HWY_INLINE __m256i Products(ByteVec w, IntVec x, IntVec) {
    return _mm256_maddubs_epi16(w.raw, x.raw);
  }
  static HWY_INLINE __m256i Add(__m256i products, ByteVec w, IntVec x) {
    return AddShorts(products, _mm256_maddubs_epi16(w.raw, x.raw));
  }
  static HWY_INLINE IntVec Join(__m256i products) {
    return IntVec{_mm256_madd_epi16(products, _mm256_set1_epi16(1))};
  }
};
// Words, as byte products would saturate: the even and the odd bytes of four inputs, first those of
// all 32 inputs that are even. They count from 128.
template <>
struct PlaneProducts<255> {
  using Vec = __m256i;
  static constexpr bool kIsWords = true;
  static constexpr int kSteps = 16;
  static constexpr int kSpan = 16;
  static constexpr bool kStarts = false;
  static constexpr int32_t kOffset = 128;

  static HWY_INLINE __m256i Even(__m256i bytes) {
    return _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8);
  }
  static HWY_INLINE __m256i Odd(__m256i bytes) { return _mm256_srai_epi16(bytes, 8); }

  static HWY_INLINE __m256i Products(ByteVec w, IntVec x, IntVec) {
    return _mm256_madd_epi16(w.raw, x.raw);
  }
  static HWY_INLINE __m256i Add(__m256i products, ByteVec w, IntVec x) {
    return AddInts(products, _mm256_madd_epi16(w.raw, x.raw));
  }
  static HWY_INLINE IntVec Join(__m256i products) { return IntVec{products}; }
};

#endif

// The codes of a block, [panel][group] of all its panels, groups of a panel one after the other: as
// many bytes as kBlockBytes, so that they stay in the second-level cache.
struct CodePlane {
  static constexpr int64_t kStepBytes = 64;
  static constexpr int64_t kMostGroups = kBlockBytes / (8 * kStepBytes);

  alignas(64) uint8_t codes[kBlockBytes];
  // Likewise, [panel][group][parts][16]: of 32 inputs, or of the first and the last 16.
  alignas(64) float scales[kMostGroups * 2 * kPanelOutputs];
  alignas(64) float biases[kMostGroups * 2 * kPanelOutputs];
};

// What the groups of a panel are in a plane.
template <WeightFormat kFormat>
struct PlaneMaker {
  using Code = Coding<kFormat>;
  using Span = PlaneProducts<Code::kMostCode>;
  using Lines = CodedLines<kFormat>;
  using Scales = CodedScales<kFormat>;
  static constexpr auto kVectors = std::make_index_sequence<kVecsPerPanel>();

  static HWY_INLINE void StoreCodes(ByteVec codes, uint8_t* to) {
    if constexpr (Span::kIsWords) {
      const ByteVec bytes = hn::Xor(codes, hn::Set(ByteTag(), 0x80));
      hn::Store(ByteVec{Span::Even(bytes.raw)}, ByteTag(), to);
      hn::Store(ByteVec{Span::Odd(bytes.raw)}, ByteTag(), to + 8 * CodePlane::kStepBytes);
    } else {
      hn::Store(codes, ByteTag(), to);
    }
  }
  template <int kLine, bool kHigh, size_t... I>
  static HWY_INLINE void StoreLine(const ByteVec (&raw)[kVecsPerPanel],
                                   const ByteVec (&more)[kVecsPerPanel], uint8_t* codes,
                                   std::index_sequence<I...>) {
    uint8_t* const to = codes + (kLine + (kHigh ? 4 : 0)) * CodePlane::kStepBytes;
    (StoreCodes(Lines::template Codes<kLine, kHigh>(raw[I], more[I]), to + I * kVecBytes), ...);
  }

  template <size_t kLine, bool kLow, bool kHigh>
  static HWY_INLINE void MakeLine(const std::byte* group, const ByteVec (&more)[kVecsPerPanel],
                                  uint8_t* codes) {
    ByteVec raw[kVecsPerPanel];
    Lines::Load(group, Lines::RawLine(kLine), 0, raw, kVectors);
    if constexpr (kLow) StoreLine<kLine, false>(raw, more, codes, kVectors);
    if constexpr (kHigh) StoreLine<kLine, true>(raw, more, codes, kVectors);
  }
  template <bool kLow, bool kHigh, size_t... kLine>
  static HWY_INLINE void MakeLines(const std::byte* group, const ByteVec (&more)[kVecsPerPanel],
                                   uint8_t* codes, std::index_sequence<kLine...>) {
    (MakeLine<kLine, kLow, kHigh>(group, more, codes), ...);
  }

  static HWY_INLINE void MakeGroup(const std::byte* group, uint8_t* codes) {
    // Not a plain 4: g++ 12 crashed on calls that depend on no argument of the template.
    constexpr auto kLines = std::make_index_sequence < Code::kIsByte ? 8 : 4 > ();
    ByteVec more[kVecsPerPanel];
    Lines::Load(group, Lines::MoreLine(false), 0, more, kVectors);
    if constexpr (Code::kHasPairs) {
      MakeLines<true, false>(group, more, codes, kLines);
      Lines::Load(group, Lines::MoreLine(true), 0, more, kVectors);
      MakeLines<false, true>(group, more, codes, kLines);
    } else {
      MakeLines<true, !Code::kIsByte>(group, more, codes, kLines);
    }
  }

  template <size_t... I>
  static HWY_INLINE void StoreScales(const FloatVec (&from)[kVecsPerPanel], float* to,
                                     std::index_sequence<I...>) {
    (hn::Store(from[I], FloatTag(), to + I * kLanes), ...);
  }

  // `block`: the first panel at the block's first unit. `first`: its group of the plane.
  static void Make(const CodedBlock& block, int64_t first, CodePlane* plane) {
    const int64_t unit_groups = Code::kIsAffine ? block.unit_groups : Code::kUnitGroups;
    const std::byte* unit = block.weights;
    for (int64_t g = 0; g < block.groups; unit += Code::UnitBytes(unit_groups)) {
      const int64_t end = std::min(g + unit_groups, block.groups);
      for (int64_t at = 0; g < end; ++g, ++at) {
        GroupScales<kVecsPerPanel> scales;
        Scales::Load(block, unit, at, scales, kVectors);
        constexpr int64_t kParts = Code::kHasHalves ? 2 : 1;
        for (int64_t part = 0; part < kParts; ++part) {
          const int64_t to = ((first + g) * kParts + part) * kPanelOutputs;
          StoreScales(scales.scale[part], plane->scales + to, kVectors);
          if constexpr (Code::kHasMins) {
            StoreScales(scales.bias[part], plane->biases + to, kVectors);
          }
        }
        MakeGroup(unit + Code::kScaleBytes + at * Code::kGroupBytes,
                  plane->codes + (first + g) * Span::kSteps * CodePlane::kStepBytes);
      }
    }
  }
};

struct PlaneBlock {
  const int8_t* x_codes = nullptr;  // [rows, inputs], at the block's first group
  const float* x_scales = nullptr;  // [rows, inputs/32], likewise
  const int32_t* x_sums = nullptr;
  const int32_t* x_half_sums = nullptr;
  int64_t row_groups = 0;  // inputs/32 of a whole row
  int64_t groups = 0;      // of the block
  const CodePlane* plane = nullptr;
  const WeightPrefetch* prefetch = &kNoFetch;
  int64_t fetch_steps = 0;  // of the block, and most of a group
  int64_t group_steps = 0;
};

// Fewer rows never make planes, so no tile is lower than this: rows are cut into tiles of equal
// height (RunPanels).
inline constexpr int kFewestPlaneRows = 9;
constexpr int LeastPlaneTile(int most) {
  int least = most;
  for (int rows = kFewestPlaneRows; rows <= kFewestPlaneRows + most * most; ++rows) {
    least = std::min(least, rows / ((rows + most - 1) / most));
  }
  return least;
}

// What a tile needs to know of a format, so that formats share it.
template <int kMostCode, int32_t kZeroCode, bool kHalves, bool kMins>
struct PlaneCode {
  using Span = PlaneProducts<kMostCode>;
  // What codes are too large by when they are multiplied.
  static constexpr int32_t kZero = (kMins ? 0 : kZeroCode) - Span::kOffset;
  static constexpr int kParts = kHalves ? 2 : 1;
  static constexpr bool kHasMins = kMins;
};

template <class Code>
struct PlaneTile {
  using Span = typename Code::Span;
  static constexpr int kSteps = Span::kSteps / Code::kParts;  // of a part of a group
  static constexpr int kSpan = HWY_MIN(Span::kSpan, kSteps);
  static constexpr int64_t kGroupBytes = Span::kSteps * CodePlane::kStepBytes;
  static constexpr int64_t kMostGroups = kBlockBytes / kGroupBytes;
  static constexpr int64_t kRowTerms = Code::kParts * kMostGroups;

  // As quant_matmul.cc.
  static constexpr int kTileRows = HWY_TARGET == HWY_AVX3_DL ? 6 : 4;
  static constexpr int kLeastRows = LeastPlaneTile(kTileRows);
  static constexpr int MaxPanels(int64_t, bool) { return HWY_TARGET == HWY_AVX3_DL ? 2 : 1; }

  static HWY_INLINE IntVec FourCodes(const int8_t* codes) {
    int32_t four;
    std::memcpy(&four, codes, sizeof(four));
    return hn::Set(IntTag(), four);
  }

  // Where part of a group begins.
  struct Part {
    const uint8_t* codes = nullptr;  // of the first panel
    int64_t panel_bytes = 0;         // from a panel's codes to the next one's
    const int8_t* x = nullptr;
    int64_t x_stride = 0;
    const int32_t* missing = nullptr;  // RowTerms of the first row
  };

  template <int C, size_t... I>
  static HWY_INLINE void LoadStep(const Part& part, size_t step, ByteVec (&w)[C],
                                  std::index_sequence<I...>) {
    ((w[I] = hn::Load(ByteTag(), part.codes + step * CodePlane::kStepBytes +
                                     static_cast<int64_t>(I / kVecsPerPanel) * part.panel_bytes +
                                     (I % kVecsPerPanel) * kVecBytes)),
     ...);
  }

  using Products = typename Span::Vec;

  // What a row's products start from, if the step is the first of a span.
  template <bool kIsFirst>
  static HWY_INLINE IntVec Start(const Part& part, size_t row) {
    if constexpr (kIsFirst && Span::kStarts && Code::kZero != 0) {
      return hn::Set(IntTag(), part.missing[static_cast<int64_t>(row) * kRowTerms]);
    } else {
      return hn::Zero(IntTag());
    }
  }

  template <bool kIsFirst, int C, size_t... I>
  static HWY_INLINE void AddProducts(IntVec x, const ByteVec (&w)[C], IntVec start,
                                     Products (&products)[C], std::index_sequence<I...>) {
    if constexpr (kIsFirst) {
      ((products[I] = Span::Products(w[I], x, start)), ...);
    } else {
      ((products[I] = Span::Add(products[I], w[I], x)), ...);
    }
  }
  template <size_t kStep, size_t kInSpan, int R, int C, size_t... I>
  static HWY_INLINE void AddSpanStep(const Part& part, Products (&products)[R][C],
                                     std::index_sequence<I...>) {
    constexpr auto kColumns = std::make_index_sequence<C>();
    ByteVec w[C];
    LoadStep(part, kStep, w, kColumns);
    (AddProducts<kInSpan == 0>(
         FourCodes(part.x + static_cast<int64_t>(I) * part.x_stride + kStep * 4), w,
         Start<kInSpan == 0>(part, I), products[I], kColumns),
     ...);
  }
  template <bool kIsFirst, int C, size_t... I>
  static HWY_INLINE void JoinRow(const Products (&products)[C], IntVec (&sums)[C],
                                 std::index_sequence<I...>) {
    if constexpr (kIsFirst) {
      ((sums[I] = Span::Join(products[I])), ...);
    } else {
      ((sums[I] = hn::Add(sums[I], Span::Join(products[I]))), ...);
    }
  }
  template <size_t kFirst, int R, int C, size_t... kInSpan, size_t... I>
  static HWY_INLINE void AddSpan(const Part& part, IntVec (&sums)[R][C],
                                 std::index_sequence<kInSpan...>, std::index_sequence<I...> rows) {
    Products products[R][C];
    (AddSpanStep<kFirst + kInSpan, kInSpan>(part, products, rows), ...);
    (JoinRow<kFirst == 0>(products[I], sums[I], std::make_index_sequence<C>()), ...);
  }
  template <int R, int C, size_t... kSpans>
  static HWY_INLINE void AddSpans(const Part& part, IntVec (&sums)[R][C],
                                  std::index_sequence<kSpans...>) {
    (AddSpan<kSpans * kSpan>(part, sums, std::make_index_sequence<kSpan>(),
                             std::make_index_sequence<R>()),
     ...);
  }

  // Of each row and part of the block's groups: what biases are multiplied with, and what is
  // missing in sums of products.
  template <int R>
  struct RowTerms {
    HWY_INLINE RowTerms() {}  // as GroupScales
    float bias[R][Code::kParts][kMostGroups];
    int32_t missing[R][Code::kParts][kMostGroups];
  };
  template <int R>
  static HWY_INLINE void MakeTerms(const PlaneBlock& block, RowTerms<R>& terms) {
    for (int64_t r = 0; r < R; ++r) {
      const int64_t first = r * block.row_groups;
      for (int part = 0; part < Code::kParts; ++part) {
        for (int64_t g = 0; g < block.groups; ++g) {
          int32_t sum = block.x_sums[first + g];
          if constexpr (Code::kParts == 2) {
            const int32_t half = block.x_half_sums[first + g];
            sum = part == 0 ? half : sum - half;
          }
          if constexpr (Code::kHasMins) {
            terms.bias[r][part][g] = block.x_scales[first + g] * static_cast<float>(sum);
          }
          if constexpr (Code::kZero != 0) terms.missing[r][part][g] = -Code::kZero * sum;
        }
      }
    }
  }

  // acc += (sum + missing) * x_scale * scale, and biases, in the order of coded_matmul-inl.h.
  template <int C, size_t... I>
  static HWY_INLINE void FinishRow(const IntVec (&sums)[C], const int32_t* missing, float x_scale,
                                   const FloatVec (&scales)[C], FloatVec (&acc)[C],
                                   std::index_sequence<I...>) {
    const FloatTag d;
    const FloatVec scale = hn::Set(d, x_scale);
    if constexpr (Code::kZero == 0 || Span::kStarts) {
      ((acc[I] = hn::MulAdd(hn::ConvertTo(d, sums[I]), hn::Mul(scale, scales[I]), acc[I])), ...);
    } else {
      const IntVec rest = hn::Set(IntTag(), *missing);
      ((acc[I] = hn::MulAdd(hn::ConvertTo(d, hn::Add(sums[I], rest)), hn::Mul(scale, scales[I]),
                            acc[I])),
       ...);
    }
  }
  template <int C, size_t... I>
  static HWY_INLINE void AddBiases(float x_sum, const FloatVec (&biases)[C], FloatVec (&acc)[C],
                                   std::index_sequence<I...>) {
    const FloatVec sum = hn::Set(FloatTag(), x_sum);
    ((acc[I] = hn::MulAdd(sum, biases[I], acc[I])), ...);
  }

  // Those of a part of a group; `from` of the first panel.
  template <int C, size_t... I>
  static HWY_INLINE void LoadScales(const float* from, int64_t panel_floats, FloatVec (&to)[C],
                                    std::index_sequence<I...>) {
    ((to[I] = hn::Load(FloatTag(), from + static_cast<int64_t>(I / kVecsPerPanel) * panel_floats +
                                       (I % kVecsPerPanel) * kLanes)),
     ...);
  }

  template <int kPart, int R, int C, size_t... I>
  static HWY_INLINE void FinishPart(const PlaneBlock& block, const RowTerms<R>& terms, int64_t g,
                                    const IntVec (&sums)[R][C], FloatVec (&acc)[R][C],
                                    std::index_sequence<I...>) {
    constexpr auto kColumns = std::make_index_sequence<C>();
    const int64_t panel_floats = block.groups * Code::kParts * kPanelOutputs;
    const int64_t at = (g * Code::kParts + kPart) * kPanelOutputs;
    FloatVec scales[C];
    LoadScales(block.plane->scales + at, panel_floats, scales, kColumns);
    (FinishRow(sums[I], &terms.missing[I][kPart][g],
               block.x_scales[static_cast<int64_t>(I) * block.row_groups + g], scales, acc[I],
               kColumns),
     ...);
    if constexpr (Code::kHasMins) {
      LoadScales(block.plane->biases + at, panel_floats, scales, kColumns);
      (AddBiases(terms.bias[I][kPart][g], scales, acc[I], kColumns), ...);
    }
  }

  // Codes of a group of R rows as words.
  template <int R>
  struct RowWords {
    HWY_INLINE RowWords() {}  // as GroupScales
    alignas(64) int8_t words[R][2 * kQuantGroup];
  };
  template <int R>
  static HWY_INLINE void MakeWords(const PlaneBlock& block, int64_t g, RowWords<R>& to) {
    for (int64_t r = 0; r < R; ++r) {
      const int8_t* const x = block.x_codes + (r * block.row_groups + g) * kQuantGroup;
      const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
      auto* const words = reinterpret_cast<__m256i*>(to.words[r]);
      _mm256_store_si256(words, Span::Even(bytes));
      _mm256_store_si256(words + 1, Span::Odd(bytes));
    }
  }

  template <int kPart, int R, int C>
  static HWY_INLINE void AddPart(const PlaneBlock& block, const RowTerms<R>& terms, int64_t g,
                                 const int8_t* x, int64_t x_stride, FloatVec (&acc)[R][C]) {
    const Part part = {
        block.plane->codes + g * kGroupBytes + kPart * kSteps * CodePlane::kStepBytes,
        block.groups * kGroupBytes, x + kPart * kSteps * 4, x_stride, &terms.missing[0][kPart][g]};
    IntVec sums[R][C];
    AddSpans(part, sums, std::make_index_sequence<kSteps / kSpan>());
    FinishPart<kPart>(block, terms, g, sums, acc, std::make_index_sequence<R>());
  }

  template <int R, int C>
  static HWY_INLINE void AddGroup(const PlaneBlock& block, const RowTerms<R>& terms, int64_t g,
                                  const int8_t* x, int64_t x_stride, FloatVec (&acc)[R][C]) {
    AddPart<0>(block, terms, g, x, x_stride, acc);
    if constexpr (Code::kParts == 2) AddPart<1>(block, terms, g, x, x_stride, acc);
  }

  template <int R, int P>
  static HWY_NOINLINE void Run(const PlaneBlock& block, const TileOutput& output) {
    constexpr auto kRows = std::make_index_sequence<R>();
    FloatVec acc[R][P * kVecsPerPanel];
    if (!output.resume) FetchToWrite<P>(output, kRows);
    LoadTile(output, acc, kRows);
    RowTerms<R> terms;
    MakeTerms(block, terms);
    const WeightPrefetch prefetch = *block.prefetch;
    int64_t step = 0;
    RowWords<R> words[2];  // those of the next group are made while these are multiplied
    if constexpr (Span::kIsWords) MakeWords(block, 0, words[0]);
    for (int64_t g = 0; g < block.groups; ++g) {
      const int64_t steps = std::min(step + block.group_steps, block.fetch_steps);
      while (step < steps) {
        PrefetchPanels<Fetch::kToSecondLevel>(prefetch, step++, std::make_index_sequence<P>());
      }
      if constexpr (Span::kIsWords) {
        if (g + 1 < block.groups) MakeWords(block, g + 1, words[(g + 1) % 2]);
        AddGroup(block, terms, g, words[g % 2].words[0], 2 * kQuantGroup, acc);
      } else {
        AddGroup(block, terms, g, block.x_codes + g * kQuantGroup, block.row_groups * kQuantGroup,
                 acc);
      }
    }
    StoreTile(output, acc, kRows);
  }
};

template <WeightFormat kFormat>
struct PlaneKernel : CodedUnits<kFormat> {
  using Code = Coding<kFormat>;
  using Tile = PlaneTile<PlaneCode<Code::kMostCode, Code::kZero, Code::kHasHalves, Code::kHasMins>>;
  static constexpr int kTileRows = Tile::kTileRows;
  static constexpr int64_t kStepBytes = 64;
  static constexpr int64_t kAheadBytes = 0;  // of single row tiles, which there are none of
  static constexpr int kStreamRows = 0;
  static constexpr int MaxPanels(int64_t rows, bool is_alone) {
    return Tile::MaxPanels(rows, is_alone);
  }
  using CodedUnits<kFormat>::UnitGroups;
  using CodedUnits<kFormat>::UnitBytes;
  static int64_t BlockUnits(const MatmulArgs& args, int panels) {
    return Tile::kMostGroups / (panels * UnitGroups(args));
  }

  class Block {
   public:
    Block(const MatmulArgs& args, int64_t panel, int panels, int64_t begin, int64_t count)
        : args_(args), panels_(panels), first_group_(begin * UnitGroups(args)) {
      CodedBlock coded;
      coded.unit_groups = UnitGroups(args);
      block_.row_groups = args.weights->inputs() / kQuantGroup;
      block_.groups = std::min(count * coded.unit_groups, block_.row_groups - first_group_);
      coded.groups = block_.groups;
      coded.SetAffine(args.weights->affine());
      for (int p = 0; p < panels; ++p) {
        coded.weights = args.weights->panel(panel + p) + begin * UnitBytes(args);
        PlaneMaker<kFormat>::Make(coded, p * block_.groups, &plane_);
      }
      block_.plane = &plane_;
      fetch_steps_ = (count * UnitBytes(args) + kStepBytes - 1) / kStepBytes;
    }

    void Run(int64_t row, int64_t rows, const WeightPrefetch& prefetch, const TileOutput& output) {
      const int64_t group = row * block_.row_groups + first_group_;
      block_.x_codes = args_.x_codes + group * kQuantGroup;
      block_.x_scales = args_.x_scales + group;
      block_.x_sums = args_.x_sums + group;
      if constexpr (Code::kHasHalves) block_.x_half_sums = args_.x_half_sums + group;
      block_.prefetch = &prefetch;
      block_.fetch_steps = prefetch.fetch == Fetch::kNothing ? 0 : fetch_steps_;
      block_.group_steps = (block_.fetch_steps + block_.groups - 1) / block_.groups;
      CallTile<Tile>(rows, panels_, block_, output);
    }

   private:
    const MatmulArgs& args_;
    const int panels_;
    const int64_t first_group_;
    int64_t fetch_steps_ = 0;
    PlaneBlock block_;
    CodePlane plane_;
  };
};

// Rows that are worth a plane: what it takes is what one to three tiles take to put codes together.
// 0: never.
template <WeightFormat kFormat, Ports kPorts>
constexpr int64_t PlaneRows() {
  using Code = Coding<kFormat>;
  constexpr bool kIsNibble = Code::kIsPlain && !Code::kIsByte;
#if KVASIR_HAS_BYTE_DOT
  // Codes that are bytes already spare less.
  if (Code::kIsQ8 && HWY_TARGET == HWY_AVX2) return 0;
  if (kPorts == Ports::kApart) {
    if (Code::kIsByte || kIsNibble) return 0;
    return Code::kIsIq4 ? 65 : 17;
  }
  if (Code::kIsByte) return 65;
  if (Code::kIsQ4) return 33;
  if (Code::kIsIq4) return 17;
#else
  if (Code::kIsQ4) return 0;
  if (Code::kMostCode == 255) return 33;
#endif
  return kIsNibble ? 13 : kFewestPlaneRows;
}

#endif

// Few rows, and the last panel where it is a partial one, go by tiles of FewRows; all rows do where
// planes are never worth it or, on NEON, were not measured.
template <WeightFormat kFormat, Ports kPorts, class FewRows>
void RunByRows(const MatmulArgs& args) noexcept {
  MatmulArgs rest = args;
#if HWY_TARGET != HWY_NEON
  constexpr int64_t kPlaneRows = PlaneRows<kFormat, kPorts>();
  if constexpr (kPlaneRows > 0) {
    if (args.rows >= kPlaneRows && args.weights->inputs() > 0) {
      const int64_t full_end = args.weights->outputs() / kPanelOutputs;
      MatmulArgs whole = args;
      whole.panel_end = std::min(args.panel_end, full_end);
      RunMatmul<PlaneKernel<kFormat>>(whole);
      rest.panel_begin = std::max(args.panel_begin, full_end);
    }
  }
#endif
  RunMatmul<FewRows>(rest);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_CODE_PLANE_INL_H_
