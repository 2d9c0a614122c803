// SwapStore: blocks on disk and back, by a thread of its own, with checksums and measured rates.
// Deliberately knows neither caches nor requests, and keeps nothing across runs: its files have no
// name, so nobody else can read them and none is left behind.
#ifndef KVASIR_ENGINE_SWAP_STORE_H_
#define KVASIR_ENGINE_SWAP_STORE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/kv/kv_block.h"

namespace kvasir {

struct SwapOptions {
  std::string dir;             // empty: nothing is swapped
  uint64_t max_bytes = 0;      // of all files; 0: half of what the disk has free at the start
  bool ignores_rates = false;  // swaps even where computing again is faster: to test and to measure
  // Called by the store's thread before each block: to test slow disks. May be empty.
  std::function<void(bool is_read)> before_block;
};

// One file: what one Write has written. Belongs to whoever holds it; the last to go closes it.
class SwapFile;

// Bytes per second; 0: not measured in the last minute.
struct SwapRates {
  double write = 0;
  double read = 0;
};

// THREADS: one thread calls it.
class SwapStore {
 public:
  enum class State {
    kBusy,    // the thread has it, or will
    kDone,    // all blocks were written, or read with the checksums they were written with
    kFailed,  // disk full, folder gone, bytes changed, or stopped
  };
  struct Progress {
    State state = State::kBusy;
    size_t blocks = 0;  // the first so many of the transfer are not touched any more
  };

  // ERRORS: kNotFound, kIo if no file can be made in the folder, naming it.
  static Result<std::unique_ptr<SwapStore>> Open(SwapOptions options);
  // Waits for the block that is just being written or read.
  ~SwapStore();
  SwapStore(const SwapStore&) = delete;
  SwapStore& operator=(const SwapStore&) = delete;

  // Begins to write these blocks, in this order. They must stay as they are until Progress says
  // that they are not touched any more. Null if max_bytes has no room for them.
  std::shared_ptr<SwapFile> Write(std::vector<std::span<const std::byte>> blocks);
  // Begins to read them back, in the same order; an empty span skips a block. REQUIRES: the file
  // was written (kDone), no transfer of it is under way.
  void Read(const std::shared_ptr<SwapFile>& file, std::vector<std::span<std::byte>> blocks);
  Progress ProgressOf(const SwapFile& file) const;

  // Ends a transfer and gives back the blocks it used: now, or in a later Reap if the disk hangs in
  // the middle of one. Returns whether it was now.
  bool Release(const std::shared_ptr<SwapFile>& file, std::vector<BlockRef> blocks);
  void Reap();
  // Whether blocks wait for a Reap.
  bool holds_blocks() const { return !graves_.empty(); }

  // Returns when a block more is done, nothing is left to do, or the time is over.
  void WaitForProgress(std::chrono::milliseconds most);
  // For how long the block that is just being written or read has been; 0 if none is.
  std::chrono::steady_clock::duration block_time() const;
  SwapRates rates() const;
  uint64_t used_bytes() const;

 private:
  struct Rate {
    double bytes_per_second = 0;
    std::chrono::steady_clock::time_point measured_at;
  };
  struct Grave {
    std::shared_ptr<SwapFile> file;
    std::vector<BlockRef> blocks;
  };

  explicit SwapStore(SwapOptions options);
  void Run();
  // Called with the lock held, gives it up for each block.
  void Serve(SwapFile& file, std::unique_lock<std::mutex>& lock);
  void Enqueue(const std::shared_ptr<SwapFile>& file, bool is_first);

  SwapOptions options_;
  const std::shared_ptr<std::atomic<uint64_t>> used_bytes_;  // files may outlive the store
  std::vector<Grave> graves_;                                // the caller's

  mutable std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable progress_;
  std::deque<std::shared_ptr<SwapFile>> queue_;
  uint64_t blocks_done_ = 0;
  std::chrono::steady_clock::time_point block_began_;
  bool is_serving_ = false;
  bool is_ended_ = false;
  Rate write_rate_;
  Rate read_rate_;
  std::thread thread_;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_SWAP_STORE_H_
