#include "kvasir/tensor/aligned_arena.h"

#include <utility>

namespace kvasir {
namespace {

// Address space only: memory is committed as it is touched, a huge page at a time.
constexpr size_t kSlabBytes = size_t{64} << 20;
// A larger buffer fills huge pages by itself.
constexpr size_t kLargestPiece = size_t{16} << 20;

}  // namespace

Result<AlignedBuffer> AlignedArena::Allocate(size_t size_bytes) {
  if (size_bytes == 0 || size_bytes > kLargestPiece) return AlignedBuffer::Allocate(size_bytes);
  if (rest_.size_bytes() < size_bytes) {
    KVASIR_TRY(rest_, AlignedBuffer::AllocateHuge(kSlabBytes));
  }
  return rest_.TakeFront(size_bytes);
}

}  // namespace kvasir
