// Vectors as working memory: they take what their largest size needed, and no more.
// Deliberately only how they grow; std::vector doubles, with the old and the new there at once.
#ifndef KVASIR_BASE_SCRATCH_VECTOR_H_
#define KVASIR_BASE_SCRATCH_VECTOR_H_

#include <cstddef>

namespace kvasir {

// Gives it this size. What it holds is lost where that is more than it ever had.
template <typename Vector>
void ResizeScratch(size_t size, Vector* vector) {
  if (size > vector->capacity()) {
    Vector().swap(*vector);
    vector->reserve(size);
  }
  vector->resize(size);
}

// Gives it at least this size, likewise.
template <typename Vector>
void GrowScratch(size_t size, Vector* vector) {
  if (vector->size() < size) ResizeScratch(size, vector);
}

}  // namespace kvasir

#endif  // KVASIR_BASE_SCRATCH_VECTOR_H_
