#include "kvasir/engine/prefix_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
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
  return FileOnDisk{static_cast<uint64_t>(found.st_size),
                    int64_t{found.st_mtim.tv_sec} * kNsPerSecond + found.st_mtim.tv_nsec};
}

int64_t NowNs() {
  timespec now = {};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * kNsPerSecond + now.tv_nsec;
}

}  // namespace

Result<std::unique_ptr<PrefixFolder>> PrefixFolder::Open(std::string dir, uint64_t max_bytes) {
  const Status writable = CheckWritableFolder(dir);
  if (!writable.ok()) return WithContext(writable.error(), "the folder of stored prefixes");
  auto folder = std::unique_ptr<PrefixFolder>(new PrefixFolder(std::move(dir), max_bytes));
  folder->Scan();
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

void PrefixFolder::Search(std::span<const PrefixKey> keys) {
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
    if (!file) return;
    const std::lock_guard lock(mutex_);
    SeeLocked(key, file->bytes, file->modified_ns);
  }
}

// What lies there, whosever it is: the bound holds for all of it.
void PrefixFolder::Scan() {
  uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    number = ++scan_;
  }
  const int64_t now = NowNs();
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(dir_, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
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
  if (error) return;  // what was not seen may be there
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
    if (!std::exchange(found->second.is_to_touch, true)) to_touch_.push_back(keys[i]);
  }
  return !will_touch && !to_touch_.empty();
}

void PrefixFolder::TouchFiles() {
  std::vector<std::pair<PrefixKey, int64_t>> uses;
  {
    const std::lock_guard lock(mutex_);
    for (const PrefixKey& key : std::exchange(to_touch_, {})) {
      const auto found = entries_.find(key);
      if (found == entries_.end()) continue;
      found->second.is_to_touch = false;
      uses.emplace_back(key, found->second.used_ns);
    }
  }
  for (const auto& [key, time] : uses) {
    const timespec modified = {.tv_sec = time / kNsPerSecond, .tv_nsec = time % kNsPerSecond};
    const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, modified};
    (void)utimensat(AT_FDCWD, PathOf(key).c_str(), times, AT_SYMLINK_NOFOLLOW);
  }
}

Status PrefixFolder::MakeRoom(uint64_t bytes, std::span<const PrefixKey> path) {
  const Error no_room = {ErrorCode::kResourceExhausted, dir_ + ": it is full"};
  if (bytes > max_bytes_) return no_room;
  for (;;) {
    std::pair<int64_t, PrefixKey> oldest;
    {
      const std::lock_guard lock(mutex_);
      if (uses_.empty() || stats_.bytes + bytes <= max_bytes_) return {};
      oldest = *uses_.begin();
    }
    const PrefixKey& key = oldest.second;
    const std::optional<FileOnDisk> file = FindFile(PathOf(key));
    const bool others_use_it = file && file->modified_ns > oldest.first;
    {
      const std::lock_guard lock(mutex_);
      if (others_use_it) SeeLocked(key, file->bytes, file->modified_ns);
      if (uses_.empty() || *uses_.begin() != oldest) continue;
      if (std::find(path.begin(), path.end(), key) != path.end()) return no_room;
      ForgetLocked(key);
    }
    if (unlink(PathOf(key).c_str()) != 0) continue;
    const std::lock_guard lock(mutex_);
    ++stats_.removed;
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
  if (!is_new && modified_ns <= entry.used_ns) return;
  entry.is_bad = false;  // somebody wrote it anew, or could read it
  UseLocked(key, entry, modified_ns);
}

void PrefixFolder::UseLocked(const PrefixKey& key, Entry& entry, int64_t time_ns) {
  uses_.erase({entry.used_ns, key});
  entry.used_ns = time_ns;
  uses_.emplace(time_ns, key);
}

// By our own clock: that of file systems is coarser than what follows each other.
int64_t PrefixFolder::NextUseLocked() { return last_use_ns_ = std::max(NowNs(), last_use_ns_ + 1); }

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
