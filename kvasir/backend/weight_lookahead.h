// WeightLookahead: threads that wait fetch the weights which they will multiply with next into
// their caches, so that memory is busy between matmuls, too. What comes next is learnt: a model
// runs its matmuls in the same order every step.
// Deliberately only hints: nothing is read, and a wrong guess costs a fetch that nobody needed.
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
  // `tile_panels`: what the pool shares out is tiles of so many panels, the last of a matrix maybe
  // of fewer.
  WeightLookahead(int threads, int64_t tile_panels)
      : tile_panels_(static_cast<size_t>(tile_panels)), progress_(static_cast<size_t>(threads)) {}

  // A matmul with these matrices, at least one, begins. THREADS: the pool's caller only.
  void Begin(std::span<const PackedMatrix* const> matrices);

  // Fetches a little of the next matmul's weights. THREADS: each thread of the pool as itself.
  bool Step(int thread) override;

 private:
  struct Bytes {
    const std::byte* begin = nullptr;
    size_t count = 0;
  };
  // What each thread begins the next matmul with.
  struct Next {
    const PackedMatrix* first = nullptr;  // of the next matmul, by which it is known
    std::vector<Bytes> threads;
    bool is_always = true;  // nothing else came next so far
  };
  struct alignas(64) Progress {
    const Next* next = nullptr;
    size_t fetched = 0;
  };

  void Learn(std::span<const PackedMatrix* const> matrices);
  Bytes StartOf(std::span<const PackedMatrix* const> matrices, size_t thread) const;

  const size_t tile_panels_;
  std::unordered_map<const PackedMatrix*, std::unique_ptr<Next>> links_;  // by first matrix
  const PackedMatrix* last_ = nullptr;
  std::atomic<const Next*> now_{nullptr};
  std::vector<Progress> progress_;
};

}  // namespace kvasir

#endif  // KVASIR_BACKEND_WEIGHT_LOOKAHEAD_H_
