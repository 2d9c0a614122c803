// Which Highway targets our kernels are compiled for. Include before any other hwy header.
// Deliberately without code: the kernels and their dispatch are in the files that include it.
#ifndef KVASIR_KERNELS_HIGHWAY_TARGETS_H_
#define KVASIR_KERNELS_HIGHWAY_TARGETS_H_

// AVX3_DL is AVX-512 with VNNI (Ice Lake, Zen 4 and later); it has nothing to gain from a second
// pass with KVASIR_BYTE_DOT (byte_dot_target.h).
#define HWY_WANT_AVX3_DL
#ifdef KVASIR_BYTE_DOT
#define KVASIR_DISABLED_AVX512 (HWY_AVX3 | HWY_AVX3_DL)
#else
#define KVASIR_DISABLED_AVX512 HWY_AVX3
#endif
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | KVASIR_DISABLED_AVX512 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

// True while Highway compiles one of our targets; its baseline pass produces nothing.
#define KVASIR_KERNEL_TARGET \
  (HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_NEON)

#endif  // KVASIR_KERNELS_HIGHWAY_TARGETS_H_
