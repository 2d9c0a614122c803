#include "kvasir/kernels/kernels.h"

#include <array>
#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#include "hwy/targets.h"
#include "kvasir/base/check.h"
#include "kvasir/kernels/table_parts.h"

namespace kvasir {
namespace {

// The best last.
constexpr std::array<Isa, kIsas> kAllIsas = {Isa::kScalar,   Isa::kNeon, Isa::kNeonDotprod,
                                             Isa::kNeonI8mm, Isa::kAvx2, Isa::kAvx2Vnni,
                                             Isa::kAvx512};

// Whether the vectors of our AVX2 or NEON target have products of bytes on this CPU.
bool HasByteDot() {
#if defined(KVASIR_EVEX_VNNI)
  return (hwy::SupportedTargets() & HWY_AVX3_DL) != 0;
#elif defined(__x86_64__)
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAvxVnni = 1u << 4;  // of eax
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & kAvxVnni) != 0;
#elif defined(__aarch64__) && defined(__linux__)
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
  return false;
#endif
}

bool IsSupported(Isa isa) {
#if defined(__x86_64__)
  // Asked once: a hypervisor takes microseconds to answer.
  static const int64_t targets = hwy::SupportedTargets();
  static const bool has_byte_dot = HasByteDot();
  // AVX3_DL is AVX-512 with VNNI (Ice Lake, Zen 4 and later): the level our kernels are built for.
  if (isa == Isa::kAvx512) return (targets & HWY_AVX3_DL) != 0;
  if (isa == Isa::kAvx2) return (targets & HWY_AVX2) != 0;
  if (isa == Isa::kAvx2Vnni) return (targets & HWY_AVX2) != 0 && has_byte_dot;
#elif defined(__aarch64__)
  static const bool has_byte_dot = HasByteDot();
#if defined(__linux__) && defined(KVASIR_HAS_I8MM_TABLE)
  static const bool has_matrix_dot = (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
#else
  static const bool has_matrix_dot = false;
#endif
  if (isa == Isa::kNeon) return true;
  if (isa == Isa::kNeonDotprod) return has_byte_dot;
  if (isa == Isa::kNeonI8mm) return has_byte_dot && has_matrix_dot;
#endif
  return isa == Isa::kScalar;
}

bool IsIntel() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel");
#else
  return false;
#endif
}

// Products of rows with coded weights.
void FillWeightProducts(Isa isa, KernelTable* table) {
#if defined(KVASIR_HAS_I8MM_TABLE)
  if (isa == Isa::kNeonI8mm) {
    matrix_dot::FillQuantMatmul(isa, table);
    matrix_dot::FillAffineMatmul(isa, table);
    matrix_dot::FillBlockMatmul(isa, table);
    matrix_dot::FillSuperblockMatmul(isa, table);
    return;
  }
#endif
  const bool has_own_dots = isa != VectorsOf(isa);
  (has_own_dots ? byte_dot::FillQuantMatmul : FillQuantMatmul)(isa, table);
  (has_own_dots ? byte_dot::FillAffineMatmul : FillAffineMatmul)(isa, table);
  (has_own_dots ? byte_dot::FillBlockMatmul : FillBlockMatmul)(isa, table);
  (has_own_dots ? byte_dot::FillSuperblockMatmul : FillSuperblockMatmul)(isa, table);
  if (isa == Isa::kAvx512 && IsIntel()) FillPlanes(isa, table);
}

// Products of queries with caches of integers.
void FillCacheProducts(Isa isa, KernelTable* table) {
  const bool has_own_dots = isa != VectorsOf(isa);
  (has_own_dots ? byte_dot::FillIntegerScores : FillIntegerScores)(isa, table);
  (has_own_dots ? byte_dot::FillIntegerWeights : FillIntegerWeights)(isa, table);
  (has_own_dots ? byte_dot::FillIntegerSums : FillIntegerSums)(isa, table);
  (has_own_dots ? byte_dot::FillHalfScores : FillHalfScores)(isa, table);
  (has_own_dots ? byte_dot::FillHalfSums : FillHalfSums)(isa, table);
}

KernelTable MakeTable(Isa isa) {
  KernelTable table = {};
  table.isa = isa;
  if (isa == Isa::kScalar) {
    FillScalarMatmul(&table);
    FillScalarCodedMatmul(&table);
    FillScalarAttention(&table);
    FillScalarElementwise(&table);
    FillScalarDelta(&table);
    FillScalarPacked(&table);
    FillScalarInteger(&table);
    FillScalarPairs(&table);
  } else if (IsSupported(isa)) {
    const Isa vectors = VectorsOf(isa);
    FillFloatMatmul(vectors, &table);
    FillPairAttention(vectors, &table);
    if (Bf16DotIsQuick(vectors) && FillBf16DotMatmul(vectors, &table)) {
      FillBf16DotAttention(vectors, &table);
    }
    FillAttention(vectors, &table);
    FillQuantizeRows(vectors, &table);
    FillSoftmaxTile(vectors, &table);
    FillIntegerMaxima(vectors, &table);
    FillElementwise(vectors, &table);
    FillDeltaNet(vectors, &table);
    FillPackedAttention(vectors, &table);
    FillPackedEncode(vectors, &table);
    FillWidenRows(vectors, &table);
    FillWeightProducts(isa, &table);
    FillCacheProducts(isa == Isa::kNeonI8mm ? Isa::kNeonDotprod : isa, &table);
  }
  return table;
}

}  // namespace

std::string_view IsaName(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx2Vnni:
      return "avx2_vnni";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kNeon:
      return "neon";
    case Isa::kNeonDotprod:
      return "neon_dotprod";
    case Isa::kNeonI8mm:
      return "neon_i8mm";
  }
  return "";
}

Result<Isa> IsaFromName(std::string_view name) {
  for (Isa isa : kAllIsas) {
    if (IsaName(isa) == name) return isa;
  }
  std::string names;
  for (Isa isa : kAllIsas) {
    if (!names.empty()) names += isa == kAllIsas.back() ? " or " : ", ";
    names += IsaName(isa);
  }
  return {ErrorCode::kInvalidArgument,
          "instruction set '" + std::string(name) + "' is unknown; use " + names};
}

std::vector<Isa> SupportedIsas() {
  std::vector<Isa> isas;
  for (Isa isa : kAllIsas) {
    if (IsSupported(isa)) isas.push_back(isa);
  }
  return isas;
}

const KernelTable& KernelsFor(Isa isa) {
  static const std::array<KernelTable, kIsas> tables = [] {
    std::array<KernelTable, kIsas> made;
    for (Isa each : kAllIsas) made[static_cast<size_t>(each)] = MakeTable(each);
    return made;
  }();
  KVASIR_CHECK(IsSupported(isa));
  return tables[static_cast<size_t>(isa)];
}

}  // namespace kvasir
