// Owned, 64-byte aligned, zero-filled memory that commits pages only when they are touched.
// Deliberately not growable: what grows takes another buffer.
#ifndef KVASIR_TENSOR_ALIGNED_BUFFER_H_
#define KVASIR_TENSOR_ALIGNED_BUFFER_H_

#include <cstddef>
#include <utility>

#include "kvasir/base/result.h"

namespace kvasir {

class AlignedBuffer {
 public:
  // ERRORS: kResourceExhausted when the system refuses. Zero bytes give an empty buffer.
  static Result<AlignedBuffer> Allocate(size_t size_bytes);

  // The same, aligned to a huge page. REQUIRES: a multiple of a huge page, 2 MiB.
  static Result<AlignedBuffer> AllocateHuge(size_t size_bytes);

  // Splits off the first `size_bytes`, rounded up to whole pages of memory.
  // REQUIRES: 0 < size_bytes <= size_bytes().
  AlignedBuffer TakeFront(size_t size_bytes);

  AlignedBuffer() = default;
  AlignedBuffer(AlignedBuffer&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)),
        size_bytes_(std::exchange(other.size_bytes_, 0)) {}
  AlignedBuffer& operator=(AlignedBuffer&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  ~AlignedBuffer();

  std::byte* data() const { return data_; }
  size_t size_bytes() const { return size_bytes_; }
  template <typename T>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  AlignedBuffer(std::byte* data, size_t size_bytes) : data_(data), size_bytes_(size_bytes) {}

  std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_TENSOR_ALIGNED_BUFFER_H_
