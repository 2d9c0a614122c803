#include "kvasir/kv/prefix_segment.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/kv/prefix_node.h"
#include "kvasir/kv/snapshot_file_check.h"

namespace kvasir {
namespace {

using Part = KvBlockMap::Part;

Error Corrupt(size_t segment, const std::string& what) {
  return {ErrorCode::kCorrupt, "segment " + std::to_string(segment) + " " + what};
}

// Whether a list holds the rows of its segment, and not what its end needs. By number of the list.
Result<std::vector<bool>> FindUnbounded(const KvCacheSpec& spec) {
  std::vector<bool> is_unbounded;
  for (const KvBlockMap::List& list : KvBlockMap::ListsOf(spec)) {
    if (list.part == Part::kState) {
      is_unbounded.push_back(false);
      continue;
    }
    KVASIR_TRY(const auto stores,
               KvStore::OfLayer(list.layer, spec.layers[static_cast<size_t>(list.layer)]));
    is_unbounded.push_back(!IsBounded(stores[list.part == Part::kRecent ? 1 : 0]));
  }
  return is_unbounded;
}

// Joins the maps block by block.
class Joiner {
 public:
  Joiner(const KvCacheSpec& spec, std::span<const KvBlockMap> segments) : segments_(segments) {
    joined_.map.spec = spec;
    joined_.map.sequences.push_back(
        {.lists = KvBlockMap::ListsOf(spec), .budgets = KvBlockMap::BudgetsOf(spec)});
    numbers_.resize(segments.size());
  }

  Result<JoinedSegments> Join(Position begin) {
    KVASIR_TRY(const std::vector<bool> is_unbounded, FindUnbounded(joined_.map.spec));
    sequence().begin = sequence().end = begin;
    for (size_t segment = 0; segment < segments_.size(); ++segment) {
      KVASIR_TRY_OK(Add(segment, is_unbounded));
    }
    KVASIR_TRY_OK(CheckBlockMap(joined_.map));
    return std::move(joined_);
  }

 private:
  KvBlockMap::Sequence& sequence() { return joined_.map.sequences[0]; }

  Status Add(size_t segment, const std::vector<bool>& is_unbounded) {
    const KvBlockMap& map = segments_[segment];
    if (map.spec.layers != joined_.map.spec.layers) {
      return Corrupt(segment, "stores rows in another way");
    }
    if (map.sequences.size() != 1) return Corrupt(segment, "holds several sequences");
    const KvBlockMap::Sequence& added = map.sequences[0];
    if (added.begin != sequence().end || added.end <= added.begin || added.floor != 0 ||
        added.begin % kBlockTokens != 0 || added.end % kBlockTokens != 0) {
      return Corrupt(segment, "holds the positions [" + std::to_string(added.begin) + ", " +
                                  std::to_string(added.end) + ") behind " +
                                  std::to_string(sequence().end));
    }
    for (const KvBlockMap::Budget& budget : added.budgets) {
      if (budget.until != 0) return Corrupt(segment, "has evicted rows");
    }
    numbers_[segment].assign(map.block_bytes.size(), -1);
    for (size_t i = 0; i < added.lists.size(); ++i) {
      KvBlockMap::List& list = sequence().lists[i];
      if (is_unbounded[i]) {
        const auto blocks = static_cast<int64_t>(added.lists[i].blocks.size());
        if (added.lists[i].first_block != added.begin / kBlockTokens ||
            blocks != (added.end - added.begin) / kBlockTokens || !added.lists[i].head.empty()) {
          return Corrupt(segment,
                         "does not hold the rows of layer " + std::to_string(added.lists[i].layer));
        }
        if (list.blocks.empty()) list.first_block = added.lists[i].first_block;
        Append(segment, added.lists[i].blocks, &list.blocks);
      } else if (segment + 1 == segments_.size()) {
        list = added.lists[i];
        list.head.clear();
        list.blocks.clear();
        Append(segment, added.lists[i].head, &list.head);
        Append(segment, added.lists[i].blocks, &list.blocks);
      }
    }
    sequence().end = added.end;
    return {};
  }

  void Append(size_t segment, const std::vector<uint32_t>& from, std::vector<uint32_t>* to) {
    for (const uint32_t block : from) {
      int64_t& number = numbers_[segment][block];
      if (number < 0) {
        number = static_cast<int64_t>(joined_.sources.size());
        joined_.sources.push_back({segment, block});
        joined_.map.block_bytes.push_back(segments_[segment].block_bytes[block]);
      }
      to->push_back(static_cast<uint32_t>(number));
    }
  }

  const std::span<const KvBlockMap> segments_;
  JoinedSegments joined_;
  std::vector<std::vector<int64_t>> numbers_;  // of a segment's blocks in the joined map, or -1
};

}  // namespace

std::optional<KvSnapshot> SegmentOf(const KvSnapshot& snapshot, Position begin, Position end) {
  KVASIR_CHECK(begin < end && begin % kBlockTokens == 0 && end % kBlockTokens == 0);
  const KvContent& content = snapshot.content();
  if (snapshot.begin() > begin || snapshot.end() < end || snapshot.evicted() ||
      content.floor != 0) {
    return std::nullopt;
  }
  std::optional<KvContent> part = BoundedPart(content, snapshot.end(), end);
  if (!part || !HoldsUnbounded(content, begin, end)) return std::nullopt;
  for (size_t i = 0; i < content.stores.size(); ++i) {
    if (IsBounded(content.plan->stores()[i])) continue;
    part->stores[i] = content.stores[i].Slice(begin / kBlockTokens, end / kBlockTokens);
  }
  return KvSnapshot::FromContent(*std::move(part), begin, end);
}

Result<JoinedSegments> JoinSegments(const KvCacheSpec& spec, Position begin,
                                    std::span<const KvBlockMap> segments) {
  return Joiner(spec, segments).Join(begin);
}

}  // namespace kvasir
