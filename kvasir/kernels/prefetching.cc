#include "kvasir/kernels/prefetching.h"

#include <string>
#include <utility>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace kvasir {
namespace {

enum class CpuKind { kUnmeasured, kIntel, kZen3Or4, kZen5 };

#if defined(__x86_64__)
CpuKind AskForCpuKind() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kGenu = 0x756E6547;  // of "GenuineIntel"
  constexpr unsigned kAuth = 0x68747541;  // of "AuthenticAMD"
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0) return CpuKind::kUnmeasured;
  if (ebx == kGenu) return CpuKind::kIntel;
  if (ebx != kAuth || __get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return CpuKind::kUnmeasured;
  switch ((eax >> 8 & 0xF) + (eax >> 20 & 0xFF)) {
    case 0x19:
      return CpuKind::kZen3Or4;
    case 0x1A:
      return CpuKind::kZen5;
    default:
      return CpuKind::kUnmeasured;
  }
}
#else
CpuKind AskForCpuKind() { return CpuKind::kUnmeasured; }
#endif

CpuKind KindOfThisCpu() {
  // Asked once: a hypervisor takes microseconds to answer.
  static const CpuKind kind = AskForCpuKind();
  return kind;
}

}  // namespace

// No CPU that was measured reads packed caches faster into its first level.
Prefetching PreferredPrefetching() {
  switch (KindOfThisCpu()) {
    case CpuKind::kZen5:
      return {CacheLevel::kFirst, true, {CacheLevel::kFirst, CacheLevel::kSecond}};
    case CpuKind::kZen3Or4:
      return {CacheLevel::kSecond, true, {CacheLevel::kSecond, CacheLevel::kSecond}};
    case CpuKind::kIntel:
      return {CacheLevel::kFirst, false, {CacheLevel::kSecond, CacheLevel::kSecond}};
    case CpuKind::kUnmeasured:
      break;
  }
  return {};
}

Result<Prefetching> PrefetchingFromName(std::string_view name) {
  Prefetching prefetching = PreferredPrefetching();
  if (name == "auto") return prefetching;
  if (name == "stream") {
    prefetching.streams_weights = true;
    return prefetching;
  }
  for (const auto& [level_name, level] :
       {std::pair("l1", CacheLevel::kFirst), std::pair("l2", CacheLevel::kSecond)}) {
    if (name == level_name) return Prefetching{level, false, {level, level}};
  }
  return {ErrorCode::kInvalidArgument,
          "prefetching '" + std::string(name) + "' is unknown; use auto, l1, l2 or stream"};
}

}  // namespace kvasir
