// How kernels have what they read next on its way from memory: by hints, into one of a core's
// caches, or left to the CPU's own prefetchers. Which is fastest differs from CPU to CPU
// (docs/performance/memory.md, "Which cache to fetch into"); no result depends on it.
#ifndef KVASIR_KERNELS_PREFETCHING_H_
#define KVASIR_KERNELS_PREFETCHING_H_

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kvasir/base/aligned_vector.h"
#include "kvasir/base/result.h"

namespace kvasir {

enum class CacheLevel : uint8_t { kFirst, kSecond };

// Of the blocks of a KV cache, each fetched while the one before is computed on, of dense formats
// and of packed ones.
struct KvLevels {
  CacheLevel dense = CacheLevel::kSecond;
  CacheLevel packed = CacheLevel::kSecond;

  auto operator<=>(const KvLevels&) const = default;
};

struct Prefetching {
  CacheLevel weights = CacheLevel::kSecond;
  // One or two rows read weights as one stream without hints, where the kernel gains by that on
  // CPUs that foresee such streams.
  bool streams_weights = false;
  KvLevels kv;

  auto operator<=>(const Prefetching&) const = default;
};

// The fastest on this CPU, by its maker and family where that was measured.
Prefetching PreferredPrefetching();

// "auto" for the preferred one; "l1" or "l2" for hints into that cache wherever there can be any;
// "stream" for the preferred one with streams of weights.
// ERRORS: kInvalidArgument, listing the names that exist.
Result<Prefetching> PrefetchingFromName(std::string_view name);

// Always inlined, so that it has the attributes of the kernels around it.
[[gnu::always_inline]] inline void FetchLine(const void* line, CacheLevel level) {
  if (level == CacheLevel::kFirst) {
    __builtin_prefetch(line, 0, 3);
  } else {
    __builtin_prefetch(line, 0, 2);
  }
}

// Lines that are read later: one of every `step` bytes of what begins at `from`, which begins a
// line. Only a hint wherever it is given: it may point anywhere and changes no result.
struct LinesAhead {
  const std::byte* from = nullptr;  // null: nothing
  int64_t bytes = 0;                // from the first to behind the last
  int64_t step = kCacheLineBytes;   // a power of two of lines
  CacheLevel into = CacheLevel::kSecond;

  LinesAhead FirstHalf() const { return {from, HalfBytes(), step, into}; }
  LinesAhead SecondHalf() const {
    return from == nullptr ? *this
                           : LinesAhead{from + HalfBytes(), bytes - HalfBytes(), step, into};
  }

 private:
  int64_t HalfBytes() const { return bytes / (2 * step) * step; }
};

// All of them at once. Functions that do nothing but hint are always inlined: to g++ they have no
// effect, and it drops their calls.
[[gnu::always_inline]] inline void FetchLines(const LinesAhead& lines) {
  if (lines.from == nullptr) return;
  for (int64_t i = 0; i < lines.bytes; i += lines.step) FetchLine(lines.from + i, lines.into);
}

}  // namespace kvasir

#endif  // KVASIR_KERNELS_PREFETCHING_H_
