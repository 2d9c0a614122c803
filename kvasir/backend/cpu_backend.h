// The CPU backend: kernels of one instruction set, split over a fork-join pool.
// Deliberately stateless apart from scratch: two backends never influence each other.
#ifndef KVASIR_BACKEND_CPU_BACKEND_H_
#define KVASIR_BACKEND_CPU_BACKEND_H_

#include <memory>
#include <optional>

#include "kvasir/backend/attention_math.h"
#include "kvasir/backend/backend.h"
#include "kvasir/kernels/kernels.h"

namespace kvasir {

struct CpuBackendOptions {
  int threads = 0;         // 0: AvailableCores()
  std::optional<Isa> isa;  // unset: the fastest this CPU has; results are the same bits on each
  AttentionMath attention = AttentionMath::kAuto;    // each has bits of its own
  Prefetching prefetching = PreferredPrefetching();  // no results depend on it
  // Instead of those of `isa`, if not null; they outlive the backend. For tests that look into it.
  const KernelTable* kernels = nullptr;
};

// Keeps weights that it has multiplied with alive until it goes itself: threads that wait read them
// ahead. ERRORS: kInvalidArgument for more than 1024 threads or a negative number, kUnsupported for
// an instruction set this CPU lacks.
Result<std::unique_ptr<Backend>> MakeCpuBackend(const CpuBackendOptions& options = {});

}  // namespace kvasir

#endif  // KVASIR_BACKEND_CPU_BACKEND_H_
