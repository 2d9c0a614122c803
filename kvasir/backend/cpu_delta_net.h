// Layers with a state on the CPU: which thread convolves which channels, and updates which columns
// of whose state. Deliberately without memory of its own: states and scratch are the caller's.
#ifndef KVASIR_BACKEND_CPU_DELTA_NET_H_
#define KVASIR_BACKEND_CPU_DELTA_NET_H_

#include "kvasir/backend/backend.h"
#include "kvasir/base/thread_pool.h"
#include "kvasir/kernels/kernels.h"

namespace kvasir {

// Backend::DeltaNet.
void RunDeltaNet(const KernelTable& kernels, ThreadPool& pool, const DeltaNetArgs& args);
// Backend::ShortConv.
void RunShortConv(const KernelTable& kernels, ThreadPool& pool, const ShortConvArgs& args);

}  // namespace kvasir

#endif  // KVASIR_BACKEND_CPU_DELTA_NET_H_
