// Matmul with weights of E4M3 codes, mxfp8 (tensor/mxfp8.h) and fp8: a tile of rows makes codes
// weights of a Math of pairs (bf16_pairs-inl.h) in registers. Where more tiles follow it leaves
// them in the second-level cache as bf16_dot stores them, for the tile of that. Deliberately
// without products of its own: sums of mxfp8 are those of bf16_dot, bit for bit; of fp8 those of
// 128 inputs are, each multiplied with its scale as it joins an output's chain.
//
// A Decoder of a Math has
//   Scale, LoadScale(scales)     of kLanes outputs; One(): where there is none
//   Decode(codes, scale, out)    four inputs of kLanes outputs: out[pair][part] as Math::Load gives
//   Words(pair)                  one pair of those as what bf16_dot stores
#if defined(KVASIR_KERNELS_E4M3_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_E4M3_TILE_INL_H_
#undef KVASIR_KERNELS_E4M3_TILE_INL_H_
#else
#define KVASIR_KERNELS_E4M3_TILE_INL_H_
#endif

#include "hwy/highway.h"
#include "kvasir/kernels/bf16_pairs-inl.h"
#include "kvasir/kernels/e4m3_table.h"
#include "kvasir/kernels/float_tile-inl.h"
#include "kvasir/tensor/mxfp8.h"

KVASIR_BEFORE_TILE();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

// Both formats lie alike but for what their lines of scales are.
inline constexpr GroupUnits kE4m3Units = UnitsOf(WeightFormat::kMxfp8);
inline constexpr int64_t kE4m3GroupBytes = kE4m3Units.code_bytes;
inline constexpr int64_t kE4m3UnitGroups = kE4m3Units.groups;
static_assert(UnitsOf(WeightFormat::kFp8).unit_bytes() == kE4m3Units.unit_bytes());
static_assert(kE4m3UnitGroups * kQuantGroup == kFp8Inputs);
inline constexpr int kE4m3Lines = kQuantGroup / 4;  // of four inputs of a panel's outputs
inline constexpr uint8_t kE4m3One = 127;            // the scale of mxfp8 that is 1

#if HWY_TARGET == HWY_AVX3_DL
// Both bytes of a bf16 from a table, as if the scale were the largest, kNanScale; then what the
// scale is less is taken from the exponent. 0 is -0 there: the least 16-bit integer stays what it
// is when something is taken from it, and no sum is another for it.
template <class Math>
struct E4m3Decoder {
  using Scale = __m512i;
  using Weights = typename Math::Weights;

  static HWY_INLINE Scale LoadScale(const uint8_t* scales) {
    const __m512i words =
        _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(scales)));
    const __m512i both = _mm512_or_si512(words, _mm512_slli_epi32(words, 16));
    return _mm512_slli_epi16(_mm512_sub_epi16(both, _mm512_set1_epi16(mxfp8::kNanScale)), 7);
  }
  static HWY_INLINE Scale One() {
    return _mm512_set1_epi16(static_cast<int16_t>((kE4m3One - mxfp8::kNanScale) * 128));
  }
  static HWY_INLINE void FromPairs(__m512i pairs, Weights (&out)[Math::kParts]) {
    out[0] = Math::template FromPairs<0>(hn::Vec<WordTag>{pairs});
    if constexpr (Math::kParts == 2) out[1] = Math::template FromPairs<1>(hn::Vec<WordTag>{pairs});
  }
  static HWY_INLINE void Decode(const std::byte* from, Scale scale,
                                Weights (&out)[2][Math::kParts]) {
    const __m512i codes = _mm512_loadu_si512(from);
    const __m512i low = _mm512_permutex2var_epi8(_mm512_load_si512(kE4m3Bf16.low), codes,
                                                 _mm512_load_si512(kE4m3Bf16.low + 64));
    const __m512i magnitude = _mm512_permutex2var_epi8(_mm512_load_si512(kE4m3Bf16.high), codes,
                                                       _mm512_load_si512(kE4m3Bf16.high + 64));
    const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
    const __m512i high = _mm512_ternarylogic_epi64(magnitude, codes, sign, 0xF8);  // a | (b & c)
    FromPairs(_mm512_adds_epi16(_mm512_unpacklo_epi8(low, high), scale), out[0]);
    FromPairs(_mm512_adds_epi16(_mm512_unpackhi_epi8(low, high), scale), out[1]);
  }
  static HWY_INLINE hn::Vec<WordTag> Words(const Weights (&pair)[Math::kParts]) {
    if constexpr (Math::kParts == 1) {
      return hn::Vec<WordTag>{pair[0]};
    } else {
      return hn::Or(hn::BitCast(WordTag(), pair[0]),
                    hn::ShiftRight<16>(hn::BitCast(WordTag(), pair[1])));
    }
  }
};
#else
template <class Math>
struct E4m3Decoder;

