// The order of rows after an eviction: as many rows as possible stay in their block and slot, so
// that few are copied.
// Deliberately without blocks: rows are numbers here.
#ifndef KVASIR_KV_EVICTION_H_
#define KVASIR_KV_EVICTION_H_

#include <cstdint>
#include <span>
#include <vector>

namespace kvasir {

struct RowArrangement {
  // The last rows, which stay last and in order.
  int64_t recent = 0;
  // Blocks below this one hold dense rows (KvLayout::dense_start). Rows move from them into others
  // only when there is no room left below: never.
  int64_t dense_blocks = 0;
};

// result[i] is the old row that becomes row i: a permutation of `kept` (old rows, ascending).
//
//   1. the last `recent` rows come last, in order, together with rows that precede them directly
//      in their block
//   2. of the other old blocks as many stay as there are whole blocks before these, those of which
//      most rows are kept (of equals the earlier), in order: dense ones from block 0 on, others
//      from dense_blocks on. Their rows keep their slots.
//   3. the rows of the remaining blocks fill the gaps, in order
//
// O(kept rows).
std::vector<int64_t> ArrangeRows(std::span<const int64_t> kept, const RowArrangement& arrangement);

}  // namespace kvasir

#endif  // KVASIR_KV_EVICTION_H_
