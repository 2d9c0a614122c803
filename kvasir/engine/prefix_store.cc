#include "kvasir/engine/prefix_store.h"

#include <algorithm>
#include <cstring>
#include <map>
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

// In the metadata of a file: what its name was when it was written.
constexpr const char* kKeyName = "prefix_key";
// A disk that was fast a minute ago says little about now.
constexpr std::chrono::seconds kRateLife{60};
constexpr std::chrono::seconds kLogInterval{60};
// Looking through the folder takes no more of the writer's time than one part in so many.
constexpr int kScanShare = 50;

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

Result<std::unique_ptr<PrefixStore>> PrefixStore::Open(PrefixStoreOptions options,
                                                       std::shared_ptr<const KvCacheSpec> spec,
                                                       size_t max_pending_bytes) {
  KVASIR_TRY(auto folder,
             PrefixFolder::Open(options.dir, options.max_bytes, options.touch_interval));
  KVASIR_TRY(const Json layers, KvSpecToJson(*spec));
  std::string identity = "kvasir prefix, snapshots of version " +
                         std::to_string(kSnapshotFileVersion) + ", " + options.identity + ", " +
                         layers.Dump();
  auto store = std::unique_ptr<PrefixStore>(new PrefixStore(std::move(options), std::move(folder),
                                                            std::move(spec), std::move(identity),
                                                            max_pending_bytes));
  // Where the bound has become smaller.
  (void)store->writer_.Post([folder = store->folder_.get()] { (void)folder->MakeRoom(0, {}); });
  return store;
}

PrefixStore::PrefixStore(PrefixStoreOptions options, std::unique_ptr<PrefixFolder> folder,
                         std::shared_ptr<const KvCacheSpec> spec, std::string identity,
                         size_t max_pending_bytes)
    : options_(std::move(options)),
      folder_(std::move(folder)),
      spec_(std::move(spec)),
      identity_(std::move(identity)),
      max_pending_bytes_(max_pending_bytes),
      next_scan_(Clock::now() + options_.scan_interval) {}

PrefixStore::~PrefixStore() {
  is_ending_ = true;
  StopWriting();
  writer_.Stop();
  reader_.Stop();
  searcher_.Stop();
  folder_->TouchAllFiles();
}

void PrefixStore::Use(std::span<const PrefixKey> keys) {
  if (folder_->Use(keys)) (void)writer_.Post([this] { folder_->TouchFiles(); });
}

PrefixStoreStats PrefixStore::stats() const {
  const PrefixFolder::Stats there = folder_->stats();
  const std::lock_guard lock(mutex_);
  return {there.files, there.bytes, written_, there.removed, failed_};
}

// --- Writing ---

bool PrefixStore::Has(const PrefixKey& key) const {
  const std::lock_guard lock(mutex_);
  return pending_.count(key) > 0 || folder_->Has(key);
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
  (void)writer_.Post([this] { ScanIfDue(); });
  (void)writer_.Post([this, writing] { Run(*writing); });
  return writing->snapshot->lent();
}

void PrefixStore::Run(Writing& writing) {
  const Status status = WriteFile(writing);
  write_began_ = 0;
  if (!status.ok() && status.error().code != ErrorCode::kResourceExhausted &&
      status.error().code != ErrorCode::kCancelled) {
    CountFailure(status.error());
  }
  if (status.ok()) Use(writing.path);
  const std::lock_guard lock(mutex_);
  pending_.erase(writing.key());
  pending_bytes_ -= writing.snapshot->bytes();
  writing.is_done = true;
  ++done_;
  progress_.notify_all();
}

Status PrefixStore::WriteFile(Writing& writing) {
  const auto progress = [&]() -> Status {
    if (is_ending_) return {ErrorCode::kCancelled, "the store is being closed"};
    if (writing.snapshot->lent()->is_taken_back()) return TakenBack();
    write_began_ = Clock::now().time_since_epoch().count();
    if (options_.before_block) options_.before_block(false);
    return {};
  };
  KVASIR_TRY_OK(progress());
  // Others may have.
  folder_->Search(std::span(&writing.key(), 1), is_ending_);
  if (folder_->Has(writing.key())) return {};
  KVASIR_TRY(const uint64_t bytes, SnapshotFileBytes(writing.snapshot->map()));
  // Nothing goes for what is not written.
  KVASIR_TRY_OK(progress());
  KVASIR_TRY_OK(folder_->MakeRoom(bytes, writing.path));
  KVASIR_TRY_OK(writing.snapshot->Write(folder_->PathOf(writing.key()), progress));
  folder_->Add(writing.key(), bytes);
  const std::lock_guard lock(mutex_);
  ++written_;
  return {};
}

void PrefixStore::ScanIfDue() {
  const Clock::time_point begin = Clock::now();
  if (begin < next_scan_) return;
  folder_->Scan(is_ending_);
  if (options_.scan_interval.count() == 0) return;
  const Clock::time_point end = Clock::now();
  next_scan_ = end + std::max<Clock::duration>(options_.scan_interval, kScanShare * (end - begin));
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

std::shared_ptr<const PrefixSearch> PrefixStore::Search(std::span<const PrefixKey> keys,
                                                        size_t first) {
  KVASIR_CHECK(first <= keys.size());
  auto search = std::make_shared<PrefixSearch>();
  {
    const std::lock_guard lock(mutex_);
    ++searches_;
  }
  (void)searcher_.Post([this, search, first, all = std::vector(keys.begin(), keys.end())] {
    search_began_ = Clock::now().time_since_epoch().count();
    // Nobody waits any more, or for long.
    if (search.use_count() > 1 && !is_ending_) {
      if (options_.before_search) options_.before_search();
      const std::span<const PrefixKey> keys = all;
      folder_->Search(keys.first(first), is_ending_);
      folder_->Search(keys.subspan(first), is_ending_);
    }
    search_began_ = 0;
    const std::lock_guard lock(mutex_);
    search->is_done_ = true;
    --searches_;
    ++done_;
    progress_.notify_all();
  });
  return search;
}

bool PrefixStore::is_searching() const {
  const std::lock_guard lock(mutex_);
  return searches_ > 0;
}

void PrefixStore::WaitFor(const PrefixSearch& search, std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  progress_.wait_for(lock, most, [&] { return search.is_done(); });
}

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
  // Others may have had no room for it.
  if (error.code == ErrorCode::kNotFound) return folder_->Forget(key);
  CountFailure(error);
  if (error.code == ErrorCode::kCorrupt) return folder_->Remove(key);
  folder_->MarkBad(key);
}

void PrefixStore::CountFailure(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    const Clock::time_point now = Clock::now();
    if (++failed_ > 1 && now - said_at_ < kLogInterval) return;
    said_at_ = now;
  }
  Log(options_.log, LogLevel::kWarning,
      "a stored prefix is not read, or not written: " + error.message);
}

// A file that is what its name says.
Status PrefixStore::OpenFile(PrefixReading& reading, size_t number) {
  const PrefixKey& key = reading.keys[number];
  const std::string path = folder_->PathOf(key);
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

uint64_t PrefixStore::progress() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

void PrefixStore::WaitForProgress(uint64_t since, std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  progress_.wait_for(
      lock, most, [&] { return done_ != since || (pending_.empty() && reads_ + searches_ == 0); });
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
