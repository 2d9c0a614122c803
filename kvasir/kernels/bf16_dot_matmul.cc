// Matmul of bf16_dot, mxfp8 and fp8 with VDPBF16PS, two products per lane and instruction.
// Deliberately only where it computes bf16_pairs.h's two multiply-adds: that is asked of the CPU
// itself, once; elsewhere float_matmul.cc has the same bits.
#include "kvasir/kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/bf16_dot_matmul.cc"
#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <limits>

#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kvasir/kernels/table_parts.h"

#if KVASIR_KERNEL_TARGET

#include "kvasir/kernels/bf16_dot_target.h"
// The target first.
#include "kvasir/kernels/bf16_pairs-inl.h"
#include "kvasir/kernels/e4m3_tile-inl.h"
#include "kvasir/kernels/float_tile-inl.h"

#if KVASIR_HAS_BF16_DOT
KVASIR_BEFORE_TILE();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

// One pair, through the instruction.
HWY_NOINLINE float Dot(float acc, uint32_t x, uint32_t w) {
  const __m512i pairs = _mm512_set1_epi32(static_cast<int32_t>(x));
  const __m512i weights = _mm512_set1_epi32(static_cast<int32_t>(w));
  return hn::GetLane(DotMath::MulAdd(pairs, weights, hn::Set(FloatTag(), acc)));
}

float TwoMulAdds(float acc, uint32_t x, uint32_t w) {
  const auto high = [](uint32_t pair) { return std::bit_cast<float>(pair & 0xFFFF0000u); };
  const auto low = [](uint32_t pair) { return std::bit_cast<float>(pair << 16); };
  return std::fma(low(x), low(w), std::fma(high(x), high(w), acc));
}

bool IsSame(float acc, uint32_t x, uint32_t w) {
  const float expected = TwoMulAdds(acc, x, w);
  const float actual = Dot(acc, x, w);
  if (std::isnan(expected)) return std::isnan(actual);
  return std::bit_cast<uint32_t>(expected) == std::bit_cast<uint32_t>(actual);
}

// Chains of products of every magnitude that bf16_pairs.h allows, so that sums round, cancel and
// overflow; then infinities and NaN. Takes a tenth of a millisecond.
bool DotIsTwoMulAdds() {
  uint64_t state = 0x9E3779B97F4A7C15ull;  // xorshift64: Marsaglia 2003
  const auto random = [&state](uint32_t count) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return static_cast<uint32_t>(state >> 33) % count;
  };
  const auto number = [&random](uint32_t least_exponent, uint32_t exponents) {
    return random(2) << 15 | (least_exponent + random(exponents)) << 7 | random(128);
  };
  float acc = 0;
  for (int i = 0; i < 4096; ++i) {
    const bool is_near = i % 2 == 0;  // equal magnitudes, or all that there are
    const auto input = [&] { return is_near ? number(125, 4) : number(127 - 52, 52 + 63); };
    const auto weight = [&] { return is_near ? number(122, 4) : number(127 - 60, 60 + 64); };
    const uint32_t x = input() | input() << 16;
    const uint32_t w = weight() | weight() << 16;
    if (!IsSame(acc, x, w)) return false;
    acc = TwoMulAdds(acc, x, w);
    if (i % 8 == 7 || !std::isfinite(acc)) acc = 0;
    if (i % 8 == 3) acc = -TwoMulAdds(0, x, w);
  }
  constexpr uint32_t kSpecial[] = {0x0000, 0x8000, 0x3F80, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC0};
  for (const uint32_t x : kSpecial) {
    for (const uint32_t w : kSpecial) {
      for (const float sum : {0.0f, -3e38f, 1.0f}) {
        if (!IsSame(sum, x, w | 0x3F800000u) || !IsSame(sum, x << 16, w << 16)) return false;
      }
    }
  }
  return true;
}

// Of products in eight chains, so many that neither instruction waits for itself.
template <class Math>
HWY_NOINLINE int64_t Nanoseconds(const uint16_t* numbers) {
  constexpr int kSteps = 64;
  FloatVec sums[8];
  for (FloatVec& sum : sums) sum = hn::Zero(FloatTag());
  const auto begin = std::chrono::steady_clock::now();
  for (int step = 0; step < kSteps; ++step) {
    const auto x = Math::template Load<0>(numbers);
#pragma GCC unroll 8
    for (FloatVec& sum : sums) {
      sum = Math::MulAdd(x, x, sum);
      if constexpr (Math::kParts == 2) sum = Math::MulAdd(x, x, sum);
      asm volatile("" : "+v"(sum.raw));
    }
  }
  return (std::chrono::steady_clock::now() - begin).count();
}

bool DotIsQuick() {
  alignas(64) const uint16_t numbers[2 * kPanelOutputs] = {};
  int64_t dots = std::numeric_limits<int64_t>::max();
  int64_t mul_adds = dots;
  for (int i = 0; i < 16; ++i) {
    dots = std::min(dots, Nanoseconds<DotMath>(numbers));
    mul_adds = std::min(mul_adds, Nanoseconds<PairMath>(numbers));
  }
  return dots <= mul_adds;
}

bool FillBf16Dot(KernelTable* table) {
  if (!__builtin_cpu_supports("avx512bf16") || !DotIsTwoMulAdds()) return false;
  table->matmul[static_cast<int>(WeightFormat::kBf16Dot)] = RunMatmul<FloatKernel<DotMath>>;
  FillE4m3Matmul<DotMath>(table);
  table->round_rows = DotMath::RoundRows;
  return true;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_HAS_BF16_DOT
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
namespace kvasir {

bool Bf16DotIsQuick(Isa isa) {
#if HWY_TARGETS & HWY_AVX3_DL
  if (isa == Isa::kAvx512 && __builtin_cpu_supports("avx512bf16")) return N_AVX3_DL::DotIsQuick();
#endif
  static_cast<void>(isa);
  return false;
}

bool FillBf16DotMatmul(Isa isa, KernelTable* table) {
#if HWY_TARGETS & HWY_AVX3_DL
  if (isa == Isa::kAvx512) return N_AVX3_DL::FillBf16Dot(table);
#endif
  static_cast<void>(isa);
  static_cast<void>(table);
  return false;
}

}  // namespace kvasir
#endif  // HWY_ONCE
