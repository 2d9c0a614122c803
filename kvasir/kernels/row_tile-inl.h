// out[r][j] = start[r][j], then fma(a[r][i], b[i][j], .) for i ascending: scores (i runs over
// key_dim, j over tokens) and value sums (i over tokens, j over value_dim) are both this loop.
// Included once per Highway target. Deliberately never splits i: one chain per output.
#if defined(KVASIR_KERNELS_ROW_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_ROW_TILE_INL_H_
#undef KVASIR_KERNELS_ROW_TILE_INL_H_
#else
#define KVASIR_KERNELS_ROW_TILE_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kvasir/kernels/codec-inl.h"
#include "kvasir/kernels/plane_prefetch-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvasir::HWY_NAMESPACE {

template <class Codec>
struct RowTile {
  const float* a = nullptr;  // [rows, ...], column i of row r at a[r * a_stride + i]
  int64_t a_stride = 0;
  const typename Codec::Stored* b = nullptr;  // row i at b + i * b_stride
  int64_t b_stride = 0;
  int64_t b_rows = 0;   // that exist; reading behind the last of them is forbidden
  int64_t columns = 0;  // of b that are multiplied
  int64_t begin = 0;    // of i
  int64_t end = 0;
  float* out = nullptr;  // [rows, columns]
  int64_t out_stride = 0;
  PlanePrefetch* next = nullptr;   // what is read after b, if something is; steps as RowTileSteps
  const float* factors = nullptr;  // [rows] start = out * factor; null: start = 0
};

// Accumulators of a tile: 12 of 16 vector registers, 24 of 32, so that the stored elements and a
// broadcast fit beside them. Rows of a tile share each decoded vector of b. Two multiply-adds per
// cycle of latency four need eight chains: six rows of two vectors have twelve, four rows of four
// vectors sixteen (six rows of four measured three percent slower).
#if HWY_TARGET == HWY_AVX2
inline constexpr size_t kAccumulators = 12;
inline constexpr size_t kMaxTileRows = 6;
#else
inline constexpr size_t kAccumulators = 24;
inline constexpr size_t kMaxTileRows = 4;
#endif

// Vectors of a tile with so many rows: the largest power of two up to 8 that fits.
constexpr size_t TileVectors(size_t rows) {
  size_t vectors = 8;
  while (vectors * rows > kAccumulators) vectors /= 2;
  return vectors;
}

// Steps of fetching that a tile of so many rows takes over so many rows of b.
constexpr int64_t RowTileSteps(int64_t rows, int64_t b_rows, int64_t columns) {
  const auto width = static_cast<int64_t>(TileVectors(static_cast<size_t>(rows)) * kLanes);
  return b_rows * ((columns + width - 1) / width);
}

// kFetch: with steps of tile.next.
template <class Codec, size_t kRows, size_t kVectors, bool kFetch>
HWY_INLINE void MultiplyTile(const RowTile<Codec>& tile, int64_t column) {
  const DF d;
  VF acc[kRows][kVectors];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) {
      const float* out = tile.out + r * tile.out_stride + column + v * kLanes;
      acc[r][v] = tile.factors == nullptr ? hn::Zero(d)
                                          : hn::Mul(hn::LoadU(d, out), hn::Set(d, tile.factors[r]));
    }
  }
  const typename Codec::Stored* b = tile.b + tile.begin * tile.b_stride + column;
  // A copy, whose numbers stay in registers.
  PlanePrefetch next = kFetch ? *tile.next : PlanePrefetch();
  for (int64_t i = tile.begin; i < tile.end; ++i, b += tile.b_stride) {
    if constexpr (kFetch) next.Step();
    if constexpr (kVectors < kRows) {
      VF decoded[kVectors];
      for (size_t v = 0; v < kVectors; ++v) decoded[v] = Codec::Decode(b + v * kLanes);
      for (size_t r = 0; r < kRows; ++r) {
        const VF a = hn::Set(d, tile.a[r * tile.a_stride + i]);
        for (size_t v = 0; v < kVectors; ++v) acc[r][v] = hn::MulAdd(a, decoded[v], acc[r][v]);
      }
    } else {
      VF a[kRows];
      for (size_t r = 0; r < kRows; ++r) a[r] = hn::Set(d, tile.a[r * tile.a_stride + i]);
      for (size_t v = 0; v < kVectors; ++v) {
        const VF decoded = Codec::Decode(b + v * kLanes);
        for (size_t r = 0; r < kRows; ++r) acc[r][v] = hn::MulAdd(a[r], decoded, acc[r][v]);
      }
    }
  }
  if constexpr (kFetch) *tile.next = next;
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kVectors; ++v) {
      hn::StoreU(acc[r][v], d, tile.out + r * tile.out_stride + column + v * kLanes);
    }
  }
}

