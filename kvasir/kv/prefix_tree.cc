// Finding and publishing prefixes.
// Deliberately without eviction, which is prefix_tree_evict.cc.
#include "kvasir/kv/prefix_tree.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {

PrefixTree::PrefixTree(KvPool* pool, std::shared_ptr<const KvCacheSpec> spec,
                       size_t max_index_bytes)
    : pool_(pool), max_index_bytes_(max_index_bytes) {
  auto plan = KvPlan::Make(pool, std::move(spec));
  KVASIR_CHECK(plan.ok());
  plan_ = *std::move(plan);
}

PrefixTree::Path PrefixTree::Walk(uint64_t salt, std::span<const Token> tokens) const {
  Path path;
  const auto root = roots_.find(salt);
  if (root == roots_.end()) return path;
  const PrefixNode* node = root->second;
  while (!tokens.empty()) {
    const auto child = node->children.find(tokens[0]);
    if (child == node->children.end()) break;
    node = child->second;
    path.nodes.push_back(child->second);
    const auto [edge, rest] =
        std::mismatch(node->tokens.begin(), node->tokens.end(), tokens.begin(), tokens.end());
    path.known = node->begin + (edge - node->tokens.begin());
    if (edge != node->tokens.end()) break;
    tokens = tokens.subspan(node->tokens.size());
  }
  return path;
}

std::vector<Token> PrefixTree::Continuation(uint64_t salt, std::span<const Token> tokens,
                                            int64_t limit) const {
  const Path path = Walk(salt, tokens);
  if (path.nodes.empty() || path.known != static_cast<Position>(tokens.size())) return {};
  const PrefixNode* node = path.nodes.back();
  std::vector<Token> found(node->tokens.begin() + (path.known - node->begin), node->tokens.end());
  while (static_cast<int64_t>(found.size()) < limit && !node->children.empty()) {
    const auto latest = std::max_element(
        node->children.begin(), node->children.end(),
        [](const auto& a, const auto& b) { return a.second->last_used < b.second->last_used; });
    node = latest->second;
    found.insert(found.end(), node->tokens.begin(), node->tokens.end());
  }
  found.resize(static_cast<size_t>(std::min(limit, static_cast<int64_t>(found.size()))));
  return found;
}

std::optional<PrefixTree::State> PrefixTree::LastState(int64_t limit, Path* path) {
  const Position longest = std::max<int64_t>(0, std::min(limit, path->known));
  // Within an edge only its own end is asked: a later state that reaches back here reaches back to
  // that end as well, and was then made its state.
  for (; !path->nodes.empty(); path->nodes.pop_back()) {
    const PrefixNode& node = *path->nodes.back();
    if (node.begin >= longest) continue;
    const Position at = std::min(longest, node.end());
    auto content = BoundedPart(node.held, node.end(), at);
    if (content.has_value()) return State{*std::move(content), at};
  }
  return std::nullopt;
}

int64_t PrefixTree::LookForTokens(uint64_t salt, std::span<const Token> tokens,
                                  int64_t limit) const {
  Path path = Walk(salt, tokens);
  const auto state = LastState(limit, &path);
  return state ? state->at : 0;
}

Result<PrefixTree::Match> PrefixTree::Find(uint64_t salt, std::span<const Token> tokens,
                                           int64_t limit) {
  KVASIR_TRY(Match match, Look(salt, tokens, limit));
  Use(salt, tokens.first(static_cast<size_t>(match.tokens)));
  return match;
}

void PrefixTree::Use(uint64_t salt, std::span<const Token> found) {
  if (found.empty()) {
    ++misses_;
    return;
  }
  ++hits_;
  ++clock_;
  const Path path = Walk(salt, found);
  for (PrefixNode* node : path.nodes) Rank(node, [&] { node->last_used = clock_; });
  if (!path.nodes.empty()) path.nodes.back()->states_used = clock_;
}

