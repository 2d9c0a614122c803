#include "kvasir/engine/swap_store.h"

#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/base/checksum.h"

namespace kvasir {
namespace {

using Clock = std::chrono::steady_clock;

// How long Release waits for the block that is just being transferred: many times what a disk that
// works needs, and not felt beside a step.
constexpr std::chrono::milliseconds kReleaseWait{20};
// A disk that was slow or fast a minute ago says little about now.
constexpr std::chrono::seconds kRateLife{60};

// A file without a name, readable by this process only; -1 with errno.
int MakeFile(const std::string& dir) {
  std::string path = dir + "/kvasir-swap-XXXXXX";
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd >= 0) unlink(path.c_str());
  return fd;
}

bool WriteAll(int fd, std::span<const std::byte> bytes, uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t count = pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  return true;
}

bool ReadAll(int fd, std::span<std::byte> bytes, uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t count = pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<uint64_t>(count);
  }
  return true;
}

}  // namespace

class SwapFile {
 public:
  explicit SwapFile(std::shared_ptr<std::atomic<uint64_t>> used) : used_(std::move(used)) {}
  ~SwapFile() {
    if (fd >= 0) close(fd);
    *used_ -= bytes;
  }

  // The thread's while it serves the file, else the caller's.
  int fd = -1;
  uint64_t bytes = 0;
  std::vector<uint64_t> offsets;
  std::vector<uint64_t> checksums;
  std::vector<std::span<const std::byte>> sources;  // of a write
  std::vector<std::span<std::byte>> targets;        // of a read

  // Under the store's mutex.
  SwapStore::Progress progress;
  bool is_read = false;
  bool is_stopped = false;
  bool is_served = false;

  size_t blocks() const { return offsets.size(); }
  bool WriteBlock(size_t i, const std::string& dir) {
    if (fd < 0) fd = MakeFile(dir);
    checksums[i] = Checksum64(sources[i]);
    return fd >= 0 && WriteAll(fd, sources[i], offsets[i]);
  }
  bool ReadBlock(size_t i) {
    return targets[i].empty() ||
           (ReadAll(fd, targets[i], offsets[i]) && Checksum64(targets[i]) == checksums[i]);
  }
  uint64_t BytesOf(size_t i) const { return is_read ? targets[i].size() : sources[i].size(); }

 private:
  const std::shared_ptr<std::atomic<uint64_t>> used_;
};

Result<std::unique_ptr<SwapStore>> SwapStore::Open(SwapOptions options) {
  const int fd = MakeFile(options.dir);
  if (fd < 0) {
    return {errno == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
            "swap folder " + options.dir + ": no file can be made there: " + std::strerror(errno)};
  }
  struct statvfs disk = {};
  const bool is_known = fstatvfs(fd, &disk) == 0;
  close(fd);
  if (options.max_bytes == 0 && is_known) {
    options.max_bytes = static_cast<uint64_t>(disk.f_bavail) * disk.f_frsize / 2;
  }
  return std::unique_ptr<SwapStore>(new SwapStore(std::move(options)));
}

SwapStore::SwapStore(SwapOptions options)
    : options_(std::move(options)),
      used_bytes_(std::make_shared<std::atomic<uint64_t>>(0)),
      thread_([this] { Run(); }) {}

SwapStore::~SwapStore() {
  {
    const std::lock_guard lock(mutex_);
    is_ended_ = true;
    for (const auto& file : queue_) file->is_stopped = true;
    work_.notify_one();
  }
  thread_.join();
}

std::shared_ptr<SwapFile> SwapStore::Write(std::vector<std::span<const std::byte>> blocks) {
  auto file = std::make_shared<SwapFile>(used_bytes_);
  for (const auto& block : blocks) {
    file->offsets.push_back(file->bytes);
    file->bytes += block.size();
  }
  if ((*used_bytes_ += file->bytes) > options_.max_bytes) return nullptr;
  file->checksums.resize(blocks.size());
  file->sources = std::move(blocks);
  Enqueue(file, false);
  return file;
}

