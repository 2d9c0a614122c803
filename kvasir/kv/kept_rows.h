// Which positions the rows of an evicted cache belong to.
// Deliberately immutable and shared: sequences, forks and snapshots of one eviction hold the same.
#ifndef KVASIR_KV_KEPT_ROWS_H_
#define KVASIR_KV_KEPT_ROWS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "kvasir/base/token.h"

namespace kvasir {

// Row r < rows() is that of positions[r]; the position p >= until has the row
// rows() + (p - until). Other positions were evicted.
struct KvKeptRows {
  Position until = 0;  // position of the last compaction
  std::vector<Position> positions;

  int64_t rows() const { return static_cast<int64_t>(positions.size()); }
  friend bool operator==(const KvKeptRows&, const KvKeptRows&) = default;
};

// Null: nothing was evicted, row and position are the same.
using KvKeptRowsRef = std::shared_ptr<const KvKeptRows>;

// REQUIRES: position >= kept->until.
inline int64_t RowOf(const KvKeptRows* kept, Position position) {
  return kept == nullptr ? position : kept->rows() + (position - kept->until);
}
inline Position PositionAt(const KvKeptRows* kept, int64_t row) {
  if (kept == nullptr) return row;
  return row < kept->rows() ? kept->positions[static_cast<size_t>(row)]
                            : kept->until + (row - kept->rows());
}
// The lowest position that is known to have a row of at least `row`.
inline Position PositionOfRow(const KvKeptRows* kept, int64_t row) {
  if (kept == nullptr) return row;
  return row <= kept->rows() ? kept->until : kept->until + (row - kept->rows());
}
inline bool SameRows(const KvKeptRows* a, const KvKeptRows* b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

}  // namespace kvasir

#endif  // KVASIR_KV_KEPT_ROWS_H_
