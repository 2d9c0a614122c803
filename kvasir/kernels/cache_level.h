// Into which of a core's caches kernels fetch what they read next: how many lines a core can have
// on their way differs from cache to cache and from CPU to CPU (docs/performance.md, "Which cache
// to fetch into"). Only ever hints: no result depends on them.
#ifndef KVASIR_KERNELS_CACHE_LEVEL_H_
#define KVASIR_KERNELS_CACHE_LEVEL_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "kvasir/base/aligned_vector.h"
#include "kvasir/base/result.h"

namespace kvasir {

enum class CacheLevel : uint8_t { kFirst, kSecond };

// "l1" or "l2"; none for "auto", which are the preferred ones below.
// ERRORS: kInvalidArgument, listing the names that exist.
Result<std::optional<CacheLevel>> CacheLevelFromName(std::string_view name);

// The one with which this CPU reads weights fastest, by its family where that was measured.
CacheLevel PreferredWeightLevel();

// The same for the blocks of a KV cache, each fetched while the one before is computed on, of dense
// formats and of packed ones.
struct KvLevels {
  CacheLevel dense;
  CacheLevel packed;
};
KvLevels PreferredKvLevels();

// Always inlined, so that it has the attributes of the kernels around it.
[[gnu::always_inline]] inline void FetchLine(const void* line, CacheLevel level) {
  if (level == CacheLevel::kFirst) {
    __builtin_prefetch(line, 0, 3);
  } else {
    __builtin_prefetch(line, 0, 2);
  }
}

// All lines of `bytes` from a line's beginning on. Functions that do nothing but hint are always
// inlined: to g++ they have no effect, and it drops their calls.
[[gnu::always_inline]] inline void FetchLines(const std::byte* begin, int64_t bytes,
                                              CacheLevel level) {
  for (int64_t i = 0; i < bytes; i += kCacheLineBytes) FetchLine(begin + i, level);
}

}  // namespace kvasir

#endif  // KVASIR_KERNELS_CACHE_LEVEL_H_