// At the place of a float's bits a code is 2^-120 of its value, small numbers and 0 included.
template <>
struct E4m3Decoder<PairMath> {
  using Scale = FloatVec;

  static HWY_INLINE Scale LoadScale(const uint8_t* scales) {
    const WordTag d;
    const auto codes = hn::PromoteTo(d, hn::LoadU(hn::Rebind<uint8_t, WordTag>(), scales));
    const auto bits = hn::ShiftLeft<23>(hn::Add(codes, hn::Set(d, 120)));
    const auto is_nan = hn::Gt(codes, hn::Set(d, mxfp8::kMostScale));
    const auto nan = hn::Set(d, 0x7FC00000u);
    return hn::BitCast(FloatTag(), hn::IfThenElse(is_nan, nan, bits));
  }
  static HWY_INLINE Scale One() { return hn::Set(FloatTag(), 0x1p120f); }
  // Of the code in the highest byte.
  static HWY_INLINE FloatVec Value(hn::Vec<WordTag> word, Scale scale) {
    const hn::RebindToSigned<FloatTag> d;
    const auto bits = hn::ShiftRight<4>(hn::BitCast(d, word));
    const auto kept = hn::And(bits, hn::Set(d, static_cast<int32_t>(0x87F00000u)));
    return hn::Mul(hn::BitCast(FloatTag(), kept), scale);
  }
  static HWY_INLINE void Decode(const std::byte* from, Scale scale, FloatVec (&out)[2][2]) {
    const hn::Repartition<uint16_t, FloatTag> d;
    const WordTag words;
    const auto codes = hn::LoadU(d, reinterpret_cast<const uint16_t*>(from));
    const auto first = hn::BitCast(words, hn::InterleaveLower(d, codes, codes));
    const auto second = hn::BitCast(words, hn::InterleaveUpper(d, codes, codes));
    out[0][0] = Value(first, scale);
    out[0][1] = Value(hn::ShiftLeft<8>(first), scale);
    out[1][0] = Value(second, scale);
    out[1][1] = Value(hn::ShiftLeft<8>(second), scale);
  }
  static HWY_INLINE hn::Vec<WordTag> Words(const FloatVec (&pair)[2]) {
    return hn::Or(hn::BitCast(WordTag(), pair[0]),
                  hn::ShiftRight<16>(hn::BitCast(WordTag(), pair[1])));
  }
};
#endif

template <class Math>
struct E4m3Block {
  const typename Math::Input* x = nullptr;  // [rows, inputs of the block]
  int64_t x_stride = 0;
  const std::byte* weights = nullptr;  // first panel, first unit
  int64_t panel_bytes = 0;
  int64_t groups = 0;
  uint16_t* kept = nullptr;  // [panels][inputs of the block / 2][16][2]
  const WeightPrefetch* prefetch = &kNoFetch;
};

// The sums of 128 inputs join those before them, times a scale of their own.
template <int C, size_t... I>
HWY_INLINE void AddScaledRow(const FloatVec (&sums)[C], const FloatVec (&scales)[C],
                             FloatVec (&acc)[C], std::index_sequence<I...>) {
  ((acc[I] = hn::MulAdd(sums[I], scales[I], acc[I])), ...);
}
template <int R, int C, size_t... I>
HWY_INLINE void AddScaled(const FloatVec (&sums)[R][C], const FloatVec (&scales)[C],
                          FloatVec (&acc)[R][C], std::index_sequence<I...>) {
  (AddScaledRow(sums[I], scales, acc[I], std::make_index_sequence<C>()), ...);
}
template <int C, size_t... I>
HWY_INLINE void ClearRow(FloatVec (&sums)[C], std::index_sequence<I...>) {
  ((sums[I] = hn::Zero(FloatTag())), ...);
}
template <int R, int C, size_t... I>
HWY_INLINE void ClearSums(FloatVec (&sums)[R][C], std::index_sequence<I...>) {
  (ClearRow(sums[I], std::make_index_sequence<C>()), ...);
}
// Those of fp8 before a unit of the first panel.
template <int C, size_t... I>
HWY_INLINE void LoadWideScales(const std::byte* unit, int64_t panel_bytes, FloatVec (&scales)[C],
                               std::index_sequence<I...>) {
  ((scales[I] =
        hn::Load(FloatTag(), reinterpret_cast<const float*>(
                                 unit + static_cast<int64_t>(I / kVecsPerPanel) * panel_bytes) +
                                 (I % kVecsPerPanel) * kLanes)),
   ...);
}

