// Which token sequences are cached: a radix tree over tokens whose nodes reference blocks, so that
// any request continues from the longest prefix that anybody computed before.
// Deliberately never frees a block that another references, and evicts only when told to: the
// engine owns the budget.
#ifndef KVASIR_KV_PREFIX_TREE_H_
#define KVASIR_KV_PREFIX_TREE_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/kv/kv_pool.h"
#include "kvasir/kv/kv_sequence.h"
#include "kvasir/kv/kv_snapshot.h"
#include "kvasir/kv/kv_spec.h"
#include "kvasir/kv/prefix_node.h"

namespace kvasir {

struct PrefixTreeStats {
  int64_t nodes = 0;
  int64_t tokens = 0;  // of all edges: a shared prefix counts once
  size_t bytes = 0;    // of blocks that nobody but this tree references, as nbytes_exclusive()
  uint64_t hits = 0;   // calls of Find that returned at least one token
  uint64_t misses = 0;
};

// What was given up for memory, since the tree was made.
struct PrefixEvictions {
  int64_t count = 0;  // how often something was
  int64_t bytes = 0;  // of the pool that this freed
};

// A hit has the bits of a miss by construction: Find returns references to the blocks that were
// computed for the same tokens, and a row's bits depend on the tokens up to its own only.
//
// Where every layer sees all rows, any prefix of anything inserted can be had, to the token. Window
// and chunk layers, recent copies and recurrent states are whole near the positions only that
// Insert was called at, so an engine inserts during prefill too, at the positions it wants back.
// That costs references to the blocks of a window; at multiples of 64 no block is ever copied for
// it.
//
// A salt (one per tenant) is a tree of its own: no call under one sees what another inserted.
//
// Two requests may insert the same tokens; what came first stays. THREADS: as its pool.
class PrefixTree {
 public:
  struct Match {
    // The longest prefix, at most `limit`, with a state that every layer can continue from.
    int64_t tokens = 0;
    // At position `tokens`; shares blocks. Empty if there is none.
    KvSequence sequence;
    // The longest prefix that is known at all: where the tokens part from all that is cached.
    int64_t diverges_at = 0;
  };

  // `max_index_bytes` bounds index_bytes(): Insert evicts for it, in the order of Evict.
  // REQUIRES: spec->Validate().ok(); the pool outlives the tree.
  PrefixTree(KvPool* pool, std::shared_ptr<const KvCacheSpec> spec,
             size_t max_index_bytes = std::numeric_limits<size_t>::max());
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  // Takes no block and copies no row. O(tokens + blocks of the match). What it returns counts as
  // used now. ERRORS: none that its arguments can cause.
  Result<Match> Find(uint64_t salt, std::span<const Token> tokens, int64_t limit);

  // Find in two steps, for those who do not know yet whether they go on from it: what it returns,
  // and how many tokens that are, neither counted as use, hit or miss; and counting it.
  Result<Match> Look(uint64_t salt, std::span<const Token> tokens, int64_t limit) const;
  int64_t LookForTokens(uint64_t salt, std::span<const Token> tokens, int64_t limit) const;
  void Use(uint64_t salt, std::span<const Token> found);

  // What others continued exactly `tokens` with, at most `limit` tokens; where they parted, the way
  // that was used last. Empty where `tokens` as a whole is not known. Does not count as use.
  std::vector<Token> Continuation(uint64_t salt, std::span<const Token> tokens,
                                  int64_t limit) const;

  // Publishes the state of `sequence`, which is the cache of the first position() of `tokens`, and
  // its checkpoints. The sequence may go on: it then copies its last block, if that is partly
  // filled, and recurrent states. Also counts as use. The priority holds for these tokens from the
  // first on, and is never lowered. REQUIRES: no Speculation is open, `tokens` is what it holds.
  // False if the state cannot be published: rows were evicted, so that it is no cache of all its
  // tokens, it is longer than `tokens`, has another spec or pool than this tree, or reserved rows
  // have left recurrent states half written.
  bool Insert(uint64_t salt, std::span<const Token> tokens, const KvSequence& sequence,
              PrefixPriority priority = PrefixPriority::kNormal);
  // The same for a state that was kept during prefill. One that does not begin at 0 is enough
  // where the tree knows the tokens before it; otherwise false.
  bool Insert(uint64_t salt, std::span<const Token> tokens, const KvSnapshot& snapshot,
              PrefixPriority priority = PrefixPriority::kNormal);

