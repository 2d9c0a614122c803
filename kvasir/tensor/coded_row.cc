#include "kvasir/tensor/coded_row.h"

#include <cstring>

#include "kvasir/base/check.h"

namespace kvasir {
namespace {

constexpr size_t kNibbleBytes = kQuantGroup * kPanelOutputs / 2;  // of a group's low and high codes
constexpr size_t kLineBytes = kPanelOutputs * 4;                  // four inputs of every lane
constexpr int kGroups = kSuperblockInputs / kQuantGroup;

// Bytes of 32 inputs' codes.
size_t GroupBytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ8Affine:
      return kQuantGroup * kPanelOutputs;
    case WeightFormat::kQ5K:
      return kNibbleBytes + kLineBytes;
    case WeightFormat::kQ6K:
      return kNibbleBytes + 2 * kLineBytes;
    default:
      return kNibbleBytes;
  }
}

bool IsAffine(WeightFormat format) {
  return format == WeightFormat::kQ4Affine || format == WeightFormat::kQ8Affine;
}

constexpr size_t kSmallScaleBytes = 2 * kGroups * kPanelOutputs;  // and mins, or twice the scales

// Where the codes of a superblock begin.
size_t CodesOffset(WeightFormat format) {
  const size_t halves = format == WeightFormat::kQ6K ? 1 : 2;
  return kSmallScaleBytes + halves * 2 * kPanelOutputs;
}

size_t SuperblockBytes(WeightFormat format) {
  return CodesOffset(format) + kGroups * GroupBytes(format);
}

// The four bytes of one lane in line `line` of a group.
uint8_t* Lane(std::byte* group, int line, int lane) {
  return reinterpret_cast<uint8_t*>(group) + line * kLineBytes + lane * 4;
}
const uint8_t* Lane(const std::byte* group, int line, int lane) {
  return reinterpret_cast<const uint8_t*>(group) + line * kLineBytes + lane * 4;
}

uint32_t Word(const uint8_t* bytes) {
  uint32_t word;
  std::memcpy(&word, bytes, sizeof(word));
  return word;
}
void StoreWord(uint32_t word, uint8_t* bytes) { std::memcpy(bytes, &word, sizeof(word)); }

void WriteGroup(const uint8_t* codes, WeightFormat format, int lane, std::byte* group) {
  if (format == WeightFormat::kQ8Affine) {
    for (int j = 0; j < 8; ++j) StoreWord(Word(codes + 4 * j), Lane(group, j, lane));
    return;
  }
  for (int j = 0; j < 4; ++j) {
    const uint32_t low = Word(codes + 4 * j) & 0x0F0F0F0Fu;
    const uint32_t high = Word(codes + 16 + 4 * j) & 0x0F0F0F0Fu;
    StoreWord(low | high << 4, Lane(group, j, lane));
  }
  if (format == WeightFormat::kQ5K) {
    uint32_t bits = 0;
    for (int j = 0; j < 8; ++j) bits |= (Word(codes + 4 * j) >> 4 & 0x01010101u) << j;
    StoreWord(bits, Lane(group, 4, lane));
  } else if (format == WeightFormat::kQ6K) {
    for (int half = 0; half < 2; ++half) {
      uint32_t bits = 0;
      for (int j = 0; j < 4; ++j) {
        bits |= (Word(codes + 16 * half + 4 * j) >> 4 & 0x03030303u) << (2 * j);
      }
      StoreWord(bits, Lane(group, 4 + half, lane));
    }
  }
}

void ReadGroup(const std::byte* group, WeightFormat format, int lane, uint8_t* codes) {
  for (int k = 0; k < kQuantGroup; ++k) {
    if (format == WeightFormat::kQ8Affine) {
      codes[k] = Lane(group, k / 4, lane)[k % 4];
      continue;
    }
    const uint8_t pair = Lane(group, k % 16 / 4, lane)[k % 4];
    int code = k < 16 ? pair & 15 : pair >> 4;
    if (format == WeightFormat::kQ5K) {
      code |= (Lane(group, 4, lane)[k % 4] >> (k / 4) & 1) << 4;
    } else if (format == WeightFormat::kQ6K) {
      code |= (Lane(group, 4 + k / 16, lane)[k % 4] >> (k % 16 / 4 * 2) & 3) << 4;
    }
    codes[k] = static_cast<uint8_t>(code);
  }
}

float Widen(uint16_t bits, DType dtype) {
  return dtype == DType::kF16 ? F16ToFloat(bits) : Bf16ToFloat(bits);
}
float Rounded(float value, const AffineScales& affine) {
  if (!affine.rounds_values) return value;
  return affine.dtype == DType::kF16 ? F16ToFloat(FloatToF16(value))
                                     : Bf16ToFloat(FloatToBf16(value));
}

void ReadAffineRow(const std::byte* panel, int64_t inputs, WeightFormat format,
                   const AffineScales& affine, int lane, float* out) {
  const auto* scales =
      reinterpret_cast<const uint16_t*>(panel + AffineScalesOffset(inputs, format)) + lane;
  uint8_t codes[kQuantGroup];
  for (int64_t g = 0; g < inputs / kQuantGroup; ++g) {
    ReadGroup(panel + static_cast<size_t>(g) * GroupBytes(format), format, lane, codes);
    const int64_t group = g * kQuantGroup / affine.group_inputs;
    const float scale = Widen(scales[group * 2 * kPanelOutputs], affine.dtype);
    const float bias = Widen(scales[(group * 2 + 1) * kPanelOutputs], affine.dtype);
    for (int k = 0; k < kQuantGroup; ++k) {
      const float product = Rounded(static_cast<float>(codes[k]) * scale, affine);
      out[g * kQuantGroup + k] = Rounded(product + bias, affine);
    }
  }
}

