// Which prefixes are given up when memory is wanted.
// Deliberately measures what it freed at the pool: shared blocks never count.
#include <algorithm>

#include "kvasir/kv/prefix_tree.h"

namespace kvasir {

size_t PrefixTree::Evict(size_t bytes_wanted) {
  const size_t used_bytes = pool_->used_bytes();
  const auto freed = [&] { return used_bytes - pool_->used_bytes(); };
  const auto counted = [&] {
    CountEviction(freed());
    return freed();
  };
  const std::vector<PrefixNode::Key> inner = InnerStates();
  auto state = inner.begin();
  for (auto at = leaves_.begin(); freed() < bytes_wanted && at != leaves_.end();) {
    const PrefixNode::Key key = *at;
    if (state != inner.end() && *state < key) {
      DropStates(*state++);
      continue;
    }
    PrefixNode* leaf = NodeOf(key);
    if (IsInUse(*leaf)) {
      ++at;
    } else {
      const auto next = Shorten(leaf, bytes_wanted - freed());
      // What it continued may come before others that were passed over.
      at = leaves_.lower_bound(std::min(key, next.value_or(key)));
    }
  }
  for (; freed() < bytes_wanted && state != inner.end(); ++state) DropStates(*state);
  if (freed() >= bytes_wanted) return counted();
  // What can still be freed is held by several nodes, or by one above leaves that are in use.
  const size_t reachable = std::min(bytes_wanted, freed() + nbytes_exclusive());
  while (freed() < reachable) (void)Shorten(NodeOf(*leaves_.begin()), reachable - freed());
  return counted();
}

// Nodes that others continue, with states of their own, in the order in which these are evicted. Of
// a conversation that goes on they are the states of earlier turns, which come before its end as
// they are older.
std::vector<PrefixNode::Key> PrefixTree::InnerStates() const {
  std::vector<PrefixNode::Key> keys;
  if (plan_->states().empty()) return keys;
  for (const auto& [id, node] : nodes_) {
    if (!node.children.empty() && !node.held.states.current.empty()) {
      keys.push_back(node.states_key());
    }
  }
  std::ranges::sort(keys);
  return keys;
}

// The rows stay: what goes on from an earlier state reads them again, and what is deeper needs
// them.
void PrefixTree::DropStates(const PrefixNode::Key& key) {
  const auto found = nodes_.find(std::get<2>(key));
  if (found == nodes_.end()) return;  // went with a leaf
  PrefixNode& node = found->second;
  if (node.children.empty() || AreStatesInUse(node)) return;
  DropBounded(&node);
  Recount(&node);
}

void PrefixTree::CountEviction(size_t bytes) {
  if (bytes == 0) return;
  ++evictions_.count;
  evictions_.bytes += static_cast<int64_t>(bytes);
}

void PrefixTree::BoundIndex() {
  const size_t used_bytes = pool_->used_bytes();
  while (index_bytes_ > max_index_bytes_ && !leaves_.empty()) {
    (void)Remove(NodeOf(*leaves_.begin()));
  }
  CountEviction(used_bytes - pool_->used_bytes());
}

// Drops blocks from the end of a leaf until that frees enough, or all of it: without its end there
// is no state where layers need restore points.
std::optional<PrefixNode::Key> PrefixTree::Shorten(PrefixNode* leaf, size_t bytes_wanted) {
  if (HasRestorePoints(*plan_)) return Remove(leaf);
  int64_t end_block = BlocksUpTo(leaf->end());
  for (size_t bytes = 0; bytes < bytes_wanted && end_block * kBlockTokens > leaf->begin;) {
    --end_block;
    for (size_t i = 0; i < leaf->held.stores.size(); ++i) {
      if (leaf->held.stores[i].block(end_block).shared()) continue;
      bytes += plan_->stores()[i].BlockBytes(end_block);
    }
  }
  const Position end = end_block * kBlockTokens;
  if (end <= leaf->begin) return Remove(leaf);
  tokens_ -= leaf->end() - end;
  leaf->tokens.resize(static_cast<size_t>(end - leaf->begin));
  leaf->tokens.shrink_to_fit();
  for (KvLayer& layer : leaf->held.stores) layer.DropFrom(end_block);
  Recount(leaf);
  return std::nullopt;
}

// Also what is left without purpose above it.
std::optional<PrefixNode::Key> PrefixTree::Remove(PrefixNode* leaf) {
  leaves_.erase(leaf->key());
  for (PrefixNode* node = leaf;;) {
    PrefixNode* parent = node->parent;
    parent->children.erase(node->tokens[0]);
    tokens_ -= static_cast<int64_t>(node->tokens.size());
    index_bytes_ -= node->index_bytes;
    nodes_.erase(node->id);
    if (!parent->children.empty()) return std::nullopt;
    if (parent->parent == nullptr) {
      roots_.erase(parent->salt);
      nodes_.erase(parent->id);
      return std::nullopt;
    }
    if (parent->restorable) {
      return *leaves_.insert(parent->key()).first;
    }
    node = parent;
  }
}

void PrefixTree::Clear() {
  nodes_.clear();
  roots_.clear();
  leaves_.clear();
  tokens_ = 0;
  index_bytes_ = 0;
}

size_t PrefixTree::nbytes_exclusive() const {
  std::vector<const KvBlock*> references;
  for (const auto& [id, node] : nodes_) {
    const std::vector<const KvBlock*> held = node.held.References();
    references.insert(references.end(), held.begin(), held.end());
  }
  return ExclusiveBlockBytes(std::move(references));
}

}  // namespace kvasir
