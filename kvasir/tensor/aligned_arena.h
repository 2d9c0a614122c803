// Memory for many buffers that live about as long as each other, such as the matrices of a model:
// they lie side by side in slabs of huge pages, which a buffer of a few MiB alone would not fill.
// Deliberately never reuses what a buffer gives back: that goes to the system.
#ifndef KVASIR_TENSOR_ALIGNED_ARENA_H_
#define KVASIR_TENSOR_ALIGNED_ARENA_H_

#include <cstddef>

#include "kvasir/base/result.h"
#include "kvasir/tensor/aligned_buffer.h"

namespace kvasir {

class AlignedArena {
 public:
  // A buffer of its own, zero-filled, which may outlive the arena. Large ones get no part of a
  // slab. ERRORS: kResourceExhausted when the system refuses.
  Result<AlignedBuffer> Allocate(size_t size_bytes);

 private:
  AlignedBuffer rest_;  // of the newest slab
};

}  // namespace kvasir

#endif  // KVASIR_TENSOR_ALIGNED_ARENA_H_
