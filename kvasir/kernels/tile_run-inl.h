// What every register tile of a matmul does around its products: takes up its sums, chooses how to
// fetch, puts the sums down.
// Deliberately compiled with the attributes of the tiles of its file (KVASIR_BEFORE_TILE): what is
// inlined here must not need more.
//
// A Tile, which derives from TileRun<Tile>, has
//   Accumulate<panels, fetch>(block, acc)    adds the products of a block; the block says what to
//                                            fetch meanwhile in `prefetch`
#if defined(KVASIR_KERNELS_TILE_RUN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_TILE_RUN_INL_H_
#undef KVASIR_KERNELS_TILE_RUN_INL_H_
#else
#define KVASIR_KERNELS_TILE_RUN_INL_H_
#endif

#include "hwy/highway.h"
#include "kvasir/kernels/matmul_tiles-inl.h"

#ifndef KVASIR_BEFORE_TILE
#define KVASIR_BEFORE_TILE() HWY_BEFORE_NAMESPACE()
#endif

KVASIR_BEFORE_TILE();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

template <class Tile>
struct TileRun {
  static constexpr int kLeastRows = 1;

  // R rows, P panels.
  template <int R, int P, class Block>
  static HWY_NOINLINE void Run(const Block& block, const TileOutput& output) {
    constexpr auto kRows = std::make_index_sequence<R>();
    FloatVec acc[R][P * kVecsPerPanel];
    if (!output.resume) FetchToWrite<P>(output, kRows);
    LoadTile(output, acc, kRows);
    switch (block.prefetch->fetch) {
      case Fetch::kNothing:
        Tile::template Accumulate<P, Fetch::kNothing>(block, acc);
        break;
      case Fetch::kToFirstLevel:
        Tile::template Accumulate<P, Fetch::kToFirstLevel>(block, acc);
        break;
      case Fetch::kToSecondLevel:
        Tile::template Accumulate<P, Fetch::kToSecondLevel>(block, acc);
        break;
    }
    StoreTile(output, acc, kRows);
  }
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_TILE_RUN_INL_H_
