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
  PlanePrefetch() = default;
  // All lines are fetched within so many steps.
  PlanePrefetch(const LinesAhead& lines, int64_t steps)
      : from_(lines.from),
        bytes_(lines.from == nullptr ? 0 : lines.bytes),
        line_step_(lines.step),
        step_bytes_((bytes_ + steps - 1) / steps),
        into_(lines.into) {}

  HWY_INLINE void Step() {
    // No minimum of the two limits: g++ 12 takes it in vector registers, which the loops around
    // need.
    due_ += step_bytes_;
    for (; done_ < due_ && done_ < bytes_; done_ += line_step_) FetchLine(from_ + done_, into_);
  }

 private:
  const std::byte* from_ = nullptr;
  int64_t bytes_ = 0;
  int64_t line_step_ = kCacheLineBytes;
  int64_t step_bytes_ = 0;
  CacheLevel into_ = CacheLevel::kSecond;
  int64_t due_ = 0;
  int64_t done_ = 0;
};

}  // namespace kvasir::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_PLANE_PREFETCH_INL_H_
