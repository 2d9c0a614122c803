// What the operating system says about memory and processors.
// Deliberately read on demand, never cached: other programs come and go.
#ifndef KVASIR_BASE_SYSTEM_INFO_H_
#define KVASIR_BASE_SYSTEM_INFO_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace kvasir {

// Bytes that could be allocated without swapping, and that the control groups of this process
// allow; 0 if the system does not tell.
size_t AvailableMemoryBytes();
// What a control group's folder (version 1 or 2) says is left of its limit, pages that it can give
// back included; none if it has no limit.
std::optional<size_t> ControlGroupFreeBytes(const std::string& folder);
// Largest resident set of this process so far, or since the last reset; 0 if unknown.
size_t PeakResidentBytes();
// Starts the peak anew from what is resident now. No effect where the system does not allow it.
void ResetPeakResidentBytes();
// Gives memory that was freed, but that the C library keeps, back to the system.
void ReturnFreedMemory();

// Physical cores that this process may use, at least 1: hardware threads outside its CPU affinity
// do not count, those of one core count once, and there are no more than its control groups give
// processor time for, rounded up.
int AvailableCores();
// The same of hardware threads `cpus` by the files of sysfs, procfs and control groups under the
// folder `root` ("" is the system). A thread that no file describes is a core of its own.
int AvailableCores(std::span<const int> cpus, const std::string& root);

// The NUMA nodes of the hardware threads that this process may use, ascending; empty where the
// system does not tell.
std::vector<int> NumaNodes();
// The same of hardware threads `cpus` by the files of sysfs under the folder `root`.
std::vector<int> NumaNodes(std::span<const int> cpus, const std::string& root);

}  // namespace kvasir

#endif  // KVASIR_BASE_SYSTEM_INFO_H_
