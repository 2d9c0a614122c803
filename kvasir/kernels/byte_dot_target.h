// Whether the pass of Highway that compiles what follows has an instruction that adds the products
// of four bytes to the 32 bits they lie in (KVASIR_HAS_BYTE_DOT), and lets what follows use it.
// With AVX-512 all CPUs of our target have it. With AVX2 and NEON not all have, so files of integer
// products are compiled twice, the second time with KVASIR_BYTE_DOT, and those of weights for NEON
// once more with KVASIR_MATRIX_DOT besides, for products of matrices of bytes (CMakeLists.txt).
// KVASIR_HAS_PLANES: whether many rows multiply with planes of codes (code_plane-inl.h).
// Deliberately without an include guard: the answer differs by target.
#undef KVASIR_BEFORE_BYTE_DOT
#undef KVASIR_HAS_BYTE_DOT
#undef KVASIR_HAS_MATRIX_DOT
#undef KVASIR_HAS_PLANES
#if HWY_TARGET == HWY_AVX3_DL
// Highway's name for AVX-512 with VNNI leaves out the VNNI it detects.
#define KVASIR_HAS_BYTE_DOT 1
#define KVASIR_BEFORE_BYTE_DOT() \
  HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni") static_assert(true, "")
#elif defined(KVASIR_BYTE_DOT) && HWY_TARGET == HWY_AVX2
// AVX-VNNI is written in assembly (byte_dot-inl.h), which no attribute has to allow.
#define KVASIR_HAS_BYTE_DOT 1
#define KVASIR_BEFORE_BYTE_DOT() HWY_BEFORE_NAMESPACE()
#elif defined(KVASIR_MATRIX_DOT) && HWY_TARGET == HWY_NEON
#define KVASIR_HAS_BYTE_DOT 1
#define KVASIR_HAS_MATRIX_DOT 1
#define KVASIR_BEFORE_BYTE_DOT() \
  HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+crypto+dotprod+i8mm") static_assert(true, "")
#elif defined(KVASIR_BYTE_DOT) && HWY_TARGET == HWY_NEON
#define KVASIR_HAS_BYTE_DOT 1
#define KVASIR_BEFORE_BYTE_DOT() \
  HWY_PUSH_ATTRIBUTES("arch=armv8.2-a+crypto+dotprod") static_assert(true, "")
#else
#define KVASIR_HAS_BYTE_DOT 0
#define KVASIR_BEFORE_BYTE_DOT() HWY_BEFORE_NAMESPACE()
#endif
#ifndef KVASIR_HAS_MATRIX_DOT
#define KVASIR_HAS_MATRIX_DOT 0
#endif
#if HWY_TARGET != HWY_NEON || KVASIR_HAS_MATRIX_DOT
#define KVASIR_HAS_PLANES 1
#else
#define KVASIR_HAS_PLANES 0
#endif
