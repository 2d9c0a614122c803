// The oracle of matmul: plain loops in exactly the order the contract states (kernels.h).
// Deliberately slow and without SIMD: every other table is compared with this one in bits.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "kvasir/kernels/table_parts.h"
#include "kvasir/tensor/bf16_pairs.h"
#include "kvasir/tensor/dtype.h"
#include "kvasir/tensor/mxfp8.h"

namespace kvasir {
namespace {

template <WeightFormat kFormat>
float WidenedWeight(const std::byte* panel, int64_t index) {
  if constexpr (kFormat == WeightFormat::kF32) return reinterpret_cast<const float*>(panel)[index];
  const uint16_t bits = reinterpret_cast<const uint16_t*>(panel)[index];
  return kFormat == WeightFormat::kF16 ? F16ToFloat(bits) : Bf16ToFloat(bits);
}

template <WeightFormat kFormat>
float FloatDot(const MatmulArgs& args, int64_t row, int64_t output) {
  const std::byte* const panel = args.weights->panel(output / kPanelOutputs);
  const float* const x = args.x + row * args.x_stride;
  float acc = 0;
  for (int64_t k = 0; k < args.weights->inputs(); ++k) {
    const int64_t index = k * kPanelOutputs + output % kPanelOutputs;
    acc = std::fma(x[k], WidenedWeight<kFormat>(panel, index), acc);
  }
  return acc;
}

// Of a format whose weights are multiplied in pairs.
template <WeightFormat kFormat>
float PairedWeight(const PackedMatrix& weights, int64_t output, int64_t k) {
  const std::byte* const panel = weights.panel(output / kPanelOutputs);
  const int64_t lane = output % kPanelOutputs;
  if constexpr (kFormat == WeightFormat::kBf16Dot) {
    const auto* const pairs = reinterpret_cast<const uint16_t*>(panel);
    return Bf16ToFloat(pairs[(k / 2 * kPanelOutputs + lane) * 2 + k % 2]);
  } else {
    constexpr GroupUnits kUnits = UnitsOf(kFormat);
    const auto group = static_cast<size_t>(k / kQuantGroup);
    const auto* const codes = reinterpret_cast<const uint8_t*>(panel + kUnits.CodesOf(group));
    const int64_t i = k % kQuantGroup;
    const uint8_t code = codes[i / 4 * 64 + lane / 4 * 16 + i % 4 / 2 * 8 + lane % 4 * 2 + i % 2];
    if constexpr (kFormat == WeightFormat::kFp8) return E4m3Value(code);
    return mxfp8::Value(code, static_cast<uint8_t>(panel[kUnits.ScalesOf(group) + lane]));
  }
}

template <WeightFormat kFormat>
float PairDot(const MatmulArgs& args, int64_t row, int64_t output) {
  const int64_t inputs = args.weights->inputs();
  const auto* const x =
      reinterpret_cast<const float*>(args.x_rounded + row * KernelTable::RoundedBytes(inputs));
  const auto sum_from = [&](int64_t begin, int64_t end, float acc) {
    for (int64_t k = begin; k < end; k += 2) {
      acc = std::fma(x[k + 1], PairedWeight<kFormat>(*args.weights, output, k + 1), acc);
      acc = std::fma(x[k], PairedWeight<kFormat>(*args.weights, output, k), acc);
    }
    return acc;
  };
  if constexpr (kFormat != WeightFormat::kFp8) return sum_from(0, inputs, 0);
  const std::byte* const panel = args.weights->panel(output / kPanelOutputs);
  const GroupUnits units = args.weights->units();
  float acc = 0;
  for (int64_t begin = 0; begin < inputs; begin += kFp8Inputs) {
    const auto* const scales = reinterpret_cast<const float*>(
        panel + units.ScalesOf(static_cast<size_t>(begin / kQuantGroup)));
    const float sum = sum_from(begin, std::min<int64_t>(begin + kFp8Inputs, inputs), 0);
    acc = std::fma(sum, scales[output % kPanelOutputs], acc);
  }
  return acc;
}

void RoundRows(const float* x, int64_t x_stride, int64_t rows, int64_t inputs,
               std::byte* rounded) noexcept {
  for (int64_t row = 0; row < rows; ++row) {
    auto* const out = reinterpret_cast<float*>(rounded + row * KernelTable::RoundedBytes(inputs));
    for (int64_t k = 0; k < inputs; ++k) out[k] = bf16_pairs::RoundInput(x[row * x_stride + k]);
  }
}

template <WeightFormat kFormat>
int32_t WeightCode(const std::byte* group, int64_t lane, int64_t i) {
  const uint8_t* const codes = reinterpret_cast<const uint8_t*>(group) + lane * 4;
  if constexpr (kFormat == WeightFormat::kQ8) {
    return codes[i / 4 * 64 + i % 4];
  } else {
    const uint8_t byte = codes[i % 16 / 4 * 64 + i % 4];
    return i < 16 ? byte & 0x0F : byte >> 4;
  }
}

template <WeightFormat kFormat>
float QuantDot(const MatmulArgs& args, int64_t row, int64_t output) {
  constexpr int32_t kZero = kFormat == WeightFormat::kQ8 ? 128 : 8;
  const std::byte* const panel = args.weights->panel(output / kPanelOutputs);
  const int64_t lane = output % kPanelOutputs;
  constexpr GroupUnits kUnits = UnitsOf(kFormat);
  const int64_t inputs = args.weights->inputs();
  const int64_t groups = inputs / kQuantGroup;
  float acc = 0;
  for (int64_t g = 0; g < groups; ++g) {
    int32_t sum = -kZero * args.x_sums[row * groups + g];
    const std::byte* const codes = panel + kUnits.CodesOf(static_cast<size_t>(g));
    for (int64_t i = 0; i < kQuantGroup; ++i) {
      sum += WeightCode<kFormat>(codes, lane, i) * args.x_codes[row * inputs + g * kQuantGroup + i];
    }
    const auto* const w_scales =
        reinterpret_cast<const uint16_t*>(panel + kUnits.ScalesOf(static_cast<size_t>(g)));
    const float scale = args.x_scales[row * groups + g] * F16ToFloat(w_scales[lane]);
    acc = std::fma(static_cast<float>(sum), scale, acc);
  }
  return acc;
}

template <WeightFormat kFormat>
void Matmul(const MatmulArgs& args) noexcept {
  const int64_t end = std::min(args.panel_end * kPanelOutputs, args.weights->outputs());
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t output = args.panel_begin * kPanelOutputs; output < end; ++output) {
      float acc;
      if constexpr (kFormat == WeightFormat::kQ8 || kFormat == WeightFormat::kQ4) {
        acc = QuantDot<kFormat>(args, row, output);
      } else if constexpr (kFormat == WeightFormat::kBf16Dot || kFormat == WeightFormat::kMxfp8 ||
                           kFormat == WeightFormat::kFp8) {
        acc = PairDot<kFormat>(args, row, output);
      } else {
        acc = FloatDot<kFormat>(args, row, output);
      }
      if (args.bias != nullptr) acc += args.bias[output];
      args.out[row * args.out_stride + output] = acc;
    }
  }
}

