// How a kernel table is put together: each kernel file fills its own entries for one ISA.
// Deliberately internal to kvasir/kernels; users see kernels.h.
#ifndef KVASIR_KERNELS_TABLE_PARTS_H_
#define KVASIR_KERNELS_TABLE_PARTS_H_

#include "kvasir/kernels/kernels.h"

namespace kvasir {

// The instruction set whose kernels serve `isa` where it has none of its own.
constexpr Isa VectorsOf(Isa isa) {
  if (isa == Isa::kAvx2Vnni) return Isa::kAvx2;
  if (isa == Isa::kNeonDotprod || isa == Isa::kNeonI8mm) return Isa::kNeon;
  return isa;
}

// The entry of f16, which is multiplied with two bytes only.
inline IntegerKvKernels& IntegerHalves(KernelTable* table) {
  return table->integer_kv[static_cast<size_t>(MultiplierWidth::kTwoBytes)]
                          [KvFormatIndex(KvCodec{KvCodec::Kind::kF16})];
}

// The oracle: plain loops and std::fma, no SIMD (scalar_*.cc).
void FillScalarMatmul(KernelTable* table);
void FillScalarCodedMatmul(KernelTable* table);
void FillScalarAttention(KernelTable* table);
void FillScalarElementwise(KernelTable* table);
void FillScalarDelta(KernelTable* table);
void FillScalarPacked(KernelTable* table);
void FillScalarInteger(KernelTable* table);
void FillScalarPairs(KernelTable* table);

// Highway, compiled once per target. REQUIRES: isa is not kScalar, is VectorsOf itself, and this
// build has it.
void FillFloatMatmul(Isa isa, KernelTable* table);
// Replaces the matmul of bf16_dot, and round_rows, by those with VDPBF16PS if this CPU has it and
// it computes what bf16_pairs.h says. Returns whether it has.
bool FillBf16DotMatmul(Isa isa, KernelTable* table);
// Whether VDPBF16PS takes no longer here than the two multiply-adds that it stands for, as it does
// on CPUs with matrix units (Emerald Rapids). Tried out, in microseconds: what is chosen changes no
// bit.
bool Bf16DotIsQuick(Isa isa);
// Attention in pairs with it; round_rows must be that of FillBf16DotMatmul.
void FillBf16DotAttention(Isa isa, KernelTable* table);
void FillQuantMatmul(Isa isa, KernelTable* table);
// The coded formats by how their scales lie.
void FillAffineMatmul(Isa isa, KernelTable* table);
void FillBlockMatmul(Isa isa, KernelTable* table);
void FillSuperblockMatmul(Isa isa, KernelTable* table);
// With AVX-512 many rows of q8 and q4 through planes as well (code_plane-inl.h), and of the coded
// formats from fewer rows on: worth it where conversions, additions and scales take ports from
// products, as on Intel's CPUs.
void FillQuantPlanes(Isa isa, KernelTable* table);
void FillAffinePlanes(Isa isa, KernelTable* table);
void FillBlockPlanes(Isa isa, KernelTable* table);
void FillSuperblockPlanes(Isa isa, KernelTable* table);
inline void FillPlanes(Isa isa, KernelTable* table) {
  FillQuantPlanes(isa, table);
  FillAffinePlanes(isa, table);
  FillBlockPlanes(isa, table);
  FillSuperblockPlanes(isa, table);
}
void FillAttention(Isa isa, KernelTable* table);
void FillPairAttention(Isa isa, KernelTable* table);
void FillQuantizeRows(Isa isa, KernelTable* table);
void FillSoftmaxTile(Isa isa, KernelTable* table);
void FillElementwise(Isa isa, KernelTable* table);
void FillDeltaNet(Isa isa, KernelTable* table);
void FillPackedAttention(Isa isa, KernelTable* table);
void FillPackedEncode(Isa isa, KernelTable* table);
void FillWidenRows(Isa isa, KernelTable* table);
void FillIntegerMaxima(Isa isa, KernelTable* table);
void FillIntegerScores(Isa isa, KernelTable* table);
void FillIntegerWeights(Isa isa, KernelTable* table);
void FillIntegerSums(Isa isa, KernelTable* table);
void FillHalfScores(Isa isa, KernelTable* table);
void FillHalfSums(Isa isa, KernelTable* table);

// The same for tables whose instruction set has products of bytes besides what VectorsOf it has.
namespace byte_dot {
void FillQuantMatmul(Isa isa, KernelTable* table);
void FillAffineMatmul(Isa isa, KernelTable* table);
void FillBlockMatmul(Isa isa, KernelTable* table);
void FillSuperblockMatmul(Isa isa, KernelTable* table);
void FillIntegerScores(Isa isa, KernelTable* table);
void FillIntegerWeights(Isa isa, KernelTable* table);
void FillIntegerSums(Isa isa, KernelTable* table);
void FillHalfScores(Isa isa, KernelTable* table);
void FillHalfSums(Isa isa, KernelTable* table);
}  // namespace byte_dot

// And for those that have products of matrices of bytes: many rows times weights.
namespace matrix_dot {
void FillQuantMatmul(Isa isa, KernelTable* table);
void FillAffineMatmul(Isa isa, KernelTable* table);
void FillBlockMatmul(Isa isa, KernelTable* table);
void FillSuperblockMatmul(Isa isa, KernelTable* table);
}  // namespace matrix_dot

}  // namespace kvasir

#endif  // KVASIR_KERNELS_TABLE_PARTS_H_
