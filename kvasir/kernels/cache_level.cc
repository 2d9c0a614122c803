#include "kvasir/kernels/cache_level.h"

#include <string>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace kvasir {
namespace {

#if defined(__x86_64__)
// Of AMD; 0 if it is another maker's.
unsigned AmdFamily() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  constexpr unsigned kAuth = 0x68747541;  // of "AuthenticAMD"
  if (__get_cpuid(0, &eax, &ebx, &ecx, &edx) == 0 || ebx != kAuth) return 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0) return 0;
  return (eax >> 8 & 0xF) + (eax >> 20 & 0xFF);
}
constexpr unsigned kZen5 = 0x1A;
#endif

// Of what takes longer to read than to compute with. Zen 4, and CPUs that nobody measured: their
// second-level caches keep more misses on their way.
CacheLevel LevelOfPlainReads() {
#if defined(__x86_64__)
  // Asked once: a hypervisor takes microseconds to answer.
  static const bool is_zen5 = AmdFamily() == kZen5;
  if (is_zen5) return CacheLevel::kFirst;
#endif
  return CacheLevel::kSecond;
}

}  // namespace

Result<std::optional<CacheLevel>> CacheLevelFromName(std::string_view name) {
  if (name == "auto") return std::optional<CacheLevel>();
  if (name == "l1") return std::optional(CacheLevel::kFirst);
  if (name == "l2") return std::optional(CacheLevel::kSecond);
  return {ErrorCode::kInvalidArgument,
          "cache '" + std::string(name) + "' is unknown; use auto, l1 or l2"};
}

CacheLevel PreferredWeightLevel() { return LevelOfPlainReads(); }

// No CPU that was measured reads packed formats faster into its first-level cache.
KvLevels PreferredKvLevels() { return {LevelOfPlainReads(), CacheLevel::kSecond}; }

}  // namespace kvasir
