// Where a pool's bytes come from: host memory, or whatever another backend brings.
// Deliberately without a budget or free lists: those are KvPool's.
#ifndef KVASIR_KV_KV_MEMORY_H_
#define KVASIR_KV_KV_MEMORY_H_

#include <cstddef>
#include <memory>

#include "kvasir/base/result.h"

namespace kvasir {

class KvMemory {
 public:
  // One allocation; given back when it is destroyed.
  class Slab {
   public:
    virtual ~Slab() = default;
    // 64-byte aligned, the same for the slab's whole life. A device address if the memory is not
    // the host's; then KvSequence::WriteRows and the Read functions must not be used.
    virtual std::byte* data() const = 0;
  };

  // Memory of this process, committed by the system page by page as it is first touched.
  static std::unique_ptr<KvMemory> Host();

  virtual ~KvMemory() = default;

  // REQUIRES: size_bytes > 0. ERRORS: kResourceExhausted when the system refuses.
  virtual Result<std::unique_ptr<Slab>> Allocate(size_t size_bytes) = 0;
  // Copies within or between slabs of this memory; the ranges do not overlap.
  virtual void Copy(std::byte* to, const std::byte* from, size_t size_bytes) = 0;
  virtual void Zero(std::byte* to, size_t size_bytes) = 0;
};

}  // namespace kvasir

#endif  // KVASIR_KV_KV_MEMORY_H_