// kKeeps: writes the weights to block.kept.
template <class Math, WeightFormat kFormat, bool kKeeps>
struct E4m3Tile : TileRun<E4m3Tile<Math, kFormat, kKeeps>> {
  using Block = E4m3Block<Math>;
  using Decoder = E4m3Decoder<Math>;
  using Scale = typename Decoder::Scale;
  using Weights = typename Math::Weights;

  static constexpr bool kHasWideScales = kFormat == WeightFormat::kFp8;
  static constexpr int kTileRows = FloatTile<Math>::kTileRows;
  static constexpr int MaxPanels(int64_t rows, bool = true) {
    return FloatTile<Math>::MaxPanels(rows);
  }

  template <int C, size_t... I>
  static HWY_INLINE void LoadScales(const std::byte* scales_of_group, int64_t panel_bytes,
                                    Scale (&scales)[C], std::index_sequence<I...>) {
    const auto* const from = reinterpret_cast<const uint8_t*>(scales_of_group);
    ((scales[I] = Decoder::LoadScale(from + static_cast<int64_t>(I / kVecsPerPanel) * panel_bytes +
                                     (I % kVecsPerPanel) * kLanes)),
     ...);
  }
  template <int C, size_t... I>
  static HWY_INLINE void SetScales(Scale scale, Scale (&scales)[C], std::index_sequence<I...>) {
    ((scales[I] = scale), ...);
  }

  template <int kPair, int kPart, int R, int C, size_t... I>
  static HWY_INLINE void MulAddPart(const Block& block, const typename Math::Input* x, Weights w,
                                    FloatVec (&acc)[R][C], size_t column,
                                    std::index_sequence<I...>) {
    ((acc[I][column] = Math::MulAdd(
          Math::template Broadcast<kPart>(x + static_cast<int64_t>(I) * block.x_stride + 2 * kPair),
          w, acc[I][column])),
     ...);
  }

  // Four inputs of one vector of outputs.
  template <int R, int C>
  static HWY_INLINE void AddColumn(const Block& block, const typename Math::Input* x,
                                   const std::byte* codes, Scale scale, uint32_t* kept,
                                   FloatVec (&acc)[R][C], size_t column) {
    constexpr auto kRows = std::make_index_sequence<R>();
    Weights w[2][Math::kParts];
    Decoder::Decode(codes, scale, w);
    if constexpr (kKeeps) {
      hn::Store(Decoder::Words(w[0]), WordTag(), kept);
      hn::Store(Decoder::Words(w[1]), WordTag(), kept + kPanelOutputs);
    }
    MulAddPart<0, 0>(block, x, w[0][0], acc, column, kRows);
    if constexpr (Math::kParts == 2) MulAddPart<0, 1>(block, x, w[0][1], acc, column, kRows);
    MulAddPart<1, 0>(block, x, w[1][0], acc, column, kRows);
    if constexpr (Math::kParts == 2) MulAddPart<1, 1>(block, x, w[1][1], acc, column, kRows);
  }
  template <int R, int C, size_t... I>
  static HWY_INLINE void AddLine(const Block& block, const typename Math::Input* x,
                                 const std::byte* codes, const Scale (&scales)[C], uint32_t* kept,
                                 FloatVec (&acc)[R][C], std::index_sequence<I...>) {
    const int64_t panel_words = block.groups * kE4m3GroupBytes / 2;
    (AddColumn(block, x,
               codes + static_cast<int64_t>(I / kVecsPerPanel) * block.panel_bytes +
                   (I % kVecsPerPanel) * kLanes * 4,
               scales[I],
               kept + static_cast<int64_t>(I / kVecsPerPanel) * panel_words +
                   (I % kVecsPerPanel) * kLanes,
               acc, I),
     ...);
  }

  // How far a tile has come in its block.
  struct Place {
    const typename Math::Input* x;
    uint32_t* kept;
    int64_t step;
  };

