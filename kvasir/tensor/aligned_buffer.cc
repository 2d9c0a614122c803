#include "kvasir/tensor/aligned_buffer.h"

#include <sys/mman.h>

#include <string>

namespace kvasir {
namespace {

// Transparent huge pages cut page faults and TLB misses, and let hardware prefetchers run past
// 4 KiB. Neighbouring maps of one kind merge into one area of the address space, so many matrices
// below the size of a huge page (2 MiB) share huge pages without rounding each of them up.
constexpr size_t kHugePageThresholdBytes = size_t{128} << 10;

}  // namespace

Result<AlignedBuffer> AlignedBuffer::Allocate(size_t size_bytes) {
  if (size_bytes == 0) return AlignedBuffer();
  void* data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return {ErrorCode::kResourceExhausted,
            "the system refused " + std::to_string(size_bytes) + " bytes of memory"};
  }
  if (size_bytes >= kHugePageThresholdBytes) madvise(data, size_bytes, MADV_HUGEPAGE);
  return AlignedBuffer(static_cast<std::byte*>(data), size_bytes);
}

AlignedBuffer::~AlignedBuffer() {
  if (data_ != nullptr) munmap(data_, size_bytes_);
}

}  // namespace kvasir
