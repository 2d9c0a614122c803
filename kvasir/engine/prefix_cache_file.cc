#include "kvasir/engine/prefix_cache_file.h"

#include <charconv>
#include <limits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "kvasir/engine/cached_sequence_file.h"
#include "kvasir/kv/kv_block.h"
#include "kvasir/kv/kv_size_class.h"
#include "kvasir/kv/snapshot_file.h"

namespace kvasir {
namespace {

// The states of a tree, the latest used first, each with all tokens that lead to it.
std::vector<SavedConversation> StatesOf(const PrefixTree& tree) {
  const bool has_inner_states = HasRestorePoints(tree.plan());
  std::unordered_set<uint64_t> seen;
  std::vector<SavedConversation> states;
  for (const auto& path : tree.LatestPaths(std::numeric_limits<size_t>::max())) {
    std::vector<Token> tokens;
    for (const PrefixNode* node : path) {
      tokens.insert(tokens.end(), node->tokens.begin(), node->tokens.end());
      const bool is_state = node == path.back() || (has_inner_states && node->restorable);
      if (is_state && seen.insert(node->id).second) states.push_back({node->salt, tokens});
    }
  }
  return states;
}

Result<PrefixCacheFileStats> SaveStates(PrefixTree& tree, const ModelBundle& bundle,
                                        const std::string& path, size_t max_bytes,
                                        std::vector<SavedConversation> states) {
  PrefixCacheFileStats stats;
  KvSnapshotFile file;
  KVASIR_TRY(file.metadata, ModelMetadata(bundle));
  BlockTally written;
  for (SavedConversation& state : states) {
    KVASIR_TRY(PrefixTree::Match match,
               tree.Find(state.salt, state.tokens, static_cast<int64_t>(state.tokens.size())));
    if (match.tokens == 0) continue;
    KvSnapshot snapshot = match.sequence.Snapshot();
    if (!written.Add(snapshot, max_bytes)) continue;
    stats.tokens += match.tokens;
    state.tokens.resize(static_cast<size_t>(match.tokens));
    file.sequences.push_back(
        {std::to_string(state.salt), std::move(snapshot), std::move(state.tokens)});
  }
  stats.bytes = written.bytes();
  if (!file.sequences.empty()) KVASIR_TRY_OK(SaveSnapshots(file, path));
  return stats;
}

}  // namespace

bool BlockTally::Add(const KvSnapshot& snapshot, size_t max_bytes) {
  std::vector<const KvBlock*> added;
  size_t bytes = bytes_;
  for (const KvBlock* block : snapshot.BlockReferences()) {
    if (!counted_.insert(block).second) continue;
    added.push_back(block);
    bytes += block->owner->block_bytes();
  }
  if (bytes > max_bytes) {
    for (const KvBlock* block : added) counted_.erase(block);
    return false;
  }
  bytes_ = bytes;
  return true;
}

uint64_t SaltOfName(const std::string& name) {
  uint64_t salt = 0;
  std::from_chars(name.data(), name.data() + name.size(), salt);
  return salt;
}

PrefixCacheFileStats PublishStates(PrefixTree& tree, std::span<const NamedSnapshot> states,
                                   size_t bytes, SavedConversation* first) {
  PrefixCacheFileStats stats = {0, bytes};
  for (auto state = states.rbegin(); state != states.rend(); ++state) {
    if (state->tokens.empty() || state->snapshot.begin() != 0) continue;
    if (!tree.Insert(SaltOfName(state->name), state->tokens, state->snapshot)) continue;
    stats.tokens += static_cast<int64_t>(state->tokens.size());
    if (first != nullptr) *first = {SaltOfName(state->name), state->tokens};
  }
  return stats;
}

Result<PrefixCacheFileStats> SavePrefixCache(PrefixTree& tree, const ModelBundle& bundle,
                                             const std::string& path, size_t max_bytes) {
  return SaveStates(tree, bundle, path, max_bytes, StatesOf(tree));
}

Result<PrefixCacheFileStats> LoadPrefixCache(PrefixTree& tree, ModelBundle& bundle,
                                             const std::string& path) {
  const size_t used_before = bundle.pool().used_bytes();
  KVASIR_TRY(const KvSnapshotFile file, LoadSnapshots(&bundle.pool(), path));
  const Status fits = CheckCacheFile(file, bundle);
  if (!fits.ok()) return WithContext(fits.error(), path);
  return PublishStates(tree, file.sequences, bundle.pool().used_bytes() - used_before, nullptr);
}

}  // namespace kvasir