  // The groups of a unit.
  template <int P, Fetch kFetch, int R, int C>
  static HWY_INLINE void AddUnit(const Block& block, const WeightPrefetch& prefetch,
                                 const std::byte* unit, int64_t groups, Place& at,
                                 FloatVec (&acc)[R][C]) {
    constexpr auto kColumns = std::make_index_sequence<C>();
    const std::byte* codes = unit + kE4m3Units.CodesOf(0);
    for (int64_t g = 0; g < groups; ++g) {
      Scale scales[C];
      if constexpr (kHasWideScales) {
        SetScales(Decoder::One(), scales, kColumns);
      } else {
        LoadScales(unit + static_cast<size_t>(g) * kE4m3Units.scale_bytes, block.panel_bytes,
                   scales, kColumns);
      }
      for (int line = 0; line < kE4m3Lines; ++line) {
        if constexpr (kFetch != Fetch::kNothing) {
          PrefetchPanels<kFetch>(prefetch, at.step++, std::make_index_sequence<P>());
        }
        AddLine(block, at.x, codes, scales, at.kept, acc, kColumns);
        at.x += 4;
        codes += kE4m3GroupBytes / kE4m3Lines;
        if constexpr (kKeeps) at.kept += 2 * kPanelOutputs;
      }
    }
  }

  template <int P, Fetch kFetch, int R, int C>
  static HWY_INLINE void Accumulate(const Block& block, FloatVec (&acc)[R][C]) {
    constexpr auto kColumns = std::make_index_sequence<C>();
    constexpr auto kRows = std::make_index_sequence<R>();
    const WeightPrefetch prefetch = *block.prefetch;
    const std::byte* unit = block.weights;
    Place at = {block.x, reinterpret_cast<uint32_t*>(block.kept), 0};
    for (int64_t g = 0; g < block.groups; g += kE4m3UnitGroups) {
      if constexpr (kFetch != Fetch::kNothing) {
        PrefetchPanels<kFetch>(prefetch, at.step++, std::make_index_sequence<P>());
      }
      const int64_t groups = std::min(kE4m3UnitGroups, block.groups - g);
      if constexpr (kHasWideScales) {
        FloatVec sums[R][C];
        ClearSums(sums, kRows);
        AddUnit<P, kFetch>(block, prefetch, unit, groups, at, sums);
        FloatVec scales[C];
        LoadWideScales(unit, block.panel_bytes, scales, kColumns);
        AddScaled(sums, scales, acc, kRows);
      } else {
        AddUnit<P, kFetch>(block, prefetch, unit, groups, at, acc);
      }
      unit += kE4m3Units.unit_bytes();
    }
  }
};

// Weights of fp8 without their scales, as an E4m3Tile kept them.
template <class Math>
struct ScaledBlock {
  FloatBlock<Math> weights;
  const std::byte* units = nullptr;  // what has their scales, as E4m3Block::weights
  int64_t panel_bytes = 0;
  const WeightPrefetch* prefetch = &kNoFetch;
};

template <class Math>
struct ScaledTile : TileRun<ScaledTile<Math>> {
  using Tile = FloatTile<Math>;
  static constexpr int kTileRows = Tile::kTileRows;
  static constexpr int MaxPanels(int64_t rows, bool = true) { return Tile::MaxPanels(rows); }

  // A function of its own, in which the sums of a unit stay in registers that those of the block
  // would take from them.
  template <int P, Fetch kFetch, int R, int C>
  static HWY_NOINLINE void AddUnit(const FloatBlock<Math>& part, const std::byte* unit,
                                   int64_t panel_bytes, FloatVec (&acc)[R][C]) {
    constexpr auto kRows = std::make_index_sequence<R>();
    FloatVec sums[R][C];
    ClearSums(sums, kRows);
    Tile::template Accumulate<P, kFetch>(part, sums);
    FloatVec scales[C];
    LoadWideScales(unit, panel_bytes, scales, std::make_index_sequence<C>());
    AddScaled(sums, scales, acc, kRows);
  }

  template <int P, Fetch kFetch, int R, int C>
  static HWY_INLINE void Accumulate(const ScaledBlock<Math>& block, FloatVec (&acc)[R][C]) {
    constexpr int64_t kUnitSteps = kFp8Inputs / Math::kStepInputs;
    const std::byte* unit = block.units;
    WeightPrefetch prefetch = *block.prefetch;
    FloatBlock<Math> part = block.weights;
    part.prefetch = &prefetch;
    for (int64_t left = block.weights.steps; left > 0; left -= kUnitSteps) {
      part.steps = std::min(left, kUnitSteps);
      AddUnit<P, kFetch>(part, unit, block.panel_bytes, acc);
      part.x += kFp8Inputs;
      part.weights += kFp8Inputs * kPanelOutputs;
      prefetch.from += kUnitSteps * prefetch.step;
      unit += kE4m3Units.unit_bytes();
    }
  }
};

