#include "kvasir/tensor/coded_row.h"

#include <bit>
#include <cstring>

#include "kvasir/base/check.h"
#include "kvasir/tensor/mxfp8.h"

namespace kvasir {
namespace {

constexpr size_t kNibbleBytes = kQuantGroup * kPanelOutputs / 2;  // of a group's low and high codes
constexpr size_t kLineBytes = kPanelOutputs * 4;                  // four inputs of every lane
constexpr int kGroups = kSuperblockInputs / kQuantGroup;

// Bytes of 32 inputs' codes of the K formats.
size_t GroupBytes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kQ5K:
      return kNibbleBytes + kLineBytes;
    case WeightFormat::kQ6K:
      return kNibbleBytes + 2 * kLineBytes;
    case WeightFormat::kQ2K:
      return 2 * kLineBytes;
    default:
      return kNibbleBytes;
  }
}

bool IsAffine(WeightFormat format) {
  return format == WeightFormat::kQ4Affine || format == WeightFormat::kQ8Affine;
}

bool HasMins(WeightFormat format) {
  return format != WeightFormat::kQ6K && format != WeightFormat::kIq4Xs && !IsMicroscaled(format);
}

// Small scales of a lane in a superblock.
size_t SubScales(WeightFormat format) {
  return static_cast<size_t>(kSuperblockInputs / SubScaleInputs(format));
}

// Small scales and mins of all lanes: what stands before d.
size_t SmallScaleBytes(WeightFormat format) {
  return SubScales(format) * kPanelOutputs * (HasMins(format) ? 2 : 1);
}

