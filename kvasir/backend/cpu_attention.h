// Attention over blocks on the CPU: how the queries of a step are shared out among threads, by
// tiles or by partitions of what they see. Deliberately ignorant of codecs (the table's business)
// and of retention (VisibleRows say it all).
#ifndef KVASIR_BACKEND_CPU_ATTENTION_H_
#define KVASIR_BACKEND_CPU_ATTENTION_H_

#include <cstddef>
#include <vector>

#include "kvasir/backend/backend.h"
#include "kvasir/backend/query_tile.h"
#include "kvasir/backend/tile_kernels.h"
#include "kvasir/base/aligned_vector.h"
#include "kvasir/base/thread_pool.h"

namespace kvasir {

class CpuAttention {
 public:
  CpuAttention(const TileKernels& kernels, ThreadPool& pool);
  ~CpuAttention();

  void Attend(const AttendArgs& args);
  size_t scratch_bytes() const;
  // Backend::ScratchBound's part.
  size_t ScratchBound(const StepShape& shape) const;

 private:
  struct Scratch;
  struct Plan;

  void AttendByTiles(const AttendArgs& args, const std::vector<QueryTile>& tiles);
  // writes: the args' new rows first, which are all of runs that have tiles here.
  void AttendByPartitions(const AttendArgs& args, const std::vector<QueryTile>& tiles, bool writes);
  // AttendByPartitions: the states of all partitions, then their sums.
  void AttendToPartitions(const AttendArgs& args, const Plan& plan);
  void MergePartitions(const AttendArgs& args, const Plan& plan);
  // Those of one head and range of tokens, into the output.
  void MergeTile(const AttendArgs& args, const Plan& plan, size_t range, size_t head,
                 Scratch& scratch);

  const TileKernels kernels_;
  ThreadPool& pool_;
  std::vector<Scratch> scratch_;   // one per thread
  AlignedVector<float> partials_;  // AttendByPartitions: a state per tile and partition
};

}  // namespace kvasir

#endif  // KVASIR_BACKEND_CPU_ATTENTION_H_
