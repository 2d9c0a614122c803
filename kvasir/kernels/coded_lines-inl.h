// The codes of coded rows (coded_row.h) in a panel: loaded by lines and put together to bytes.
// Deliberately without scales (coded_scales-inl.h) and products (coded_matmul-inl.h).
#if defined(KVASIR_KERNELS_CODED_LINES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_CODED_LINES_INL_H_
#undef KVASIR_KERNELS_CODED_LINES_INL_H_
#else
#define KVASIR_KERNELS_CODED_LINES_INL_H_
#endif

#include "hwy/highway.h"
#include "kvasir/kernels/coded_scales-inl.h"

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

inline constexpr int kVecBytes = kLanes * 4;  // kLanes outputs x 4 inputs of codes
// kIq4Values plus 128: ByteDot's codes are natural numbers.
constexpr uint8_t kIq4Codes[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                   129, 141, 153, 166, 181, 197, 217, 241};
// kE2m1Values plus 12, likewise.
constexpr uint8_t kE2m1Codes[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};

template <WeightFormat kFormat>
struct CodedLines {
  using Code = Coding<kFormat>;

  // Line `line` of a group, of every column.
  template <int C, size_t... I>
  static HWY_INLINE void Load(const std::byte* group, int line, int64_t panel_bytes,
                              ByteVec (&out)[C], std::index_sequence<I...>) {
    const auto* from = reinterpret_cast<const uint8_t*>(group) + line * 64;
    ((out[I] = hn::LoadU(ByteTag(), from + static_cast<int64_t>(I / kVecsPerPanel) * panel_bytes +
                                        (I % kVecsPerPanel) * kVecBytes)),
     ...);
  }

  // Bits moved up by kShift (down when negative), those of kMask kept. x86 shifts no bytes.
  template <int kShift, uint8_t kMask>
  static HWY_INLINE ByteVec Bits(ByteVec bytes) {
    const hn::Repartition<uint16_t, ByteTag> wide;
    auto words = hn::BitCast(wide, bytes);
    if constexpr (kShift > 0) words = hn::ShiftLeft<kShift>(words);
    if constexpr (kShift < 0) words = hn::ShiftRight<-kShift>(words);
    return hn::And(hn::BitCast(ByteTag(), words), hn::Set(ByteTag(), kMask));
  }

  // The line of a group that Codes<kLine> takes as `raw`: of two bits none, `more` has them.
  static constexpr int RawLine(int line) {
    if (Code::kBits == 2) return 0;
    return Code::kBits == 1 || Code::kBits == 3 ? Code::kBitLine : line;
  }
  // The one that it takes as `more` for codes of the first or the second half: line 0, which nobody
  // looks at, where there is none.
  static constexpr int MoreLine(bool is_high) {
    return Code::kHasPairs ? Code::kPairLine + is_high : Code::kBits == 5 ? Code::kBitLine : 0;
  }

  // The codes of inputs 4 kLine + i (high: 16 + 4 kLine + i) of a group.
  template <int kLine, bool kHigh>
  static HWY_INLINE ByteVec Codes(ByteVec raw, ByteVec more) {
    constexpr int kFour = kLine + (kHigh ? 4 : 0);
    if constexpr (Code::kIsByte) return raw;
    if constexpr (Code::kBits == 1) return Bits<-kFour, 0x01>(raw);
    if constexpr (Code::kBits == 2) return Bits<-2 * kLine, 0x03>(more);
    if constexpr (Code::kBits == 3) {
      return hn::Or(Bits<-2 * kLine, 0x03>(more), Bits<2 - kFour, 0x04>(raw));
    }
    const ByteVec nibbles = Bits < kHigh ? -4 : 0, 0x0F > (raw);
    if constexpr (Code::kBits == 5) {
      return hn::Or(nibbles, Bits<4 - kFour, 0x10>(more));
    } else if constexpr (Code::kBits == 6) {
      return hn::Or(nibbles, Bits<4 - 2 * kLine, 0x30>(more));
    } else if constexpr (Code::kIsIq4) {
      return hn::TableLookupBytes(hn::LoadDup128(ByteTag(), kIq4Codes), nibbles);
    } else if constexpr (Code::kIsMicroscaled) {
      return hn::TableLookupBytes(hn::LoadDup128(ByteTag(), kE2m1Codes), nibbles);
    } else {
      return nibbles;
    }
  }
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_CODED_LINES_INL_H_