  // Somebody asked for these tokens, which were inserted: what of them many ask for outlives what
  // few do (PrefixNode::key). Once per request; Find and Insert do not count.
  void AddUser(uint64_t salt, std::span<const Token> tokens);

  // Frees at least `bytes_wanted` bytes of the pool, or all it can, and returns how many: blocks
  // that sequences use free nothing and are left alone while others will do. Leaves go before what
  // they continue, by priority, then by last use and number of users; states that others continue
  // go in that order by themselves. Where every layer sees all rows, a leaf loses only as many
  // blocks from its end as it takes.
  size_t Evict(size_t bytes_wanted);
  const PrefixEvictions& evictions() const { return evictions_; }
  // Forgets everything but the counts of hits and misses.
  void Clear();

  // Bytes that the tree itself takes: tokens, references, nodes.
  size_t index_bytes() const { return index_bytes_; }
  // Bytes that Clear would give back to the pool. O(blocks log blocks).
  size_t nbytes_exclusive() const;
  // For metrics: O(blocks log blocks).
  PrefixTreeStats Stats() const;

  // For pictures (cache_picture.h). At most `most` leaves, the latest used first, each as the nodes
  // from below its root to it; valid until the next change.
  std::vector<std::vector<const PrefixNode*>> LatestPaths(size_t most) const;
  int64_t leaf_count() const { return static_cast<int64_t>(leaves_.size()); }
  // The last node all of whose tokens are the beginning of `tokens`; null: there is none.
  const PrefixNode* LastWithin(uint64_t salt, std::span<const Token> tokens) const;
  const KvPlan& plan() const { return *plan_; }

 private:
  struct Path {
    std::vector<PrefixNode*> nodes;  // below the root; the tokens may end within the last one
    Position known = 0;
  };
  Path Walk(uint64_t salt, std::span<const Token> tokens) const;
  // The state furthest along `path`, at most at `limit`, without its unbounded stores; drops the
  // nodes of the path behind it. Null: there is none.
  struct State {
    KvContent content;
    Position at = 0;
  };
  static std::optional<State> LastState(int64_t limit, Path* path);
  bool Publish(uint64_t salt, std::span<const Token> tokens, const KvSnapshot& snapshot,
               PrefixPriority priority);
  void MakeRestorable(std::span<PrefixNode* const> path, KvContent bounded);
  PrefixNode* Root(uint64_t salt);
  PrefixNode* NewNode(PrefixNode* parent, Position begin, std::span<const Token> tokens);
  PrefixNode* Split(PrefixNode* node, Position at);

  PrefixNode* NodeOf(const PrefixNode::Key& key) { return &nodes_.at(std::get<2>(key)); }
  const PrefixNode& NodeOf(const PrefixNode::Key& key) const { return nodes_.at(std::get<2>(key)); }
  std::vector<const PrefixNode*> LatestLeaves(size_t most) const;
  // Changes what the node's key is made of. From the first time on a leaf is in leaves_.
  template <typename Change>
  void Rank(PrefixNode* node, const Change& change);
  // Return the key of what became a leaf, if anything did.
  std::optional<PrefixNode::Key> Shorten(PrefixNode* leaf, size_t bytes_wanted);
  std::optional<PrefixNode::Key> Remove(PrefixNode* leaf);
  void BoundIndex();
  std::vector<PrefixNode::Key> InnerStates() const;
  void DropStates(const PrefixNode::Key& key);
  void CountEviction(size_t bytes);
  void Recount(PrefixNode* node);

  KvPool* pool_;
  std::shared_ptr<const KvPlan> plan_;
  std::map<uint64_t, PrefixNode> nodes_;   // by id, roots included
  std::map<uint64_t, PrefixNode*> roots_;  // by salt, none without children
  std::set<PrefixNode::Key> leaves_;       // in the order of eviction
  uint64_t next_id_ = 0;
  uint64_t clock_ = 0;
  int64_t tokens_ = 0;
  const size_t max_index_bytes_;
  size_t index_bytes_ = 0;
  PrefixEvictions evictions_;
  uint64_t hits_ = 0;
  uint64_t misses_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_KV_PREFIX_TREE_H_
