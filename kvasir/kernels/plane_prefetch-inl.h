// Fetches the plane that is read next while another is read, a few lines at each step of the work.
// Included once per Highway target. Deliberately without bursts: those wait for each other.
#if defined(KVASIR_KERNELS_PLANE_PREFETCH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_PLANE_PREFETCH_INL_H_
#undef KVASIR_KERNELS_PLANE_PREFETCH_INL_H_
#else
#define KVASIR_KERNELS_PLANE_PREFETCH_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kvasir/kernels/prefetching.h"

HWY_BEFORE_NAMESPACE();
namespace kvasir::HWY_NAMESPACE {

class PlanePrefetch {
 public:
  // `next` null: nothing. It is fetched within `steps` steps.
  PlanePrefetch(const std::byte* next, int64_t bytes, int64_t steps, CacheLevel into)
      : next_(next),
        bytes_(next == nullptr ? 0 : bytes),
        step_bytes_((bytes + steps - 1) / steps),
        into_(into) {}

  HWY_INLINE void Step() {
    // No minimum of the two limits: g++ 12 takes it in vector registers, which the loops around
    // need.
    due_ += step_bytes_;
    for (; done_ < due_ && done_ < bytes_; done_ += kLineBytes) FetchLine(next_ + done_, into_);
  }

 private:
  static constexpr int64_t kLineBytes = 64;
  const std::byte* next_;
  int64_t bytes_;
  int64_t step_bytes_;
  CacheLevel into_;
  int64_t due_ = 0;
  int64_t done_ = 0;
};

}  // namespace kvasir::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_PLANE_PREFETCH_INL_H_
