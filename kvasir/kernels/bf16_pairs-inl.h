// The arithmetic of bf16 pairs (tensor/bf16_pairs.h) as Maths of float_tile-inl.h: two fused
// multiply-adds everywhere, one instruction where a CPU has it.
// Deliberately without loops over matrices. DotMath exists where KVASIR_BEFORE_TILE() allows its
// instruction, which KVASIR_HAS_BF16_DOT says.
#if defined(KVASIR_KERNELS_BF16_PAIRS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_BF16_PAIRS_INL_H_
#undef KVASIR_KERNELS_BF16_PAIRS_INL_H_
#else
#define KVASIR_KERNELS_BF16_PAIRS_INL_H_
#endif

#include <cstring>

#include "hwy/highway.h"
#include "kvasir/kernels/float_tile-inl.h"
#include "kvasir/tensor/bf16_pairs.h"

KVASIR_BEFORE_TILE();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

using WordTag = hn::RebindToUnsigned<FloatTag>;

// bf16_pairs::RoundInput.
HWY_INLINE FloatVec RoundInputs(FloatVec x) {
  const FloatTag df;
  const hn::RebindToUnsigned<FloatTag> d;
  const auto bits = hn::BitCast(d, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
  const auto nearest = hn::Add(hn::Add(bits, hn::Set(d, 0x7FFF)), odd);
  const auto quiet = hn::Or(bits, hn::Set(d, 0x400000));
  const FloatVec chosen =
      hn::IfThenElse(hn::IsNaN(x), hn::BitCast(df, quiet), hn::BitCast(df, nearest));
  const FloatVec rounded =
      hn::BitCast(df, hn::And(hn::BitCast(d, chosen), hn::Set(d, 0xFFFF0000u)));
  // Comparing false, a NaN stays.
  const FloatVec least = hn::Set(df, bf16_pairs::kLeastInput);
  return hn::IfThenZeroElse(hn::Lt(hn::Abs(rounded), least), rounded);
}

// A Math of pairs also has FromPairs<part>(words), what Load makes of words, and RoundRows.

// Weights as pairs, inputs as the floats that they were rounded to.
struct PairMath {
  using Element = uint16_t;
  using Input = float;
  using Weights = FloatVec;
  using Inputs = FloatVec;
  static constexpr int kStepInputs = 2;
  static constexpr int kParts = 2;

  static const float* Rows(const MatmulArgs& args) {
    return reinterpret_cast<const float*>(args.x_rounded);
  }
  static int64_t Stride(const MatmulArgs& args) { return args.weights->inputs(); }
  template <int kPart>
  static HWY_INLINE FloatVec FromPairs(hn::Vec<WordTag> pairs) {
    if constexpr (kPart == 0) {
      return hn::BitCast(FloatTag(), hn::And(pairs, hn::Set(WordTag(), 0xFFFF0000u)));
    } else {
      return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(pairs));
    }
  }
  template <int kPart>
  static HWY_INLINE FloatVec Load(const uint16_t* from) {
    return FromPairs<kPart>(hn::Load(WordTag(), reinterpret_cast<const uint32_t*>(from)));
  }
  template <int kPart>
  static HWY_INLINE FloatVec Broadcast(const float* x) {
    return hn::Set(FloatTag(), x[1 - kPart]);
  }
  static HWY_INLINE FloatVec MulAdd(FloatVec x, FloatVec w, FloatVec acc) {
    return hn::MulAdd(x, w, acc);
  }

  // KernelTable::round_rows
  static void RoundRows(const float* x, int64_t x_stride, int64_t rows, int64_t inputs,
                        std::byte* rounded) noexcept {
    for (int64_t row = 0; row < rows; ++row) {
      const float* const in = x + row * x_stride;
      auto* const out = reinterpret_cast<float*>(rounded + row * KernelTable::RoundedBytes(inputs));
      const int64_t whole = inputs / kLanes * kLanes;
      for (int64_t k = 0; k < whole; k += kLanes) {
        hn::StoreU(RoundInputs(hn::LoadU(FloatTag(), in + k)), FloatTag(), out + k);
      }
      for (int64_t k = whole; k < inputs; ++k) out[k] = bf16_pairs::RoundInput(in[k]);
    }
  }
};

#if KVASIR_HAS_BF16_DOT
// Inputs and weights as pairs of bf16.
struct DotMath {
  using Element = uint16_t;
  using Input = uint16_t;
  using Weights = __m512i;
  using Inputs = __m512i;
  static constexpr int kStepInputs = 2;
  static constexpr int kParts = 1;

  static const uint16_t* Rows(const MatmulArgs& args) {
    return reinterpret_cast<const uint16_t*>(args.x_rounded);
  }
  static int64_t Stride(const MatmulArgs& args) {
    return KernelTable::RoundedBytes(args.weights->inputs()) / int64_t{sizeof(uint16_t)};
  }
  template <int kPart>
  static HWY_INLINE __m512i FromPairs(hn::Vec<WordTag> pairs) {
    return pairs.raw;
  }
  template <int kPart>
  static HWY_INLINE __m512i Load(const uint16_t* from) {
    return _mm512_loadu_si512(from);
  }
  template <int kPart>
  static HWY_INLINE __m512i Broadcast(const uint16_t* x) {
    int32_t pair;
    std::memcpy(&pair, x, sizeof(pair));
    return _mm512_set1_epi32(pair);
  }
  static HWY_INLINE FloatVec MulAdd(__m512i x, __m512i w, FloatVec acc) {
    return FloatVec{_mm512_dpbf16_ps(acc.raw, (__m512bh)w, (__m512bh)x)};
  }

  // KernelTable::round_rows
  static void RoundRows(const float* x, int64_t x_stride, int64_t rows, int64_t inputs,
                        std::byte* rounded) noexcept {
    const __m256i magnitude = _mm256_set1_epi16(0x7FFF);
    const __m256i least =
        _mm256_set1_epi16(static_cast<int16_t>(FloatToBf16(bf16_pairs::kLeastInput)));
    for (int64_t row = 0; row < rows; ++row) {
      const float* const in = x + row * x_stride;
      auto* const out =
          reinterpret_cast<uint16_t*>(rounded + row * KernelTable::RoundedBytes(inputs));
      const int64_t whole = inputs / kLanes * kLanes;
      for (int64_t k = 0; k < whole; k += kLanes) {
        const auto halves = (__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(in + k));
        const __mmask16 is_kept =
            _mm256_cmpge_epi16_mask(_mm256_and_si256(halves, magnitude), least);
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + k),
                            _mm256_maskz_mov_epi16(is_kept, halves));
      }
      for (int64_t k = whole; k < inputs; ++k) out[k] = FloatToBf16(bf16_pairs::RoundInput(in[k]));
    }
  }
};
#endif  // KVASIR_HAS_BF16_DOT

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_BF16_PAIRS_INL_H_
