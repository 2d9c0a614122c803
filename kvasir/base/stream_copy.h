// Copies for readers on other cores. An ordinary store waits until the line has been taken away
// from every core that read what it held before; where cores share no cache that is a fifth of a
// microsecond or more, and only few such stores wait at once. Copies past the caches do not wait.
// Deliberately only for a few KiB that are written and read again and again.
#ifndef KVASIR_BASE_STREAM_COPY_H_
#define KVASIR_BASE_STREAM_COPY_H_

#include <cstddef>
#include <cstring>

#include "kvasir/base/aligned_vector.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace kvasir {

#if defined(__x86_64__)
inline constexpr bool kCanStreamCopy = true;
#else
inline constexpr bool kCanStreamCopy = false;  // StreamLines is an ordinary copy
#endif

// Readers must not look before StreamFence. REQUIRES: both begin at a cache line; `bytes` is a
// multiple of one.
inline void StreamLines(const std::byte* from, size_t bytes, std::byte* to) {
#if defined(__x86_64__)
  for (size_t i = 0; i < bytes; i += sizeof(__m128i)) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(to + i),
                     _mm_load_si128(reinterpret_cast<const __m128i*>(from + i)));
  }
#else
  std::memcpy(to, from, bytes);
#endif
}

// Whoever sees a later store of this thread sees what it has streamed.
inline void StreamFence() {
#if defined(__x86_64__)
  _mm_sfence();
#endif
}

}  // namespace kvasir

#endif  // KVASIR_BASE_STREAM_COPY_H_
