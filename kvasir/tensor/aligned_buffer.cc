#include "kvasir/tensor/aligned_buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kvasir/base/check.h"
#include "kvasir/base/memory_nodes.h"

namespace kvasir {
namespace {

// Transparent huge pages cut page faults and TLB misses, and let hardware prefetchers run past
// 4 KiB. Neighbouring maps of one kind merge into one area of the address space, so many matrices
// below the size of a huge page (2 MiB) share huge pages without rounding each of them up.
constexpr size_t kHugePageThresholdBytes = size_t{128} << 10;
constexpr size_t kHugePageBytes = size_t{2} << 20;

}  // namespace

Result<AlignedBuffer> AlignedBuffer::Allocate(size_t size_bytes) {
  if (size_bytes == 0) return AlignedBuffer();
  void* data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return {ErrorCode::kResourceExhausted,
            "the system refused " + std::to_string(size_bytes) + " bytes of memory"};
  }
  if (size_bytes >= kHugePageThresholdBytes) {
    madvise(data, size_bytes, MADV_HUGEPAGE);
    static const std::vector<int> nodes = NodesToSpreadOver();
    if (!nodes.empty()) SpreadOver(nodes, data, size_bytes);
  }
  return AlignedBuffer(static_cast<std::byte*>(data), size_bytes);
}

Result<AlignedBuffer> AlignedBuffer::AllocateHuge(size_t size_bytes) {
  KVASIR_CHECK(size_bytes > 0 && size_bytes % kHugePageBytes == 0);
  KVASIR_TRY(AlignedBuffer wide, Allocate(size_bytes + kHugePageBytes));
  const size_t begin = reinterpret_cast<uintptr_t>(wide.data()) % kHugePageBytes;
  if (begin != 0) wide.TakeFront(kHugePageBytes - begin);
  return wide.TakeFront(size_bytes);
}

AlignedBuffer AlignedBuffer::TakeFront(size_t size_bytes) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t whole = std::min((size_bytes + page - 1) / page * page, size_bytes_);
  KVASIR_CHECK(size_bytes > 0 && size_bytes <= size_bytes_);
  AlignedBuffer front(data_, whole);
  size_bytes_ -= whole;
  data_ = size_bytes_ == 0 ? nullptr : data_ + whole;
  return front;
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) munmap(data_, size_bytes_);
}

}  // namespace kvasir
