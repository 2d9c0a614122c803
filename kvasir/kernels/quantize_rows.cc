// Activations quantized per row and group of 32, in SIMD: the inputs of the integer matmuls.
// Deliberately 16 groups at a time, so that no group waits for reductions of its own.
#include <algorithm>
#include <cstring>
#include <limits>

#include "kvasir/kernels/highway_targets.h"
#include "kvasir/kernels/table_parts.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/quantize_rows.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if KVASIR_KERNEL_TARGET
#include "kvasir/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvasir::HWY_NAMESPACE {
namespace {

constexpr int64_t kBatchGroups = kVirtualLanes;
constexpr size_t kGroupVectors = kQuantGroup / kLanes;
using DI = hn::RebindToSigned<DF>;
using VI = hn::Vec<DI>;

HWY_INLINE VI Bits(VF v) { return hn::BitCast(DI(), v); }
HWY_INLINE VF FromBits(VI v) { return hn::BitCast(DF(), v); }

// Of magnitudes as integers, which order like numbers, and every non-finite one above every finite.
struct LargestBits {
  static HWY_INLINE VF Apply(VF a, VF b) { return FromBits(hn::Max(Bits(a), Bits(b))); }
  static HWY_INLINE float Reduce(VF lanes[kLaneVectors]) {
    for (size_t i = 1; i < kLaneVectors; ++i) lanes[0] = Apply(lanes[0], lanes[i]);
    return hn::GetLane(FromBits(hn::MaxOfLanes(DI(), Bits(lanes[0]))));
  }
};

struct AddBits {
  static HWY_INLINE VF Apply(VF a, VF b) { return FromBits(hn::Add(Bits(a), Bits(b))); }
  static HWY_INLINE float Reduce(VF lanes[kLaneVectors]) {
    for (size_t i = 1; i < kLaneVectors; ++i) lanes[0] = Apply(lanes[0], lanes[i]);
    return hn::GetLane(FromBits(hn::SumOfLanes(DI(), Bits(lanes[0]))));
  }
};

HWY_INLINE void Clear(VF (&lanes)[kLaneVectors]) {
  for (VF& lane : lanes) lane = hn::Zero(DF());
}

// Per lane of the group, over vectors i, i + kLaneVectors, ...
HWY_INLINE void LargestOfGroup(const float* x, VF (&lanes)[kLaneVectors]) {
  for (size_t i = 0; i < kGroupVectors; ++i) {
    VF& lane = lanes[i % kLaneVectors];
    lane = LargestBits::Apply(lane, hn::Abs(hn::LoadU(DF(), x + i * kLanes)));
  }
}

// The codes of a group whose numbers are finite and whose scale is not 0; adds them per lane.
HWY_INLINE void RoundGroup(const float* x, VF scale, int8_t* codes, VF (&lanes)[kLaneVectors]) {
  const DI d;
  const hn::Rebind<int8_t, DF> bytes;
  for (size_t i = 0; i < kGroupVectors; ++i) {
    const VI rounded = hn::NearestInt(hn::Div(hn::LoadU(DF(), x + i * kLanes), scale));
    // The clamp matters only where the scale is denormal and so coarsely rounded.
    const VI clamped = hn::Min(hn::Max(rounded, hn::Set(d, -127)), hn::Set(d, 127));
    hn::StoreU(hn::DemoteTo(bytes, clamped), bytes, codes + i * kLanes);
    VF& lane = lanes[i % kLaneVectors];
    lane = AddBits::Apply(lane, FromBits(clamped));
  }
}

// Up to kBatchGroups groups.
void QuantizeGroups(const float* x, int64_t groups, int8_t* codes, float* scales, int32_t* sums) {
  const DF d;
  alignas(64) float of_group[kBatchGroups];
  SixteenRows lanes;
  for (int64_t g = 0; g < kBatchGroups; ++g) {
    Clear(lanes[g]);
    if (g < groups) LargestOfGroup(x + g * kQuantGroup, lanes[g]);
  }
  ReduceRows<LargestBits>(lanes, of_group);
  alignas(64) float group_scales[kBatchGroups];
  for (size_t i = 0; i < kBatchGroups; i += kLanes) {
    const VF largest = hn::Load(d, of_group + i);
    const auto is_finite = hn::RebindMask(d, hn::Lt(Bits(largest), hn::Set(DI(), 0x7F800000)));
    const VF nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
    hn::Store(hn::IfThenElse(is_finite, hn::Div(largest, hn::Set(d, 127.0f)), nan), d,
              group_scales + i);
  }
  for (int64_t g = 0; g < kBatchGroups; ++g) {
    Clear(lanes[g]);
    if (g >= groups) continue;
    int8_t* const group_codes = codes + g * kQuantGroup;
    if (group_scales[g] > 0) {
      RoundGroup(x + g * kQuantGroup, hn::Set(d, group_scales[g]), group_codes, lanes[g]);
    } else {
      std::fill_n(group_codes, kQuantGroup, int8_t{0});
    }
  }
  ReduceRows<AddBits>(lanes, of_group);
  std::copy_n(group_scales, groups, scales);
  std::memcpy(sums, of_group, static_cast<size_t>(groups) * sizeof(*sums));
}

void QuantizeRows(const float* x, int64_t x_stride, int64_t rows, int64_t inputs, int8_t* codes,
                  float* scales, int32_t* sums) noexcept {
  const int64_t groups = inputs / kQuantGroup;
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t g = 0; g < groups; g += kBatchGroups) {
      const int64_t at = row * groups + g;
      QuantizeGroups(x + row * x_stride + g * kQuantGroup, std::min(kBatchGroups, groups - g),
                     codes + at * kQuantGroup, scales + at, sums + at);
    }
  }
}

}  // namespace

void FillQuantizeRows(KernelTable* table) { table->quantize_rows = QuantizeRows; }

}  // namespace kvasir::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
#include "kvasir/kernels/table_fill.h"
KVASIR_FILL_BY_ISA(FillQuantizeRows)
#endif
