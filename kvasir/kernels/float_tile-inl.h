// The register tile of matmuls in floats: rows x outputs, lanes over outputs, a few multiply-adds
// per weight. Deliberately never splits a sum: each output is one chain (kernels.h).
//
// A Math (float_matmul.cc, bf16_pairs-inl.h) has
//   Element, Input            of the weights and of x
//   kStepInputs               inputs of a step; a step is so many elements of every output
//   kParts                    multiply-adds of a step, each of all outputs and rows
//   Rows(args)                x, Stride(args) elements from a row to the next
//   Load<part>(from)          the weights of kLanes outputs, Broadcast<part>(x) a row's inputs
//   MulAdd(x, weights, acc)
// Include bf16_dot_target.h first if a Math needs the instruction that no target implies.
#if defined(KVASIR_KERNELS_FLOAT_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_FLOAT_TILE_INL_H_
#undef KVASIR_KERNELS_FLOAT_TILE_INL_H_
#else
#define KVASIR_KERNELS_FLOAT_TILE_INL_H_
#endif

#include "hwy/highway.h"
#include "kvasir/kernels/matmul_tiles-inl.h"
#include "kvasir/kernels/tile_run-inl.h"

KVASIR_BEFORE_TILE();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

template <class Math>
struct FloatBlock {
  const typename Math::Input* x = nullptr;  // [rows, inputs of the block]
  int64_t x_stride = 0;
  const typename Math::Element* weights = nullptr;  // first panel, first input
  int64_t panel_stride = 0;                         // elements from a panel to the next
  int64_t steps = 0;
  const WeightPrefetch* prefetch = &kNoFetch;
};

template <class Math>
struct FloatTile : TileRun<FloatTile<Math>> {
  using Block = FloatBlock<Math>;
  using Element = typename Math::Element;
  using Input = typename Math::Input;
  using Weights = typename Math::Weights;

  // 6 rows x 64 outputs are 24 of 32 registers with AVX-512, 6 x 16 are 24 with NEON; with the 16
  // registers of AVX2, 6 x 16 outputs are 12. There two parts have 5 rows: words and their mask
  // leave no room for 12 sums, and g++ kept a third of them in memory.
  static constexpr int kTileRows = HWY_TARGET == HWY_AVX2 && Math::kParts == 2 ? 5 : 6;
  static constexpr int kAccumulators = HWY_TARGET == HWY_AVX2 ? 12 : 24;
  static constexpr int MaxPanels(int64_t rows, bool = true) {
    const int64_t fit = kAccumulators / (rows * kVecsPerPanel);
    return fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
  }

  template <int kPart, int C, size_t... I>
  static HWY_INLINE void LoadWeights(const Element* from, int64_t panel_stride, Weights (&w)[C],
                                     std::index_sequence<I...>) {
    ((w[I] =
          Math::template Load<kPart>(from + static_cast<int64_t>(I / kVecsPerPanel) * panel_stride +
                                     (I % kVecsPerPanel) * kLanes * Math::kStepInputs)),
     ...);
  }

  template <int C, size_t... I>
  static HWY_INLINE void MulAddRow(typename Math::Inputs x, const Weights (&w)[C],
                                   FloatVec (&acc)[C], std::index_sequence<I...>) {
    ((acc[I] = Math::MulAdd(x, w[I], acc[I])), ...);
  }

  template <int kPart, int R, int C, size_t... I>
  static HWY_INLINE void MulAddRows(const Input* x, int64_t x_stride, const Weights (&w)[C],
                                    FloatVec (&acc)[R][C], std::index_sequence<I...>) {
    (MulAddRow(Math::template Broadcast<kPart>(x + static_cast<int64_t>(I) * x_stride), w, acc[I],
               std::make_index_sequence<C>()),
     ...);
  }

  template <int kPart, int R, int C>
  static HWY_INLINE void AddPart(const Block& block, int64_t step, const Element* weights,
                                 FloatVec (&acc)[R][C]) {
    Weights w[C];
    LoadWeights<kPart>(weights, block.panel_stride, w, std::make_index_sequence<C>());
    MulAddRows<kPart>(block.x + step * Math::kStepInputs, block.x_stride, w, acc,
                      std::make_index_sequence<R>());
  }

  template <int P, Fetch kFetch, int R, int C>
  static HWY_INLINE void Accumulate(const Block& block, FloatVec (&acc)[R][C]) {
    const WeightPrefetch prefetch = *block.prefetch;
    const Element* weights = block.weights;
    for (int64_t step = 0; step < block.steps; ++step) {
      if constexpr (kFetch != Fetch::kNothing)
        PrefetchPanels<kFetch>(prefetch, step, std::make_index_sequence<P>());
      AddPart<0>(block, step, weights, acc);
      if constexpr (Math::kParts == 2) AddPart<1>(block, step, weights, acc);
      weights += kPanelOutputs * Math::kStepInputs;
    }
  }
};

template <class Math>
struct FloatKernel {
  using Tile = FloatTile<Math>;
  using Element = typename Math::Element;
  static constexpr int kTileRows = Tile::kTileRows;
  static constexpr int64_t kUnitBytes = sizeof(Element) * kPanelOutputs * Math::kStepInputs;
  static constexpr int64_t kStepBytes = kUnitBytes;
  static constexpr int64_t kAheadBytes = 4096;
  static constexpr int kStreamRows = 0;
  static constexpr int MaxPanels(int64_t rows, bool) { return Tile::MaxPanels(rows); }
  static int64_t Units(const MatmulArgs& args) {
    return args.weights->inputs() / Math::kStepInputs;
  }
  static int64_t UnitBytes(const MatmulArgs&) { return kUnitBytes; }
  static int64_t BlockUnits(const MatmulArgs&, int panels) {
    return kBlockBytes / (panels * kUnitBytes);
  }

  class Block {
   public:
    Block(const MatmulArgs& args, int64_t panel, int panels, int64_t begin, int64_t count)
        : args_(args), panels_(panels), x_(Math::Rows(args) + begin * Math::kStepInputs) {
      block_.x_stride = Math::Stride(args);
      block_.weights = reinterpret_cast<const Element*>(args.weights->panel(panel)) +
                       begin * kPanelOutputs * Math::kStepInputs;
      block_.panel_stride = args.weights->inputs() * kPanelOutputs;
      block_.steps = count;
    }

    void Run(int64_t row, int64_t rows, const WeightPrefetch& prefetch, const TileOutput& output) {
      PrefetchRows(row + rows, std::min(row + 2 * rows, args_.rows));
      block_.x = x_ + row * block_.x_stride;
      block_.prefetch = &prefetch;
      CallTile<Tile>(rows, panels_, block_, output);
    }

   private:
    // The inputs of the next tile: rows lie too far apart for the hardware to foresee them.
    HWY_INLINE void PrefetchRows(int64_t row, int64_t row_end) const {
      const int64_t inputs = block_.steps * Math::kStepInputs;
      for (; row < row_end; ++row) {
        const auto* const x = x_ + row * block_.x_stride;
        for (int64_t k = 0; k < inputs; k += 64 / sizeof(*x)) __builtin_prefetch(x + k);
      }
    }

    const MatmulArgs& args_;
    const int panels_;
    const typename Math::Input* const x_;  // the first row, at the block's first input
    FloatBlock<Math> block_;
  };
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_FLOAT_TILE_INL_H_
