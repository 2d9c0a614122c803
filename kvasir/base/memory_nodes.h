// Where large buffers lie on a machine of several NUMA nodes.
// Deliberately only spreads: which thread will read what is not known when memory is asked for, and
// work moves between threads, so every node serves its share of every buffer.
#ifndef KVASIR_BASE_MEMORY_NODES_H_
#define KVASIR_BASE_MEMORY_NODES_H_

#include <cstddef>
#include <span>
#include <vector>

namespace kvasir {

// The nodes that buffers are spread over: those of the hardware threads this process may use; none
// if that is one alone, or if somebody chose a policy for the process, as numactl does.
std::vector<int> NodesToSpreadOver();

// Lays the pages of [data, data + bytes) on `nodes` in turn as they are touched; data is the start
// of a page. False if the system refuses, and they lie where they are touched.
bool SpreadOver(std::span<const int> nodes, void* data, size_t bytes);

}  // namespace kvasir

#endif  // KVASIR_BASE_MEMORY_NODES_H_
