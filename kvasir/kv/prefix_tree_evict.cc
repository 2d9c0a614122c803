// Which prefixes are given up when memory is wanted.
// Deliberately measures what it freed at the pool: shared blocks never count.
#include <algorithm>

#include "kvasir/kv/prefix_tree.h"

namespace kvasir {

size_t PrefixTree::Evict(size_t bytes_wanted) {
  const size_t used_bytes = pool_->used_bytes();
  const auto freed = [&] { return used_bytes - pool_->used_bytes(); };
  Leaves leaves = AllLeaves();
  Leaves in_use;
  while (freed() < bytes_wanted && !leaves.empty()) {
    const PrefixNode::Key key = *leaves.begin();
    leaves.erase(leaves.begin());
    PrefixNode* leaf = NodeOf(key);
    if (ExclusiveBlockBytes(leaf->held.References()) == 0) {
      in_use.insert(key);
    } else {
      Shorten(leaf, bytes_wanted - freed(), &leaves);
    }
  }
  if (freed() >= bytes_wanted) return freed();
  // What can still be freed is held by several nodes, or by one above leaves that are in use.
  const size_t reachable = std::min(bytes_wanted, freed() + nbytes_exclusive());
  while (freed() < reachable) {
    PrefixNode* leaf = NodeOf(*in_use.begin());
    in_use.erase(in_use.begin());
    Shorten(leaf, reachable - freed(), &in_use);
  }
  return freed();
}

// An eighth more than has to be: finding the leaves looks at every node.
void PrefixTree::BoundIndex() {
  if (index_bytes_ <= max_index_bytes_) return;
  Leaves leaves = AllLeaves();
  while (index_bytes_ > max_index_bytes_ - max_index_bytes_ / 8 && !leaves.empty()) {
    const PrefixNode::Key key = *leaves.begin();
    leaves.erase(leaves.begin());
    Remove(NodeOf(key), &leaves);
  }
}

PrefixTree::Leaves PrefixTree::AllLeaves() const {
  Leaves leaves;
  for (const auto& [id, node] : nodes_) {
    if (node.children.empty()) leaves.insert(node.key());
  }
  return leaves;
}

// Drops blocks from the end of a leaf until that frees enough, or all of it: without its end there
// is no state where layers need restore points.
void PrefixTree::Shorten(PrefixNode* leaf, size_t bytes_wanted, Leaves* leaves) {
  if (HasRestorePoints(*plan_)) return Remove(leaf, leaves);
  int64_t end_block = BlocksUpTo(leaf->end());
  for (size_t bytes = 0; bytes < bytes_wanted && end_block * kBlockTokens > leaf->begin;) {
    --end_block;
    for (size_t i = 0; i < leaf->held.stores.size(); ++i) {
      if (leaf->held.stores[i].block(end_block).shared()) continue;
      bytes += plan_->stores()[i].BlockBytes(end_block);
    }
  }
  const Position end = end_block * kBlockTokens;
  if (end <= leaf->begin) return Remove(leaf, leaves);
  tokens_ -= leaf->end() - end;
  leaf->tokens.resize(static_cast<size_t>(end - leaf->begin));
  leaf->tokens.shrink_to_fit();
  for (KvLayer& layer : leaf->held.stores) layer.DropFrom(end_block);
  Recount(leaf);
  leaves->insert(leaf->key());
}

// Also what is left without purpose above it. What becomes a leaf is added to `leaves`.
void PrefixTree::Remove(PrefixNode* leaf, Leaves* leaves) {
  for (PrefixNode* node = leaf;;) {
    PrefixNode* parent = node->parent;
    parent->children.erase(node->tokens[0]);
    tokens_ -= static_cast<int64_t>(node->tokens.size());
    index_bytes_ -= node->index_bytes;
    nodes_.erase(node->id);
    if (!parent->children.empty()) return;
    if (parent->parent == nullptr) {
      roots_.erase(parent->salt);
      nodes_.erase(parent->id);
      return;
    }
    if (parent->restorable) {
      leaves->insert(parent->key());
      return;
    }
    node = parent;
  }
}

void PrefixTree::Clear() {
  nodes_.clear();
  roots_.clear();
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
