// Tiles of rows times planes of codes (code_plane-inl.h) by products of matrices: two outputs times
// two rows, eight inputs at a time (USMMLA, NEON with I8MM).
// Deliberately the same operations as tiles that put codes together themselves
// (coded_matmul-inl.h), hence the same bits.
#if defined(KVASIR_KERNELS_MATRIX_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_MATRIX_TILE_INL_H_
#undef KVASIR_KERNELS_MATRIX_TILE_INL_H_
#else
#define KVASIR_KERNELS_MATRIX_TILE_INL_H_
#endif

#include <algorithm>
#include <utility>

#include "hwy/highway.h"
#include "kvasir/kernels/code_plane-inl.h"

#if KVASIR_HAS_MATRIX_DOT

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

// [steps of 8 inputs][16 outputs][8 inputs], and each scale twice, as sums lie: a vector is two
// outputs of two rows, {output 0, row 0}, {0, 1}, {1, 0}, {1, 1}.
struct PairLayout {
  static constexpr int64_t kGroupBytes = 8 * 64;
  static constexpr int64_t kScaleFloats = 2 * kPanelOutputs;

  static HWY_INLINE void Store(ByteVec codes, size_t step, size_t vector, uint8_t* group) {
    uint8_t* const to = group + step / 2 * 128 + vector * 32 + step % 2 * 4;
    const uint32x4_t fours = vreinterpretq_u32_u8(codes.raw);
    StoreFour<0>(fours, to);
    StoreFour<1>(fours, to);
    StoreFour<2>(fours, to);
    StoreFour<3>(fours, to);
  }
  static HWY_INLINE void StoreScales(FloatVec scales, size_t vector, float* panel) {
    vst1q_f32(panel + vector * 8, vzip1q_f32(scales.raw, scales.raw));
    vst1q_f32(panel + vector * 8 + 4, vzip2q_f32(scales.raw, scales.raw));
  }

 private:
  template <int kLane>
  static HWY_INLINE void StoreFour(uint32x4_t fours, uint8_t* to) {
    vst1q_lane_u32(reinterpret_cast<uint32_t*>(to + kLane * 8), fours, kLane);
  }
};

template <class Code>
struct MatrixTile {
  using Layout = PairLayout;
  using Block = PlaneBlock<Layout>;
  static constexpr int kTileRows = 4;
  static constexpr int kLeastRows = LeastPlaneTile(kTileRows);
  // They come one after the other, for rows that were laid out once.
  static constexpr int MaxPanels(int64_t, bool) { return 4; }

  static constexpr int64_t kMostGroups = CodePlane<Layout>::kMostGroups;
  static constexpr int kPairs = kTileRows / 2;
  static constexpr int kSteps = 4 / Code::kParts;  // of 8 inputs, of a part of a group
  static constexpr int kColumns = 4;               // vectors of two outputs: half a panel at a time

  // Of a panel, by halves.
  using Sums = float32x4_t[2][kPairs][kColumns];

