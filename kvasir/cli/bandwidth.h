// Measures how fast this machine reads memory now: the limit that decoding is compared with.
// Deliberately measured in every run: shared machines change from minute to minute.
#ifndef KVASIR_CLI_BANDWIDTH_H_
#define KVASIR_CLI_BANDWIDTH_H_

#include <cstddef>

namespace kvasir {

// Bytes per second of `threads` threads each reading their part of a buffer far larger than the
// caches; the best of several passes. 0 if the buffer cannot be allocated.
double MeasureReadBandwidth(int threads);

}  // namespace kvasir

#endif  // KVASIR_CLI_BANDWIDTH_H_
