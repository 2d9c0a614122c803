#include "kvasir/engine/prefix_store.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <map>
#include <optional>
#include <string_view>
#include <tuple>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/base/file.h"
#include "kvasir/engine/prefix_reading.h"
#include "kvasir/kv/prefix_segment.h"
#include "kvasir/kv/snapshot_file_index.h"
#include "kvasir/kv/snapshot_file_spec.h"

namespace kvasir {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kSuffix = ".kv";
// In the metadata of a file: what its name was when it was written.
constexpr const char* kKeyName = "prefix_key";
// A disk that was fast a minute ago says little about now.
constexpr std::chrono::seconds kRateLife{60};
constexpr std::chrono::seconds kLogInterval{60};
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

// The store's own words for what its name promises.
std::map<std::string, std::string> MetadataOf(const PrefixKey& key) {
  return {{kKeyName, key.Name()}};
}

}  // namespace

// One file on its way to the disk. The thread's while it has it, but for what is atomic.
struct PrefixStore::Writing {
  std::vector<PrefixKey> path;
  std::unique_ptr<LentSnapshot> snapshot;
  std::atomic<bool> is_done = false;

  const PrefixKey& key() const { return path.back(); }
};

// --- The folder ---

Result<std::unique_ptr<PrefixStore>> PrefixStore::Open(PrefixStoreOptions options,
                                                       std::shared_ptr<const KvCacheSpec> spec,
                                                       size_t max_pending_bytes) {
  const Status writable = CheckWritableFolder(options.dir);
  if (!writable.ok()) return WithContext(writable.error(), "the folder of stored prefixes");
  KVASIR_TRY(const Json layers, KvSpecToJson(*spec));
  std::string identity = "kvasir prefix, snapshots of version " +
                         std::to_string(kSnapshotFileVersion) + ", " + options.identity + ", " +
                         layers.Dump();
  auto store = std::unique_ptr<PrefixStore>(
      new PrefixStore(std::move(options), std::move(spec), std::move(identity), max_pending_bytes));
  store->Scan();
  return store;
}

PrefixStore::PrefixStore(PrefixStoreOptions options, std::shared_ptr<const KvCacheSpec> spec,
                         std::string identity, size_t max_pending_bytes)
    : options_(std::move(options)),
      spec_(std::move(spec)),
      identity_(std::move(identity)),
      max_pending_bytes_(max_pending_bytes) {}

PrefixStore::~PrefixStore() {
  is_ending_ = true;
  StopWriting();
  writer_.Stop();
  reader_.Stop();
}

std::string PrefixStore::PathOf(const PrefixKey& key) const {
  return options_.dir + "/" + key.Name() + std::string(kSuffix);
}