  // A tile's rows, the last of an odd number twice: as operands, and what is multiplied or begun
  // with of each, as sums lie.
  template <int R>
  struct Rows {
    HWY_INLINE Rows() {}  // as GroupScales
    int8x16_t codes[kMostGroups][4][kPairs];
    float32x4_t scales[kMostGroups][kPairs];
    float32x4_t bias[kMostGroups][Code::kParts][kPairs];
    int32x4_t missing[kMostGroups][Code::kParts][kPairs];
  };
  static HWY_INLINE float32x4_t Pair(float first, float second) {
    return vzip1q_f32(vdupq_n_f32(first), vdupq_n_f32(second));
  }
  static HWY_INLINE int32x4_t Pair(int32_t first, int32_t second) {
    return vzip1q_s32(vdupq_n_s32(first), vdupq_n_s32(second));
  }
  static HWY_INLINE int32_t PartSum(const Block& block, int64_t at, int part) {
    if constexpr (Code::kParts == 1) return block.x_sums[at];
    const int32_t half = block.x_half_sums[at];
    return part == 0 ? half : block.x_sums[at] - half;
  }
  // Eight inputs of both rows side by side.
  static HWY_INLINE void LayOutCodes(const int8_t* first, const int8_t* second, int pair,
                                     int8x16_t (&codes)[4][kPairs]) {
    for (int half = 0; half < 2; ++half) {
      const int64x2_t a = vreinterpretq_s64_s8(vld1q_s8(first + half * 16));
      const int64x2_t b = vreinterpretq_s64_s8(vld1q_s8(second + half * 16));
      codes[2 * half][pair] = vreinterpretq_s8_s64(vzip1q_s64(a, b));
      codes[2 * half + 1][pair] = vreinterpretq_s8_s64(vzip2q_s64(a, b));
    }
  }
  template <int R>
  static HWY_INLINE void LayOut(const Block& block, Rows<R>& rows) {
    for (int pair = 0; pair < kPairs; ++pair) {
      const int64_t first = 2 * pair * block.row_groups;
      const int64_t second = std::min(2 * pair + 1, R - 1) * block.row_groups;
      for (int64_t g = 0; g < block.groups; ++g) {
        LayOutCodes(block.x_codes + (first + g) * kQuantGroup,
                    block.x_codes + (second + g) * kQuantGroup, pair, rows.codes[g]);
        const float scales[2] = {block.x_scales[first + g], block.x_scales[second + g]};
        rows.scales[g][pair] = Pair(scales[0], scales[1]);
        for (int part = 0; part < Code::kParts; ++part) {
          const int32_t sums[2] = {PartSum(block, first + g, part),
                                   PartSum(block, second + g, part)};
          if constexpr (Code::kHasMins) {
            rows.bias[g][part][pair] = Pair(scales[0] * static_cast<float>(sums[0]),
                                            scales[1] * static_cast<float>(sums[1]));
          }
          if constexpr (Code::kZero != 0) {
            rows.missing[g][part][pair] = Pair(-Code::kZero * sums[0], -Code::kZero * sums[1]);
          }
        }
      }
    }
  }

