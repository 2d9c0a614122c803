// The oracle of matmul with weights kept as a file coded them (coded_row.h): plain loops in the
// order of docs/numerics.md.
// Deliberately slow and without SIMD: every other table is compared with this one in bits.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kvasir/kernels/table_parts.h"
#include "kvasir/tensor/coded_row.h"
#include "kvasir/tensor/dtype.h"

namespace kvasir {
namespace {

constexpr int64_t kGroups = kSuperblockInputs / kQuantGroup;

// One output's weights of 32 inputs.
struct Group {
  int32_t codes[kQuantGroup];
  // Of the first and the last 16 inputs where they differ; else the first.
  float scale[2];
  float bias[2] = {};
};

float Half(const std::byte* at, int64_t index) {
  return F16ToFloat(reinterpret_cast<const uint16_t*>(at)[index]);
}
uint8_t Byte(const std::byte* at, int64_t index) { return static_cast<uint8_t>(at[index]); }

int Nibble(const std::byte* lines, int64_t lane, int64_t k) {
  const uint8_t pair = Byte(lines, k % 16 / 4 * 64 + lane * 4 + k % 4);
  return k < 16 ? pair & 15 : pair >> 4;
}
int TwoBits(const std::byte* lines, int64_t lane, int64_t k) {
  return Byte(lines, k / 16 * 64 + lane * 4 + k % 4) >> (k % 16 / 4 * 2) & 3;
}
int Bit(const std::byte* line, int64_t lane, int64_t k) {
  return Byte(line, lane * 4 + k % 4) >> (k / 4) & 1;
}

template <WeightFormat kFormat>
void ReadCodes(const std::byte* codes, int64_t lane, Group* group) {
  constexpr int kBits = CodeBits(kFormat);
  for (int64_t k = 0; k < kQuantGroup; ++k) {
    int code = 0;
    if constexpr (kBits == 8) code = Byte(codes, k / 4 * 64 + lane * 4 + k % 4);
    if constexpr (kBits >= 4 && kBits < 8) code = Nibble(codes, lane, k);
    if constexpr (kBits == 1) code = Bit(codes, lane, k);
    if constexpr (kBits == 2 || kBits == 3) code = TwoBits(codes, lane, k);
    if constexpr (kBits == 3) code += Bit(codes + 128, lane, k) << 2;
    if constexpr (kBits == 5) code += Bit(codes + 256, lane, k) << 4;
    if constexpr (kBits == 6) code += TwoBits(codes + 256, lane, k) << 4;
    group->codes[k] = CodeLevel(kFormat, code);
  }
}

// What follows codes of a format.
template <WeightFormat kFormat>
struct Traits {
  static constexpr bool kHasMins = IsAffine(kFormat) || kFormat == WeightFormat::kQ2K ||
                                   kFormat == WeightFormat::kQ4K || kFormat == WeightFormat::kQ5K;
  static constexpr bool kHasHalves =
      kFormat == WeightFormat::kQ2K || kFormat == WeightFormat::kQ3K ||
      kFormat == WeightFormat::kQ6K || kFormat == WeightFormat::kNvfp4;
  static constexpr int kParts = kHasHalves ? 2 : 1;
};

template <WeightFormat kFormat>
Group ReadAffine(const PackedMatrix& weights, const std::byte* panel, int64_t lane, int64_t g) {
  Group group;
  const GroupUnits units = weights.units();
  const auto at = static_cast<size_t>(g);
  ReadCodes<kFormat>(panel + units.CodesOf(at), lane, &group);
  const auto* scales = reinterpret_cast<const uint16_t*>(panel + units.ScalesOf(at)) + lane;
  const bool is_half = weights.affine().dtype == DType::kF16;
  group.scale[0] = is_half ? F16ToFloat(scales[0]) : Bf16ToFloat(scales[0]);
  group.bias[0] = is_half ? F16ToFloat(scales[kPanelOutputs]) : Bf16ToFloat(scales[kPanelOutputs]);
  if (weights.affine().has_zeros) group.bias[0] = -(group.scale[0] * group.bias[0]);
  return group;
}

// A line of scales, each of which is all that there is.
template <WeightFormat kFormat>
Group ReadScaled(const std::byte* panel, int64_t lane, int64_t g) {
  constexpr GroupUnits kUnits = UnitsOf(kFormat);
  const auto at = static_cast<size_t>(g);
  Group group;
  ReadCodes<kFormat>(panel + kUnits.CodesOf(at), lane, &group);
  const std::byte* const scales = panel + kUnits.ScalesOf(at);
  for (int part = 0; part < Traits<kFormat>::kParts; ++part) {
    group.scale[part] = kFormat == WeightFormat::kMxfp4 || kFormat == WeightFormat::kNvfp4
                            ? MicroscaleOf(Byte(scales, part * kPanelOutputs + lane), kFormat)
                            : Half(scales, lane);
  }
  return group;
}

// Where the parts of a superblock lie.
template <WeightFormat kFormat>
struct Superblock {
  static constexpr bool kHasMins = Traits<kFormat>::kHasMins;
  static constexpr int64_t kGroupBytes = 64 * CodeBits(kFormat);
  static constexpr int64_t kSubScales = Traits<kFormat>::kParts * kGroups * kPanelOutputs;
  static constexpr bool kHasNibbles = kFormat == WeightFormat::kQ2K;  // scale and min in a byte
  // Where d begins.
  static constexpr int64_t kHalves = (kHasMins && !kHasNibbles ? 2 : 1) * kSubScales;
  static constexpr int64_t kCodes = kHalves + (kHasMins ? 4 : 2) * kPanelOutputs;
  static constexpr int64_t kBytes = kCodes + kGroups * kGroupBytes;
};

template <WeightFormat kFormat>
Group ReadSuperblock(const std::byte* panel, int64_t lane, int64_t g) {
  using Block = Superblock<kFormat>;
  const std::byte* const block = panel + g / kGroups * Block::kBytes;
  const std::byte* const halves = block + Block::kHalves;
  const int64_t at = g % kGroups;
  Group group;
  ReadCodes<kFormat>(block + Block::kCodes + at * Block::kGroupBytes, lane, &group);
  const float d = Half(halves, lane);
  constexpr int kParts = Traits<kFormat>::kParts;
  for (int part = 0; part < kParts; ++part) {
    const std::byte* const scale = block + (kParts * at + part) * kPanelOutputs + lane;
    if constexpr (Block::kHasMins) {
      const int small = Byte(scale, 0);
      const int min = Block::kHasNibbles ? small >> 4 : Byte(scale, Block::kSubScales);
      group.scale[part] = d * static_cast<float>(Block::kHasNibbles ? small & 15 : small);
      group.bias[part] = -(Half(halves, kPanelOutputs + lane) * static_cast<float>(min));
    } else {
      group.scale[part] = d * static_cast<float>(static_cast<int8_t>(Byte(scale, 0)));
    }
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
    Group group;
    if constexpr (IsAffine(kFormat)) {
      group = ReadAffine<kFormat>(weights, panel, lane, g);
    } else if constexpr (IsSuperblocked(kFormat)) {
      group = ReadSuperblock<kFormat>(panel, lane, g);
    } else {
      group = ReadScaled<kFormat>(panel, lane, g);
    }
    const int8_t* const x = args.x_codes + row * weights.inputs() + g * kQuantGroup;
    const float x_scale = args.x_scales[row * groups + g];
    int32_t sums[2] = {};  // of the first and the last 16 inputs
    for (int64_t k = 0; k < kQuantGroup; ++k) sums[k / 16] += group.codes[k] * x[k];
    const int32_t x_sum = args.x_sums[row * groups + g];
    if constexpr (Traits<kFormat>::kHasHalves) {
      const int32_t first = args.x_half_sums[row * groups + g];
      const int32_t x_sums[2] = {first, x_sum - first};
      for (int half = 0; half < 2; ++half) {
        acc = std::fma(static_cast<float>(sums[half]), x_scale * group.scale[half], acc);
        if constexpr (!Traits<kFormat>::kHasMins) continue;
        acc = std::fma(x_scale * static_cast<float>(x_sums[half]), group.bias[half], acc);
      }
    } else {
      acc = std::fma(static_cast<float>(sums[0] + sums[1]), x_scale * group.scale[0], acc);
      if constexpr (!Traits<kFormat>::kHasMins) continue;
      acc = std::fma(x_scale * static_cast<float>(x_sum), group.bias[0], acc);
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

template <WeightFormat... kFormats>
void FillFormats(KernelTable* table) {
  ((table->matmul[static_cast<int>(kFormats)] = Matmul<kFormats>), ...);
}

}  // namespace

void FillScalarCodedMatmul(KernelTable* table) {
  using enum WeightFormat;
  FillFormats<kQ5, kIq4Nl, kQ1Affine, kQ2Affine, kQ3Affine, kQ4Affine, kQ5Affine, kQ6Affine,
              kQ8Affine, kQ2K, kQ3K, kQ4K, kQ5K, kQ6K, kIq4Xs, kMxfp4, kNvfp4>(table);
}

}  // namespace kvasir