// The last columns, fewer than one vector.
template <class Codec, size_t kRows>
HWY_INLINE void MultiplyPartial(const RowTile<Codec>& tile, int64_t column) {
  const DF d;
  const size_t left = static_cast<size_t>(tile.columns - column);
  VF acc[kRows];
  for (size_t r = 0; r < kRows; ++r) {
    const float* out = tile.out + r * tile.out_stride + column;
    acc[r] = tile.factors == nullptr ? hn::Zero(d)
                                     : hn::Mul(LoadPartial(out, left), hn::Set(d, tile.factors[r]));
  }
  // A whole vector runs into the next row of b, whose lanes are dropped; the last rows have none.
  const int64_t room = tile.b_rows * tile.b_stride - column - static_cast<int64_t>(kLanes);
  const int64_t whole_end = room < 0 ? 0 : room / tile.b_stride + 1;
  for (int64_t i = tile.begin; i < tile.end; ++i) {
    const typename Codec::Stored* b = tile.b + i * tile.b_stride + column;
    const VF decoded = i < whole_end ? Codec::Decode(b) : DecodePartial<Codec>(b, left);
    for (size_t r = 0; r < kRows; ++r) {
      acc[r] = hn::MulAdd(hn::Set(d, tile.a[r * tile.a_stride + i]), decoded, acc[r]);
    }
  }
  for (size_t r = 0; r < kRows; ++r) {
    StorePartial(acc[r], tile.out + r * tile.out_stride + column, left);
  }
}

template <class Codec, size_t kRows, size_t kVectors, bool kFetch>
HWY_INLINE void MultiplyColumns(const RowTile<Codec>& tile, int64_t column) {
  constexpr int64_t kStep = kVectors * kLanes;
  for (; column + kStep <= tile.columns; column += kStep) {
    MultiplyTile<Codec, kRows, kVectors, kFetch>(tile, column);
  }
  if constexpr (kVectors > 1) {
    MultiplyColumns<Codec, kRows, kVectors / 2, kFetch>(tile, column);
  } else if (column < tile.columns) {
    MultiplyPartial<Codec, kRows>(tile, column);
  }
}

template <class Codec, size_t kRows>
HWY_NOINLINE void MultiplyRows(const RowTile<Codec>& tile) {
  constexpr size_t kVectors = TileVectors(kRows);
  if (tile.next != nullptr) return MultiplyColumns<Codec, kRows, kVectors, true>(tile, 0);
  MultiplyColumns<Codec, kRows, kVectors, false>(tile, 0);
}

// All columns of `rows` rows, 1 <= rows <= kRows.
template <class Codec, size_t kRows = kMaxTileRows>
HWY_INLINE void Multiply(const RowTile<Codec>& tile, int64_t rows) {
  if (rows == kRows) return MultiplyRows<Codec, kRows>(tile);
  if constexpr (kRows > 1) Multiply<Codec, kRows - 1>(tile, rows);
}

// Rows of the next tile when `left` rows are left: tiles of about the same height (7 = 4 + 3).
inline int64_t NextTileRows(int64_t left) {
  constexpr int64_t kMax = kMaxTileRows;
  const int64_t tiles = (left + kMax - 1) / kMax;
  return (left + tiles - 1) / tiles;
}

}  // namespace kvasir::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_ROW_TILE_INL_H_