  // acc += sums * x_scale * scale, and biases, in the order of coded_matmul-inl.h: part kPart of a
  // group, half a panel.
  template <int kPart, int R>
  static HWY_INLINE void AddPart(const Rows<R>& rows, int64_t g, const uint8_t* codes,
                                 const float* scales, const float* biases,
                                 float32x4_t (&acc)[kPairs][kColumns]) {
    int32x4_t sums[kPairs][kColumns];
#pragma GCC unroll 2
    for (int pair = 0; pair < kPairs; ++pair) {
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) {
        sums[pair][c] = Code::kZero != 0 ? rows.missing[g][kPart][pair] : vdupq_n_s32(0);
      }
    }
#pragma GCC unroll 4
    for (int step = kPart * kSteps; step < (kPart + 1) * kSteps; ++step) {
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) {
        const uint8x16_t w = vld1q_u8(codes + step * 128 + c * 16);
#pragma GCC unroll 2
        for (int pair = 0; pair < kPairs; ++pair) {
          sums[pair][c] = vusmmlaq_s32(sums[pair][c], w, rows.codes[g][step][pair]);
        }
      }
    }
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      const float32x4_t scale = vld1q_f32(scales + c * 4);
#pragma GCC unroll 2
      for (int pair = 0; pair < kPairs; ++pair) {
        acc[pair][c] = vfmaq_f32(acc[pair][c], vcvtq_f32_s32(sums[pair][c]),
                                 vmulq_f32(rows.scales[g][pair], scale));
        if constexpr (Code::kHasMins) {
          acc[pair][c] =
              vfmaq_f32(acc[pair][c], rows.bias[g][kPart][pair], vld1q_f32(biases + c * 4));
        }
      }
    }
  }

  template <int R>
  static HWY_INLINE void AddGroup(const Block& block, const Rows<R>& rows, int64_t panel, int64_t g,
                                  Sums& acc) {
    const int64_t at = panel * block.groups + g;
    const uint8_t* const codes = block.plane->codes + at * Layout::kGroupBytes;
    const int64_t first = at * Code::kParts * Layout::kScaleFloats;
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      // One after the other: sums of both have no room in registers.
      if (half > 0) asm volatile("" ::: "memory");
      const int64_t of_half = first + half * kPanelOutputs;
      AddPart<0>(rows, g, codes + half * 64, block.plane->scales + of_half,
                 block.plane->biases + of_half, acc[half]);
      if constexpr (Code::kParts == 2) {
        const int64_t second = of_half + Layout::kScaleFloats;
        AddPart<1>(rows, g, codes + half * 64, block.plane->scales + second,
                   block.plane->biases + second, acc[half]);
      }
    }
  }

  // What a tile's sums begin with, or go on from.
  template <int R>
  static HWY_INLINE void Load(const TileOutput& from, const float* panel, Sums& acc) {
#pragma GCC unroll 4
    for (int four = 0; four < 4; ++four) {
#pragma GCC unroll 2
      for (int pair = 0; pair < kPairs; ++pair) {
        float32x4_t rows[2] = {vdupq_n_f32(0), vdupq_n_f32(0)};
        if (from.resume) {
          rows[0] = vld1q_f32(panel + 2 * pair * from.stride + four * 4);
          rows[1] = vld1q_f32(panel + std::min(2 * pair + 1, R - 1) * from.stride + four * 4);
        }
        acc[four / 2][pair][four % 2 * 2] = vzip1q_f32(rows[0], rows[1]);
        acc[four / 2][pair][four % 2 * 2 + 1] = vzip2q_f32(rows[0], rows[1]);
      }
    }
  }
  template <int R>
  static HWY_INLINE void Store(const TileOutput& to, int64_t output, float* panel,
                               const Sums& acc) {
#pragma GCC unroll 4
    for (int four = 0; four < 4; ++four) {
#pragma GCC unroll 2
      for (int pair = 0; pair < kPairs; ++pair) {
        const float32x4_t first = acc[four / 2][pair][four % 2 * 2];
        const float32x4_t second = acc[four / 2][pair][four % 2 * 2 + 1];
        float32x4_t rows[2] = {vuzp1q_f32(first, second), vuzp2q_f32(first, second)};
        if (to.bias != nullptr) {
          const float32x4_t bias = vld1q_f32(to.bias + output + four * 4);
          rows[0] = vaddq_f32(rows[0], bias);
          rows[1] = vaddq_f32(rows[1], bias);
        }
        vst1q_f32(panel + 2 * pair * to.stride + four * 4, rows[0]);
        if (2 * pair + 1 < R) vst1q_f32(panel + (2 * pair + 1) * to.stride + four * 4, rows[1]);
      }
    }
  }

  template <int R, int P>
  static HWY_NOINLINE void Run(const Block& block, const TileOutput& output) {
    Rows<R> rows;
    LayOut(block, rows);
    const WeightPrefetch prefetch = *block.prefetch;
    int64_t step = 0;
    for (int64_t panel = 0; panel < P; ++panel) {
      float* const out = output.out + panel * kPanelOutputs;
      Sums acc;
      Load<R>(output, out, acc);
      for (int64_t g = 0; g < block.groups; ++g) {
        // With the first panel's groups those of all to come.
        const int64_t steps = std::min(step + block.group_steps, block.fetch_steps);
        while (step < steps) {
          PrefetchPanels<Fetch::kToSecondLevel>(prefetch, step++, std::make_index_sequence<P>());
        }
        AddGroup(block, rows, panel, g, acc);
      }
      Store<R>(output, panel * kPanelOutputs, out, acc);
    }
  }
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_HAS_MATRIX_DOT

#endif  // KVASIR_KERNELS_MATRIX_TILE_INL_H_
