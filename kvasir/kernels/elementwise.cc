// Elementwise and one-row kernels in SIMD: norm, rotary embedding, activations, softmax, argmax.
// Deliberately without fusion across ops: each is a pass over a row that sits in cache.
#include <cmath>
#include <limits>

#include "kvasir/kernels/highway_targets.h"
#include "kvasir/kernels/table_parts.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/elementwise.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if KVASIR_KERNEL_TARGET
#include "kvasir/kernels/codec-inl.h"
#include "kvasir/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvasir::HWY_NAMESPACE {
namespace {

constexpr int64_t kStep = kLanes;

// out[i] = function(x[i], y[i]); y null: function(x[i], 0). In place allowed.
template <class Function>
HWY_INLINE void Transform(const float* x, const float* y, int64_t count, float* out,
                          Function function) {
  const DF d;
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    const VF other = y == nullptr ? hn::Zero(d) : hn::LoadU(d, y + i);
    hn::StoreU(function(hn::LoadU(d, x + i), other), d, out + i);
  }
  if (i < count) {
    const size_t left = static_cast<size_t>(count - i);
    const VF other = y == nullptr ? hn::Zero(d) : LoadPartial(y + i, left);
    StorePartial(function(LoadPartial(x + i, left), other), out + i, left);
  }
}

// lanes[i % 16] = accumulate(lane, x[i]) in ascending order; zeros stand behind the last element.
template <class Accumulate>
HWY_INLINE void Reduce(const float* x, int64_t count, VF lanes[kLaneVectors],
                       Accumulate accumulate) {
  const DF d;
  constexpr int64_t kBlock = kVirtualLanes;
  int64_t i = 0;
  for (; i + kBlock <= count; i += kBlock) {
    for (size_t v = 0; v < kLaneVectors; ++v) {
      lanes[v] = accumulate(lanes[v], hn::LoadU(d, x + i + v * kLanes));
    }
  }
  if (i == count) return;
  alignas(64) float rest[kVirtualLanes];
  for (int64_t k = 0; k < kBlock; ++k) rest[k] = i + k < count ? x[i + k] : 0.0f;
  for (size_t v = 0; v < kLaneVectors; ++v) {
    lanes[v] = accumulate(lanes[v], hn::Load(d, rest + v * kLanes));
  }
}

float Norm(const float* x, int64_t count) noexcept {
  VF lanes[kLaneVectors];
  for (VF& lane : lanes) lane = hn::Zero(DF());
  Reduce(x, count, lanes, [](VF lane, VF v) HWY_ATTR { return hn::MulAdd(v, v, lane); });
  return std::sqrt(SumLanes(lanes));
}

void RmsNorm(const float* x, const float* weight, float eps, int64_t count, float* out) noexcept {
  const DF d;
  VF lanes[kLaneVectors];
  for (VF& lane : lanes) lane = hn::Zero(d);
  Reduce(x, count, lanes, [](VF lane, VF v) HWY_ATTR { return hn::MulAdd(v, v, lane); });
  const float mean = SumLanes(lanes) / static_cast<float>(count);
  const float inverse = 1.0f / std::sqrt(mean + eps);
  const VF factor = hn::Set(d, inverse);
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    const VF normalized = hn::Mul(hn::LoadU(d, x + i), factor);
    const VF scaled =
        weight == nullptr ? normalized : hn::Mul(normalized, hn::LoadU(d, weight + i));
    hn::StoreU(scaled, d, out + i);
  }
  for (; i < count; ++i) {
    const float normalized = x[i] * inverse;
    out[i] = weight == nullptr ? normalized : normalized * weight[i];
  }
}

void Rope(float* x, const float* cos, const float* sin, int64_t pairs) noexcept {
  const DF d;
  const auto rotate = [](VF& a, VF& b, VF c, VF s) HWY_ATTR {
    const VF first = hn::NegMulAdd(b, s, hn::Mul(a, c));
    b = hn::MulAdd(a, s, hn::Mul(b, c));
    a = first;
  };
  int64_t i = 0;
  for (; i + kStep <= pairs; i += kStep) {
    VF a = hn::LoadU(d, x + i);
    VF b = hn::LoadU(d, x + pairs + i);
    rotate(a, b, hn::LoadU(d, cos + i), hn::LoadU(d, sin + i));
    hn::StoreU(a, d, x + i);
    hn::StoreU(b, d, x + pairs + i);
  }
  if (i < pairs) {
    const size_t left = static_cast<size_t>(pairs - i);
    VF a = LoadPartial(x + i, left);
    VF b = LoadPartial(x + pairs + i, left);
    rotate(a, b, LoadPartial(cos + i, left), LoadPartial(sin + i, left));
    StorePartial(a, x + i, left);
    StorePartial(b, x + pairs + i, left);
  }
}

void SiluGate(float* gate, const float* up, int64_t count) noexcept {
  Transform(gate, up, count, gate, [](VF x, VF y) HWY_ATTR {
    const DF d;
    const VF denominator = hn::Add(hn::Set(d, 1.0f), Exp(d, hn::Neg(x)));
    return hn::Mul(hn::Div(x, denominator), y);
  });
}

void ClampedGate(float* gate, const float* up, int64_t count) noexcept {
  Transform(gate, up, count, gate, [](VF x, VF y) HWY_ATTR {
    const DF d;
    const VF one = hn::Set(d, 1.0f);
    const VF limit = hn::Set(d, math::kGateLimit);
    const VF least = hn::Set(d, -math::kGateLimit);
    const VF g = hn::IfThenElse(hn::Gt(x, limit), limit, x);
    const VF below = hn::IfThenElse(hn::Gt(y, limit), limit, y);
    const VF u = hn::IfThenElse(hn::Lt(below, least), least, below);
    const VF slope = hn::Mul(hn::Set(d, math::kGateSlope), g);
    const VF denominator = hn::Add(one, Exp(d, hn::Neg(slope)));
    return hn::Mul(hn::Div(g, denominator), hn::Add(u, one));
  });
}