Result<PrefixTree::Match> PrefixTree::Look(uint64_t salt, std::span<const Token> tokens,
                                           int64_t limit) const {
  Path path = Walk(salt, tokens);
  auto state = LastState(limit, &path);
  if (state.has_value()) {
    const std::vector<const PrefixNode*> used(path.nodes.begin(), path.nodes.end());
    AppendUnbounded(used, state->at, &state->content);
  } else {
    state = State{KvContent::Empty(plan_), 0};
  }
  KvSnapshot snapshot = KvSnapshot::FromContent(std::move(state->content), 0, state->at);
  KVASIR_TRY(KvSequence sequence, KvSequence::Restore(pool_, std::move(snapshot)));
  return Match{state->at, std::move(sequence), path.known};
}

void PrefixTree::AddUser(uint64_t salt, std::span<const Token> tokens) {
  const Path path = Walk(salt, tokens);
  for (PrefixNode* node : path.nodes) {
    if (node->end() <= path.known) Rank(node, [&] { ++node->users; });
  }
}

bool PrefixTree::Insert(uint64_t salt, std::span<const Token> tokens, const KvSequence& sequence,
                        PrefixPriority priority) {
  return Insert(salt, tokens, sequence.Snapshot(), priority);
}

bool PrefixTree::Insert(uint64_t salt, std::span<const Token> tokens, const KvSnapshot& snapshot,
                        PrefixPriority priority) {
  const KvContent& content = snapshot.content();
  if (snapshot.evicted() || snapshot.end() > static_cast<Position>(tokens.size()) ||
      !plan_->Compatible(*content.plan)) {
    return false;
  }
  ++clock_;
  for (const auto& checkpoint : content.states.checkpoints) {
    if (checkpoint.position >= snapshot.end()) continue;
    Publish(salt, tokens.first(static_cast<size_t>(checkpoint.position)), snapshot, priority);
  }
  return Publish(salt, tokens.first(static_cast<size_t>(snapshot.end())), snapshot, priority);
}

bool PrefixTree::Publish(uint64_t salt, std::span<const Token> tokens, const KvSnapshot& snapshot,
                         PrefixPriority priority) {
  if (tokens.empty()) return true;
  const auto end = static_cast<Position>(tokens.size());
  std::optional<KvContent> bounded = BoundedPart(snapshot.content(), snapshot.end(), end);
  Path path = Walk(salt, tokens);
  if (!bounded.has_value() || !HoldsUnbounded(snapshot.content(), path.known, end)) return false;

  if (!path.nodes.empty() && path.known < path.nodes.back()->end()) {
    path.nodes.back() = Split(path.nodes.back(), path.known);
  }
  if (path.known < end) {
    PrefixNode* parent = path.nodes.empty() ? Root(salt) : path.nodes.back();
    PrefixNode* node = NewNode(parent, path.known, tokens.subspan(static_cast<size_t>(path.known)));
    tokens_ += end - path.known;
    SetUnbounded(snapshot.content(), path.known, end, node);
    AdoptTail(*node);
    path.nodes.push_back(node);
  }
  MakeRestorable(path.nodes, *std::move(bounded));
  for (PrefixNode* node : path.nodes) {
    Rank(node, [&] {
      node->last_used = clock_;
      node->priority = std::max(node->priority, priority);
    });
    Recount(node);
  }
  BoundIndex();
  return true;
}

// Also every node above that the new state reaches back to and that has none of its own.
void PrefixTree::MakeRestorable(std::span<PrefixNode* const> path, KvContent bounded) {
  PrefixNode& last = *path.back();
  if (last.restorable) return;
  SetBounded(std::move(bounded), &last);
  last.states_used = clock_;
  for (auto node = path.rbegin() + 1; node != path.rend(); ++node) {
    if ((*node)->restorable) continue;
    auto part = BoundedPart(last.held, last.end(), (*node)->end());
    if (part.has_value()) SetBounded(*std::move(part), *node);
  }
}

PrefixNode* PrefixTree::Root(uint64_t salt) {
  PrefixNode*& root = roots_[salt];
  if (root == nullptr) {
    root = &nodes_[next_id_];
    root->id = next_id_++;
    root->salt = salt;
  }
  return root;
}

template <typename Change>
void PrefixTree::Rank(PrefixNode* node, const Change& change) {
  if (!node->children.empty()) return change();
  leaves_.erase(node->key());
  change();
  leaves_.insert(node->key());
}