void SwapStore::Read(const std::shared_ptr<SwapFile>& file,
                     std::vector<std::span<std::byte>> blocks) {
  KVASIR_CHECK(blocks.size() == file->blocks());
  KVASIR_CHECK(ProgressOf(*file).state != State::kBusy);
  file->targets = std::move(blocks);
  file->is_read = true;
  // Somebody waits for it, while for what is written nobody does.
  Enqueue(file, true);
}

void SwapStore::Enqueue(const std::shared_ptr<SwapFile>& file, bool is_first) {
  const std::lock_guard lock(mutex_);
  file->progress = {};
  file->is_stopped = false;
  queue_.insert(is_first ? queue_.begin() : queue_.end(), file);
  work_.notify_one();
}

SwapStore::Progress SwapStore::ProgressOf(const SwapFile& file) const {
  const std::lock_guard lock(mutex_);
  return file.progress;
}

bool SwapStore::Release(const std::shared_ptr<SwapFile>& file, std::vector<BlockRef> blocks) {
  std::unique_lock lock(mutex_);
  file->is_stopped = true;
  if (std::erase(queue_, file) > 0) file->progress.state = State::kFailed;
  if (progress_.wait_for(lock, kReleaseWait, [&] { return !file->is_served; })) return true;
  graves_.push_back({file, std::move(blocks)});
  return false;
}

void SwapStore::Reap() {
  std::erase_if(graves_, [this](const Grave& grave) {
    const std::lock_guard lock(mutex_);
    return !grave.file->is_served;
  });
}

void SwapStore::WaitForProgress(std::chrono::milliseconds most) {
  std::unique_lock lock(mutex_);
  const uint64_t before = blocks_done_;
  progress_.wait_for(lock, most,
                     [&] { return blocks_done_ != before || (queue_.empty() && !is_serving_); });
}

Clock::duration SwapStore::block_time() const {
  const std::lock_guard lock(mutex_);
  return is_serving_ ? Clock::now() - block_began_ : Clock::duration::zero();
}

SwapRates SwapStore::rates() const {
  const std::lock_guard lock(mutex_);
  const auto fresh = [](const Rate& rate) {
    return Clock::now() - rate.measured_at < kRateLife ? rate.bytes_per_second : 0;
  };
  return {fresh(write_rate_), fresh(read_rate_)};
}

uint64_t SwapStore::used_bytes() const { return *used_bytes_; }

void SwapStore::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_.wait(lock, [this] { return is_ended_ || !queue_.empty(); });
    if (is_ended_) return;
    const std::shared_ptr<SwapFile> file = queue_.front();
    queue_.pop_front();
    block_began_ = Clock::now();
    is_serving_ = file->is_served = true;
    Serve(*file, lock);
    is_serving_ = file->is_served = false;
    progress_.notify_all();
  }
}

void SwapStore::Serve(SwapFile& file, std::unique_lock<std::mutex>& lock) {
  uint64_t bytes = 0;
  Clock::duration time{};
  bool is_good = true;
  while (is_good && file.progress.blocks < file.blocks() && !file.is_stopped && !is_ended_) {
    const size_t i = file.progress.blocks;
    const bool is_read = file.is_read;
    const Clock::time_point begin = block_began_ = Clock::now();
    lock.unlock();
    if (options_.before_block) options_.before_block(is_read);
    is_good = is_read ? file.ReadBlock(i) : file.WriteBlock(i, options_.dir);
    bytes += file.BytesOf(i);
    time += Clock::now() - begin;
    lock.lock();
    ++file.progress.blocks;
    ++blocks_done_;
    progress_.notify_all();
  }
  const bool is_whole = is_good && file.progress.blocks == file.blocks();
  file.progress.state = is_whole ? State::kDone : State::kFailed;
  if (!is_whole || bytes == 0) return;
  Rate& rate = file.is_read ? read_rate_ : write_rate_;
  const double seconds = std::max(std::chrono::duration<double>(time).count(), 1e-9);
  rate = {static_cast<double>(bytes) / seconds, Clock::now()};
}

}  // namespace kvasir
