// Matmul with the formats whose blocks of 16 or 32 inputs have a scale and nothing else: GGUF's
// Q5_0 and IQ4_NL, MXFP4 and NVFP4. Those of q8 and q4: quant_matmul.cc.
#include "kvasir/kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/block_matmul.cc"
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
using Formats = CodedFormats<kQ5, kIq4Nl, kMxfp4, kNvfp4>;

// Nobody asks a second pass (byte_dot_target.h) for it.
[[maybe_unused]] void FillBlockPlanes(KernelTable* table) { Formats::FillPlanes(table); }
void FillBlockMatmul(KernelTable* table) { Formats::FillMatmul(table); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
#include "kvasir/kernels/table_fill.h"
KVASIR_FILL_BY_ISA(FillBlockMatmul)
#ifndef KVASIR_BYTE_DOT
KVASIR_FILL_BY_ISA(FillBlockPlanes)
#endif
#endif
