// Loads and stores of stored cache elements (f32, f16, bf16) as float vectors, whole or partial.
// Included once per Highway target. Deliberately without gathers: callers stream rows.
#if defined(KVASIR_KERNELS_CODEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_CODEC_INL_H_
#undef KVASIR_KERNELS_CODEC_INL_H_
#else
#define KVASIR_KERNELS_CODEC_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kvasir/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvasir::HWY_NAMESPACE {

// Each codec: Stored, Decode (kLanes stored elements at p) and Encode (to p), neither aligned.
struct F32Codec {
  using Stored = float;
  static HWY_INLINE VF Decode(const Stored* p) { return hn::LoadU(DF(), p); }
  static HWY_INLINE void Encode(VF v, Stored* p) { hn::StoreU(v, DF(), p); }
};

// Rounds to nearest even, overflows to infinity, keeps denormals: the hardware's conversions.
struct F16Codec {
  using Stored = uint16_t;
  static HWY_INLINE VF Decode(const Stored* p) {
    return Widen(hn::LoadU(hn::Rebind<uint16_t, DF>(), p));
  }
  static HWY_INLINE VF Widen(hn::Vec<hn::Rebind<uint16_t, DF>> bits) {
    const hn::Rebind<hwy::float16_t, DF> half;
    return hn::PromoteTo(DF(), hn::BitCast(half, bits));
  }
  static HWY_INLINE void Encode(VF v, Stored* p) {
    const hn::Rebind<uint16_t, DF> bits;
    const hn::Rebind<hwy::float16_t, DF> half;
    hn::StoreU(hn::BitCast(bits, hn::DemoteTo(half, v)), bits, p);
  }
};

// FloatToBf16 of tensor/dtype.h; Highway's own DemoteTo truncates.
struct Bf16Codec {
  using Stored = uint16_t;
  static HWY_INLINE VF Decode(const Stored* p) {
    return Widen(hn::LoadU(hn::Rebind<uint16_t, DF>(), p));
  }
  static HWY_INLINE VF Widen(hn::Vec<hn::Rebind<uint16_t, DF>> bits) {
    const hn::Rebind<uint32_t, DF> wide;
    return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(wide, bits)));
  }
  static HWY_INLINE void Encode(VF v, Stored* p) {
    const hn::Rebind<uint16_t, DF> bits;
    const hn::Rebind<uint32_t, DF> wide;
    const auto raw = hn::BitCast(wide, v);
    const auto upper = hn::ShiftRight<16>(raw);
    const auto tie = hn::And(upper, hn::Set(wide, 1u));
    const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(raw, hn::Set(wide, 0x7FFFu)), tie));
    const auto quiet = hn::Or(upper, hn::Set(wide, 0x40u));
    const auto is_nan = hn::RebindMask(wide, hn::IsNaN(v));
    hn::StoreU(hn::TruncateTo(bits, hn::IfThenElse(is_nan, quiet, rounded)), bits, p);
  }
};

// The first n < kLanes elements, zeros behind them; touches nothing past p + n.
template <class Codec>
HWY_INLINE VF DecodePartial(const typename Codec::Stored* p, size_t n) {
  alignas(64) typename Codec::Stored buffer[kLanes] = {};
  std::memcpy(buffer, p, n * sizeof(buffer[0]));
  return Codec::Decode(buffer);
}
template <class Codec>
HWY_INLINE void EncodePartial(VF v, typename Codec::Stored* p, size_t n) {
  alignas(64) typename Codec::Stored buffer[kLanes];
  Codec::Encode(v, buffer);
  std::memcpy(p, buffer, n * sizeof(buffer[0]));
}
HWY_INLINE VF LoadPartial(const float* p, size_t n) { return DecodePartial<F32Codec>(p, n); }
HWY_INLINE void StorePartial(VF v, float* p, size_t n) { EncodePartial<F32Codec>(v, p, n); }

}  // namespace kvasir::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_CODEC_INL_H_
