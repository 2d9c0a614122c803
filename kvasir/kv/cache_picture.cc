#include "kvasir/kv/cache_picture.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "kvasir/kv/block_map.h"
#include "kvasir/kv/kv_content.h"
#include "kvasir/kv/kv_plan.h"
#include "kvasir/kv/prefix_node.h"

namespace kvasir {
namespace {

using Part = KvBlockMap::Part;
// By index.
using Column = std::map<int64_t, const KvBlock*>;

// Where the blocks of a kind are found: those of its first layer.
struct KindSource {
  Part part = Part::kRows;
  size_t index = 0;  // in plan.stores(), or in plan.states()
};

// What is drawn of one sequence before it is known who else holds its blocks.
struct Holding {
  CachePicture::Sequence sequence;
  std::vector<Column> columns;  // by kind
};

struct Use {
  int sequences = 0;
  bool in_use = false;
  uint32_t id = 0;
};

bool AreAlike(const KvLayerSpec& a, const KvLayerSpec& b) {
  return a.layout == b.layout && a.retention == b.retention && a.state_bytes == b.state_bytes;
}

class Painter {
 public:
  Painter(const KvPlan& plan, int64_t max_blocks) : plan_(plan), blocks_left_(max_blocks) {
    for (const KvBlockMap::List& list : KvBlockMap::ListsOf(plan.spec())) AddLayer(list);
  }

  // False, and nothing added, if that is more than a picture may hold.
  bool Add(CachePicture::Sequence sequence, std::span<const KvContent* const> path,
           std::span<const Position> ends) {
    std::vector<Column> columns;
    int64_t blocks = 0;
    for (const KindSource& source : sources_) {
      columns.push_back(ColumnOf(source, path, ends));
      blocks += static_cast<int64_t>(columns.back().size());
    }
    if (blocks > blocks_left_) return false;
    blocks_left_ -= blocks;
    for (const Column& column : columns) {
      for (const auto& [index, block] : column) {
        Use& use = uses_[block];
        if (use.sequences++ == 0) use.id = next_id_++;
        use.in_use = use.in_use || sequence.is_running;
      }
    }
    holdings_.push_back({std::move(sequence), std::move(columns)});
    return true;
  }

  CachePicture Paint() {
    for (Holding& holding : holdings_) {
      for (size_t kind = 0; kind < sources_.size(); ++kind) {
        holding.sequence.runs.push_back(RunsOf(kind, holding));
      }
      picture_.sequences.push_back(std::move(holding.sequence));
    }
    return std::move(picture_);
  }

 private:
  void AddLayer(const KvBlockMap::List& list) {
    const std::vector<KvLayerSpec>& layers = plan_.spec().layers;
    const KvLayerSpec& spec = layers[static_cast<size_t>(list.layer)];
    for (size_t kind = 0; kind < sources_.size(); ++kind) {
      std::vector<int>& known = picture_.kinds[kind].layers;
      if (sources_[kind].part != list.part) continue;
      if (!AreAlike(layers[static_cast<size_t>(known[0])], spec)) continue;
      known.push_back(list.layer);
      return;
    }
    KindSource source{list.part, 0};
    std::string name = spec.retention.name();
    if (list.part == Part::kState) {
      source.index = plan_.state_of(list.layer);
      name = "state";
    } else if (list.part == Part::kRecent) {
      source.index = plan_.recent_store_of(list.layer);
      name = "recent copies";
    } else {
      source.index = plan_.store_of(list.layer);
    }
    sources_.push_back(source);
    picture_.kinds.push_back({{list.layer}, std::move(name)});
  }

  // The blocks of all parts of a path. A block that two of them hold counts where it is deeper: it
  // was filled further there.
  static Column ColumnOf(const KindSource& source, std::span<const KvContent* const> path,
                         std::span<const Position> ends) {
    Column column;
    for (size_t depth = 0; depth < path.size(); ++depth) {
      if (source.part == Part::kState) {
        AddStates(path[depth]->states, source.index, ends[depth], &column);
      } else {
        AddRows(path[depth]->stores[source.index], &column);
      }
    }
    return column;
  }

  static void AddRows(const KvLayer& layer, Column* column) {
    int64_t index = layer.head_first();
    for (const BlockRef& block : layer.head()) (*column)[index++] = block.get();
    index = layer.first_block();
    for (const BlockRef& block : layer.blocks()) (*column)[index++] = block.get();
  }

