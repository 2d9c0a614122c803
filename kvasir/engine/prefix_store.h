// PrefixStore: caches of prefixes in a folder, for when memory has no room for them and for whoever
// starts next: a file per segment, written when it is computed and read when it is wanted.
// Deliberately without a list of its own beside the files: a name says what a file is a cache of,
// and what cannot be read is as good as not there.
#ifndef KVASIR_ENGINE_PREFIX_STORE_H_
#define KVASIR_ENGINE_PREFIX_STORE_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "kvasir/base/log.h"
#include "kvasir/base/result.h"
#include "kvasir/base/work_thread.h"
#include "kvasir/engine/lent_snapshot.h"
#include "kvasir/engine/prefix_fetch.h"
#include "kvasir/engine/prefix_folder.h"
#include "kvasir/engine/prefix_key.h"
#include "kvasir/engine/swap_store.h"
#include "kvasir/kv/kv_snapshot.h"

namespace kvasir {

struct PrefixStoreOptions {
  std::string dir;         // empty: there is none
  uint64_t max_bytes = 0;  // of all files; 0: what lies there and half of what the disk has free
  // What decides the bits of rows beside the spec of the cache: ModelIdentity.
  std::string identity;
  bool ignores_rates = false;  // reads even where computing is faster: to test and to measure
  // Hears what could not be written or read, at most once a minute, and of caches that cannot be
  // stored.
  LogSink log;
  // How long others' files in the folder may be overlooked when room is made; 0: they never are.
  std::chrono::milliseconds scan_interval = std::chrono::seconds(10);
  // By how much files may seem to have been used earlier than they were, to others and to who
  // starts after a process that was killed.
  std::chrono::milliseconds touch_interval = std::chrono::seconds(5);
  // Called by the store's threads before each block, and before the disk is asked what there is: to
  // test slow disks. May be empty.
  std::function<void(bool is_read)> before_block;
  std::function<void()> before_search;
};

struct PrefixStoreStats {
  int64_t files = 0;
  uint64_t bytes = 0;   // of them
  int64_t written = 0;  // files, since the store was opened
  int64_t removed = 0;  // to make room
  int64_t failed = 0;   // that could not be written or read: disk full, bytes changed, gone
};

// The disk being asked what others have stored (PrefixStore::Search). Whoever drops it no longer
// wants to know.
class PrefixSearch {
 public:
  bool is_done() const { return is_done_; }
  // Whether it has taken longer than anybody waits.
  bool is_late() const { return std::chrono::steady_clock::now() >= deadline_; }

 private:
  friend class PrefixStore;
  static constexpr std::chrono::seconds kMostTime{1};

  const std::chrono::steady_clock::time_point deadline_ =
      std::chrono::steady_clock::now() + kMostTime;
  std::atomic<bool> is_done_ = false;
};

// Files may come and go, also by others that use the same folder, on this machine or another: what
// they wrote is read as what this process wrote is, and what is gone is computed again.
// THREADS: one calls it, that of the pool.
class PrefixStore {
 public:
  // Reads at most so many segments at once.
  static constexpr size_t kMostSegments = 64;

  // `max_pending_bytes`: of blocks that are held because they are being written; then no more are
  // begun.
  // ERRORS: kNotFound, kIo if no file can be made in the folder, naming it.
  static Result<std::unique_ptr<PrefixStore>> Open(
      PrefixStoreOptions options, std::shared_ptr<const KvCacheSpec> spec,
      size_t max_pending_bytes = std::numeric_limits<size_t>::max());
  // Gives up what is under way; waits for the block that is just being written or read, for the
  // disk to have a file that is complete, and for it to say what it was just asked.
  ~PrefixStore();
  PrefixStore(const PrefixStore&) = delete;
  PrefixStore& operator=(const PrefixStore&) = delete;

  // Of the empty prefix of those who share `salt`.
  PrefixKey RootOf(uint64_t salt) const { return RootKey(identity_, salt); }

  // Which of these there are; and that they are wanted: as PrefixFolder.
  PrefixFolder::Found Look(std::span<const PrefixKey> keys) const { return folder_->Look(keys); }
  void Use(std::span<const PrefixKey> keys);
  // Finds out which of these others have stored, up to the first that is missing, and once more
  // from `first` on: then Look knows them. REQUIRES: first <= keys.size().
  std::shared_ptr<const PrefixSearch> Search(std::span<const PrefixKey> keys, size_t first);
  // Whether one is under way, or waits for its turn.
  bool is_searching() const;
  void WaitFor(const PrefixSearch& search, std::chrono::milliseconds most);