template <class Math, WeightFormat kFormat>
struct E4m3Kernel {
  using Tile = FloatTile<Math>;
  static constexpr int kTileRows = Tile::kTileRows;
  static constexpr int64_t kStepBytes = GroupUnits::kLineBytes;
  static constexpr int64_t kAheadBytes = 8192;
  static constexpr int kStreamRows = 0;
  static constexpr int MaxPanels(int64_t rows, bool) { return Tile::MaxPanels(rows); }
  static int64_t UnitBytes(const MatmulArgs&) { return kE4m3Units.unit_bytes(); }
  static int64_t Units(const MatmulArgs& args) {
    return (args.weights->inputs() / kQuantGroup + kE4m3UnitGroups - 1) / kE4m3UnitGroups;
  }
  // As bf16 they take twice the bytes of codes.
  static int64_t BlockUnits(const MatmulArgs&, int panels) {
    return kBlockBytes / (panels * 2 * kE4m3UnitGroups * kE4m3GroupBytes);
  }

  class Block {
   public:
    Block(const MatmulArgs& args, int64_t panel, int panels, int64_t begin, int64_t count)
        : panels_(panels),
          keeps_(args.rows > kTileRows && count <= BlockUnits(args, panels)),
          x_(Math::Rows(args) + begin * kE4m3UnitGroups * kQuantGroup) {
      const int64_t first_group = begin * kE4m3UnitGroups;
      block_.x_stride = Math::Stride(args);
      block_.weights = args.weights->panel(panel) + begin * UnitBytes(args);
      block_.panel_bytes = static_cast<int64_t>(args.weights->panel_bytes());
      block_.groups =
          std::min(count * kE4m3UnitGroups, args.weights->inputs() / kQuantGroup - first_group);
      block_.kept = kept_;
    }

    void Run(int64_t row, int64_t rows, const WeightPrefetch& prefetch, const TileOutput& output) {
      block_.x = x_ + row * block_.x_stride;
      block_.prefetch = &prefetch;
      if (has_kept_) return RunKept(rows, output);
      if (!keeps_) return CallTile<E4m3Tile<Math, kFormat, false>>(rows, panels_, block_, output);
      CallTile<E4m3Tile<Math, kFormat, true>>(rows, panels_, block_, output);
      has_kept_ = true;
    }

   private:
    // Of a unit.
    static constexpr int64_t kKeptSteps = kE4m3UnitGroups * kQuantGroup / 2;

    void RunKept(int64_t rows, const TileOutput& output) const {
      FloatBlock<Math> kept;
      kept.x = block_.x;
      kept.x_stride = block_.x_stride;
      kept.weights = kept_;
      kept.panel_stride = block_.groups * kE4m3GroupBytes;
      kept.steps = block_.groups * kQuantGroup / Math::kStepInputs;
      WeightPrefetch prefetch = *block_.prefetch;
      // Its steps are two inputs, those of codes four or a line of scales.
      prefetch.step = (prefetch.step * kE4m3Units.unit_bytes() / 64 + kKeptSteps - 1) / kKeptSteps;
      kept.prefetch = &prefetch;
      if constexpr (kFormat == WeightFormat::kFp8) {
        const ScaledBlock<Math> scaled = {kept, block_.weights, block_.panel_bytes, &prefetch};
        CallTile<ScaledTile<Math>>(rows, panels_, scaled, output);
      } else {
        CallTile<Tile>(rows, panels_, kept, output);
      }
    }

    const int panels_;
    const bool keeps_;
    const typename Math::Input* const x_;  // the first row, at the block's first input
    bool has_kept_ = false;
    E4m3Block<Math> block_;
    alignas(64) uint16_t kept_[kBlockBytes / sizeof(uint16_t)];
  };
};

template <class Math>
void FillE4m3Matmul(KernelTable* table) {
  using enum WeightFormat;
  table->matmul[static_cast<int>(kMxfp8)] = RunMatmul<E4m3Kernel<Math, kMxfp8>>;
  table->matmul[static_cast<int>(kFp8)] = RunMatmul<E4m3Kernel<Math, kFp8>>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_E4M3_TILE_INL_H_