// Where the codes of a superblock begin.
size_t CodesOffset(WeightFormat format) {
  return SmallScaleBytes(format) + (HasMins(format) ? 2 : 1) * 2 * kPanelOutputs;
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

// Bits `shift` and `shift` + 1 of 32 codes, as two lines.
void WriteTwoBits(const uint8_t* codes, int shift, int lane, std::byte* lines) {
  for (int half = 0; half < 2; ++half) {
    uint32_t bits = 0;
    for (int j = 0; j < 4; ++j) {
      bits |= (Word(codes + 16 * half + 4 * j) >> shift & 0x03030303u) << (2 * j);
    }
    StoreWord(bits, Lane(lines, half, lane));
  }
}

int TwoBits(const std::byte* lines, int k, int lane) {
  return Lane(lines, k / 16, lane)[k % 4] >> (k % 16 / 4 * 2) & 3;
}

// Where the pair of inputs (k, k + 1), k even, of a lane stands in a group of mxfp8.
size_t PairOffset(int k, int lane) {
  return static_cast<size_t>(k / 4) * kLineBytes + static_cast<size_t>(lane / 4) * 16 +
         static_cast<size_t>(k % 4 / 2) * 8 + static_cast<size_t>(lane % 4) * 2;
}

void ReadGroup(const std::byte* group, WeightFormat format, int lane, uint8_t* codes) {
  if (format == WeightFormat::kMxfp8) {
    for (int k = 0; k < kQuantGroup; k += 2) {
      std::memcpy(codes + k, group + PairOffset(k, lane), 2);
    }
    return;
  }
  for (int k = 0; k < kQuantGroup; ++k) {
    if (format == WeightFormat::kQ8Affine) {
      codes[k] = Lane(group, k / 4, lane)[k % 4];
      continue;
    }
    if (format == WeightFormat::kQ2K) {
      codes[k] = static_cast<uint8_t>(TwoBits(group, k, lane));
      continue;
    }
    const uint8_t pair = Lane(group, k % 16 / 4, lane)[k % 4];
    int code = k < 16 ? pair & 15 : pair >> 4;
    if (format == WeightFormat::kQ5K) {
      code |= (Lane(group, 4, lane)[k % 4] >> (k / 4) & 1) << 4;
    } else if (format == WeightFormat::kQ6K) {
      code |= TwoBits(group + kNibbleBytes, k, lane) << 4;
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
  const GroupUnits units = UnitsOf(format, affine);
  uint8_t codes[kQuantGroup];
  for (size_t g = 0; g < static_cast<size_t>(inputs / kQuantGroup); ++g) {
    ReadGroup(panel + units.CodesOf(g), format, lane, codes);
    const auto* scales = reinterpret_cast<const uint16_t*>(panel + units.ScalesOf(g)) + lane;
    const float scale = Widen(scales[0], affine.dtype);
    const float bias = Widen(scales[kPanelOutputs], affine.dtype);
    for (size_t k = 0; k < kQuantGroup; ++k) {
      const float product = Rounded(static_cast<float>(codes[k]) * scale, affine);
      out[g * kQuantGroup + k] = Rounded(product + bias, affine);
    }
  }
}

void ReadMicroscaledRow(const std::byte* panel, int64_t inputs, WeightFormat format, int lane,
                        float* out) {
  const GroupUnits units = UnitsOf(format);
  const int shared = SubScaleInputs(format);
  uint8_t codes[kQuantGroup];
  for (size_t g = 0; g < static_cast<size_t>(inputs / kQuantGroup); ++g) {
    ReadGroup(panel + units.CodesOf(g), format, lane, codes);
    const auto* scales = reinterpret_cast<const uint8_t*>(panel + units.ScalesOf(g)) + lane;
    for (int k = 0; k < kQuantGroup; ++k) {
      const uint8_t scale = scales[k / shared * kPanelOutputs];
      out[g * kQuantGroup + static_cast<size_t>(k)] =
          format == WeightFormat::kMxfp8
              ? mxfp8::Value(codes[k], scale)
              : static_cast<float>(kE2m1Values[codes[k]]) * MicroscaleOf(scale, format);
    }
  }
}

void WriteMxfp8Row(const CodedRow& row, int64_t inputs, int lane, std::byte* panel) {
  constexpr GroupUnits kUnits = UnitsOf(WeightFormat::kMxfp8);
  uint8_t codes[kQuantGroup];
  for (size_t g = 0; g < static_cast<size_t>(inputs / kQuantGroup); ++g) {
    std::memcpy(codes, row.codes.data() + g * kQuantGroup, kQuantGroup);
    uint8_t scale = row.sub_scales[g];
    mxfp8::StoreGroup(codes, &scale);
    WriteGroupCodes(codes, WeightFormat::kMxfp8, lane, panel + kUnits.CodesOf(g));
    reinterpret_cast<uint8_t*>(panel + kUnits.ScalesOf(g))[lane] = scale;
  }
}

// The value of a code but for its scale.
int Level(WeightFormat format, uint8_t code) {
  return format == WeightFormat::kQ6K     ? code - 32
         : format == WeightFormat::kIq4Xs ? kIq4Values[code & 15]
                                          : code;
}

void ReadSuperblock(const std::byte* block, WeightFormat format, int lane, float* out) {
  const size_t group_bytes = GroupBytes(format);
  const std::byte* const groups = block + CodesOffset(format);
  const auto* scales = reinterpret_cast<const uint8_t*>(block) + lane;
  const auto* halves = reinterpret_cast<const uint16_t*>(block + SmallScaleBytes(format));
  const float d = F16ToFloat(halves[lane]);
  const float dmin = HasMins(format) ? F16ToFloat(halves[kPanelOutputs + lane]) : 0.0f;
  const size_t count = SubScales(format);
  const size_t inputs = static_cast<size_t>(SubScaleInputs(format));
  uint8_t codes[kSuperblockInputs];
  for (int g = 0; g < kGroups; ++g) {
    ReadGroup(groups + static_cast<size_t>(g) * group_bytes, format, lane, codes + g * kQuantGroup);
  }
  for (size_t k = 0; k < kSuperblockInputs; ++k) {
    const size_t at = k / inputs;
    const uint8_t small = scales[at * kPanelOutputs];
    if (HasMins(format)) {
      const float min = dmin * static_cast<float>(scales[(count + at) * kPanelOutputs]);
      out[k] = d * static_cast<float>(small) * static_cast<float>(codes[k]) - min;
    } else {
      out[k] = d * static_cast<float>(static_cast<int8_t>(small)) *
               static_cast<float>(Level(format, codes[k]));
    }
  }
}

void WriteSuperblock(const CodedRow& row, int64_t index, WeightFormat format, int lane,
                     std::byte* block) {
  const auto at = static_cast<size_t>(index);
  const size_t group_bytes = GroupBytes(format);
  std::byte* const groups = block + CodesOffset(format);
  for (size_t g = 0; g < kGroups; ++g) {
    WriteGroupCodes(row.codes.data() + at * kSuperblockInputs + g * kQuantGroup, format, lane,
                    groups + g * group_bytes);
  }
  auto* scales = reinterpret_cast<uint8_t*>(block) + lane;
  auto* halves = reinterpret_cast<uint16_t*>(block + SmallScaleBytes(format)) + lane;
  halves[0] = row.scales[at];
  if (HasMins(format)) halves[kPanelOutputs] = row.biases[at];
  const size_t count = SubScales(format);
  for (size_t i = 0; i < count; ++i) {
    scales[i * kPanelOutputs] = row.sub_scales[at * count + i];
    if (HasMins(format)) scales[(count + i) * kPanelOutputs] = row.sub_mins[at * count + i];
  }
}

void WriteCodes(const std::vector<uint8_t>& codes, WeightFormat format, const GroupUnits& units,
                int lane, std::byte* panel) {
  for (size_t g = 0; g < codes.size() / kQuantGroup; ++g) {
    WriteGroupCodes(codes.data() + g * kQuantGroup, format, lane, panel + units.CodesOf(g));
  }
}

}  // namespace

bool IsMicroscaled(WeightFormat format) {
  return format == WeightFormat::kMxfp4 || format == WeightFormat::kNvfp4 ||
         format == WeightFormat::kMxfp8;
}

float MicroscaleOf(uint8_t scale, WeightFormat format) {
  if (format == WeightFormat::kMxfp4) {
    // 2^(scale - 128): the first two are no normal numbers.
    return std::bit_cast<float>(scale < 2 ? (scale + 1u) << 21 : (scale - 1u) << 23);
  }
  // The same bits as an f16 are 2^-8 of it, as f16 counts its exponents from 15 and E4M3 from 7.
  const auto half = static_cast<uint16_t>((scale & 0x80) << 8 | (scale & 0x7F) << 7);
  return F16ToFloat(half) * 128.0f;
}

bool IsKeptMicroscale(uint8_t scale, WeightFormat format) {
  if (format == WeightFormat::kMxfp8) return scale <= mxfp8::kMostScale;
  return format == WeightFormat::kMxfp4 ? scale != 0xFF : (scale & 0x7F) != 0x7F;
}

bool IsCodedOnly(WeightFormat format) { return format >= WeightFormat::kQ4Affine; }

int SubScaleInputs(WeightFormat format) {
  using enum WeightFormat;
  return format == kQ6K || format == kQ2K || format == kNvfp4 ? 16 : 32;
}

int InputUnit(WeightFormat format, const AffineScales& affine) {
  if (IsAffine(format)) return affine.group_inputs;
  if (IsMicroscaled(format)) return kQuantGroup;
  if (format == WeightFormat::kBf16Dot) return 2;
  return IsCodedOnly(format) ? kSuperblockInputs : IsQuantized(format) ? kQuantGroup : 1;
}

void DecodeAffineRow(const CodedRow& row, const AffineScales& affine, float* out) {
  const auto group = static_cast<size_t>(affine.group_inputs);
  for (size_t i = 0; i < row.codes.size(); ++i) {
    const float scale = Widen(row.scales[i / group], affine.dtype);
    // The product is exact: codes have 8 bits, scales 11.
    out[i] = static_cast<float>(row.codes[i]) * scale + Widen(row.biases[i / group], affine.dtype);
  }
}

size_t CodedPanelBytes(int64_t inputs, WeightFormat format, const AffineScales& affine) {
  KVASIR_CHECK(IsCodedOnly(format));
  if (IsMicroscaled(format) || IsAffine(format)) {
    return UnitsOf(format, affine).PanelBytes(static_cast<size_t>(inputs / kQuantGroup));
  }
  return static_cast<size_t>(inputs / kSuperblockInputs) * SuperblockBytes(format);
}

void WriteGroupCodes(const uint8_t* codes, WeightFormat format, int lane, std::byte* group) {
  if (format == WeightFormat::kMxfp8) {
    for (int k = 0; k < kQuantGroup; k += 2) {
      std::memcpy(group + PairOffset(k, lane), codes + k, 2);
    }
    return;
  }
  if (format == WeightFormat::kQ8Affine) {
    for (int j = 0; j < 8; ++j) StoreWord(Word(codes + 4 * j), Lane(group, j, lane));
    return;
  }
  if (format == WeightFormat::kQ2K) return WriteTwoBits(codes, 0, lane, group);
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
    WriteTwoBits(codes, 4, lane, group + kNibbleBytes);
  }
}

void WriteCodedRow(const CodedRow& row, int64_t inputs, WeightFormat format,
                   const AffineScales& affine, int lane, std::byte* panel) {
  if (format == WeightFormat::kMxfp8) return WriteMxfp8Row(row, inputs, lane, panel);
  if (IsMicroscaled(format)) {
    const GroupUnits units = UnitsOf(format);
    WriteCodes(row.codes, format, units, lane, panel);
    const auto parts = static_cast<size_t>(kQuantGroup / SubScaleInputs(format));
    for (size_t i = 0; i < static_cast<size_t>(inputs) / kQuantGroup * parts; ++i) {
      auto* scales = reinterpret_cast<uint8_t*>(panel + units.ScalesOf(i / parts)) + lane;
      scales[i % parts * kPanelOutputs] = row.sub_scales[i];
    }
    return;
  }
  if (!IsAffine(format)) {
    for (int64_t i = 0; i < inputs / kSuperblockInputs; ++i) {
      WriteSuperblock(row, i, format, lane, panel + i * SuperblockBytes(format));
    }
    return;
  }
  const GroupUnits units = UnitsOf(format, affine);
  WriteCodes(row.codes, format, units, lane, panel);
  for (size_t unit = 0; unit < static_cast<size_t>(inputs / affine.group_inputs); ++unit) {
    auto* scales = reinterpret_cast<uint16_t*>(panel + units.ScalesOf(unit * units.groups)) + lane;
    scales[0] = row.scales[unit];
    scales[kPanelOutputs] = row.biases[unit];
  }
}

void ReadCodedRow(const std::byte* panel, int64_t inputs, WeightFormat format,
                  const AffineScales& affine, int lane, float* out) {
  if (IsAffine(format)) return ReadAffineRow(panel, inputs, format, affine, lane, out);
  if (IsMicroscaled(format)) return ReadMicroscaledRow(panel, inputs, format, lane, out);
  for (int64_t i = 0; i < inputs / kSuperblockInputs; ++i) {
    ReadSuperblock(panel + i * SuperblockBytes(format), format, lane, out + i * kSuperblockInputs);
  }
}

}  // namespace kvasir
