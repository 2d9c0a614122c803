// Segments: the cache of a long prefix in pieces of one length, as it is kept outside of memory,
// where every piece is found by the tokens up to its end.
// Deliberately neither keys nor files: those are the tier's.
#ifndef KVASIR_KV_PREFIX_SEGMENT_H_
#define KVASIR_KV_PREFIX_SEGMENT_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/kv/block_map.h"
#include "kvasir/kv/kv_snapshot.h"

namespace kvasir {

// Whole blocks, so that no segment changes any more. Few enough tokens that those behind the last
// whole one are quickly evaluated again; enough that a file of them is read in one go (60 MB over
// 28 layers of 8 heads in f16).
inline constexpr int64_t kSegmentTokens = 8 * kBlockTokens;

// What turns a cache of the first `begin` tokens into one of the first `end`: the rows of [begin,
// end) of layers that see all of them, and of windows, chunks, recent copies and recurrent layers
// all that a continuation at `end` reads, also from before `begin`. None if the snapshot does not
// hold it (windows have moved on, rows were evicted). References, no copies.
// REQUIRES: begin < end, both multiples of kBlockTokens.
std::optional<KvSnapshot> SegmentOf(const KvSnapshot& snapshot, Position begin, Position end);

// The map of segments that follow each other as one: of what layers need at its end, that of the
// last one only.
struct JoinedSegments {
  struct Source {
    size_t segment = 0;
    size_t block = 0;
  };

  KvBlockMap map;               // of one sequence without name and tokens
  std::vector<Source> sources;  // by block number: whose it is, and its number there
};

// REQUIRES: each map passed CheckBlockMap. ERRORS: kCorrupt if they are not what SegmentOf gave of
// `spec`, one after the other from `begin` on.
Result<JoinedSegments> JoinSegments(const KvCacheSpec& spec, Position begin,
                                    std::span<const KvBlockMap> segments);

}  // namespace kvasir

#endif  // KVASIR_KV_PREFIX_SEGMENT_H_
