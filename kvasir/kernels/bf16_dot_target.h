// Lets what follows in a kernel file use VDPBF16PS, which no Highway target of ours implies. Once
// per target, before float_tile-inl.h.
// Deliberately without an include guard: the answer differs by target.
#undef KVASIR_BEFORE_TILE
#undef KVASIR_HAS_BF16_DOT
#if HWY_TARGET == HWY_AVX3_DL
#define KVASIR_HAS_BF16_DOT 1
#define KVASIR_BEFORE_TILE() \
  HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512bf16") static_assert(true, "")
#else
#define KVASIR_HAS_BF16_DOT 0
#define KVASIR_BEFORE_TILE() HWY_BEFORE_NAMESPACE()
#endif