void ReadSuperblock(const std::byte* block, WeightFormat format, int lane, float* out) {
  const size_t group_bytes = GroupBytes(format);
  const std::byte* const groups = block + CodesOffset(format);
  const auto* scales = reinterpret_cast<const uint8_t*>(block) + lane;
  const auto* halves = reinterpret_cast<const uint16_t*>(block + kSmallScaleBytes);
  const float d = F16ToFloat(halves[lane]);
  uint8_t codes[kQuantGroup];
  for (int g = 0; g < kGroups; ++g) {
    ReadGroup(groups + static_cast<size_t>(g) * group_bytes, format, lane, codes);
    float* const values = out + g * kQuantGroup;
    if (format == WeightFormat::kQ6K) {
      for (int k = 0; k < kQuantGroup; ++k) {
        const auto scale = static_cast<int8_t>(scales[(2 * g + k / 16) * kPanelOutputs]);
        values[k] = d * static_cast<float>(scale) * static_cast<float>(codes[k] - 32);
      }
      continue;
    }
    const float scale = d * static_cast<float>(scales[g * kPanelOutputs]);
    const float min = F16ToFloat(halves[kPanelOutputs + lane]) *
                      static_cast<float>(scales[(kGroups + g) * kPanelOutputs]);
    for (int k = 0; k < kQuantGroup; ++k) values[k] = scale * static_cast<float>(codes[k]) - min;
  }
}

void WriteSuperblock(const CodedRow& row, int64_t index, WeightFormat format, int lane,
                     std::byte* block) {
  const auto at = static_cast<size_t>(index);
  const size_t group_bytes = GroupBytes(format);
  std::byte* const groups = block + CodesOffset(format);
  for (size_t g = 0; g < kGroups; ++g) {
    WriteGroup(row.codes.data() + at * kSuperblockInputs + g * kQuantGroup, format, lane,
               groups + g * group_bytes);
  }
  auto* scales = reinterpret_cast<uint8_t*>(block) + lane;
  auto* halves = reinterpret_cast<uint16_t*>(block + kSmallScaleBytes) + lane;
  halves[0] = row.scales[at];
  const bool has_mins = format != WeightFormat::kQ6K;
  if (has_mins) halves[kPanelOutputs] = row.biases[at];
  for (size_t i = 0; i < 2 * kGroups; ++i) {
    scales[i * kPanelOutputs] = !has_mins     ? row.sub_scales[at * 2 * kGroups + i]
                                : i < kGroups ? row.sub_scales[at * kGroups + i]
                                              : row.sub_mins[at * kGroups + i - kGroups];
  }
}

}  // namespace

bool IsCodedOnly(WeightFormat format) { return format >= WeightFormat::kQ4Affine; }

int InputUnit(WeightFormat format, const AffineScales& affine) {
  if (IsAffine(format)) return affine.group_inputs;
  if (format == WeightFormat::kBf16Dot) return 2;
  return IsCodedOnly(format) ? kSuperblockInputs : IsQuantized(format) ? kQuantGroup : 1;
}

size_t AffineScalesOffset(int64_t inputs, WeightFormat format) {
  return static_cast<size_t>(inputs / kQuantGroup) * GroupBytes(format);
}

size_t CodedPanelBytes(int64_t inputs, WeightFormat format, const AffineScales& affine) {
  KVASIR_CHECK(IsCodedOnly(format));
  if (!IsAffine(format)) {
    return static_cast<size_t>(inputs / kSuperblockInputs) * SuperblockBytes(format);
  }
  return AffineScalesOffset(inputs, format) +
         static_cast<size_t>(inputs / affine.group_inputs) * 4 * kPanelOutputs;
}

void WriteCodes(const std::vector<uint8_t>& codes, WeightFormat format, int lane,
                std::byte* panel) {
  const size_t group_bytes = GroupBytes(format);
  for (size_t g = 0; g < codes.size() / kQuantGroup; ++g) {
    WriteGroup(codes.data() + g * kQuantGroup, format, lane, panel + g * group_bytes);
  }
}

void WriteCodedRow(const CodedRow& row, int64_t inputs, WeightFormat format,
                   const AffineScales& affine, int lane, std::byte* panel) {
  if (!IsAffine(format)) {
    for (int64_t i = 0; i < inputs / kSuperblockInputs; ++i) {
      WriteSuperblock(row, i, format, lane, panel + i * SuperblockBytes(format));
    }
    return;
  }
  WriteCodes(row.codes, format, lane, panel);
  auto* scales = reinterpret_cast<uint16_t*>(panel + AffineScalesOffset(inputs, format)) + lane;
  for (size_t g = 0; g < static_cast<size_t>(inputs / affine.group_inputs); ++g) {
    scales[g * 2 * kPanelOutputs] = row.scales[g];
    scales[(g * 2 + 1) * kPanelOutputs] = row.biases[g];
  }
}

void ReadCodedRow(const std::byte* panel, int64_t inputs, WeightFormat format,
                  const AffineScales& affine, int lane, float* out) {
  if (IsAffine(format)) return ReadAffineRow(panel, inputs, format, affine, lane, out);
  for (int64_t i = 0; i < inputs / kSuperblockInputs; ++i) {
    ReadSuperblock(panel + i * SuperblockBytes(format), format, lane, out + i * kSuperblockInputs);
  }
}

}  // namespace kvasir
