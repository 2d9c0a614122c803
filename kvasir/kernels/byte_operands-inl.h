// Which bytes of cache codes and of their multipliers an instruction takes, and what is then
// missing from its sums. Included once per Highway target. Deliberately only where byte products
// are (byte_dot_target.h).
//
// ByteOperands has
//   Key, KeyStart       the operand of key codes, and where their sum starts, given where that of
//                       the codes themselves would
//   Signs, StoreSigns   flips, which turn a block's value codes into operands by an exclusive or,
//                       made of bytes that are 0xFF where the scale is negative, else 0
//   AddKey, AddValue    sum + operands * multipliers
//   Start               what is missing from the sum with the weights that were added to it
//                       (kIsZero: nothing ever)
#if defined(KVASIR_KERNELS_BYTE_OPERANDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_BYTE_OPERANDS_INL_H_
#undef KVASIR_KERNELS_BYTE_OPERANDS_INL_H_
#else
#define KVASIR_KERNELS_BYTE_OPERANDS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kvasir/kernels/byte_dot-inl.h"
#include "kvasir/kernels/integer_steps.h"
#include "kvasir/kernels/pack_bytes-inl.h"
#include "kvasir/tensor/kv_layout.h"

#if KVASIR_HAS_BYTE_DOT
KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_NEON

// Both signed, or both unsigned. Bytes of keys count from their middle: an exclusive or for 8 bits.
// Levels and weights are unsigned: level = byte - middle, and the middles' products are the start.
template <size_t kBits>
struct ByteOperands {
  struct Signs {
    alignas(64) std::byte flips[kBlockTokens];
    alignas(64) std::byte middles[kBlockTokens];
  };

  static HWY_INLINE int32_t KeyStart(int32_t start) { return kBits == 8 ? 0 : start; }
  static HWY_INLINE VI Key(VI codes) {
    if constexpr (kBits == 4) return codes;
    return hn::Xor(codes, hn::Set(DI(), static_cast<int32_t>(0x80808080u)));
  }
  static HWY_INLINE VI AddKey(VI sum, VI codes, VI multipliers) {
    return VI{AddByteProducts(sum.raw, vreinterpretq_s8_s32(codes.raw),
                              vreinterpretq_s8_s32(multipliers.raw))};
  }
  static HWY_INLINE VI AddValue(VI sum, VI levels, VI multipliers) {
    return VI{vreinterpretq_s32_u32(AddByteProducts(vreinterpretq_u32_s32(sum.raw),
                                                    vreinterpretq_u8_s32(levels.raw),
                                                    vreinterpretq_u8_s32(multipliers.raw)))};
  }
  class Start {
   public:
    static constexpr bool kIsZero = false;
    // Not a default: that constructor would be compiled without the instructions of this target.
    HWY_INLINE Start() : sum_(hn::Zero(DI())) {}
    HWY_INLINE void Add(V8 weights, const Signs& signs, size_t token) {
      const V8 middles = hn::Load(D8(), reinterpret_cast<const uint8_t*>(signs.middles + token));
      sum_ = AddValue(sum_, hn::BitCast(DI(), middles), hn::BitCast(DI(), weights));
    }
    HWY_INLINE int32_t Get() const { return -vaddvq_s32(sum_.raw); }

   private:
    VI sum_;
  };
  static HWY_INLINE void StoreSigns(V8 signs, size_t token, Signs* out) {
    const auto levels = hn::Set(D8(), static_cast<uint8_t>((1 << kBits) - 1));
    const auto middles = kBits == 8 ? hn::Set(D8(), 128) : hn::And(signs, hn::Set(D8(), 16));
    hn::Store(hn::And(signs, levels), D8(), reinterpret_cast<uint8_t*>(out->flips + token));
    hn::Store(middles, D8(), reinterpret_cast<uint8_t*>(out->middles + token));
  }
};

#else

// One unsigned, one signed: codes and queries, weights and levels. 4-bit codes fit a signed byte as
// they are.
template <size_t kBits>
struct ByteOperands {
  struct Signs {
    alignas(64) std::byte flips[kBlockTokens];
  };

  static HWY_INLINE int32_t KeyStart(int32_t start) { return start; }
  static HWY_INLINE VI Key(VI codes) { return codes; }
  static HWY_INLINE VI AddKey(VI sum, VI codes, VI multipliers) {
    return VI{AddByteProducts(sum.raw, codes.raw, multipliers.raw)};
  }
  static HWY_INLINE VI AddValue(VI sum, VI levels, VI multipliers) {
    return VI{AddByteProducts(sum.raw, multipliers.raw, levels.raw)};
  }
  struct Start {
    static constexpr bool kIsZero = true;
    HWY_INLINE void Add(V8, const Signs&, size_t) {}
    HWY_INLINE int32_t Get() const { return 0; }
  };
  static HWY_INLINE void StoreSigns(V8 signs, size_t token, Signs* out) {
    const auto middle = hn::Set(D8(), static_cast<uint8_t>(ValueMiddle(kBits)));
    hn::Store(hn::Xor(signs, middle), D8(), reinterpret_cast<uint8_t*>(out->flips + token));
  }
};

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_HAS_BYTE_DOT

#endif  // KVASIR_KERNELS_BYTE_OPERANDS_INL_H_
