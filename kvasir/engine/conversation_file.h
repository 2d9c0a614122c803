// One conversation's cache to a file and back, by another thread than the engine's: that one only
// begins and ends it, in O(blocks), and answers others meanwhile.
// Deliberately gives way: when memory is short the engine takes its blocks back, and the file is
// not written, or not read.
#ifndef KVASIR_ENGINE_CONVERSATION_FILE_H_
#define KVASIR_ENGINE_CONVERSATION_FILE_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/base/file.h"
#include "kvasir/base/result.h"
#include "kvasir/engine/engine.h"
#include "kvasir/engine/lent_blocks.h"
#include "kvasir/engine/lent_snapshot.h"
#include "kvasir/engine/model_bundle.h"
#include "kvasir/engine/prefix_cache_file.h"
#include "kvasir/kv/snapshot_file_index.h"

namespace kvasir {

// THREADS: Begin and the destructor are the engine's; Write is any.
class ConversationSave {
 public:
  // What the tree has of the conversation's beginning, and the states on the way that are nearest
  // to its end where layers can be gone on with at such only; counts as use of it.
  // ERRORS: kFailedPrecondition if nothing of it is cached any more.
  static Result<std::unique_ptr<ConversationSave>> Begin(Engine& engine, const ModelBundle& bundle,
                                                         const SavedConversation& conversation);
  ConversationSave(const ConversationSave&) = delete;
  ConversationSave& operator=(const ConversationSave&) = delete;

  // ERRORS: as LentSnapshot::Write.
  Result<PrefixCacheFileStats> Write(const std::string& path, const FileProgress& progress);

 private:
  explicit ConversationSave(std::unique_ptr<LentSnapshot> snapshot)
      : snapshot_(std::move(snapshot)) {}

  const std::unique_ptr<LentSnapshot> snapshot_;
};

// THREADS: Open and Read are any; Begin, Publish and the destructor of what has begun the engine's.
class ConversationLoad {
 public:
  // Looks at all but the blocks: `salt` is who asks. ERRORS: as LoadSnapshots and CheckCacheFile;
  // kInvalidArgument if something in it was said for another salt.
  static Result<std::unique_ptr<ConversationLoad>> Open(const std::string& path,
                                                        const ModelBundle& bundle, uint64_t salt);
  ConversationLoad(const ConversationLoad&) = delete;
  ConversationLoad& operator=(const ConversationLoad&) = delete;

  // Takes blocks for it, for which cached prefixes are evicted. ERRORS: kResourceExhausted.
  Status Begin(Engine& engine);
  // ERRORS: kCorrupt, naming the block; kResourceExhausted if memory was needed; those of
  // `progress`. REQUIRES: begun.
  Status Read(const FileProgress& progress);
  // What was read can be found now; `conversation` becomes what the file holds, of several the
  // first, and its tokens are those of the stats. ERRORS: kResourceExhausted if memory was needed.
  // REQUIRES: read.
  Result<PrefixCacheFileStats> Publish(Engine& engine, SavedConversation* conversation);

 private:
  ConversationLoad(std::string path, FileReader file, KvSnapshotIndex index)
      : path_(std::move(path)), file_(std::move(file)), index_(std::move(index)) {}

  const std::string path_;
  const FileReader file_;
  const KvSnapshotIndex index_;
  KvPool* pool_ = nullptr;
  std::vector<std::byte*> targets_;  // by block number; the lent blocks'
  std::shared_ptr<LentBlocks> lent_;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_CONVERSATION_FILE_H_
