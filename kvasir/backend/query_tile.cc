#include "kvasir/backend/query_tile.h"

#include <limits>

namespace kvasir {

RowRange SeenBy(const AttendArgs& args, const QueryTile& tile, int64_t token, Segment segment) {
  const VisibleRows& visible = args.visible[static_cast<size_t>(tile.step_row(token))];
  const int64_t recent = args.layout.dense_recent > 0 ? args.layout.RecentBegin(visible.end - 1)
                                                      : std::numeric_limits<int64_t>::max();
  switch (segment) {
    case Segment::kHead:
      return {0, std::min(visible.head_end, recent)};
    case Segment::kMain:
      return {visible.begin, std::min(visible.end, recent)};
    case Segment::kRecentHead:
      return {recent, visible.head_end};
    case Segment::kRecent:
      return {std::max(visible.begin, recent), visible.end};
  }
  return {0, 0};
}

RowRange UnionRange(const AttendArgs& args, const QueryTile& tile, Segment segment) {
  RowRange all = {std::numeric_limits<int64_t>::max(), 0};
  for (int64_t token = 0; token < tile.tokens; ++token) {
    const RowRange one = SeenBy(args, tile, token, segment);
    if (one.begin >= one.end) continue;
    all.begin = std::min(all.begin, one.begin);
    all.end = std::max(all.end, one.end);
  }
  return all.begin < all.end ? all : RowRange{0, 0};
}

}  // namespace kvasir
