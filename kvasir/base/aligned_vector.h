// Vectors that begin at a cache line, for what is read and written in vectors of that size: one
// that lies askew touches two lines. Deliberately only an allocator; memory shared by many is
// elsewhere (tensor/aligned_arena.h).
#ifndef KVASIR_BASE_ALIGNED_VECTOR_H_
#define KVASIR_BASE_ALIGNED_VECTOR_H_

#include <cstddef>
#include <new>
#include <vector>

namespace kvasir {

inline constexpr size_t kCacheLineBytes = 64;

template <class T>
struct CacheLineAllocator {
  using value_type = T;

  CacheLineAllocator() = default;
  template <class U>
  explicit CacheLineAllocator(const CacheLineAllocator<U>&) {}

  T* allocate(size_t count) {
    return static_cast<T*>(::operator new (count * sizeof(T), std::align_val_t{kCacheLineBytes}));
  }
  void deallocate(T* p, size_t) { ::operator delete (p, std::align_val_t{kCacheLineBytes}); }

  friend bool operator==(CacheLineAllocator, CacheLineAllocator) { return true; }
};

template <class T>
using AlignedVector = std::vector<T, CacheLineAllocator<T>>;

}  // namespace kvasir

#endif  // KVASIR_BASE_ALIGNED_VECTOR_H_
