// Attention over blocks on the CPU: the driver that walks a sequence's blocks in order and feeds
// the score, softmax and accumulate tiles of the kernel table.
// Deliberately ignorant of codecs (the table's business) and of retention (VisibleRows say it all).
#ifndef KVASIR_BACKEND_CPU_ATTENTION_H_
#define KVASIR_BACKEND_CPU_ATTENTION_H_

#include <cstddef>
#include <vector>

#include "kvasir/backend/backend.h"
#include "kvasir/backend/tile_kernels.h"
#include "kvasir/base/aligned_vector.h"
#include "kvasir/base/thread_pool.h"

namespace kvasir {

// Rows of the cache that form one partition of a softmax. Partitions lie at fixed row numbers and
// are merged in ascending order, so one long sequence can use many threads and still give the
// same bits. They are also cut where the codecs change. 16 blocks keep the cost of a merge below 1
// % of a partition's arithmetic.
inline constexpr int64_t kPartitionBlocks = 16;
inline constexpr int64_t kPartitionRows = kPartitionBlocks * kBlockTokens;

class CpuAttention {
 public:
  CpuAttention(const TileKernels& kernels, ThreadPool& pool);
  ~CpuAttention();

  void Attend(const AttendArgs& args);
  size_t scratch_bytes() const;

 private:
  struct Tile;
  struct Scratch;

  std::vector<Tile> MakeTiles(const AttendArgs& args) const;
  void AttendSplit(const AttendArgs& args, const std::vector<Tile>& tiles);

  const TileKernels kernels_;
  ThreadPool& pool_;
  std::vector<Scratch> scratch_;   // one per thread
  AlignedVector<float> partials_;  // AttendSplit: one state per tile row and partition
};

}  // namespace kvasir

#endif  // KVASIR_BACKEND_CPU_ATTENTION_H_
