// WeightLookahead: threads that wait read the weights which they will multiply with next, so that
// memory is busy between matmuls, too, and those lie in their caches. What comes next is learnt: a
// model runs its matmuls in the same order every step.
// Deliberately no hints: a CPU drops most of those that come as fast as this loop makes them. So
// memory is read that nobody may have given back, and what was learnt is kept alive.
#ifndef KVASIR_BACKEND_WEIGHT_LOOKAHEAD_H_
#define KVASIR_BACKEND_WEIGHT_LOOKAHEAD_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "kvasir/base/thread_pool.h"
#include "kvasir/tensor/packed_matrix.h"

namespace kvasir {

class WeightLookahead final : public IdleWork {
 public:
  using Matrix = std::shared_ptr<const PackedMatrix>;

  // `tile_panels`: what the pool shares out is tiles of so many panels, the last of a matrix maybe
  // of fewer.
  WeightLookahead(int threads, int64_t tile_panels)
      : tile_panels_(static_cast<size_t>(tile_panels)), progress_(static_cast<size_t>(threads)) {}

  // A matmul with these matrices, at least one, begins. THREADS: the pool's caller only.
  void Begin(std::span<const Matrix> matrices);

  // Reads a little of the next matmul's weights. THREADS: each thread of the pool as itself.
  bool Step(int thread) override;

 private:
  struct Bytes {
    Matrix matrix;  // that they are of
    const std::byte* begin = nullptr;
    size_t count = 0;
  };
  // What each thread begins the next matmul with.
  struct Next {
    Matrix first;  // of the next matmul, by which it is known
    std::vector<Bytes> threads;
    bool is_always = true;  // nothing else came next so far
  };
  struct alignas(64) Progress {
    const Next* next = nullptr;
    size_t read = 0;  // bytes
  };

  void Learn(std::span<const Matrix> matrices);
  Bytes StartOf(std::span<const Matrix> matrices, size_t thread) const;

  const size_t tile_panels_;
  std::unordered_map<Matrix, std::unique_ptr<Next>> links_;  // by first matrix
  Matrix last_;
  std::atomic<const Next*> now_{nullptr};
  std::vector<Progress> progress_;
};

}  // namespace kvasir

#endif  // KVASIR_BACKEND_WEIGHT_LOOKAHEAD_H_
