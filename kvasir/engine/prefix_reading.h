// PrefixReading: what the store's reader and whoever waits for it hand to and fro.
// Deliberately private to prefix_store.cc and prefix_fetch.cc.
#ifndef KVASIR_ENGINE_PREFIX_READING_H_
#define KVASIR_ENGINE_PREFIX_READING_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <vector>

#include "kvasir/base/file.h"
#include "kvasir/engine/lent_blocks.h"
#include "kvasir/engine/prefix_fetch.h"
#include "kvasir/kv/prefix_segment.h"
#include "kvasir/kv/snapshot_file_index.h"

namespace kvasir {

// The reader's while it is kOpening and kReading, else the engine's: whoever sets `state` hands the
// rest on.
struct PrefixReading {
  std::vector<PrefixKey> keys;
  Position begin = 0;
  std::vector<FileReader> files;
  std::vector<KvSnapshotIndex> indices;
  JoinedSegments joined;
  std::vector<std::byte*> targets;  // by block number; the lent blocks'
  std::shared_ptr<LentBlocks> lent;
  std::atomic<FetchState> state = FetchState::kOpening;
  std::atomic<bool> is_stopped = false;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_PREFIX_READING_H_
