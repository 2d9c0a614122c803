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

void ReadNibbles(const std::byte* codes, int64_t lane, Group* group) {
  for (int64_t k = 0; k < kQuantGroup; ++k) {
    const uint8_t pair = Byte(codes, k % 16 / 4 * 64 + lane * 4 + k % 4);
    group->codes[k] = k < 16 ? pair & 15 : pair >> 4;
  }
}

template <WeightFormat kFormat>
Group ReadAffine(const PackedMatrix& weights, const std::byte* panel, int64_t lane, int64_t g) {
  Group group;
  const GroupUnits units = weights.units();
  const auto at = static_cast<size_t>(g);
  const std::byte* const codes = panel + units.CodesOf(at);
  if constexpr (kFormat == WeightFormat::kQ4Affine) {
    ReadNibbles(codes, lane, &group);
  } else {
    for (int64_t k = 0; k < kQuantGroup; ++k) {
      group.codes[k] = Byte(codes, k / 4 * 64 + lane * 4 + k % 4);
    }
  }
  const auto* scales = reinterpret_cast<const uint16_t*>(panel + units.ScalesOf(at)) + lane;
  const bool is_half = weights.affine().dtype == DType::kF16;
  group.scale[0] = is_half ? F16ToFloat(scales[0]) : Bf16ToFloat(scales[0]);
  group.bias[0] = is_half ? F16ToFloat(scales[kPanelOutputs]) : Bf16ToFloat(scales[kPanelOutputs]);
  return group;
}

template <WeightFormat kFormat>
Group ReadMicroscaled(const std::byte* panel, int64_t lane, int64_t g) {
  constexpr GroupUnits kUnits = UnitsOf(kFormat);
  const auto at = static_cast<size_t>(g);
  Group group;
  ReadNibbles(panel + kUnits.CodesOf(at), lane, &group);
  for (int32_t& code : group.codes) code = kE2m1Values[code];
  constexpr int kParts = kFormat == WeightFormat::kNvfp4 ? 2 : 1;
  for (int part = 0; part < kParts; ++part) {
    const uint8_t scale = Byte(panel + kUnits.ScalesOf(at), part * kPanelOutputs + lane);
    group.scale[part] = MicroscaleOf(scale, kFormat);
  }
  return group;
}

int TwoBits(const std::byte* lines, int64_t lane, int64_t k) {
  return Byte(lines, k / 16 * 64 + lane * 4 + k % 4) >> (k % 16 / 4 * 2) & 3;
}

// Where the parts of a superblock lie.
template <WeightFormat kFormat>
struct Superblock {
  static constexpr bool kIsQ2K = kFormat == WeightFormat::kQ2K;
  static constexpr bool kIsQ5K = kFormat == WeightFormat::kQ5K;
  static constexpr bool kIsQ6K = kFormat == WeightFormat::kQ6K;
  static constexpr bool kIsIq4Xs = kFormat == WeightFormat::kIq4Xs;
  static constexpr bool kIsNvfp4 = kFormat == WeightFormat::kNvfp4;
  static constexpr bool kIsMicroscaled = kIsNvfp4 || kFormat == WeightFormat::kMxfp4;
  static constexpr bool kHasMins = !kIsQ6K && !kIsIq4Xs && !kIsMicroscaled;
  static constexpr bool kHasHalves = kIsQ2K || kIsQ6K || kIsNvfp4;
  static constexpr int64_t kGroupBytes = kIsQ2K ? 128 : kIsQ5K ? 320 : kIsQ6K ? 384 : 256;
  static constexpr int64_t kSubScales = (kHasHalves ? 2 : 1) * kGroups * kPanelOutputs;
  static constexpr int64_t kHalves = (kHasMins ? 2 : 1) * kSubScales;  // where d begins
  static constexpr int64_t kCodes = kHalves + (kHasMins ? 4 : 2) * kPanelOutputs;
  static constexpr int64_t kBytes = kCodes + kGroups * kGroupBytes;
};

