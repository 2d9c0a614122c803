// Writing a step's rows into cache blocks on the CPU: keys, values, key norms, recorded queries.
// Deliberately reads nothing back: attention is cpu_attention.h.
#ifndef KVASIR_BACKEND_CPU_KV_ROWS_H_
#define KVASIR_BACKEND_CPU_KV_ROWS_H_

#include <span>

#include "kvasir/backend/backend.h"
#include "kvasir/base/thread_pool.h"
#include "kvasir/kernels/kernels.h"

namespace kvasir {

// Backend::EncodeKv.
void EncodeKvRows(const KernelTable& kernels, ThreadPool& pool, const KvLayout& layout,
                  std::span<const KvRun> runs, ConstFloatRows keys, ConstFloatRows values);

// The same of some heads of one run. REQUIRES: !layout.key_norms.
void EncodeKvHeads(const KernelTable& kernels, const KvLayout& layout, const KvRun& run,
                   ConstFloatRows keys, ConstFloatRows values, int64_t head_begin,
                   int64_t head_end);

// Backend::RecordQueries.
void RecordQueryRows(const KvLayout& layout, std::span<const KvRun> runs, ConstFloatRows queries);

}  // namespace kvasir

#endif  // KVASIR_BACKEND_CPU_KV_ROWS_H_
