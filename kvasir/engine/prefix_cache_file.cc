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

uint64_t SaltOf(const std::string& name) {
  uint64_t salt = 0;
  std::from_chars(name.data(), name.data() + name.size(), salt);
  return salt;
}

Result<PrefixCacheFileStats> SaveStates(PrefixTree& tree, const ModelBundle& bundle,
                                        const std::string& path, size_t max_bytes,
                                        std::vector<SavedConversation> states) {
  PrefixCacheFileStats stats;
  KvSnapshotFile file;
  file.metadata = ModelMetadata(bundle);
  std::unordered_set<const KvBlock*> written;
  for (SavedConversation& state : states) {
    KVASIR_TRY(PrefixTree::Match match,
               tree.Find(state.salt, state.tokens, static_cast<int64_t>(state.tokens.size())));
    if (match.tokens == 0) continue;
    KvSnapshot snapshot = match.sequence.Snapshot();
    std::vector<const KvBlock*> added;
    size_t bytes = 0;
    for (const KvBlock* block : snapshot.BlockReferences()) {
      if (!written.insert(block).second) continue;
      added.push_back(block);
      bytes += block->owner->block_bytes();
    }
    if (stats.bytes + bytes > max_bytes) {
      for (const KvBlock* block : added) written.erase(block);
      continue;
    }
    stats.bytes += bytes;
    stats.tokens += match.tokens;
    state.tokens.resize(static_cast<size_t>(match.tokens));
    file.sequences.push_back(
        {std::to_string(state.salt), std::move(snapshot), std::move(state.tokens)});
  }
  if (!file.sequences.empty()) KVASIR_TRY_OK(SaveSnapshots(file, path));
  return stats;
}

// OK if all in the file was said for this salt.
Status CheckSalt(const KvSnapshotFile& file, uint64_t salt) {
  for (const NamedSnapshot& state : file.sequences) {
    if (SaltOf(state.name) == salt) continue;
    return {ErrorCode::kInvalidArgument,
            "it was saved by somebody with another key or cache_salt; restore it with theirs"};
  }
  return {};
}

// The first sequence of the file goes into `first`, if that is wanted: then all have its salt.
Result<PrefixCacheFileStats> LoadStates(PrefixTree& tree, ModelBundle& bundle,
                                        const std::string& path, SavedConversation* first) {
  const size_t used_before = bundle.pool().used_bytes();
  KVASIR_TRY(const KvSnapshotFile file, LoadSnapshots(&bundle.pool(), path));
  const Status fits = CheckCacheFile(file, bundle);
  if (!fits.ok()) return WithContext(fits.error(), path);
  if (first != nullptr) {
    const Status is_theirs = CheckSalt(file, first->salt);
    if (!is_theirs.ok()) return WithContext(is_theirs.error(), path);
  }
  PrefixCacheFileStats stats;
  for (auto state = file.sequences.rbegin(); state != file.sequences.rend(); ++state) {
    if (state->tokens.empty() || state->snapshot.begin() != 0) continue;
    if (!tree.Insert(SaltOf(state->name), state->tokens, state->snapshot)) continue;
    stats.tokens += static_cast<int64_t>(state->tokens.size());
    if (first != nullptr) *first = {SaltOf(state->name), state->tokens};
  }
  stats.bytes = bundle.pool().used_bytes() - used_before;
  return stats;
}

}  // namespace

Result<PrefixCacheFileStats> SavePrefixCache(PrefixTree& tree, const ModelBundle& bundle,
                                             const std::string& path, size_t max_bytes) {
  return SaveStates(tree, bundle, path, max_bytes, StatesOf(tree));
}

Result<PrefixCacheFileStats> LoadPrefixCache(PrefixTree& tree, ModelBundle& bundle,
                                             const std::string& path) {
  return LoadStates(tree, bundle, path, nullptr);
}

Result<PrefixCacheFileStats> SaveConversation(PrefixTree& tree, const ModelBundle& bundle,
                                              const std::string& path,
                                              const SavedConversation& conversation) {
  KVASIR_TRY(const PrefixCacheFileStats stats,
             SaveStates(tree, bundle, path, std::numeric_limits<size_t>::max(), {conversation}));
  if (stats.tokens > 0) return stats;
  return {ErrorCode::kFailedPrecondition, "nothing of this conversation is cached any more"};
}

Result<PrefixCacheFileStats> LoadConversation(PrefixTree& tree, ModelBundle& bundle,
                                              const std::string& path,
                                              SavedConversation* conversation) {
  return LoadStates(tree, bundle, path, conversation);
}

}  // namespace kvasir
