// Queries that share a KV head, and what they see of a sequence, cut into partitions.
// Deliberately only which rows and in which order: partition_attention.h attends to them.
#ifndef KVASIR_BACKEND_QUERY_TILE_H_
#define KVASIR_BACKEND_QUERY_TILE_H_

#include <algorithm>
#include <bit>
#include <cstdint>

#include "kvasir/backend/backend.h"
#include "kvasir/tensor/kv_blocks_view.h"
#include "kvasir/tensor/kv_layout.h"

namespace kvasir {

// Where the partition of a softmax that row `row` of the cache belongs to ends. Partitions lie at
// fixed row numbers and are merged in ascending order, so one long sequence can use many threads
// and still give the same bits. They are also cut where the codecs change. The least of 16 blocks
// keep the cost of a merge below 1 % of a partition's arithmetic. Further back they are longer, up
// to half of what is before them, as every partition starts without knowing which tokens matter:
// until its second block it takes two bytes where most blocks take one (docs/numerics.md).
inline constexpr int64_t kLeastPartitionRows = 16 * kBlockTokens;
inline constexpr int64_t kMostPartitionRows = 64 * kBlockTokens;
inline int64_t PartitionEnd(int64_t row) {
  const auto half = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(row) / 2));
  const int64_t rows = std::clamp(half, kLeastPartitionRows, kMostPartitionRows);
  return (row / rows + 1) * rows;
}

// A contiguous part of what a query may see, in the order in which they are merged: the kept head
// rows and the main range as stored, then of both what is read from the recent copies.
enum class Segment { kHead, kMain, kRecentHead, kRecent };
inline constexpr Segment kSegments[] = {Segment::kHead, Segment::kMain, Segment::kRecentHead,
                                        Segment::kRecent};

constexpr bool IsRecent(Segment segment) { return segment >= Segment::kRecentHead; }

// Empty ranges may have end < begin.
struct RowRange {
  int64_t begin;
  int64_t end;
};

// Rows of one segment in blocks of one layout, whose softmax starts from an empty state.
struct Partition {
  Segment segment;
  RowRange rows;
  KvBlockLayout layout;

  int64_t first_block() const { return rows.begin / kBlockTokens; }
  int64_t last_block() const { return (rows.end - 1) / kBlockTokens; }
  // The first so many tokens of one of its blocks are those that it has, and maybe some before.
  int64_t TokensOf(int64_t block) const {
    return std::min<int64_t>(rows.end - block * kBlockTokens, kBlockTokens);
  }
};

// Queries of a KV head.
inline int64_t GroupOf(const AttendArgs& args) { return args.query_heads / args.layout.kv_heads; }

// Queries of some tokens of one run that share a KV head: row i of the tile is token
// token_begin + i / group, query head kv_head * group + i % group.
struct QueryTile {
  const KvRun* run;
  int64_t token_begin;
  int64_t tokens;
  int kv_head;

  int64_t rows(const AttendArgs& args) const { return tokens * GroupOf(args); }
  // Where token `token` of the tile is among the step's rows.
  int64_t step_row(int64_t token) const { return run->step_row + token_begin + token; }
  const KvBlocksView& blocks(Segment segment) const {
    return IsRecent(segment) ? run->recent : run->kv;
  }
};

// What the tile's token `token` sees of a segment.
RowRange SeenBy(const AttendArgs& args, const QueryTile& tile, int64_t token, Segment segment);

// The rows that at least one query of the tile sees in `segment`.
RowRange UnionRange(const AttendArgs& args, const QueryTile& tile, Segment segment);

// Calls body(partition) for every partition that the tile sees, in merge order. There is one, as
// every query sees a row.
template <typename Body>
void ForEachPartition(const AttendArgs& args, const QueryTile& tile, const Body& body) {
  const KvLayout& layout = args.layout;
  for (const Segment segment : kSegments) {
    const RowRange all = UnionRange(args, tile, segment);
    for (int64_t begin = all.begin; begin < all.end;) {
      int64_t end = std::min(all.end, PartitionEnd(begin));
      if (!IsRecent(segment) && begin < layout.dense_start) end = std::min(end, layout.dense_start);
      body(Partition{
          segment,
          {begin, end},
          IsRecent(segment) ? layout.RecentBlock() : layout.BlockAt(begin / kBlockTokens)});
      begin = end;
    }
  }
}

}  // namespace kvasir

#endif  // KVASIR_BACKEND_QUERY_TILE_H_
