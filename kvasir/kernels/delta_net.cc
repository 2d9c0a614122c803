// Layers with a state in SIMD: their convolution, gates and rules, lanes over outputs.
// Deliberately token by token: sums over chunks of tokens would depend on where a chunk begins.
#include <algorithm>

#include "kvasir/kernels/highway_targets.h"
#include "kvasir/kernels/table_parts.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/delta_net.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if KVASIR_KERNEL_TARGET
#include "kvasir/kernels/codec-inl.h"
#include "kvasir/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvasir::HWY_NAMESPACE {
namespace {

constexpr int64_t kStep = kLanes;
// Vectors of a state's row that are updated together. Two multiply-adds of each are in chains over
// rows, so of AVX2 and AVX-512 it takes more than two to hide their latency, of NEON, which starts
// four at once, more than four. What 128 rows of them hold stays within 32 KiB.
constexpr size_t kBlockVectors = kLanes == 16 ? 3 : 32 / kLanes;

// A whole vector of floats, or the first `count` < kLanes of one.
struct Whole {
  HWY_INLINE VF Load(const float* p) const { return hn::LoadU(DF(), p); }
  HWY_INLINE void Store(VF v, float* p) const { hn::StoreU(v, DF(), p); }
};
struct Part {
  size_t count;
  HWY_INLINE VF Load(const float* p) const { return LoadPartial(p, count); }
  HWY_INLINE void Store(VF v, float* p) const { StorePartial(v, p, count); }
};

HWY_INLINE VF OnePlusExpOfNegative(VF x) {
  const DF d;
  return hn::Add(hn::Set(d, 1.0f), Exp(d, hn::Neg(x)));
}

// Input i of a vector of channels, counted from the oldest of the history.
template <class Width>
HWY_INLINE VF InputOf(const CausalConvArgs& args, int64_t i, int64_t channel, Width width) {
  const int64_t row = i - (args.width - 1);
  if (row >= 0) return width.Load(args.x + row * args.x_stride + channel);
  if (args.history == nullptr) return hn::Zero(DF());
  return width.Load(args.history + i * args.history_stride + channel);
}

// kInputs is args.width, or 0 for any. kHasAll: a row whose inputs are all in x.
template <int64_t kInputs, bool kHasAll, class Width>
HWY_INLINE void ConvolveVector(const CausalConvArgs& args, int64_t row, int64_t channel,
                               Width width) {
  const int64_t inputs = kInputs > 0 ? kInputs : args.width;
  const float* const weights = args.weights + channel;
  VF sum = args.biases == nullptr ? hn::Zero(DF()) : width.Load(args.biases + channel);
  for (int64_t j = 0; j < inputs; ++j) {
    const VF input = kHasAll
                         ? width.Load(args.x + (row + j - (inputs - 1)) * args.x_stride + channel)
                         : InputOf(args, row + j, channel, width);
    sum = hn::MulAdd(input, width.Load(weights + j * args.weight_stride), sum);
  }
  if (args.has_silu) sum = hn::Div(sum, OnePlusExpOfNegative(sum));
  width.Store(sum, args.out + row * args.out_stride + channel);
}

// The channels that fill vectors, then those of a last part.
template <class Body>
HWY_INLINE void ForChannels(const CausalConvArgs& args, Body body) {
  int64_t c = args.channel_begin;
  for (; c + kStep <= args.channel_end; c += kStep) body(c, Whole());
  if (c < args.channel_end) body(c, Part{static_cast<size_t>(args.channel_end - c)});
}

// A copy of its own: no store of a result can change what is in it.
template <int64_t kInputs>
HWY_INLINE void Convolve(const CausalConvArgs args) {
  int64_t row = 0;
  for (; row < std::min(args.rows, args.width - 1); ++row) {
    ForChannels(args, [&](int64_t c, auto width)
                          HWY_ATTR { ConvolveVector<kInputs, false>(args, row, c, width); });
  }
  for (; row < args.rows; ++row) {
    ForChannels(args, [&](int64_t c, auto width)
                          HWY_ATTR { ConvolveVector<kInputs, true>(args, row, c, width); });
  }
}

void CausalConv(const CausalConvArgs& args) noexcept {
  // The widths of models: unrolled, more vectors are under way at a time.
  if (args.width == 4) {
    Convolve<4>(args);
  } else if (args.width == 3) {
    Convolve<3>(args);
  } else {
    Convolve<0>(args);
  }
  // Ascending: in place, what is read lies behind what is written.
  for (int64_t j = 0; j < args.width - 1; ++j) {
    ForChannels(args, [&](int64_t c, auto width) HWY_ATTR {
      width.Store(InputOf(args, args.rows + j, c, width),
                  args.next_history + j * args.history_stride + c);
    });
  }
}

template <class Width>
HWY_INLINE void Gates(const DeltaGateArgs& args, int64_t head, Width width) {
  const VF biased = hn::Add(width.Load(args.decay_inputs + head), width.Load(args.biases + head));
  const VF softplus = Softplus(DF(), biased);
  const VF exponent = hn::Mul(width.Load(args.rates + head), softplus);
  VF step = softplus;
  if (args.step_inputs != nullptr) {
    const VF step_input = width.Load(args.step_inputs + head);
    step = hn::Div(hn::Set(DF(), 1.0f), OnePlusExpOfNegative(step_input));
  }
  width.Store(Exp(DF(), hn::Neg(exponent)), args.decays + head);
  width.Store(step, args.steps + head);
}

void DeltaGates(const DeltaGateArgs& args) noexcept {
  int64_t h = 0;
  for (; h + kStep <= args.heads; h += kStep) Gates(args, h, Whole());
  if (h < args.heads) Gates(args, h, Part{static_cast<size_t>(args.heads - h)});
}

// All tokens for kVectors vectors of lanes from `lane` on, so that these columns of the state stay
// in the nearest cache. A token's sweep over them makes the next one's sum as well, which kIsDelta
// alone has.
template <bool kIsDelta, size_t kVectors, class Width>
HWY_INLINE void ApplyToLanes(const DeltaRuleArgs& args, int64_t lane, Width width) {
  const DF d;
  const int64_t stride = args.state_stride;
  float* const next = args.next + lane;
  const float* state = next;
  if (args.state != nullptr) {
    state = args.state + lane;
  } else {
    for (int64_t r = 0; r < args.key_dim; ++r) {
      for (size_t v = 0; v < kVectors; ++v) {
        width.Store(hn::Zero(d), next + r * stride + v * kLanes);
      }
    }
  }
  VF sum[kVectors];
  for (VF& of : sum) of = hn::Zero(d);
  for (int64_t r = 0; kIsDelta && r < args.key_dim; ++r) {
    const VF k = hn::Set(d, args.keys[r]);
    for (size_t v = 0; v < kVectors; ++v) {
      sum[v] = hn::MulAdd(width.Load(state + r * stride + v * kLanes), k, sum[v]);
    }
  }
  for (int64_t row = 0; row < args.rows; ++row) {
    const float* const keys = args.keys + row * args.stride;
    const float* const queries = args.queries + row * args.stride;
    const float* const values = args.values + row * args.stride + lane;
    // The last token has no next one: its own again, for nothing.
    const float* const next_keys = row + 1 < args.rows ? keys + args.stride : keys;
    const VF decay = hn::Set(d, args.decays[row * args.gate_stride]);
    const VF step = hn::Set(d, args.steps[row * args.gate_stride]);
    VF delta[kVectors];
    VF out[kVectors];
    for (size_t v = 0; v < kVectors; ++v) {
      const VF value = width.Load(values + v * kLanes);
      delta[v] = hn::Mul(step, kIsDelta ? hn::NegMulAdd(decay, sum[v], value) : value);
      out[v] = hn::Zero(d);
      sum[v] = hn::Zero(d);
    }
    for (int64_t r = 0; r < args.key_dim; ++r) {
      const VF k = hn::Set(d, keys[r]);
      const VF q = hn::Set(d, queries[r]);
      const VF next_k = hn::Set(d, next_keys[r]);
      for (size_t v = 0; v < kVectors; ++v) {
        const int64_t at = r * stride + static_cast<int64_t>(v * kLanes);
        const VF s = hn::MulAdd(k, delta[v], hn::Mul(width.Load(state + at), decay));
        width.Store(s, next + at);
        out[v] = hn::MulAdd(s, q, out[v]);
        if constexpr (kIsDelta) sum[v] = hn::MulAdd(s, next_k, sum[v]);
      }
    }
    float* const to = args.out + row * args.out_stride + lane;
    for (size_t v = 0; v < kVectors; ++v) {
      if constexpr (!kIsDelta) {
        out[v] = hn::MulAdd(hn::Set(d, args.skip), width.Load(values + v * kLanes), out[v]);
      }
      width.Store(out[v], to + v * kLanes);
    }
    state = next;
  }
}

template <bool kIsDelta>
void StateRule(const DeltaRuleArgs& args) noexcept {
  int64_t lane = 0;
  constexpr int64_t kBlock = kBlockVectors * kStep;
  for (; lane + kBlock <= args.lanes; lane += kBlock) {
    ApplyToLanes<kIsDelta, kBlockVectors>(args, lane, Whole());
  }
  for (; lane + 2 * kStep <= args.lanes; lane += 2 * kStep) {
    ApplyToLanes<kIsDelta, 2>(args, lane, Whole());
  }
  for (; lane + kStep <= args.lanes; lane += kStep) {
    ApplyToLanes<kIsDelta, 1>(args, lane, Whole());
  }
  if (lane < args.lanes) {
    ApplyToLanes<kIsDelta, 1>(args, lane, Part{static_cast<size_t>(args.lanes - lane)});
  }
}

}  // namespace

void FillDeltaNet(KernelTable* table) {
  table->causal_conv = CausalConv;
  table->delta_gates = DeltaGates;
  table->delta_rule = StateRule<true>;
  table->mamba_rule = StateRule<false>;
}

}  // namespace kvasir::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
#include "kvasir/kernels/table_fill.h"
KVASIR_FILL_BY_ISA(FillDeltaNet)
#endif
