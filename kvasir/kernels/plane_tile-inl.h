// Tiles of rows times planes of codes (code_plane-inl.h), on x86: lanes are outputs, and each row's
// inputs come four, or two as words, at a time for all of them.
// Deliberately the same operations as tiles that put codes together themselves
// (coded_matmul-inl.h), hence the same bits.
#if defined(KVASIR_KERNELS_PLANE_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_PLANE_TILE_INL_H_
#undef KVASIR_KERNELS_PLANE_TILE_INL_H_
#else
#define KVASIR_KERNELS_PLANE_TILE_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "hwy/highway.h"
#include "kvasir/kernels/code_plane-inl.h"

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

// Lanes of four bytes, [steps of 4 inputs][16 outputs][4 inputs].
struct ByteLayout {
  static constexpr int64_t kStepBytes = 64;
  static constexpr int64_t kGroupBytes = 8 * kStepBytes;
  static constexpr int64_t kScaleFloats = kPanelOutputs;

  static HWY_INLINE void Store(ByteVec codes, size_t step, size_t vector, uint8_t* group) {
    hn::Store(codes, ByteTag(), group + step * kStepBytes + vector * kVecBytes);
  }
  static HWY_INLINE void StoreScales(FloatVec scales, size_t vector, float* panel) {
    hn::Store(scales, FloatTag(), panel + vector * kLanes);
  }
};

// Even and odd bytes of lanes, as words.
HWY_INLINE __m256i EvenBytes(__m256i bytes) {
  return _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 8);
}
HWY_INLINE __m256i OddBytes(__m256i bytes) { return _mm256_srai_epi16(bytes, 8); }

// How products of codes up to kMost are added up, of a row and kLanes outputs, in steps that stand
// 64 bytes apart for 16 outputs:
//   Layout                of the plane
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
  using Layout = ByteLayout;
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
  using Layout = ByteLayout;
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
// Codes that count from 128: the even and the odd bytes of four inputs, first those of all 32
// inputs that are even.
struct WordLayout : ByteLayout {
  static constexpr int64_t kGroupBytes = 2 * ByteLayout::kGroupBytes;

  static HWY_INLINE void Store(ByteVec codes, size_t step, size_t vector, uint8_t* group) {
    const ByteVec bytes = hn::Xor(codes, hn::Set(ByteTag(), 0x80));
    ByteLayout::Store(ByteVec{EvenBytes(bytes.raw)}, step, vector, group);
    ByteLayout::Store(ByteVec{OddBytes(bytes.raw)}, step, vector, group + ByteLayout::kGroupBytes);
  }
};

// Words, as byte products would saturate.
template <>
struct PlaneProducts<255> {
  using Layout = WordLayout;
  using Vec = __m256i;
  static constexpr bool kIsWords = true;
  static constexpr int kSteps = 16;
  static constexpr int kSpan = 16;
  static constexpr bool kStarts = false;
  static constexpr int32_t kOffset = 128;

  static HWY_INLINE __m256i Products(ByteVec w, IntVec x, IntVec) {
    return _mm256_madd_epi16(w.raw, x.raw);
  }
  static HWY_INLINE __m256i Add(__m256i products, ByteVec w, IntVec x) {
    return AddInts(products, _mm256_madd_epi16(w.raw, x.raw));
  }
  static HWY_INLINE IntVec Join(__m256i products) { return IntVec{products}; }
};

#endif

template <class Code>
struct PlaneTile {
  using Span = PlaneProducts<Code::kMostCode>;
  using Layout = typename Span::Layout;
  using Block = PlaneBlock<Layout>;
  // What codes are too large by when they are multiplied.
  static constexpr int32_t kZero = Code::kZero - Span::kOffset;
  static constexpr int kSteps = Span::kSteps / Code::kParts;  // of a part of a group
  static constexpr int kSpan = HWY_MIN(Span::kSpan, kSteps);
  static constexpr int64_t kGroupBytes = Layout::kGroupBytes;
  static constexpr int64_t kMostGroups = CodePlane<Layout>::kMostGroups;
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
    ((w[I] = hn::Load(ByteTag(), part.codes + step * Layout::kStepBytes +
                                     static_cast<int64_t>(I / kVecsPerPanel) * part.panel_bytes +
                                     (I % kVecsPerPanel) * kVecBytes)),
     ...);
  }

  using Products = typename Span::Vec;

  // What a row's products start from, if the step is the first of a span.
  template <bool kIsFirst>
  static HWY_INLINE IntVec Start(const Part& part, size_t row) {
    if constexpr (kIsFirst && Span::kStarts && kZero != 0) {
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
  static HWY_INLINE void MakeTerms(const Block& block, RowTerms<R>& terms) {
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
          if constexpr (kZero != 0) terms.missing[r][part][g] = -kZero * sum;
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
    if constexpr (kZero == 0 || Span::kStarts) {
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
  static HWY_INLINE void FinishPart(const Block& block, const RowTerms<R>& terms, int64_t g,
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
  static HWY_INLINE void MakeWords(const Block& block, int64_t g, RowWords<R>& to) {
    for (int64_t r = 0; r < R; ++r) {
      const int8_t* const x = block.x_codes + (r * block.row_groups + g) * kQuantGroup;
      const __m256i bytes = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x));
      auto* const words = reinterpret_cast<__m256i*>(to.words[r]);
      _mm256_store_si256(words, EvenBytes(bytes));
      _mm256_store_si256(words + 1, OddBytes(bytes));
    }
  }

  template <int kPart, int R, int C>
  static HWY_INLINE void AddPart(const Block& block, const RowTerms<R>& terms, int64_t g,
                                 const int8_t* x, int64_t x_stride, FloatVec (&acc)[R][C]) {
    const Part part = {block.plane->codes + g * kGroupBytes + kPart * kSteps * Layout::kStepBytes,
                       block.groups * kGroupBytes, x + kPart * kSteps * 4, x_stride,
                       &terms.missing[0][kPart][g]};
    IntVec sums[R][C];
    AddSpans(part, sums, std::make_index_sequence<kSteps / kSpan>());
    FinishPart<kPart>(block, terms, g, sums, acc, std::make_index_sequence<R>());
  }

  template <int R, int C>
  static HWY_INLINE void AddGroup(const Block& block, const RowTerms<R>& terms, int64_t g,
                                  const int8_t* x, int64_t x_stride, FloatVec (&acc)[R][C]) {
    AddPart<0>(block, terms, g, x, x_stride, acc);
    if constexpr (Code::kParts == 2) AddPart<1>(block, terms, g, x, x_stride, acc);
  }

  template <int R, int P>
  static HWY_NOINLINE void Run(const Block& block, const TileOutput& output) {
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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_PLANE_TILE_INL_H_
