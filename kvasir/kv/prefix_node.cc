// Slices and joins of what the nodes of a prefix tree hold.
// Deliberately copies references only, never a row.
#include "kvasir/kv/prefix_node.h"

#include <algorithm>
#include <utility>

#include "kvasir/kv/kv_sequence.h"

namespace kvasir {

bool IsBounded(const KvStore& store) { return store.retention().FirstNeeded(kMaxPosition) > 0; }

bool HasRestorePoints(const KvPlan& plan) {
  return !plan.states().empty() ||
         std::any_of(plan.stores().begin(), plan.stores().end(), IsBounded);
}

std::optional<KvContent> BoundedPart(const KvContent& content, Position end, Position at) {
  const KvPlan& plan = *content.plan;
  KvContent part = KvContent::Empty(content.plan);
  part.floor = content.floor;
  for (size_t i = 0; i < plan.stores().size(); ++i) {
    const KvStore& store = plan.stores()[i];
    if (!IsBounded(store)) continue;
    if (!content.Continues(i, at)) return std::nullopt;
    const int64_t first_block = store.retention().FirstNeeded(at) / kBlockTokens;
    part.stores[i] = content.stores[i].Slice(0, BlocksUpTo(at));
    part.stores[i].DropBefore(first_block, store.head_blocks());
  }
  if (plan.states().empty()) return part;
  if (at == end) {
    part.states.current = content.states.current;
  } else if (const auto* checkpoint = content.states.CheckpointAt(at)) {
    part.states.current = checkpoint->blocks;
  }
  if (part.states.current.empty()) return std::nullopt;
  return part;
}

void SetBounded(KvContent part, PrefixNode* node) {
  const KvPlan& plan = *node->held.plan;
  for (size_t i = 0; i < plan.stores().size(); ++i) {
    if (IsBounded(plan.stores()[i])) node->held.stores[i] = std::move(part.stores[i]);
  }
  node->held.states = std::move(part.states);
  node->held.floor = part.floor;
  node->restorable = true;
}

void DropBounded(PrefixNode* node) {
  const KvPlan& plan = *node->held.plan;
  for (size_t i = 0; i < plan.stores().size(); ++i) {
    if (IsBounded(plan.stores()[i])) node->held.stores[i] = KvLayer();
  }
  node->held.states = {};
  node->restorable = false;
}

bool AreStatesInUse(const PrefixNode& node) {
  return std::ranges::all_of(node.held.states.current,
                             [](const BlockRef& block) { return block.shared(); });
}

size_t IndexBytes(const PrefixNode& node) {
  // In the tree's map and its order, in its parent's, and what the allocator adds.
  constexpr size_t kMapBytes = 256;
  constexpr size_t kReferenceBytes = sizeof(BlockRef) + sizeof(std::byte*);
  size_t references = 0;
  for (const KvLayer& layer : node.held.stores) {
    references += layer.blocks().size() + layer.head().size();
  }
  return sizeof(PrefixNode) + kMapBytes + node.tokens.size() * sizeof(Token) +
         node.held.stores.size() * sizeof(KvLayer) + references * kReferenceBytes +
         node.held.states.current.size() * sizeof(BlockRef);
}

bool HoldsUnbounded(const KvContent& content, Position begin, Position end) {
  if (begin >= end) return true;
  for (size_t i = 0; i < content.stores.size(); ++i) {
    const KvLayer& layer = content.stores[i];
    if (IsBounded(content.plan->stores()[i])) continue;
    if (layer.first_block() > begin / kBlockTokens || layer.end_block() < BlocksUpTo(end)) {
      return false;
    }
  }
  return true;
}

void SetUnbounded(const KvContent& content, Position begin, Position end, PrefixNode* node) {
  for (size_t i = 0; i < content.stores.size(); ++i) {
    if (IsBounded(content.plan->stores()[i])) continue;
    node->held.stores[i] = content.stores[i].Slice(begin / kBlockTokens, BlocksUpTo(end));
  }
}

void AppendUnbounded(std::span<const PrefixNode* const> path, Position end, KvContent* content) {
  for (size_t depth = 0; depth < path.size(); ++depth) {
    const bool last = depth + 1 == path.size();
    const int64_t first = path[depth]->begin / kBlockTokens;
    const int64_t stop = last ? BlocksUpTo(end) : path[depth + 1]->begin / kBlockTokens;
    for (size_t i = 0; i < content->stores.size(); ++i) {
      if (IsBounded(content->plan->stores()[i])) continue;
      const KvLayer& blocks = path[depth]->held.stores[i];
      for (int64_t block = first; block < stop; ++block) {
        content->stores[i].Append(blocks.block(block));
      }
    }
  }
}

void AdoptTail(const PrefixNode& node) {
  const int64_t block = node.begin / kBlockTokens;
  for (PrefixNode* above = node.parent; above != nullptr; above = above->parent) {
    if (above->end() <= block * kBlockTokens || above->children.size() > 1) return;
    for (size_t i = 0; i < node.held.stores.size(); ++i) {
      if (IsBounded(node.held.plan->stores()[i])) continue;
      above->held.stores[i].ReplaceLast(node.held.stores[i].block(block));
    }
  }
}

bool IsInUse(const PrefixNode& leaf) {
  std::vector<const KvBlock*> references = leaf.held.References();
  // The first block may be the last of those above it, too.
  const int64_t block = leaf.begin / kBlockTokens;
  for (const PrefixNode* above = leaf.parent; above->end() > block * kBlockTokens;
       above = above->parent) {
    for (size_t i = 0; i < leaf.held.stores.size(); ++i) {
      if (IsBounded(leaf.held.plan->stores()[i])) continue;
      const KvBlock* const own = leaf.held.stores[i].block(block).get();
      if (above->held.stores[i].block(block).get() == own) references.push_back(own);
    }
  }
  return ExclusiveBlockBytes(std::move(references)) == 0;
}

}  // namespace kvasir
