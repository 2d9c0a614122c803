// Attention of tiles of queries to one partition of a sequence, block by block, with the softmax
// state that it leaves.
// Deliberately without what a tile sees (query_tile.h), without kernels (block_attention.h) and
// without threads (cpu_attention.h).
#ifndef KVASIR_BACKEND_PARTITION_ATTENTION_H_
#define KVASIR_BACKEND_PARTITION_ATTENTION_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvasir/backend/backend.h"
#include "kvasir/backend/block_attention.h"
#include "kvasir/backend/query_tile.h"
#include "kvasir/backend/softmax_state.h"
#include "kvasir/backend/tile_kernels.h"
#include "kvasir/base/aligned_vector.h"

namespace kvasir {

// The working memory of a partition's blocks.
struct PartitionScratch : BlockScratch {
  // If keys are from-value: those of a head of a block, what turns them, and where its rows are.
  AlignedVector<std::byte> derived;
  AlignedVector<float> turns;
  std::array<Position, kBlockTokens> positions;
  std::vector<RowRange> ranges;  // [tokens]: what each sees of the segment

  void Resize(int64_t rows, const KvLayout& layout);
  size_t bytes() const;
};

// Tiles of the same tokens with consecutive heads, which go through a partition together: so a
// block is read as it lies, with its heads side by side.
struct TileHeads {
  std::span<const QueryTile> tiles;
  std::span<TileQueries> queries;  // of each
  float* states;                   // of each, state_floats apart
  size_t state_floats;

  SoftmaxState StateOf(size_t head, const AttendArgs& args) const {
    return SoftmaxState::At(states + head * state_floats, tiles[0].rows(args),
                            args.layout.value_dim);
  }
};

// Copies the tile's queries side by side and scales them; once more rotated, and as integers, if
// keys need it.
void LoadQueries(const TileKernels& kernels, const AttendArgs& args, const QueryTile& tile,
                 TileQueries& queries);

// The planes that a partition begins with.
HeadPlanes FirstPlanes(const QueryTile& tile, const Partition& partition);

// A way through a partition, from empty states.
class PartitionWalk {
 public:
  // All are borrowed. `writes`: the run's new rows as well, each head's right before it reads the
  // first block that has any, when what fetches ahead has brought their lines. REQUIRES: scratch
  // has the size of heads; the partition has all new rows if it writes.
  PartitionWalk(const TileKernels& kernels, const AttendArgs& args, const TileHeads& heads,
                const Partition& partition, bool writes, PartitionScratch& scratch);

  // Everything but the last block of the last head. Then that one, with what is read behind it:
  // only then need it be known.
  void AllButLast();
  void Last(const HeadPlanes& behind);

 private:
  void EnterBlock(int64_t block);
  // Head `head` at the block entered; `next` is read behind it.
  void Attend(size_t head, const HeadPlanes& next);
  HeadPlanes PlanesOf(size_t head, int64_t block) const;
  // What turns the keys of the block entered, and one head's of them, derived from its values.
  void MakeTurns();
  const std::byte* DerivedKeys(const std::byte* values);

  const TileKernels& kernels_;
  const AttendArgs& args_;
  const TileHeads& heads_;
  const Partition& partition_;
  PartitionScratch& scratch_;
  const HeadMap map_;
  const int64_t rows_;
  RowRange common_;          // what all queries see
  const int64_t writes_at_;  // a block, or -1
  int64_t block_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_BACKEND_PARTITION_ATTENTION_H_
