// Matmul with the formats whose blocks have small scales within superblocks of 256 inputs: GGUF's
// K-quants and IQ4_XS.
#include "kvasir/kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/superblock_matmul.cc"
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
using Formats = CodedFormats<kQ2K, kQ3K, kQ4K, kQ5K, kQ6K, kIq4Xs>;

// Nobody asks a second pass (byte_dot_target.h) for it.
[[maybe_unused]] void FillSuperblockPlanes(KernelTable* table) { Formats::FillPlanes(table); }
void FillSuperblockMatmul(KernelTable* table) { Formats::FillMatmul(table); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
#include "kvasir/kernels/table_fill.h"
KVASIR_FILL_BY_ISA(FillSuperblockMatmul)
#ifndef KVASIR_BYTE_DOT
KVASIR_FILL_BY_ISA(FillSuperblockPlanes)
#endif
#endif
