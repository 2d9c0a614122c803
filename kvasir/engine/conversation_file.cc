#include "kvasir/engine/conversation_file.h"

#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "kvasir/engine/cached_sequence_file.h"
#include "kvasir/kv/prefix_node.h"

namespace kvasir {
namespace {

// Each has states or windows for itself, which together take no more than the end.
constexpr size_t kMostEarlierStates = 16;

// Where a conversation can be gone on with before its end, the latest first: the next turn parts
// from it there if the template leaves something out of earlier ones, as thoughts.
std::vector<int64_t> EarlierStates(const PrefixTree& tree, const SavedConversation& conversation,
                                   int64_t end) {
  std::vector<int64_t> states;
  if (!HasRestorePoints(tree.plan())) return states;  // anywhere
  const PrefixNode* node = tree.LastWithin(conversation.salt, conversation.tokens);
  for (; node != nullptr && node->parent != nullptr; node = node->parent) {
    if (node->restorable && node->end() < end) states.push_back(node->end());
    if (states.size() == kMostEarlierStates) break;
  }
  return states;
}

Status CheckSalt(const KvBlockMap& map, uint64_t salt) {
  for (const KvBlockMap::Sequence& sequence : map.sequences) {
    if (SaltOfName(sequence.name) == salt) continue;
    return {ErrorCode::kInvalidArgument,
            "it was saved by somebody with another key or cache_salt; restore it with theirs"};
  }
  return {};
}

}  // namespace

// --- Saving ---

Result<std::unique_ptr<ConversationSave>> ConversationSave::Begin(
    Engine& engine, const ModelBundle& bundle, const SavedConversation& conversation) {
  const std::span<const Token> tokens(conversation.tokens);
  PrefixTree& tree = engine.prefix_tree();
  std::vector<NamedSnapshot> snapshots;
  const auto add = [&](const PrefixTree::Match& match) {
    const auto known = tokens.first(static_cast<size_t>(match.tokens));
    snapshots.push_back({std::to_string(conversation.salt),
                         match.sequence.Snapshot(),
                         {known.begin(), known.end()}});
  };
  KVASIR_TRY(const PrefixTree::Match match,
             tree.Find(conversation.salt, tokens, static_cast<int64_t>(tokens.size())));
  if (match.tokens == 0) {
    return {ErrorCode::kFailedPrecondition, "nothing of this conversation is cached any more"};
  }
  add(match);
  BlockTally written;
  (void)written.Add(snapshots.front().snapshot, std::numeric_limits<size_t>::max());
  const size_t most_bytes = 2 * written.bytes();
  for (const int64_t state : EarlierStates(tree, conversation, match.tokens)) {
    KVASIR_TRY(const PrefixTree::Match earlier, tree.Look(conversation.salt, tokens, state));
    if (!written.Add(earlier.sequence.Snapshot(), most_bytes)) break;
    add(earlier);
  }
  KVASIR_TRY(CacheMetadata metadata, ModelMetadata(bundle));
  KVASIR_TRY(auto snapshot, LentSnapshot::Make(std::move(snapshots), std::move(metadata)));
  engine.Lend(snapshot->lent());
  return std::unique_ptr<ConversationSave>(new ConversationSave(std::move(snapshot)));
}

Result<PrefixCacheFileStats> ConversationSave::Write(const std::string& path,
                                                     const FileProgress& progress) {
  KVASIR_TRY_OK(snapshot_->Write(path, progress));
  return PrefixCacheFileStats{static_cast<int64_t>(snapshot_->map().sequences[0].tokens.size()),
                              snapshot_->bytes()};
}

// --- Loading ---

Result<std::unique_ptr<ConversationLoad>> ConversationLoad::Open(const std::string& path,
                                                                 const ModelBundle& bundle,
                                                                 uint64_t salt) {
  KVASIR_TRY(FileReader file, FileReader::Open(path));
  KVASIR_TRY(KvSnapshotIndex index, KvSnapshotIndex::Read(file));
  Status fits = CheckCacheFile(index.map.metadata, index.map.spec, bundle);
  if (fits.ok()) fits = CheckSalt(index.map, salt);
  for (const KvBlockMap::Sequence& sequence : index.map.sequences) {
    if (fits.ok()) fits = CheckCacheTokens(sequence.name, sequence.tokens, bundle);
  }
  if (!fits.ok()) return WithContext(fits.error(), path);
  return std::unique_ptr<ConversationLoad>(
      new ConversationLoad(path, std::move(file), std::move(index)));
}

Status ConversationLoad::Begin(Engine& engine) {
  pool_ = &engine.pool();
  auto blocks = TakeBlocks(pool_, &engine.prefix_tree(), index_.map);
  if (!blocks.ok()) return WithContext(blocks.error(), path_);
  for (const BlockRef& block : *blocks) targets_.push_back(block.data());
  lent_ = std::make_shared<LentBlocks>(*std::move(blocks));
  engine.Lend(lent_);
  return {};
}

Status ConversationLoad::Read(const FileProgress& progress) {
  std::vector<std::byte> block;
  for (size_t i = 0; i < targets_.size(); ++i) {
    KVASIR_TRY_OK(progress());
    // A copy: the engine must not wait for the disk.
    block.resize(index_.places[i].bytes);
    KVASIR_TRY_OK(index_.ReadBlock(file_, i, block));
    if (!lent_->Use([&] { std::memcpy(targets_[i], block.data(), block.size()); })) {
      return TakenBack();
    }
  }
  return {};
}

Result<PrefixCacheFileStats> ConversationLoad::Publish(Engine& engine,
                                                       SavedConversation* conversation) {
  const std::optional<LentBlocks::Held> held = lent_->TakeBack();
  if (!held) return TakenBack().error();
  KVASIR_TRY(const auto snapshots,
             MakeSnapshots(pool_, index_.map, std::get<std::vector<BlockRef>>(*held)));
  PrefixCacheFileStats stats =
      PublishStates(engine.prefix_tree(), snapshots, BlockBytes(index_.map), conversation);
  stats.tokens = static_cast<int64_t>(conversation->tokens.size());
  if (stats.tokens > 0) return stats;
  return {ErrorCode::kFailedPrecondition,
          path_ + ": nothing of it could be found again: its first rows were evicted"};
}

}  // namespace kvasir