// Returns the scale.
float QuantizeGroup(const float* x, int8_t* codes, int32_t* sum) {
  // As integers, magnitudes order like numbers and every non-finite one is above every finite one.
  uint32_t largest = 0;
  for (int i = 0; i < kQuantGroup; ++i) {
    largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFFu);
  }
  const bool finite = largest < 0x7F800000u;
  const float scale = std::bit_cast<float>(largest) / 127.0f;
  *sum = 0;
  for (int i = 0; i < kQuantGroup; ++i) {
    // The clamp matters only where the scale is denormal and so coarsely rounded.
    const float quotient = finite && scale > 0 ? std::nearbyint(x[i] / scale) : 0.0f;
    codes[i] = static_cast<int8_t>(std::clamp(quotient, -127.0f, 127.0f));
    *sum += codes[i];
  }
  return finite ? scale : std::numeric_limits<float>::quiet_NaN();
}

void QuantizeRows(const float* x, int64_t x_stride, int64_t rows, int64_t inputs, int8_t* codes,
                  float* scales, int32_t* sums) noexcept {
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t k = 0; k < inputs; k += kQuantGroup) {
      const int64_t group = (row * inputs + k) / kQuantGroup;
      scales[group] =
          QuantizeGroup(x + row * x_stride + k, codes + group * kQuantGroup, &sums[group]);
    }
  }
}

}  // namespace

void FillScalarMatmul(KernelTable* table) {
  table->matmul[static_cast<int>(WeightFormat::kF32)] = Matmul<WeightFormat::kF32>;
  table->matmul[static_cast<int>(WeightFormat::kF16)] = Matmul<WeightFormat::kF16>;
  table->matmul[static_cast<int>(WeightFormat::kBf16)] = Matmul<WeightFormat::kBf16>;
  table->matmul[static_cast<int>(WeightFormat::kBf16Dot)] = Matmul<WeightFormat::kBf16Dot>;
  table->matmul[static_cast<int>(WeightFormat::kMxfp8)] = Matmul<WeightFormat::kMxfp8>;
  table->matmul[static_cast<int>(WeightFormat::kFp8)] = Matmul<WeightFormat::kFp8>;
  table->round_rows = RoundRows;
  table->matmul[static_cast<int>(WeightFormat::kQ8)] = Matmul<WeightFormat::kQ8>;
  table->matmul[static_cast<int>(WeightFormat::kQ4)] = Matmul<WeightFormat::kQ4>;
  table->quantize_rows = QuantizeRows;
}

}  // namespace kvasir
