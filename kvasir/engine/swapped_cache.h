// SwappedCache: the cache of one preempted stream, on its way to disk, there, or on its way back.
// Deliberately without policy: the engine decides whether it is worth it and when it comes back.
#ifndef KVASIR_ENGINE_SWAPPED_CACHE_H_
#define KVASIR_ENGINE_SWAPPED_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/engine/swap_store.h"
#include "kvasir/kv/block_map.h"
#include "kvasir/kv/kv_pool.h"
#include "kvasir/kv/kv_sequence.h"

namespace kvasir {

// What comes back has the bits of what went, or does not come back: blocks are copied as they are.
// Blocks that others reference are written too, so that it does not depend on them.
// THREADS: those of the pool. The store must outlive it.
class SwappedCache {
 public:
  enum class State {
    kWriting,  // holds references to what is not written yet
    kWritten,  // holds no block
    kReading,  // holds the blocks it is read into
    kRead,     // Take gives the sequence
    kLost,     // holds nothing
  };

  // Begins to write what the sequence holds, from its end on, which is the order in which the
  // prefix tree gives blocks up. Null if the store has no room.
  static std::unique_ptr<SwappedCache> Write(SwapStore* store, const KvSequence& sequence);
  // Gives up what is under way.
  ~SwappedCache();
  SwappedCache(const SwappedCache&) = delete;
  SwappedCache& operator=(const SwappedCache&) = delete;

  // As of the last Update.
  State state() const { return state_; }
  bool is_under_way() const { return state_ == State::kWriting || state_ == State::kReading; }
  // Looks what the store has done and gives back the blocks it needs no more.
  State Update();

  // Takes blocks of the pool and begins to read into them. Whole blocks of `known`, which is a
  // cache of the same tokens or of the first of them, are shared instead. REQUIRES: kWritten.
  // ERRORS: kResourceExhausted from KvPool::EnsureFree; nothing has begun then.
  Status Read(KvPool* pool, const KvSequence& known);
  // Gives back the blocks. Afterwards it is kWritten, or kLost if the disk hangs. REQUIRES:
  // kReading or kRead.
  void StopReading();
  // The sequence as it was. REQUIRES: kRead.
  Result<KvSequence> Take(KvPool* pool);

  Position position() const { return map_.sequences[0].end; }
  size_t bytes() const { return bytes_; }
  // Of what Read takes from its pool.
  size_t bytes_to_read(const KvSequence& known) const;
  size_t unwritten_bytes() const;
  // The blocks that are held now.
  std::vector<const KvBlock*> BlockReferences() const;

 private:
  SwappedCache(SwapStore* store, KvBlockMap map) : store_(store), map_(std::move(map)) {}
  // Whole blocks that `known` has as well, by number; null where it has none.
  std::vector<BlockRef> SharedWith(const KvSequence& known) const;
  void Drop();

  SwapStore* store_;
  KvBlockMap map_;                // of one sequence
  std::vector<uint32_t> order_;   // block numbers as the file has them
  std::vector<BlockRef> blocks_;  // writing: in the file's order; reading: by number
  std::shared_ptr<SwapFile> file_;
  size_t bytes_ = 0;
  State state_ = State::kWriting;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_SWAPPED_CACHE_H_
