// What the operating system says about memory.
// Deliberately read on demand, never cached: other programs come and go.
#ifndef KVASIR_BASE_SYSTEM_INFO_H_
#define KVASIR_BASE_SYSTEM_INFO_H_

#include <cstddef>

namespace kvasir {

// Bytes that could be allocated without swapping; 0 if the system does not tell.
size_t AvailableMemoryBytes();
// Largest resident set of this process so far, or since the last reset; 0 if unknown.
size_t PeakResidentBytes();
// Starts the peak anew from what is resident now. No effect where the system does not allow it.
void ResetPeakResidentBytes();

}  // namespace kvasir

#endif  // KVASIR_BASE_SYSTEM_INFO_H_
