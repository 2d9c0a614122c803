// AddByteProducts: products of four bytes, added to the 32 bits they lie in. Exact. Where no
// instruction does that (byte_dot_target.h) only additions, for those who take several.
// Deliberately in assembly on x86: g++ 12 would keep sums in memory otherwise.
#if defined(KVASIR_KERNELS_BYTE_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_BYTE_DOT_INL_H_
#undef KVASIR_KERNELS_BYTE_DOT_INL_H_
#else
#define KVASIR_KERNELS_BYTE_DOT_INL_H_
#endif

#include "hwy/highway.h"
// Highway first.
#include "kvasir/kernels/byte_dot_target.h"

#if KVASIR_HAS_BYTE_DOT
KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

#if HWY_TARGET == HWY_NEON

HWY_INLINE int32x4_t AddByteProducts(int32x4_t sum, int8x16_t a, int8x16_t b) {
  return vdotq_s32(sum, a, b);
}
HWY_INLINE uint32x4_t AddByteProducts(uint32x4_t sum, uint8x16_t a, uint8x16_t b) {
  return vdotq_u32(sum, a, b);
}
// With the same four bytes of b for every lane: its kLane-th.
template <int kLane>
HWY_INLINE int32x4_t AddByteProductsOfLane(int32x4_t sum, int8x16_t a, int8x16_t b) {
  return vdotq_laneq_s32(sum, a, b, kLane);
}

#else

// In assembly because g++ 12 gives what an intrinsic returns a register of its own, and spills a
// tile's sums after each instruction.
#if HWY_TARGET == HWY_AVX3_DL
HWY_INLINE __m512i AddByteProducts(__m512i sum, __m512i unsigned_bytes, __m512i signed_bytes) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(unsigned_bytes), "v"(signed_bytes));
  return sum;
}
#else
// With KVASIR_EVEX_VNNI the same instruction as CPUs with AVX-512 encode it.
HWY_INLINE __m256i AddByteProducts(__m256i sum, __m256i unsigned_bytes, __m256i signed_bytes) {
#ifdef KVASIR_EVEX_VNNI
  asm("vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(unsigned_bytes), "x"(signed_bytes));
#else
  asm("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(unsigned_bytes), "x"(signed_bytes));
#endif
  return sum;
}
#endif

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();
#elif HWY_TARGET == HWY_AVX2
HWY_BEFORE_NAMESPACE();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

// Sums in place, of 32 and of 16 bits. Left to itself g++ 12 adds products up in an order of its
// own, for which it writes all of them to memory first, or copies each sum that a loop carries.
HWY_INLINE __m256i AddInts(__m256i sum, __m256i products) {
  asm("vpaddd %1, %0, %0" : "+x"(sum) : "x"(products));
  return sum;
}
HWY_INLINE __m256i AddShorts(__m256i sum, __m256i products) {
  asm("vpaddw %1, %0, %0" : "+x"(sum) : "x"(products));
  return sum;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();
#endif

#endif  // KVASIR_KERNELS_BYTE_DOT_INL_H_
