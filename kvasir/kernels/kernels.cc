#include "kvasir/kernels/kernels.h"

#include <array>
#include <string>

#include "hwy/targets.h"
#include "kvasir/base/check.h"
#include "kvasir/kernels/table_parts.h"

namespace kvasir {
namespace {

constexpr std::array<Isa, 4> kAllIsas = {Isa::kScalar, Isa::kNeon, Isa::kAvx2, Isa::kAvx512};

bool IsSupported(Isa isa) {
#if defined(__x86_64__)
  // Asked once: a hypervisor takes microseconds to answer.
  static const int64_t targets = hwy::SupportedTargets();
  // AVX3_DL is AVX-512 with VNNI (Ice Lake, Zen 4 and later): the level our kernels are built for.
  if (isa == Isa::kAvx512) return (targets & HWY_AVX3_DL) != 0;
  if (isa == Isa::kAvx2) return (targets & HWY_AVX2) != 0;
#elif defined(__aarch64__)
  if (isa == Isa::kNeon) return true;
#endif
  return isa == Isa::kScalar;
}

KernelTable MakeTable(Isa isa) {
  KernelTable table = {};
  table.isa = isa;
  if (isa == Isa::kScalar) {
    FillScalarMatmul(&table);
    FillScalarCodedMatmul(&table);
    FillScalarAttention(&table);
    FillScalarElementwise(&table);
    FillScalarPacked(&table);
    FillScalarInteger(&table);
    FillScalarPairs(&table);
  } else if (IsSupported(isa)) {
    FillFloatMatmul(isa, &table);
    FillPairAttention(isa, &table);
    if (FillBf16DotMatmul(isa, &table)) FillBf16DotAttention(isa, &table);
    FillQuantMatmul(isa, &table);
    FillCodedMatmul(isa, &table);
    FillAttention(isa, &table);
    FillSoftmaxTile(isa, &table);
    FillElementwise(isa, &table);
    FillPackedAttention(isa, &table);
    FillPackedEncode(isa, &table);
    FillIntegerScores(isa, &table);
    FillIntegerWeights(isa, &table);
    FillIntegerSums(isa, &table);
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
    case Isa::kAvx512:
      return "avx512";
    case Isa::kNeon:
      return "neon";
  }
  return "";
}

Result<Isa> IsaFromName(std::string_view name) {
  for (Isa isa : kAllIsas) {
    if (IsaName(isa) == name) return isa;
  }
  return {ErrorCode::kInvalidArgument, "instruction set '" + std::string(name) +
                                           "' is unknown; use scalar, avx2, avx512 or neon"};
}

std::vector<Isa> SupportedIsas() {
  std::vector<Isa> isas;
  for (Isa isa : kAllIsas) {
    if (IsSupported(isa)) isas.push_back(isa);
  }
  return isas;
}

Isa BestIsa() { return SupportedIsas().back(); }

const KernelTable& KernelsFor(Isa isa) {
  static const std::array<KernelTable, 4> tables = {MakeTable(Isa::kScalar), MakeTable(Isa::kNeon),
                                                    MakeTable(Isa::kAvx2), MakeTable(Isa::kAvx512)};
  KVASIR_CHECK(IsSupported(isa));
  for (const KernelTable& table : tables) {
    if (table.isa == isa) return table;
  }
  KVASIR_CHECK(false);
}

}  // namespace kvasir
