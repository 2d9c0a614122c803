#include "kvasir/engine/conversation_file.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "kvasir/base/file_writer.h"
#include "kvasir/engine/cached_sequence_file.h"

namespace kvasir {
namespace {

Status NoMemory() {
  return {ErrorCode::kResourceExhausted,
          "the cache needed the memory for answers; try again when fewer are made"};
}

size_t AllBytes(const KvBlockMap& map) {
  return std::accumulate(map.block_bytes.begin(), map.block_bytes.end(), size_t{0});
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
  KVASIR_TRY(NumberedBlocks numbered, NumberBlocks(snapshots));
  KVASIR_TRY(numbered.map.metadata, ModelMetadata(bundle));
  auto save = std::unique_ptr<ConversationSave>(
      new ConversationSave(std::move(numbered), std::move(snapshots)));
  engine.Lend(save->lent_);
  return save;
}

ConversationSave::ConversationSave(NumberedBlocks numbered, std::vector<NamedSnapshot> snapshots)
    : numbered_(std::move(numbered)),
      reader_(&numbered_, snapshots),
      lent_(std::make_shared<LentBlocks>(std::move(snapshots))) {}

Result<PrefixCacheFileStats> ConversationSave::Write(const std::string& path,
                                                     const FileProgress& progress) {
  KVASIR_TRY(FileWriter writer, FileWriter::Create(path));
  // A copy: the engine must not wait while the disk takes it.
  std::vector<std::byte> block;
  const auto read = [&](size_t number) -> Result<std::span<const std::byte>> {
    KVASIR_TRY_OK(progress());
    const bool is_there = lent_->Use([&] {
      const std::span<const std::byte> bytes = reader_.Read(number);
      block.assign(bytes.begin(), bytes.end());
    });
    if (!is_there) return NoMemory().error();
    return std::span<const std::byte>(block);
  };
  const Status written = WriteSnapshotBlocks(
      numbered_.map, read,
      [&writer](std::span<const std::byte> bytes) { return writer.Append(bytes); });
  if (!written.ok()) {
    const bool is_ours = written.error().code == ErrorCode::kInvalidArgument;
    return is_ours ? WithContext(written.error(), path) : written.error();
  }
  KVASIR_TRY_OK(writer.Commit());
  return PrefixCacheFileStats{static_cast<int64_t>(numbered_.map.sequences[0].tokens.size()),
                              AllBytes(numbered_.map)};
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
  auto blocks = TakeBlocks(pool_, index_.map);
  const size_t bytes = AllBytes(index_.map);
  PrefixTree& tree = engine.prefix_tree();
  const size_t budget = pool_->budget_bytes();
  // Nothing that is cached is given up for what does not fit beside those who are answered.
  const auto fits = [&] { return pool_->used_bytes() - tree.nbytes_exclusive() + bytes <= budget; };
  for (bool is_first = true; !blocks.ok() && (!is_first || fits()); is_first = false) {
    const size_t wanted = pool_->used_bytes() + bytes;
    if (tree.Evict(wanted > budget ? wanted - budget : 1) == 0) break;
    blocks = TakeBlocks(pool_, index_.map);
  }
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
      return NoMemory();
    }
  }
  return {};
}

Result<PrefixCacheFileStats> ConversationLoad::Publish(Engine& engine,
                                                       SavedConversation* conversation) {
  const std::optional<LentBlocks::Held> held = lent_->TakeBack();
  if (!held) return NoMemory().error();
  KVASIR_TRY(const auto snapshots,
             MakeSnapshots(pool_, index_.map, std::get<std::vector<BlockRef>>(*held)));
  const PrefixCacheFileStats stats =
      PublishStates(engine.prefix_tree(), snapshots, AllBytes(index_.map), conversation);
  if (stats.tokens > 0) return stats;
  return {ErrorCode::kFailedPrecondition,
          path_ + ": nothing of it could be found again: its first rows were evicted"};
}

}  // namespace kvasir