  // Whether it has a file that is known, or will.
  bool Has(const PrefixKey& key) const;
  // Whether not too much is being written already.
  bool CanWrite() const;
  // Begins to write what has the last of these keys, with the keys of all prefixes of it, if
  // nobody else has. Lent until it is written (Reap) or taken back.
  std::shared_ptr<LentBlocks> Write(std::span<const PrefixKey> path, KvSnapshot segment);
  // Gives back the blocks of what has been written, or will not be.
  void Reap();
  void StopWriting();
  // Whether blocks are held for it.
  bool is_writing() const { return !writes_.empty(); }

  // Begins to read the segments of these keys, the first of which begins at `begin`. `patience`:
  // PrefixFetch::is_late. REQUIRES: 1 to kMostSegments keys.
  std::unique_ptr<PrefixFetch> Fetch(std::span<const PrefixKey> keys, Position begin,
                                     std::chrono::milliseconds patience);

  // How much has been done: a number that changes with every file and search.
  uint64_t progress() const;
  // Returns when progress() is no longer `since`, nothing is under way, or the time is over.
  void WaitForProgress(uint64_t since, std::chrono::milliseconds most);
  // For how long the block that is just being read has been; 0 if none is. Likewise the search, and
  // what is just being written, of which a block may be the last, with all that the disk has not
  // taken before.
  std::chrono::steady_clock::duration read_time() const { return TimeSince(read_began_); }
  std::chrono::steady_clock::duration search_time() const { return TimeSince(search_began_); }
  std::chrono::steady_clock::duration write_time() const { return TimeSince(write_began_); }
  // Of reading.
  SwapRates rates() const;
  PrefixStoreStats stats() const;
  const PrefixStoreOptions& options() const { return options_; }

 private:
  friend class PrefixFetch;
  struct Writing;

  PrefixStore(PrefixStoreOptions options, std::unique_ptr<PrefixFolder> folder,
              std::shared_ptr<const KvCacheSpec> spec, std::string identity,
              size_t max_pending_bytes);

  static std::chrono::steady_clock::duration TimeSince(const std::atomic<int64_t>& began);

  // The threads'.
  void Run(Writing& writing);
  Status WriteFile(Writing& writing);
  void ScanIfDue();
  FetchState OpenFiles(PrefixReading& reading);
  Status OpenFile(PrefixReading& reading, size_t number);
  FetchState ReadBlocks(PrefixReading& reading);
  Status ReadBlock(PrefixReading& reading, size_t number, std::vector<std::byte>* block);
  void Lose(const PrefixKey& key, const Error& error);
  void CountFailure(const Error& error);

  void PostRead(std::shared_ptr<PrefixReading> reading,
                FetchState (PrefixStore::*task)(PrefixReading& reading));

  const PrefixStoreOptions options_;
  const std::unique_ptr<PrefixFolder> folder_;
  const std::shared_ptr<const KvCacheSpec> spec_;
  const std::string identity_;
  const size_t max_pending_bytes_;
  std::vector<std::shared_ptr<Writing>> writes_;  // the caller's

  mutable std::mutex mutex_;
  std::condition_variable progress_;
  std::unordered_set<PrefixKey, PrefixKeyHash> pending_;
  size_t pending_bytes_ = 0;
  uint64_t done_ = 0;
  int64_t reads_ = 0;  // under way
  int64_t searches_ = 0;
  double read_rate_ = 0;
  std::chrono::steady_clock::time_point rate_measured_at_;
  int64_t written_ = 0;
  int64_t failed_ = 0;
  std::chrono::steady_clock::time_point said_at_;  // the last failure
  // When the block did, in the clock's ticks; 0: there is none.
  std::atomic<int64_t> read_began_ = 0;
  std::atomic<int64_t> write_began_ = 0;
  std::atomic<int64_t> search_began_ = 0;
  std::atomic<bool> is_ending_ = false;

  std::chrono::steady_clock::time_point next_scan_;  // the writer's

  // Apart, as who waits for a file must not wait for the disk to take another, nor who wants to
  // know whether there is one for others to be read.
  WorkThread writer_;
  WorkThread reader_;
  WorkThread searcher_;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_PREFIX_STORE_H_