void SigmoidGate(float* gate, const float* up, int64_t count) noexcept {
  Transform(gate, up, count, gate, [](VF x, VF y) HWY_ATTR {
    const DF d;
    return hn::Div(y, hn::Add(hn::Set(d, 1.0f), Exp(d, hn::Neg(x))));
  });
}

void ProductGate(float* gate, const float* up, int64_t count) noexcept {
  Transform(gate, up, count, gate, [](VF x, VF y) HWY_ATTR { return hn::Mul(x, y); });
}

void GeluTanhGate(float* gate, const float* up, int64_t count) noexcept {
  Transform(gate, up, count, gate, [](VF x, VF y) HWY_ATTR {
    const DF d;
    const VF one = hn::Set(d, 1.0f);
    const VF cubic = hn::MulAdd(hn::Set(d, math::kGeluCubic), hn::Mul(x, x), one);
    const VF inner = hn::Mul(hn::Mul(hn::Set(d, math::kSqrtTwoOverPi), x), cubic);
    const VF half = hn::Mul(hn::Set(d, 0.5f), x);
    return hn::Mul(hn::Mul(half, hn::Add(one, Tanh(d, inner))), y);
  });
}

void Add(float* accumulator, const float* x, int64_t count) noexcept {
  Transform(accumulator, x, count, accumulator, [](VF a, VF b) HWY_ATTR { return hn::Add(a, b); });
}

void Scale(float* x, float factor, int64_t count) noexcept {
  const VF factors = hn::Set(DF(), factor);
  Transform(x, nullptr, count, x, [factors](VF v, VF) HWY_ATTR { return hn::Mul(v, factors); });
}

void Divide(const float* x, float divisor, int64_t count, float* out) noexcept {
  const VF divisors = hn::Set(DF(), divisor);
  Transform(x, nullptr, count, out, [divisors](VF v, VF) HWY_ATTR { return hn::Div(v, divisors); });
}

void Merge(float* accumulator, float keep, const float* x, float take, int64_t count) noexcept {
  const VF keeps = hn::Set(DF(), keep);
  const VF takes = hn::Set(DF(), take);
  Transform(accumulator, x, count, accumulator, [keeps, takes](VF a, VF v) HWY_ATTR {
    return hn::Add(hn::Mul(a, keeps), hn::Mul(v, takes));
  });
}

void SoftcapAll(float* x, float cap, int64_t count) noexcept {
  const VF caps = hn::Set(DF(), cap);
  Transform(x, nullptr, count, x, [caps](VF v, VF) HWY_ATTR { return Softcap(DF(), v, caps); });
}

// The largest number of x, -infinity if there is none; NaN is passed over.
float LargestOf(const float* x, int64_t count) {
  const DF d;
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  // The order of comparisons is free, unlike that of sums: four vectors hide the latency.
  constexpr size_t kChains = 4;
  VF largest[kChains];
  for (VF& chain : largest) chain = hn::Set(d, kLowest);
  int64_t i = 0;
  for (; i + static_cast<int64_t>(kChains) * kStep <= count; i += kChains * kStep) {
    for (size_t c = 0; c < kChains; ++c) {
      largest[c] = MaxIgnoringNan(largest[c], hn::LoadU(d, x + i + c * kLanes));
    }
  }
  for (size_t c = 1; c < kChains; ++c) largest[0] = MaxIgnoringNan(largest[0], largest[c]);
  float best = hn::GetLane(hn::MaxOfLanes(d, largest[0]));
  for (; i < count; ++i) best = x[i] > best ? x[i] : best;
  return best;
}

void Softmax(float* x, int64_t count) noexcept {
  const DF d;
  const VF max = hn::Set(d, LargestOf(x, count));
  Transform(x, nullptr, count, x,
            [max](VF v, VF) HWY_ATTR { return ExpOfNonPositive(DF(), hn::Sub(v, max)); });
  VF lanes[kLaneVectors];
  for (VF& lane : lanes) lane = hn::Zero(d);
  Reduce(x, count, lanes, [](VF lane, VF v) HWY_ATTR { return hn::Add(lane, v); });
  const VF sum = hn::Set(d, SumLanes(lanes));
  Transform(x, nullptr, count, x, [sum](VF v, VF) HWY_ATTR { return hn::Div(v, sum); });
}

int64_t Argmax(const float* x, int64_t count) noexcept {
  const DF d;
  const float largest = LargestOf(x, count);
  const VF target = hn::Set(d, largest);
  int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    const auto found = hn::Eq(hn::LoadU(d, x + i), target);
    if (!hn::AllFalse(d, found)) return i + static_cast<int64_t>(hn::FindFirstTrue(d, found));
  }
  for (; i < count; ++i) {
    if (x[i] == largest) return i;
  }
  return 0;
}

}  // namespace

void FillElementwise(KernelTable* table) {
  table->norm = Norm;
  table->rms_norm = RmsNorm;
  table->rope = Rope;
  table->silu_gate = SiluGate;
  table->clamped_gate = ClampedGate;
  table->sigmoid_gate = SigmoidGate;
  table->product_gate = ProductGate;
  table->gelu_tanh_gate = GeluTanhGate;
  table->add = Add;
  table->scale = Scale;
  table->divide = Divide;
  table->merge = Merge;
  table->softcap = SoftcapAll;
  table->softmax = Softmax;
  table->argmax = Argmax;
}

}  // namespace kvasir::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
#include "kvasir/kernels/table_fill.h"
KVASIR_FILL_BY_ISA(FillElementwise)
#endif
