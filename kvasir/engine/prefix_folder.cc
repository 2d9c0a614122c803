#include "kvasir/engine/prefix_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "kvasir/base/file.h"

namespace kvasir {
namespace {

constexpr std::string_view kSuffix = ".kv";
// What a process that was killed has left behind; nobody writes one file for so long.
constexpr int64_t kMostWriteNs = int64_t{3600} * 1'000'000'000;
constexpr int64_t kNsPerSecond = 1'000'000'000;
// Between the uses of what a prefix is made of: file systems count in steps of 100 ns and less.
constexpr int64_t kUseStepNs = 1000;
// What a time in nanoseconds can say, with room.
constexpr int64_t kMostSeconds = int64_t{1} << 33;

// "KEY.kv" of a file that is complete.
std::optional<PrefixKey> KeyOfFile(std::string_view name) {
  if (!name.ends_with(kSuffix)) return std::nullopt;
  return PrefixKey::FromName(name.substr(0, name.size() - kSuffix.size()));
}

// "KEY.kv.tmp.PID.NUMBER" of one that is not (FileWriter).
bool IsUnfinished(std::string_view name) {
  const size_t tmp = name.find(".tmp.");
  return tmp != name.npos && KeyOfFile(name.substr(0, tmp)).has_value();
}

struct FileOnDisk {
  uint64_t bytes;
  int64_t modified_ns;
};

// None where there is no regular file.
std::optional<FileOnDisk> FindFile(const std::string& path) {
  struct stat found = {};
  if (lstat(path.c_str(), &found) != 0 || !S_ISREG(found.st_mode)) return std::nullopt;
  const int64_t seconds = std::clamp<int64_t>(found.st_mtim.tv_sec, 0, kMostSeconds);
  return FileOnDisk{static_cast<uint64_t>(found.st_size),
                    seconds * kNsPerSecond + found.st_mtim.tv_nsec};
}

// False if there is no such file. Others' files have to make do with the time that it is.
bool SetModified(const std::string& path, int64_t time_ns) {
  const timespec modified = {.tv_sec = time_ns / kNsPerSecond, .tv_nsec = time_ns % kNsPerSecond};
  const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, modified};
  if (utimensat(AT_FDCWD, path.c_str(), times, AT_SYMLINK_NOFOLLOW) == 0) return true;
  if (errno == EPERM) (void)utimensat(AT_FDCWD, path.c_str(), nullptr, AT_SYMLINK_NOFOLLOW);
  return errno != ENOENT;
}

int64_t NowNs() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * kNsPerSecond + now.tv_nsec;
}

}  // namespace

Result<std::unique_ptr<PrefixFolder>> PrefixFolder::Open(std::string dir, uint64_t max_bytes,
                                                         std::chrono::nanoseconds touch_interval) {
  const Status writable = CheckWritableFolder(dir);
  if (!writable.ok()) return WithContext(writable.error(), "the folder of stored prefixes");
  auto folder =
      std::unique_ptr<PrefixFolder>(new PrefixFolder(std::move(dir), max_bytes, touch_interval));
  folder->Scan(std::atomic<bool>(false));
  if (folder->max_bytes_ == 0) {
    struct statvfs disk = {};
    const bool is_known = statvfs(folder->dir_.c_str(), &disk) == 0;
    const uint64_t free = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
    folder->max_bytes_ =
        is_known ? folder->stats().bytes + free / 2 : std::numeric_limits<uint64_t>::max();
  }
  return folder;
}

std::string PrefixFolder::PathOf(const PrefixKey& key) const {
  return dir_ + "/" + key.Name() + std::string(kSuffix);
}

void PrefixFolder::Search(std::span<const PrefixKey> keys, const std::atomic<bool>& stop) {
  for (const PrefixKey& key : keys) {
    {
      const std::lock_guard lock(mutex_);
      const auto known = entries_.find(key);
      if (known != entries_.end()) {
        if (known->second.is_bad) return;
        continue;
      }
    }
    const std::optional<FileOnDisk> file = FindFile(PathOf(key));
    if (!file || stop) return;
    const std::lock_guard lock(mutex_);
    SeeLocked(key, file->bytes, file->modified_ns);
  }
}

// What lies there, whosever it is: the bound holds for all of it.
void PrefixFolder::Scan(const std::atomic<bool>& stop) {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = ++scan_;
  }
  const int64_t now = NowNs();
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(dir_, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    if (stop) return;
    const std::string name = it->path().filename().string();
    const std::optional<PrefixKey> key = KeyOfFile(name);
    if (!key && !IsUnfinished(name)) continue;
    const std::optional<FileOnDisk> file = FindFile(it->path().string());
    if (!file) continue;
    if (!key) {
      if (now - file->modified_ns > kMostWriteNs) unlink(it->path().c_str());
      continue;
    }
    const std::lock_guard lock(mutex_);
    SeeLocked(*key, file->bytes, file->modified_ns);
  }
  if (error || stop) return;  // what was not seen may be there
  const std::lock_guard lock(mutex_);
  std::vector<PrefixKey> gone;
  for (const auto& [key, entry] : entries_) {
    if (entry.seen_scan < number) gone.push_back(key);
  }
  for (const PrefixKey& key : gone) ForgetLocked(key);
}

PrefixFolder::Found PrefixFolder::Look(std::span<const PrefixKey> keys) const {
  const std::lock_guard lock(mutex_);
  Found found;
  for (const PrefixKey& key : keys) {
    const auto entry = entries_.find(key);
    if (entry == entries_.end() || entry->second.is_bad) break;
    ++found.segments;
    found.bytes += entry->second.bytes;
  }
  return found;
}

