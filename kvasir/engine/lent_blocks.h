// LentBlocks: cache blocks that another thread than the pool's copies from or to for a while, and
// that the pool's may take back at any time.
// Deliberately no wait for a disk: who copies holds the lock, who writes a file does not.
#ifndef KVASIR_ENGINE_LENT_BLOCKS_H_
#define KVASIR_ENGINE_LENT_BLOCKS_H_

#include <mutex>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "kvasir/kv/block_map_snapshots.h"
#include "kvasir/kv/kv_block.h"

namespace kvasir {

// References are counted without locks, so they are made and given up on the pool's thread alone.
// REQUIRES: destroyed on the pool's thread, or after TakeBack.
class LentBlocks {
 public:
  // To read: what snapshots hold does not change while they do. To write: blocks that nobody else
  // has yet.
  using Held = std::variant<std::vector<NamedSnapshot>, std::vector<BlockRef>>;

  explicit LentBlocks(Held held) : held_(std::move(held)) {}

  // Calls `copy`, which must be short, while the blocks cannot go. False, and it is not called:
  // they have gone. THREADS: any.
  template <typename Copy>
  bool Use(const Copy& copy) {
    const std::lock_guard lock(mutex_);
    if (!held_) return false;
    copy();
    return true;
  }
  // THREADS: any.
  bool is_taken_back() const {
    const std::lock_guard lock(mutex_);
    return !held_;
  }
  // What was held; none if it was taken back before. THREADS: the pool's.
  std::optional<Held> TakeBack() {
    const std::lock_guard lock(mutex_);
    return std::exchange(held_, std::nullopt);
  }

 private:
  mutable std::mutex mutex_;
  std::optional<Held> held_;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_LENT_BLOCKS_H_