template <WeightFormat kFormat>
void ReadCodes(const std::byte* codes, int64_t lane, Group* group) {
  using Block = Superblock<kFormat>;
  if constexpr (!Block::kIsQ2K) ReadNibbles(codes, lane, group);
  for (int64_t k = 0; k < kQuantGroup; ++k) {
    int32_t& code = group->codes[k];
    if constexpr (Block::kIsQ2K) code = TwoBits(codes, lane, k);
    if constexpr (Block::kIsQ5K) code += (Byte(codes, 256 + lane * 4 + k % 4) >> (k / 4) & 1) << 4;
    if constexpr (Block::kIsQ6K) code += (TwoBits(codes + 256, lane, k) << 4) - 32;
    if constexpr (Block::kIsIq4Xs) code = kIq4Values[code];
  }
}

template <WeightFormat kFormat>
Group ReadSuperblock(const std::byte* panel, int64_t lane, int64_t g) {
  using Block = Superblock<kFormat>;
  const std::byte* const block = panel + g / kGroups * Block::kBytes;
  const std::byte* const halves = block + Block::kHalves;
  const int64_t at = g % kGroups;
  Group group;
  ReadCodes<kFormat>(block + Block::kCodes + at * Block::kGroupBytes, lane, &group);
  const float d = Half(halves, lane);
  constexpr int kParts = Block::kHasHalves ? 2 : 1;
  for (int part = 0; part < kParts; ++part) {
    const std::byte* const scale = block + (kParts * at + part) * kPanelOutputs + lane;
    if constexpr (Block::kHasMins) {
      group.scale[part] = d * static_cast<float>(Byte(scale, 0));
      group.bias[part] = -(Half(halves, kPanelOutputs + lane) *
                           static_cast<float>(Byte(scale, Block::kSubScales)));
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
    constexpr bool kIsAffine =
        kFormat == WeightFormat::kQ4Affine || kFormat == WeightFormat::kQ8Affine;
    Group group;
    if constexpr (kIsAffine) {
      group = ReadAffine<kFormat>(weights, panel, lane, g);
    } else if constexpr (Superblock<kFormat>::kIsMicroscaled) {
      group = ReadMicroscaled<kFormat>(panel, lane, g);
    } else {
      group = ReadSuperblock<kFormat>(panel, lane, g);
    }
    const int8_t* const x = args.x_codes + row * weights.inputs() + g * kQuantGroup;
    const float x_scale = args.x_scales[row * groups + g];
    int32_t sums[2] = {};  // of the first and the last 16 inputs
    for (int64_t k = 0; k < kQuantGroup; ++k) sums[k / 16] += group.codes[k] * x[k];
    const int32_t x_sum = args.x_sums[row * groups + g];
    if constexpr (Superblock<kFormat>::kHasHalves) {
      const int32_t first = args.x_half_sums[row * groups + g];
      const int32_t x_sums[2] = {first, x_sum - first};
      for (int half = 0; half < 2; ++half) {
        acc = std::fma(static_cast<float>(sums[half]), x_scale * group.scale[half], acc);
        if constexpr (!Superblock<kFormat>::kHasMins) continue;
        acc = std::fma(x_scale * static_cast<float>(x_sums[half]), group.bias[half], acc);
      }
    } else {
      acc = std::fma(static_cast<float>(sums[0] + sums[1]), x_scale * group.scale[0], acc);
      if constexpr (!Superblock<kFormat>::kHasMins) continue;
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

}  // namespace

void FillScalarCodedMatmul(KernelTable* table) {
  using enum WeightFormat;
  table->matmul[static_cast<int>(kQ4Affine)] = Matmul<kQ4Affine>;
  table->matmul[static_cast<int>(kQ8Affine)] = Matmul<kQ8Affine>;
  table->matmul[static_cast<int>(kQ4K)] = Matmul<kQ4K>;
  table->matmul[static_cast<int>(kQ5K)] = Matmul<kQ5K>;
  table->matmul[static_cast<int>(kQ6K)] = Matmul<kQ6K>;
  table->matmul[static_cast<int>(kQ2K)] = Matmul<kQ2K>;
  table->matmul[static_cast<int>(kIq4Xs)] = Matmul<kIq4Xs>;
  table->matmul[static_cast<int>(kMxfp4)] = Matmul<kMxfp4>;
  table->matmul[static_cast<int>(kNvfp4)] = Matmul<kNvfp4>;
}

}  // namespace kvasir