// The last one first: without what it continues it is of no use.
bool PrefixFolder::Use(std::span<const PrefixKey> keys) {
  const std::lock_guard lock(mutex_);
  const bool will_touch = !to_touch_.empty();
  for (size_t i = keys.size(); i-- > 0;) {
    const auto found = entries_.find(keys[i]);
    if (found == entries_.end()) continue;
    UseLocked(keys[i], found->second, NextUseLocked());
    Entry& entry = found->second;
    const bool is_stale = entry.used_ns - entry.modified_ns > touch_interval_.count();
    if (is_stale && !std::exchange(entry.is_to_touch, true)) to_touch_.push_back(keys[i]);
  }
  return !will_touch && !to_touch_.empty();
}

void PrefixFolder::TouchFiles() {
  std::vector<PrefixKey> keys;
  {
    const std::lock_guard lock(mutex_);
    keys = std::exchange(to_touch_, {});
  }
  Touch(std::move(keys));
}

void PrefixFolder::TouchAllFiles() {
  std::vector<PrefixKey> keys;
  {
    const std::lock_guard lock(mutex_);
    to_touch_.clear();
    for (const auto& [key, entry] : entries_) {
      if (entry.used_ns > entry.modified_ns) keys.push_back(key);
    }
  }
  Touch(std::move(keys));
}

void PrefixFolder::Touch(std::vector<PrefixKey> keys) {
  std::vector<std::pair<PrefixKey, int64_t>> uses;
  {
    const std::lock_guard lock(mutex_);
    for (const PrefixKey& key : keys) {
      const auto found = entries_.find(key);
      if (found == entries_.end()) continue;
      found->second.is_to_touch = false;
      found->second.modified_ns = found->second.used_ns;
      uses.emplace_back(key, found->second.used_ns);
    }
  }
  for (const auto& [key, time] : uses) {
    if (!SetModified(PathOf(key), time)) Forget(key);
  }
}

// A file is forgotten when it has gone, so that nobody finds it in between who would count it.
Status PrefixFolder::MakeRoom(uint64_t bytes, std::span<const PrefixKey> path) {
  const Error no_room = {ErrorCode::kResourceExhausted, dir_ + ": it is full"};
  if (bytes > max_bytes_) return no_room;
  for (;;) {
    PrefixKey oldest;
    int64_t modified_ns = 0;
    {
      const std::lock_guard lock(mutex_);
      if (entries_.empty() || stats_.bytes + bytes <= max_bytes_) return {};
      if (uses_.empty()) return no_room;
      oldest = uses_.begin()->second;
      modified_ns = entries_.at(oldest).modified_ns;
    }
    if (std::find(path.begin(), path.end(), oldest) != path.end()) return no_room;
    const std::optional<FileOnDisk> file = FindFile(PathOf(oldest));
    if (file && file->modified_ns > modified_ns) {  // others use it
      const std::lock_guard lock(mutex_);
      if (entries_.contains(oldest)) SeeLocked(oldest, file->bytes, file->modified_ns);
      continue;
    }
    const bool is_removed = unlink(PathOf(oldest).c_str()) == 0;
    const bool is_gone = is_removed || errno == ENOENT;
    const std::lock_guard lock(mutex_);
    if (is_gone) {
      ForgetLocked(oldest);
      stats_.removed += is_removed;
    } else if (const auto found = entries_.find(oldest); found != entries_.end()) {
      found->second.is_stuck = true;
      uses_.erase({found->second.used_ns, oldest});
    }
  }
}

void PrefixFolder::Add(const PrefixKey& key, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  ForgetLocked(key);
  SeeLocked(key, bytes, NextUseLocked());
}

void PrefixFolder::Forget(const PrefixKey& key) {
  const std::lock_guard lock(mutex_);
  ForgetLocked(key);
}

void PrefixFolder::Remove(const PrefixKey& key) {
  unlink(PathOf(key).c_str());
  Forget(key);
}

void PrefixFolder::MarkBad(const PrefixKey& key) {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found != entries_.end()) found->second.is_bad = true;
}

void PrefixFolder::SeeLocked(const PrefixKey& key, uint64_t bytes, int64_t modified_ns) {
  const auto [found, is_new] = entries_.try_emplace(key);
  Entry& entry = found->second;
  if (is_new) ++stats_.files;
  stats_.bytes += bytes - entry.bytes;
  entry.bytes = bytes;
  entry.seen_scan = scan_;
  if (!is_new && modified_ns <= entry.modified_ns) return;
  entry.modified_ns = modified_ns;
  entry.is_bad = false;  // somebody wrote it anew, or uses it
  // Clocks differ, and a time that has not come yet would outlive everything.
  UseLocked(key, entry, std::min(modified_ns, NowNs()));
}

void PrefixFolder::UseLocked(const PrefixKey& key, Entry& entry, int64_t time_ns) {
  uses_.erase({entry.used_ns, key});
  entry.used_ns = time_ns;
  if (!entry.is_stuck) uses_.emplace(time_ns, key);
}

// By our own clock: that of file systems is coarser than what follows each other.
int64_t PrefixFolder::NextUseLocked() {
  return last_use_ns_ = std::max(NowNs(), last_use_ns_ + kUseStepNs);
}

void PrefixFolder::ForgetLocked(const PrefixKey& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  stats_.bytes -= found->second.bytes;
  --stats_.files;
  uses_.erase({found->second.used_ns, key});
  entries_.erase(found);
}

PrefixFolder::Stats PrefixFolder::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace kvasir
