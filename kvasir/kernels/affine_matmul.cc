// Matmul with the formats whose groups of inputs share a scale and a bias: those of MLX, GGUF's
// Q4_1 and Q5_1.
#include "kvasir/kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/affine_matmul.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kvasir/kernels/table_parts.h"

#if KVASIR_KERNEL_TARGET

#include "kvasir/kernels/coded_matmul-inl.h"

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

using enum WeightFormat;
using Formats =
    CodedFormats<kQ1Affine, kQ2Affine, kQ3Affine, kQ4Affine, kQ5Affine, kQ6Affine, kQ8Affine>;

// Nobody asks a second pass (byte_dot_target.h) for it.
[[maybe_unused]] void FillAffinePlanes(KernelTable* table) { Formats::FillPlanes(table); }
void FillAffineMatmul(KernelTable* table) { Formats::FillMatmul(table); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
#include "kvasir/kernels/table_fill.h"
KVASIR_FILL_BY_ISA(FillAffineMatmul)
#ifndef KVASIR_BYTE_DOT
KVASIR_FILL_BY_ISA(FillAffinePlanes)
#endif
#endif
