// PrefixFolder: which stored prefixes lie in a folder, in the order of their use and below a bound.
// Deliberately without what is in the files: PrefixStore writes and reads them.
#ifndef KVASIR_ENGINE_PREFIX_FOLDER_H_
#define KVASIR_ENGINE_PREFIX_FOLDER_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/engine/prefix_key.h"

namespace kvasir {

// Every file counts that is called as a prefix is, whosever it is; others are left alone. Others
// may use the same folder, also on other machines: what they add is known after Search or Scan,
// that they used something when it is about to go. docs/formats/prefix-store.md. THREADS: any, if
// not said otherwise.
class PrefixFolder {
 public:
  // `max_bytes` of all files; 0: what lies there and half of what the disk has free. What a file
  // says of its use may be `touch_interval` older than that.
  // ERRORS: kNotFound, kIo if no file can be made in the folder, naming it.
  static Result<std::unique_ptr<PrefixFolder>> Open(
      std::string dir, uint64_t max_bytes,
      std::chrono::nanoseconds touch_interval = std::chrono::nanoseconds(0));
  PrefixFolder(const PrefixFolder&) = delete;
  PrefixFolder& operator=(const PrefixFolder&) = delete;

  std::string PathOf(const PrefixKey& key) const;

  // How many of these keys, which follow each other, are known to have a file, up to the first that
  // is not. Does not ask the disk.
  struct Found {
    size_t segments = 0;
    uint64_t bytes = 0;
  };
  Found Look(std::span<const PrefixKey> keys) const;
  bool Has(const PrefixKey& key) const { return Look(std::span(&key, 1)).segments == 1; }

  // Asks the disk for those that are not known, up to the first that has no file, or until `stop`.
  void Search(std::span<const PrefixKey> keys, const std::atomic<bool>& stop);
  // Everything that lies there now, and when it was used last, whoever did; and removes what others
  // left unfinished. THREADS: one at a time.
  void Scan(const std::atomic<bool>& stop);

  // These are wanted: their files outlive those of others, the last one the least. True if files
  // are to be told by TouchFiles, and nobody was told so yet.
  bool Use(std::span<const PrefixKey> keys);
  // Writes the order of use to files that were used, for others and for who starts next; what turns
  // out to be gone is forgotten.
  void TouchFiles();
  // The same whatever the interval.
  void TouchAllFiles();

  // Removes what was used least recently, by whomever, until so much more has room.
  // ERRORS: kResourceExhausted if that would be what `path` continues, without which it would be of
  // no use, or if what is left cannot be removed.
  Status MakeRoom(uint64_t bytes, std::span<const PrefixKey> path);
  // There is a file now.
  void Add(const PrefixKey& key, uint64_t bytes);
  // There is none any more.
  void Forget(const PrefixKey& key);
  void Remove(const PrefixKey& key);
  // It cannot be read, but takes its place: as if there were none, but for the bound.
  void MarkBad(const PrefixKey& key);

  struct Stats {
    int64_t files = 0;
    uint64_t bytes = 0;   // of them
    int64_t removed = 0;  // to make room
  };
  Stats stats() const;

 private:
  struct Entry {
    uint64_t bytes = 0;
    int64_t modified_ns = 0;  // what the file says, as far as it is known
    int64_t used_ns = 0;      // what counts: never in the future
    uint64_t seen_scan = 0;   // the scan that saw it last, or during which it was added
    bool is_to_touch = false;
    bool is_bad = false;
    bool is_stuck = false;  // cannot be removed; not among the uses then
  };

  PrefixFolder(std::string dir, uint64_t max_bytes, std::chrono::nanoseconds touch_interval)
      : dir_(std::move(dir)), touch_interval_(touch_interval), max_bytes_(max_bytes) {}
  // Of entries that are to be touched.
  void Touch(std::vector<PrefixKey> keys);
  // The file of `key`, as it lies there.
  void SeeLocked(const PrefixKey& key, uint64_t bytes, int64_t modified_ns);
  void UseLocked(const PrefixKey& key, Entry& entry, int64_t time_ns);
  void ForgetLocked(const PrefixKey& key);
  int64_t NextUseLocked();

  const std::string dir_;
  const std::chrono::nanoseconds touch_interval_;
  uint64_t max_bytes_;
  mutable std::mutex mutex_;
  std::unordered_map<PrefixKey, Entry, PrefixKeyHash> entries_;
  std::set<std::pair<int64_t, PrefixKey>> uses_;  // by used_ns: the oldest first
  std::vector<PrefixKey> to_touch_;
  int64_t last_use_ns_ = 0;  // by this process
  uint64_t scan_ = 0;
  Stats stats_;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_PREFIX_FOLDER_H_
