// The last lines of every kernel file: its entries for the instruction set that is asked for.
// Deliberately a macro: the functions it chooses from have the same name, one per namespace of a
// Highway target. Include under HWY_ONCE at the end of the file, where Highway is known.
#ifndef KVASIR_KERNELS_TABLE_FILL_H_
#define KVASIR_KERNELS_TABLE_FILL_H_

#include "kvasir/base/check.h"
#include "kvasir/kernels/kernels.h"

// The tables that a Highway target's namespace fills. A file that is compiled a second time, with
// KVASIR_BYTE_DOT, or a third time with KVASIR_MATRIX_DOT besides, fills others then, by functions
// in a namespace of their own.
#if defined(KVASIR_MATRIX_DOT)
#define KVASIR_FILL_NAMESPACE kvasir::matrix_dot
#define KVASIR_ISA_OF_NEON Isa::kNeonI8mm
#elif defined(KVASIR_BYTE_DOT)
#define KVASIR_FILL_NAMESPACE kvasir::byte_dot
#define KVASIR_ISA_OF_AVX2 Isa::kAvx2Vnni
#define KVASIR_ISA_OF_NEON Isa::kNeonDotprod
#else
#define KVASIR_FILL_NAMESPACE kvasir
#define KVASIR_ISA_OF_AVX2 Isa::kAvx2
#define KVASIR_ISA_OF_NEON Isa::kNeon
#endif

#if HWY_TARGETS & HWY_AVX3_DL
#define KVASIR_FILL_AVX512(Fill) \
  if (isa == Isa::kAvx512) return kvasir::N_AVX3_DL::Fill(table)
#else
#define KVASIR_FILL_AVX512(Fill) static_assert(true, "")
#endif

#if HWY_TARGETS & HWY_AVX2
#define KVASIR_FILL_AVX2(Fill) \
  if (isa == KVASIR_ISA_OF_AVX2) return kvasir::N_AVX2::Fill(table)
#else
#define KVASIR_FILL_AVX2(Fill) static_assert(true, "")
#endif

#if HWY_TARGETS & HWY_NEON
#define KVASIR_FILL_NEON(Fill) \
  if (isa == KVASIR_ISA_OF_NEON) return kvasir::N_NEON::Fill(table)
#else
#define KVASIR_FILL_NEON(Fill) static_assert(true, "")
#endif

// Defines Fill(isa, table) of table_parts.h from the Fill(table) of every target.
#define KVASIR_FILL_BY_ISA(Fill)           \
  namespace KVASIR_FILL_NAMESPACE {        \
  void Fill(Isa isa, KernelTable* table) { \
    KVASIR_FILL_AVX512(Fill);              \
    KVASIR_FILL_AVX2(Fill);                \
    KVASIR_FILL_NEON(Fill);                \
    KVASIR_CHECK(false);                   \
  }                                        \
  }  // namespace KVASIR_FILL_NAMESPACE

#endif  // KVASIR_KERNELS_TABLE_FILL_H_