PrefixNode* PrefixTree::NewNode(PrefixNode* parent, Position begin, std::span<const Token> tokens) {
  if (parent->children.empty()) leaves_.erase(parent->key());
  PrefixNode& node = nodes_[next_id_];
  node.id = next_id_++;
  node.salt = parent->salt;
  node.parent = parent;
  node.begin = begin;
  node.tokens.assign(tokens.begin(), tokens.end());
  node.held = KvContent::Empty(plan_);
  parent->children[tokens[0]] = &node;
  return &node;
}

// Cuts an edge in two; the new node is the upper part, and is returned.
PrefixNode* PrefixTree::Split(PrefixNode* node, Position at) {
  const auto upper_tokens = static_cast<size_t>(at - node->begin);
  PrefixNode* upper =
      NewNode(node->parent, node->begin, std::span(node->tokens).first(upper_tokens));
  upper->priority = node->priority;
  upper->last_used = node->last_used;
  upper->users = node->users;
  SetUnbounded(node->held, node->begin, at, upper);
  auto part = BoundedPart(node->held, node->end(), at);
  if (part.has_value()) SetBounded(*std::move(part), upper);
  SetUnbounded(node->held, at, node->end(), node);
  node->tokens.erase(node->tokens.begin(),
                     node->tokens.begin() + static_cast<ptrdiff_t>(upper_tokens));
  node->tokens.shrink_to_fit();
  node->begin = at;
  node->parent = upper;
  upper->children[node->tokens[0]] = node;
  Recount(upper);
  Recount(node);
  return upper;
}

void PrefixTree::Recount(PrefixNode* node) {
  index_bytes_ -= node->index_bytes;
  node->index_bytes = IndexBytes(*node);
  index_bytes_ += node->index_bytes;
}

PrefixTreeStats PrefixTree::Stats() const {
  return {.nodes = static_cast<int64_t>(nodes_.size() - roots_.size()),
          .tokens = tokens_,
          .bytes = nbytes_exclusive(),
          .hits = hits_,
          .misses = misses_};
}

// The order of eviction is nearly that of use: a key is a last use with a little added
// (PrefixNode::key). So behind the first `most` leaves only those are looked at whose key reaches
// the oldest use found.
std::vector<const PrefixNode*> PrefixTree::LatestLeaves(size_t most) const {
  const auto is_later = [](const PrefixNode* a, const PrefixNode* b) {
    return std::pair(a->last_used, a->id) > std::pair(b->last_used, b->id);
  };
  std::vector<const PrefixNode*> latest;  // a heap, the oldest use first
  if (most == 0) return latest;
  for (auto at = leaves_.rbegin(); at != leaves_.rend();) {
    const auto& [priority, use, id] = *at;
    if (latest.size() == most && use < latest.front()->last_used) {
      at = std::make_reverse_iterator(leaves_.lower_bound(PrefixNode::Key{priority, 0, 0}));
      continue;
    }
    latest.push_back(&NodeOf(*at));
    std::push_heap(latest.begin(), latest.end(), is_later);
    if (latest.size() > most) {
      std::pop_heap(latest.begin(), latest.end(), is_later);
      latest.pop_back();
    }
    ++at;
  }
  std::sort(latest.begin(), latest.end(), is_later);
  return latest;
}

std::vector<std::vector<const PrefixNode*>> PrefixTree::LatestPaths(size_t most) const {
  const std::vector<const PrefixNode*> leaves = LatestLeaves(most);
  const size_t count = leaves.size();
  std::vector<std::vector<const PrefixNode*>> paths(count);
  for (size_t i = 0; i < count; ++i) {
    for (const PrefixNode* node = leaves[i]; node->parent != nullptr; node = node->parent) {
      paths[i].push_back(node);
    }
    std::reverse(paths[i].begin(), paths[i].end());
  }
  return paths;
}

const PrefixNode* PrefixTree::LastWithin(uint64_t salt, std::span<const Token> tokens) const {
  Path path = Walk(salt, tokens);
  if (!path.nodes.empty() && path.known < path.nodes.back()->end()) path.nodes.pop_back();
  return path.nodes.empty() ? nullptr : path.nodes.back();
}

}  // namespace kvasir
