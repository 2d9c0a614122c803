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
#include <tuple>
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
  return folder;
}

std::string PrefixFolder::PathOf(const PrefixKey& key) const {
  return dir_ + "/" + key.Name() + std::string(kSuffix);
}

// What lies there, whosever it is: the bound holds for all of it.
void PrefixFolder::Scan() {
  struct File {
    int64_t modified_ns;
    PrefixKey key;
    uint64_t bytes;
  };
  std::vector<File> files;
  const int64_t now = NowNs();
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(dir_, error);
       !error && it != std::filesystem::directory_iterator(); it.increment(error)) {
    const std::string name = it->path().filename().string();
    struct stat found = {};
    if (lstat(it->path().c_str(), &found) != 0 || !S_ISREG(found.st_mode)) continue;
    const int64_t modified = int64_t{found.st_mtim.tv_sec} * kNsPerSecond + found.st_mtim.tv_nsec;
    if (const auto key = KeyOfFile(name)) {
      files.push_back({modified, *key, static_cast<uint64_t>(found.st_size)});
    } else if (IsUnfinished(name) && now - modified > kMostWriteNs) {
      unlink(it->path().c_str());
    }
  }
  std::sort(files.begin(), files.end(), [](const File& a, const File& b) {
    return std::tie(a.modified_ns, a.key) < std::tie(b.modified_ns, b.key);
  });
  for (const File& file : files) {
    entries_[file.key] = {file.bytes, uses_.insert(uses_.end(), file.key)};
    stats_.bytes += file.bytes;
  }
  stats_.files = static_cast<int64_t>(files.size());
  if (max_bytes_ == 0) {
    struct statvfs disk = {};
    const bool is_known = statvfs(dir_.c_str(), &disk) == 0;
    const uint64_t free = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
    max_bytes_ = is_known ? stats_.bytes + free / 2 : std::numeric_limits<uint64_t>::max();
  }
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
  bool is_any = false;
  for (size_t i = keys.size(); i-- > 0;) {
    const auto found = entries_.find(keys[i]);
    if (found == entries_.end()) continue;
    uses_.splice(uses_.end(), uses_, found->second.use);
    found->second.is_touched = true;
    is_any = true;
  }
  return is_any && !std::exchange(will_touch_, true);
}

// Files of what was used say so to who starts next, in the order of use.
void PrefixFolder::TouchFiles() {
  std::vector<PrefixKey> keys;
  {
    const std::lock_guard lock(mutex_);
    will_touch_ = false;
    for (auto use = uses_.rbegin(); use != uses_.rend(); ++use) {
      Entry& entry = entries_.at(*use);
      if (!std::exchange(entry.is_touched, false)) break;
      keys.push_back(*use);
    }
  }
  // By our own clock: that of the file system is coarser than this loop.
  int64_t time = NowNs() - static_cast<int64_t>(keys.size());
  for (auto key = keys.rbegin(); key != keys.rend(); ++key, ++time) {
    const timespec modified = {.tv_sec = time / kNsPerSecond, .tv_nsec = time % kNsPerSecond};
    const timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT}, modified};
    (void)utimensat(AT_FDCWD, PathOf(*key).c_str(), times, AT_SYMLINK_NOFOLLOW);
  }
}

Status PrefixFolder::MakeRoom(uint64_t bytes, std::span<const PrefixKey> path) {
  const Error no_room = {ErrorCode::kResourceExhausted, dir_ + ": it is full"};
  if (bytes > max_bytes_) return no_room;
  for (;;) {
    PrefixKey oldest;
    {
      const std::lock_guard lock(mutex_);
      if (uses_.empty() || stats_.bytes + bytes <= max_bytes_) return {};
      oldest = uses_.front();
      if (std::find(path.begin(), path.end(), oldest) != path.end()) return no_room;
      ForgetLocked(oldest);
      ++stats_.removed;
    }
    unlink(PathOf(oldest).c_str());
  }
}

void PrefixFolder::Add(const PrefixKey& key, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  ForgetLocked(key);
  entries_[key] = {bytes, uses_.insert(uses_.end(), key)};
  stats_.bytes += bytes;
  ++stats_.files;
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

void PrefixFolder::ForgetLocked(const PrefixKey& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  stats_.bytes -= found->second.bytes;
  --stats_.files;
  uses_.erase(found->second.use);
  entries_.erase(found);
}

PrefixFolder::Stats PrefixFolder::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

}  // namespace kvasir
