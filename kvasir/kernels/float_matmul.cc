// Matmul with f32, f16 and bf16 weights: a register tile of rows x outputs, lanes over outputs.
// Deliberately never splits a sum: each output is one chain of fused multiply-adds (kernels.h).
#include "kvasir/kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/float_matmul.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kvasir/kernels/table_parts.h"

#if KVASIR_KERNEL_TARGET

#include "kvasir/kernels/matmul_tiles-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

struct F32Weights {
  using Element = float;
  static HWY_INLINE FloatVec Load(const float* from) { return hn::Load(FloatTag(), from); }
};

struct F16Weights {
  using Element = hwy::float16_t;
  static HWY_INLINE FloatVec Load(const hwy::float16_t* from) {
    return hn::PromoteTo(FloatTag(), hn::Load(hn::Rebind<hwy::float16_t, FloatTag>(), from));
  }
};

struct Bf16Weights {
  using Element = hwy::bfloat16_t;
  static HWY_INLINE FloatVec Load(const hwy::bfloat16_t* from) {
    return hn::PromoteTo(FloatTag(), hn::Load(hn::Rebind<hwy::bfloat16_t, FloatTag>(), from));
  }
};

template <class Element>
struct FloatBlock {
  const float* x = nullptr;  // [rows, inputs of the block]
  int64_t x_stride = 0;
  const Element* weights = nullptr;  // first panel, first input
  int64_t panel_stride = 0;          // elements from a panel to the next
  int64_t inputs = 0;
  WeightPrefetch prefetch;
};

template <class Weights>
struct FloatTile {
  using Element = typename Weights::Element;

  // 6 rows x 64 outputs are 24 of 32 registers with AVX-512, 6 x 16 are 24 with NEON; with the 16
  // registers of AVX2, 6 x 16 outputs are 12.
  static constexpr int kTileRows = 6;
  static constexpr int kAccumulators = HWY_TARGET == HWY_AVX2 ? 12 : 24;
  static constexpr int MaxPanels(int64_t rows) {
    const int64_t fit = kAccumulators / (rows * kVecsPerPanel);
    return fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
  }

  template <int C, size_t... I>
  static HWY_INLINE void LoadWeights(const Element* from, int64_t panel_stride, FloatVec (&w)[C],
                                     std::index_sequence<I...>) {
    ((w[I] = Weights::Load(from + static_cast<int64_t>(I / kVecsPerPanel) * panel_stride +
                           (I % kVecsPerPanel) * kLanes)),
     ...);
  }

  template <int C, size_t... I>
  static HWY_INLINE void MulAddRow(FloatVec x, const FloatVec (&w)[C], FloatVec (&acc)[C],
                                   std::index_sequence<I...>) {
    ((acc[I] = hn::MulAdd(x, w[I], acc[I])), ...);
  }

  template <int R, int C, size_t... I>
  static HWY_INLINE void MulAddRows(const float* x, int64_t x_stride, const FloatVec (&w)[C],
                                    FloatVec (&acc)[R][C], std::index_sequence<I...>) {
    (MulAddRow(hn::Set(FloatTag(), x[static_cast<int64_t>(I) * x_stride]), w, acc[I],
               std::make_index_sequence<C>()),
     ...);
  }

  template <int P, bool kPrefetch, int R, int C>
  static HWY_INLINE void Accumulate(const FloatBlock<Element>& block, FloatVec (&acc)[R][C]) {
    const WeightPrefetch prefetch = block.prefetch;
    const Element* weights = block.weights;
    for (int64_t k = 0; k < block.inputs; ++k) {
      if constexpr (kPrefetch) PrefetchPanels(prefetch, k, std::make_index_sequence<P>());
      FloatVec w[C];
      LoadWeights(weights, block.panel_stride, w, std::make_index_sequence<C>());
      MulAddRows(block.x + k, block.x_stride, w, acc, std::make_index_sequence<R>());
      weights += kPanelOutputs;
    }
  }

  template <int R, int P>
  static HWY_NOINLINE void Run(const FloatBlock<Element>& block, const TileOutput& output) {
    constexpr auto kRows = std::make_index_sequence<R>();
    FloatVec acc[R][P * kVecsPerPanel];
    LoadTile(output, acc, kRows);
    if (block.prefetch.from != nullptr) {
      Accumulate<P, true>(block, acc);
    } else {
      Accumulate<P, false>(block, acc);
    }
    StoreTile(output, acc, kRows);
  }
};

template <class Weights>
struct FloatKernel {
  using Tile = FloatTile<Weights>;
  using Element = typename Weights::Element;
  static constexpr int kTileRows = Tile::kTileRows;
  static constexpr int64_t kUnitBytes = sizeof(Element) * kPanelOutputs;
  static constexpr int64_t kUnitSteps = 1;
  static constexpr int MaxPanels(int64_t rows) { return Tile::MaxPanels(rows); }
  static int64_t Units(const MatmulArgs& args) { return args.weights->inputs(); }
  static int64_t BlockUnits(int panels) { return kBlockBytes / (panels * kUnitBytes); }

  class Block {
   public:
    Block(const MatmulArgs& args, int64_t panel, int panels, int64_t begin, int64_t count)
        : args_(args), panels_(panels), begin_(begin) {
      block_.x_stride = args.x_stride;
      block_.weights =
          reinterpret_cast<const Element*>(args.weights->panel(panel)) + begin * kPanelOutputs;
      block_.panel_stride = args.weights->inputs() * kPanelOutputs;
      block_.inputs = count;
    }

    void Run(int64_t row, int64_t rows, const WeightPrefetch& prefetch,
             const TileOutput& output) const {
      PrefetchRows(row + rows, std::min(row + 2 * rows, args_.rows));
      FloatBlock<Element> block = block_;
      block.x = args_.x + row * args_.x_stride + begin_;
      block.prefetch = prefetch;
      CallTile<Tile>(rows, panels_, block, output);
    }

   private:
    // The inputs of the next tile: rows lie too far apart for the hardware to foresee them.
    void PrefetchRows(int64_t row, int64_t row_end) const {
      for (; row < row_end; ++row) {
        const float* const x = args_.x + row * args_.x_stride + begin_;
        for (int64_t k = 0; k < block_.inputs; k += 64 / sizeof(float)) __builtin_prefetch(x + k);
      }
    }

    const MatmulArgs& args_;
    const int panels_;
    const int64_t begin_;
    FloatBlock<Element> block_;
  };
};

void FillFloat(KernelTable* table) {
  table->matmul[static_cast<int>(WeightFormat::kF32)] = RunMatmul<FloatKernel<F32Weights>>;
  table->matmul[static_cast<int>(WeightFormat::kF16)] = RunMatmul<FloatKernel<F16Weights>>;
  table->matmul[static_cast<int>(WeightFormat::kBf16)] = RunMatmul<FloatKernel<Bf16Weights>>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
namespace kvasir {

void FillFloatMatmul(Isa isa, KernelTable* table) {
#if HWY_TARGETS & HWY_AVX2
  if (isa == Isa::kAvx2) N_AVX2::FillFloat(table);
#endif
#if HWY_TARGETS & HWY_AVX3_DL
  if (isa == Isa::kAvx512) N_AVX3_DL::FillFloat(table);
#endif
#if HWY_TARGETS & HWY_NEON
  if (isa == Isa::kNeon) N_NEON::FillFloat(table);
#endif
}

}  // namespace kvasir
#endif  // HWY_ONCE