// What lies there, whosever it is: the bound holds for all of it.
void PrefixStore::Scan() {
  struct File {
    int64_t modified_ns;
    PrefixKey key;
    uint64_t bytes;
  };
  std::vector<File> files;
  const int64_t now = NowNs();
  std::error_code error;
  for (auto it = std::filesystem::directory_iterator(options_.dir, error);
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
  if (options_.max_bytes == 0) {
    struct statvfs disk = {};
    const bool is_known = statvfs(options_.dir.c_str(), &disk) == 0;
    const uint64_t free = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize;
    options_.max_bytes = is_known ? stats_.bytes + free / 2 : std::numeric_limits<uint64_t>::max();
  }
  (void)writer_.Post([this] { (void)MakeRoom(0, {}); });
}

PrefixStore::Found PrefixStore::Look(std::span<const PrefixKey> keys) const {
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

void PrefixStore::Use(std::span<const PrefixKey> keys) {
  const std::lock_guard lock(mutex_);
  UseLocked(keys);
}

// The last one first: without what it continues it is of no use.
void PrefixStore::UseLocked(std::span<const PrefixKey> keys) {
  bool is_any = false;
  for (size_t i = keys.size(); i-- > 0;) {
    const auto found = entries_.find(keys[i]);
    if (found == entries_.end()) continue;
    uses_.splice(uses_.end(), uses_, found->second.use);
    found->second.is_touched = true;
    is_any = true;
  }
  if (!is_any || std::exchange(will_touch_, true)) return;
  (void)writer_.Post([this] { TouchFiles(); });
}

void PrefixStore::Forget(const PrefixKey& key) {
  const auto found = entries_.find(key);
  if (found == entries_.end()) return;
  stats_.bytes -= found->second.bytes;
  --stats_.files;
  uses_.erase(found->second.use);
  entries_.erase(found);
}

// Files of what was used say so to who starts next, in the order of use.
void PrefixStore::TouchFiles() {
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

PrefixStoreStats PrefixStore::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

// --- Writing ---

bool PrefixStore::Has(const PrefixKey& key) const {
  const std::lock_guard lock(mutex_);
  const auto entry = entries_.find(key);
  return (entry != entries_.end() && !entry->second.is_bad) || pending_.count(key) > 0;
}

bool PrefixStore::CanWrite() const {
  const std::lock_guard lock(mutex_);
  return pending_bytes_ < max_pending_bytes_;
}

std::shared_ptr<LentBlocks> PrefixStore::Write(std::span<const PrefixKey> path,
                                               KvSnapshot segment) {
  auto writing = std::make_shared<Writing>();
  writing->path.assign(path.begin(), path.end());
  std::vector<NamedSnapshot> snapshots;
  snapshots.push_back({"", std::move(segment), {}});
  auto snapshot = LentSnapshot::Make(std::move(snapshots), MetadataOf(path.back()));
  KVASIR_CHECK(snapshot.ok());  // one snapshot, no tokens
  writing->snapshot = *std::move(snapshot);
  {
    const std::lock_guard lock(mutex_);
    pending_.insert(writing->key());
    pending_bytes_ += writing->snapshot->bytes();
  }
  writes_.push_back(writing);
  (void)writer_.Post([this, writing] { Run(*writing); });
  return writing->snapshot->lent();
}

void PrefixStore::Run(Writing& writing) {
  const auto progress = [&]() -> Status {
    if (is_ending_) return {ErrorCode::kCancelled, "the store is being closed"};
    if (writing.snapshot->lent()->is_taken_back()) return TakenBack();
    write_began_ = Clock::now().time_since_epoch().count();
    if (options_.before_block) options_.before_block(false);
    return {};
  };
  const auto bytes = SnapshotFileBytes(writing.snapshot->map());
  Status status = bytes.ok() ? progress() : bytes.status();
  // Nothing goes for what is not written.
  if (status.ok()) status = MakeRoom(*bytes, writing.path);
  if (status.ok()) status = writing.snapshot->Write(PathOf(writing.key()), progress);
  write_began_ = 0;
  if (!status.ok() && status.error().code != ErrorCode::kResourceExhausted &&
      status.error().code != ErrorCode::kCancelled) {
    CountFailure(status.error());
  }
  const std::lock_guard lock(mutex_);
  if (status.ok()) {
    Forget(writing.key());
    entries_[writing.key()] = {*bytes, uses_.insert(uses_.end(), writing.key())};
    stats_.bytes += *bytes;
    ++stats_.files;
    ++stats_.written;
    UseLocked(writing.path);
  }
  pending_.erase(writing.key());
  pending_bytes_ -= writing.snapshot->bytes();
  writing.is_done = true;
  ++done_;
  progress_.notify_all();
}

// Removes what was used least recently, until so much more has room. ERRORS: kResourceExhausted if
// that would be what `path` continues: without that it would be of no use.
Status PrefixStore::MakeRoom(uint64_t bytes, std::span<const PrefixKey> path) {
  const Error no_room = {ErrorCode::kResourceExhausted, options_.dir + ": it is full"};
  if (bytes > options_.max_bytes) return no_room;
  for (;;) {
    PrefixKey oldest;
    {
      const std::lock_guard lock(mutex_);
      if (uses_.empty() || stats_.bytes + bytes <= options_.max_bytes) return {};
      oldest = uses_.front();
      if (std::find(path.begin(), path.end(), oldest) != path.end()) return no_room;
      Forget(oldest);
      ++stats_.removed;
    }
    unlink(PathOf(oldest).c_str());
  }
}

void PrefixStore::Reap() {
  std::erase_if(writes_, [](const std::shared_ptr<Writing>& writing) {
    if (writing->is_done) (void)writing->snapshot->lent()->TakeBack();
    return writing->snapshot->lent()->is_taken_back();
  });
}

void PrefixStore::StopWriting() {
  for (const auto& writing : writes_) (void)writing->snapshot->lent()->TakeBack();
  writes_.clear();
}

// --- Reading ---

std::unique_ptr<PrefixFetch> PrefixStore::Fetch(std::span<const PrefixKey> keys, Position begin,
                                                std::chrono::milliseconds patience) {
  KVASIR_CHECK(!keys.empty() && keys.size() <= kMostSegments);
  auto reading = std::make_shared<PrefixReading>();
  reading->keys.assign(keys.begin(), keys.end());
  reading->begin = begin;
  PostRead(reading, &PrefixStore::OpenFiles);
  return std::unique_ptr<PrefixFetch>(new PrefixFetch(this, std::move(reading), patience));
}

// A task of the reader, which says how far it came.
void PrefixStore::PostRead(std::shared_ptr<PrefixReading> reading,
                           FetchState (PrefixStore::*task)(PrefixReading& reading)) {
  {
    const std::lock_guard lock(mutex_);
    ++reads_;
  }
  (void)reader_.Post([this, reading = std::move(reading), task] {
    const FetchState state = (this->*task)(*reading);
    read_began_ = 0;
    if (state != FetchState::kOpened) reading->files.clear();
    const std::lock_guard lock(mutex_);
    reading->state = state;
    --reads_;
    ++done_;
    progress_.notify_all();
  });
}

// What is not what it was is removed; what cannot be read now, whyever, may be written anew.
void PrefixStore::Lose(const PrefixKey& key, const Error& error) {
  const bool is_corrupt = error.code == ErrorCode::kCorrupt;
  if (is_corrupt) unlink(PathOf(key).c_str());
  CountFailure(error);
  const std::lock_guard lock(mutex_);
  if (is_corrupt || error.code == ErrorCode::kNotFound) return Forget(key);
  const auto found = entries_.find(key);
  if (found != entries_.end()) found->second.is_bad = true;
}

void PrefixStore::CountFailure(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    if (++stats_.failed > 1 && now - said_at_ < kLogInterval) return;
    said_at_ = now;
  }
  Log(options_.log, LogLevel::kWarning,
      "a stored prefix is not read, or not written: " + error.message);
}

// A file that is what its name says.
Status PrefixStore::OpenFile(PrefixReading& reading, size_t number) {
  const PrefixKey& key = reading.keys[number];
  const std::string path = PathOf(key);
  KVASIR_TRY(FileReader file, FileReader::Open(path));
  KVASIR_TRY(KvSnapshotIndex index, KvSnapshotIndex::Read(file));
  const Position begin = reading.begin + static_cast<int64_t>(number) * kSegmentTokens;
  // Alone it has to be as right as with the others.
  const auto joined = JoinSegments(*spec_, begin, std::span(&index.map, 1));
  if (!joined.ok()) return WithContext(joined.error(), path);
  if (index.map.metadata != MetadataOf(key) ||
      joined->map.sequences[0].end != begin + kSegmentTokens) {
    return {ErrorCode::kCorrupt, path + ": it is not what its name says"};
  }
  reading.files.push_back(std::move(file));
  reading.indices.push_back(std::move(index));
  return {};
}

// As many of the files as there are without a gap.
FetchState PrefixStore::OpenFiles(PrefixReading& reading) {
  for (size_t i = 0; i < reading.keys.size(); ++i) {
    if (reading.is_stopped || is_ending_) return FetchState::kFailed;
    read_began_ = Clock::now().time_since_epoch().count();
    const Status status = OpenFile(reading, i);
    if (status.ok()) continue;
    Lose(reading.keys[i], status.error());
    break;
  }
  std::vector<KvBlockMap> maps;
  for (const KvSnapshotIndex& index : reading.indices) maps.push_back(index.map);
  if (maps.empty()) return FetchState::kFailed;
  auto joined = JoinSegments(*spec_, reading.begin, maps);
  if (!joined.ok()) return FetchState::kFailed;
  reading.joined = *std::move(joined);
  return FetchState::kOpened;
}

Status PrefixStore::ReadBlock(PrefixReading& reading, size_t number,
                              std::vector<std::byte>* block) {
  if (reading.is_stopped || is_ending_) return TakenBack();
  if (options_.before_block) options_.before_block(true);
  const JoinedSegments::Source& source = reading.joined.sources[number];
  const KvSnapshotIndex& index = reading.indices[source.segment];
  // A copy: the engine must not wait for the disk.
  block->resize(index.places[source.block].bytes);
  KVASIR_TRY_OK(index.ReadBlock(reading.files[source.segment], source.block, *block));
  const bool is_there = reading.lent->Use(
      [&] { std::memcpy(reading.targets[number], block->data(), block->size()); });
  return is_there ? Status() : TakenBack();
}

FetchState PrefixStore::ReadBlocks(PrefixReading& reading) {
  const Clock::time_point begin = Clock::now();
  uint64_t bytes = 0;
  std::vector<std::byte> block;
  // In the order of the files, whatever that of their join is.
  std::vector<size_t> order(reading.joined.sources.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    const auto& first = reading.joined.sources[a];
    const auto& second = reading.joined.sources[b];
    return std::tie(first.segment, first.block) < std::tie(second.segment, second.block);
  });
  FetchState state = FetchState::kRead;
  for (const size_t number : order) {
    read_began_ = Clock::now().time_since_epoch().count();
    const Status status = ReadBlock(reading, number, &block);
    if (status.ok()) {
      bytes += block.size();
      continue;
    }
    if (status.error().code != ErrorCode::kResourceExhausted) {
      Lose(reading.keys[reading.joined.sources[number].segment], status.error());
    }
    state = FetchState::kFailed;
    break;
  }
  const std::lock_guard lock(mutex_);
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  if (bytes > 0) {
    read_rate_ = static_cast<double>(bytes) / std::max(seconds, 1e-9);
    rate_measured_at_ = Clock::now();
  }
  return state;
}

void PrefixStore::WaitForProgress(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  const uint64_t before = done_;
  progress_.wait_for(lock, most,
                     [&] { return done_ != before || (pending_.empty() && reads_ == 0); });
}

Clock::duration PrefixStore::TimeSince(const std::atomic<int64_t>& began) {
  const int64_t ticks = began;
  return ticks == 0 ? Clock::duration::zero()
                    : Clock::now().time_since_epoch() - Clock::duration(ticks);
}

SwapRates PrefixStore::rates() const {
  const std::lock_guard lock(mutex_);
  const bool is_fresh = Clock::now() - rate_measured_at_ < kRateLife;
  return {.write = 0, .read = is_fresh ? read_rate_ : 0};
}

}  // namespace kvasir