  static void AddStates(const RecurrentStates& states, size_t state, Position end, Column* column) {
    for (const RecurrentStates::Checkpoint& checkpoint : states.checkpoints) {
      AddState(checkpoint.blocks[state].get(), checkpoint.position, column);
    }
    if (!states.current.empty()) AddState(states.current[state].get(), end, column);
  }

  // Where another state is already, in the next free place before it, or else behind.
  static void AddState(const KvBlock* block, Position position, Column* column) {
    const int64_t at = std::max<int64_t>(BlocksUpTo(position) - 1, 0);
    int64_t free = at;
    const auto is_taken = [&](int64_t index) {
      const auto there = column->find(index);
      return there != column->end() && there->second != block;
    };
    while (free >= 0 && is_taken(free)) --free;
    if (free < 0) {
      for (free = at + 1; is_taken(free);) ++free;
    }
    (*column)[free] = block;
  }

  int CodecOf(const KindSource& source, int64_t index) {
    const std::string name = source.part == Part::kState
                                 ? "state"
                                 : CodecsText(plan_.stores()[source.index].BlockAt(index));
    const auto known = std::find(picture_.codecs.begin(), picture_.codecs.end(), name);
    if (known == picture_.codecs.end()) {
      picture_.codecs.push_back(name);
      return static_cast<int>(picture_.codecs.size()) - 1;
    }
    return static_cast<int>(known - picture_.codecs.begin());
  }

  std::vector<CachePicture::Run> RunsOf(size_t kind, Holding& holding) {
    const KindSource& source = sources_[kind];
    const auto layers = static_cast<uint64_t>(picture_.kinds[kind].layers.size());
    std::vector<CachePicture::Run> runs;
    for (const auto& [index, block] : holding.columns[kind]) {
      const Use& use = uses_.at(block);
      const uint64_t bytes = block->owner->block_bytes() * layers;
      holding.sequence.bytes += bytes;
      if (use.sequences == 1) holding.sequence.exclusive_bytes += bytes;
      const CachePicture::Run next{index,      1,     use.sequences, CodecOf(source, index),
                                   use.in_use, use.id};
      if (!runs.empty() && Continues(runs.back(), next)) {
        ++runs.back().blocks;
      } else {
        runs.push_back(next);
      }
    }
    return runs;
  }

  // Ids are given along a sequence, so blocks that are shared by the same sequences have
  // consecutive ones.
  static bool Continues(const CachePicture::Run& run, const CachePicture::Run& next) {
    return next.first_block == run.first_block + run.blocks && next.shared_by == run.shared_by &&
           next.codec == run.codec && next.in_use == run.in_use &&
           next.id == run.id + static_cast<uint32_t>(run.blocks);
  }

  const KvPlan& plan_;
  int64_t blocks_left_;
  std::vector<KindSource> sources_;  // by kind
  std::vector<Holding> holdings_;
  std::unordered_map<const KvBlock*, Use> uses_;
  uint32_t next_id_ = 0;
  CachePicture picture_;
};

}  // namespace

CachePicture PictureOf(std::span<const PicturedSequence> running, const PrefixTree& tree,
                       const CachePictureOptions& options) {
  Painter painter(tree.plan(), options.max_blocks);
  const auto room = static_cast<size_t>(std::max<int64_t>(options.max_sequences, 0));
  std::unordered_set<uint64_t> beginnings;  // leaves that running sequences go on from
  size_t shown = 0;
  for (const PicturedSequence& one : running) {
    const PrefixNode* node = tree.LastWithin(one.salt, one.tokens);
    if (node != nullptr && node->children.empty()) beginnings.insert(node->id);
    if (shown == room) continue;
    const KvContent* content = &one.sequence->content();
    const Position end = one.sequence->position();
    shown +=
        painter.Add({.id = one.id, .is_running = true, .tokens = end}, {&content, 1}, {&end, 1});
  }
  for (const auto& path : tree.LatestPaths(room + beginnings.size())) {
    if (shown == room) break;
    if (beginnings.contains(path.back()->id)) continue;
    std::vector<const KvContent*> contents;
    std::vector<Position> ends;
    for (const PrefixNode* node : path) {
      contents.push_back(&node->held);
      ends.push_back(node->end());
    }
    shown += painter.Add({.id = path.back()->id, .tokens = path.back()->end()}, contents, ends);
  }
  CachePicture picture = painter.Paint();
  picture.left_out = static_cast<int64_t>(running.size() - shown) + tree.leaf_count() -
                     static_cast<int64_t>(beginnings.size());
  return picture;
}

}  // namespace kvasir
