// The oracle of matmul with weights kept as a file coded them (coded_row.h): plain loops in the
// order of docs/numerics.md.
// Deliberately slow and without SIMD: every other table is compared with this one in bits.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kvasir/kernels/table_parts.h"
#include "kvasir/tensor/dtype.h"

namespace kvasir {
namespace {

constexpr int64_t kGroups = kSuperblockInputs / kQuantGroup;

// One output's weights of 32 inputs.
struct Group {
  int32_t codes[kQuantGroup];
  float scale;      // q6_k: of the first 16
  float other = 0;  // q6_k: the scale of the last 16; else the bias
};

float Half(const std::byte* at, int64_t index) {
  return F16ToFloat(reinterpret_cast<const uint16_t*>(at)[index]);
}
uint8_t Byte(const std::byte* at, int64_t index) { return static_cast<uint8_t>(at[index]); }

void ReadNibbles(const std::byte* codes, int64_t lane, Group* group) {
  for (int64_t k = 0; k < kQuantGroup; ++k) {
    const uint8_t pair = Byte(codes, k % 16 / 4 * 64 + lane * 4 + k % 4);
    group->codes[k] = k < 16 ? pair & 15 : pair >> 4;
  }
}

template <WeightFormat kFormat>
Group ReadAffine(const PackedMatrix& weights, const std::byte* panel, int64_t lane, int64_t g) {
  Group group;
  if constexpr (kFormat == WeightFormat::kQ4Affine) {
    ReadNibbles(panel + g * 256, lane, &group);
  } else {
    for (int64_t k = 0; k < kQuantGroup; ++k) {
      group.codes[k] = Byte(panel, g * 512 + k / 4 * 64 + lane * 4 + k % 4);
    }
  }
  const AffineScales& affine = weights.affine();
  const auto* scales = reinterpret_cast<const uint16_t*>(panel + weights.scales_offset_bytes()) +
                       g * kQuantGroup / affine.group_inputs * 2 * kPanelOutputs + lane;
  const bool is_half = affine.dtype == DType::kF16;
  group.scale = is_half ? F16ToFloat(scales[0]) : Bf16ToFloat(scales[0]);
  group.other = is_half ? F16ToFloat(scales[kPanelOutputs]) : Bf16ToFloat(scales[kPanelOutputs]);
  return group;
}

template <WeightFormat kFormat>
Group ReadSuperblock(const std::byte* panel, int64_t lane, int64_t g) {
  constexpr int64_t kBytes = kFormat == WeightFormat::kQ4K   ? 256
                             : kFormat == WeightFormat::kQ5K ? 320
                                                             : 384;
  constexpr int64_t kHalves = kFormat == WeightFormat::kQ6K ? 1 : 2;
  const std::byte* const block =
      panel + g / kGroups * (kGroups * kBytes + 256 + kHalves * 2 * kPanelOutputs);
  const std::byte* const codes = block + 256 + kHalves * 2 * kPanelOutputs + g % kGroups * kBytes;
  const std::byte* const scales = block + lane;
  const std::byte* const halves = block + 256;
  Group group;
  ReadNibbles(codes, lane, &group);
  const float d = Half(halves, lane);
  const int64_t at = g % kGroups;
  if constexpr (kFormat == WeightFormat::kQ6K) {
    for (int64_t k = 0; k < kQuantGroup; ++k) {
      const int bits = Byte(codes, 256 + k / 16 * 64 + lane * 4 + k % 4) >> (k % 16 / 4 * 2) & 3;
      group.codes[k] += (bits << 4) - 32;
    }
    group.scale = d * static_cast<float>(static_cast<int8_t>(Byte(scales, 2 * at * 16)));
    group.other = d * static_cast<float>(static_cast<int8_t>(Byte(scales, (2 * at + 1) * 16)));
  } else {
    if constexpr (kFormat == WeightFormat::kQ5K) {
      for (int64_t k = 0; k < kQuantGroup; ++k) {
        group.codes[k] += (Byte(codes, 256 + lane * 4 + k % 4) >> (k / 4) & 1) << 4;
      }
    }
    group.scale = d * static_cast<float>(Byte(scales, at * 16));
    group.other =
        -(Half(halves, kPanelOutputs + lane) * static_cast<float>(Byte(scales, (8 + at) * 16)));
  }
  return group;
}

template <WeightFormat kFormat>
float Dot(const MatmulArgs& args, int64_t row, int64_t output) {
  const PackedMatrix& weights = *args.weights;
  const std::byte* const panel = weights.panel(output / kPanelOutputs);
  const int64_t lane = output % kPanelOutputs;
  const int64_t groups = weights.inputs() / kQuantGroup;
  float acc = 0;
  for (int64_t g = 0; g < groups; ++g) {
    constexpr bool kIsAffine =
        kFormat == WeightFormat::kQ4Affine || kFormat == WeightFormat::kQ8Affine;
    Group group;
    if constexpr (kIsAffine) {
      group = ReadAffine<kFormat>(weights, panel, lane, g);
    } else {
      group = ReadSuperblock<kFormat>(panel, lane, g);
    }
    const int8_t* const x = args.x_codes + row * weights.inputs() + g * kQuantGroup;
    const float x_scale = args.x_scales[row * groups + g];
    int32_t sums[2] = {};  // of the first and the last 16 inputs
    for (int64_t k = 0; k < kQuantGroup; ++k) sums[k / 16] += group.codes[k] * x[k];
    if constexpr (kFormat == WeightFormat::kQ6K) {
      acc = std::fma(static_cast<float>(sums[0]), x_scale * group.scale, acc);
      acc = std::fma(static_cast<float>(sums[1]), x_scale * group.other, acc);
    } else {
      const float x_sum = x_scale * static_cast<float>(args.x_sums[row * groups + g]);
      acc = std::fma(static_cast<float>(sums[0] + sums[1]), x_scale * group.scale, acc);
      acc = std::fma(x_sum, group.other, acc);
    }
  }
  return acc;
}

template <WeightFormat kFormat>
void Matmul(const MatmulArgs& args) noexcept {
  const int64_t end = std::min(args.panel_end * kPanelOutputs, args.weights->outputs());
  for (int64_t row = 0; row < args.rows; ++row) {
    for (int64_t output = args.panel_begin * kPanelOutputs; output < end; ++output) {
      float acc = Dot<kFormat>(args, row, output);
      if (args.bias != nullptr) acc += args.bias[output];
      args.out[row * args.out_stride + output] = acc;
    }
  }
}

}  // namespace

void FillScalarCodedMatmul(KernelTable* table) {
  using enum WeightFormat;
  table->matmul[static_cast<int>(kQ4Affine)] = Matmul<kQ4Affine>;
  table->matmul[static_cast<int>(kQ8Affine)] = Matmul<kQ8Affine>;
  table->matmul[static_cast<int>(kQ4K)] = Matmul<kQ4K>;
  table->matmul[static_cast<int>(kQ5K)] = Matmul<kQ5K>;
  table->matmul[static_cast<int>(kQ6K)] = Matmul<kQ6K>;
}

}  // namespace kvasir
