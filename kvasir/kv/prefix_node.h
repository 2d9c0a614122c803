// One edge of the prefix tree and what is cached at its end. Internal to kvasir/kv.
// Deliberately without a search: PrefixTree walks, splits and evicts.
#ifndef KVASIR_KV_PREFIX_NODE_H_
#define KVASIR_KV_PREFIX_NODE_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <vector>

#include "kvasir/base/token.h"
#include "kvasir/kv/kv_content.h"

namespace kvasir {

// What is evicted first. Within one priority: what was used least recently.
enum class PrefixPriority {
  kNormal,
  kSystem,  // system prompts that many requests share
};

// The tokens [begin, end()) after those of its ancestors.
//
// Layers are of two kinds here. An *unbounded* store (retention all, a budget that has not evicted)
// is held as the blocks of [begin, end()); the block that `begin` cuts is held by the parent as
// well, and the copy that is deeper in a path is filled further. A *bounded* store (window, chunk,
// recent copies) and a recurrent state are held whole for the one position end(), if `restorable`:
// all blocks that a continuation there reads, from before `begin` too.
struct PrefixNode {
  using Key = std::tuple<PrefixPriority, uint64_t, uint64_t>;

  uint64_t id = 0;  // by age
  uint64_t salt = 0;
  PrefixNode* parent = nullptr;           // null: a root, which has no tokens
  std::map<Token, PrefixNode*> children;  // by the first token of their edge
  Position begin = 0;
  std::vector<Token> tokens;
  KvContent held;
  bool restorable = false;
  PrefixPriority priority = PrefixPriority::kNormal;
  uint64_t last_used = 0;
  uint64_t states_used = 0;  // when its states were kept or gone on with last
  int64_t users = 0;         // requests that have these tokens in common
  size_t index_bytes = 0;    // as the tree has counted it

  Position end() const { return begin + static_cast<Position>(tokens.size()); }
  // The order of eviction: by last use, but each user beyond the first counts as if it had come
  // kUsesPerUser uses of anything later.
  Key key() const { return {priority, last_used + Head(users), id}; }
  // The same for its states alone, which only those go on from who end or part here: users of one
  // that continues it have states behind these.
  Key states_key() const {
    int64_t most = 0;
    for (const auto& [token, child] : children) most = std::max(most, child->users);
    const uint64_t used = states_used > kUsesOfAStep ? states_used - kUsesOfAStep : 0;
    return {priority, used + Head(users - most), id};
  }

 private:
  // What many conversations begin with is worth more than the last of them, and is not worth
  // everything: a prompt of many users outlives about five strangers per user, since a request is
  // about three uses, and at most some 300.
  static constexpr int64_t kUsesPerUser = 16;
  static constexpr int64_t kMostUsers = 64;
  // States on the way are worth less than where something ends: they count as used so much earlier,
  // some twenty requests. A conversation whose turns leave states then does not push others out.
  static constexpr uint64_t kUsesOfAStep = 64;
  static uint64_t Head(int64_t users) {
    return static_cast<uint64_t>(kUsesPerUser * (std::clamp<int64_t>(users, 1, kMostUsers) - 1));
  }
};

// Whether a store holds only part of a long sequence.
bool IsBounded(const KvStore& store);
// Whether states can be restored at chosen positions only: some store is bounded, or some layer
// recurrent.
bool HasRestorePoints(const KvPlan& plan);

// What the bounded stores and recurrent layers of `content`, which ends at `end`, hold of the state
// at `at`, and nothing else; none if it is not whole. A chunk that begins at `at`, at a block
// border, needs nothing and is always whole. REQUIRES: 0 < at <= end.
std::optional<KvContent> BoundedPart(const KvContent& content, Position end, Position at);
// Makes `node` restorable with such a part of its end.
void SetBounded(KvContent part, PrefixNode* node);

// The node can be gone on with no more.
void DropBounded(PrefixNode* node);
// Whether something besides this node references all of its states.
bool AreStatesInUse(const PrefixNode& node);

// Bytes of the node itself, its tokens and its references.
size_t IndexBytes(const PrefixNode& node);

// Whether the unbounded stores of `content` hold every row of [begin, end).
bool HoldsUnbounded(const KvContent& content, Position begin, Position end);
// Gives `node` the blocks of [begin, end) of the unbounded stores of `content`.
// REQUIRES: HoldsUnbounded.
void SetUnbounded(const KvContent& content, Position begin, Position end, PrefixNode* node);
// Adds the blocks that hold the first `end` tokens of the edges of `path` to the unbounded stores
// of `content`, which are empty. REQUIRES: path runs from a child of a root to where `end` lies.
void AppendUnbounded(std::span<const PrefixNode* const> path, Position end, KvContent* content);
// Exchanges the first block of a new leaf for those with the same index at the ends of what it
// alone continues: it is filled further, and then the tree holds each block of a conversation once.
void AdoptTail(const PrefixNode& node);
// Whether others than the tree reference all that a leaf holds, so that nothing is freed by
// dropping it and, behind that, what it continues.
bool IsInUse(const PrefixNode& leaf);

}  // namespace kvasir

#endif  // KVASIR_KV_PREFIX_NODE_H_
