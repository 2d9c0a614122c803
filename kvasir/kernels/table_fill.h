// The last lines of every kernel file: its entries for the instruction set that is asked for.
// Deliberately a macro: the functions it chooses from have the same name, one per namespace of a
// Highway target. Include under HWY_ONCE at the end of the file, where Highway is known.
#ifndef KVASIR_KERNELS_TABLE_FILL_H_
#define KVASIR_KERNELS_TABLE_FILL_H_

#include "kvasir/base/check.h"
#include "kvasir/kernels/kernels.h"

#if HWY_TARGETS & HWY_AVX3_DL
#define KVASIR_FILL_AVX512(Fill) \
  if (isa == Isa::kAvx512) return N_AVX3_DL::Fill(table)
#else
#define KVASIR_FILL_AVX512(Fill) static_assert(true, "")
#endif

#if HWY_TARGETS & HWY_AVX2
#define KVASIR_FILL_AVX2(Fill) \
  if (isa == Isa::kAvx2) return N_AVX2::Fill(table)
#else
#define KVASIR_FILL_AVX2(Fill) static_assert(true, "")
#endif

#if HWY_TARGETS & HWY_NEON
#define KVASIR_FILL_NEON(Fill) \
  if (isa == Isa::kNeon) return N_NEON::Fill(table)
#else
#define KVASIR_FILL_NEON(Fill) static_assert(true, "")
#endif

// Defines kvasir::Fill(isa, table) from the Fill(table) of every target.
#define KVASIR_FILL_BY_ISA(Fill)           \
  namespace kvasir {                       \
  void Fill(Isa isa, KernelTable* table) { \
    KVASIR_FILL_AVX512(Fill);              \
    KVASIR_FILL_AVX2(Fill);                \
    KVASIR_FILL_NEON(Fill);                \
    KVASIR_CHECK(false);                   \
  }                                        \
  }  // namespace kvasir

#endif  // KVASIR_KERNELS_TABLE_FILL_H_
