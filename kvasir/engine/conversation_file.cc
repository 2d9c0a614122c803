#include "kvasir/engine/conversation_file.h"

#include <cstring>
#include <utility>

#include "kvasir/engine/cached_sequence_file.h"

namespace kvasir {
namespace {

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
  std::vector<Token> tokens = conversation.tokens;
  KVASIR_TRY(
      PrefixTree::Match match,
      engine.prefix_tree().Find(conversation.salt, tokens, static_cast<int64_t>(tokens.size())));
  if (match.tokens == 0) {
    return {ErrorCode::kFailedPrecondition, "nothing of this conversation is cached any more"};
  }
  tokens.resize(static_cast<size_t>(match.tokens));
  std::vector<NamedSnapshot> snapshots;
  snapshots.push_back(
      {std::to_string(conversation.salt), match.sequence.Snapshot(), std::move(tokens)});
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
  const PrefixCacheFileStats stats =
      PublishStates(engine.prefix_tree(), snapshots, BlockBytes(index_.map), conversation);
  if (stats.tokens > 0) return stats;
  return {ErrorCode::kFailedPrecondition,
          path_ + ": nothing of it could be found again: its first rows were evicted"};
}

}  // namespace kvasir
