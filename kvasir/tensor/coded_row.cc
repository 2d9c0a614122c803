#include "kvasir/tensor/coded_row.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "kvasir/base/check.h"
#include "kvasir/tensor/mxfp8.h"

namespace kvasir {
namespace {

constexpr size_t kLineBytes = kPanelOutputs * 4;  // four inputs of every lane
constexpr int kGroups = kSuperblockInputs / kQuantGroup;

size_t GroupBytes(WeightFormat format) {
  return static_cast<size_t>(CodeBits(format)) * kLineBytes;
}

// Of a superblock.
bool HasMins(WeightFormat format) {
  using enum WeightFormat;
  return format == kQ2K || format == kQ4K || format == kQ5K;
}

// Small scales of a lane in a superblock.
size_t SubScales(WeightFormat format) {
  return static_cast<size_t>(kSuperblockInputs / SubScaleInputs(format));
}

// Scales and mins of one byte.
bool HasNibbleScales(WeightFormat format) { return format == WeightFormat::kQ2K; }

// Small scales and mins of all lanes: what stands before d.
size_t SmallScaleBytes(WeightFormat format) {
  const bool has_own_mins = HasMins(format) && !HasNibbleScales(format);
  return SubScales(format) * kPanelOutputs * (has_own_mins ? 2 : 1);
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

// Bits `shift` to `shift` + 3 of 32 codes, as four lines.
void WriteNibbles(const uint8_t* codes, int shift, int lane, std::byte* lines) {
  for (int j = 0; j < 4; ++j) {
    const uint32_t low = Word(codes + 4 * j) >> shift & 0x0F0F0F0Fu;
    const uint32_t high = Word(codes + 16 + 4 * j) >> shift & 0x0F0F0F0Fu;
    StoreWord(low | high << 4, Lane(lines, j, lane));
  }
}
int Nibble(const std::byte* lines, int k, int lane) {
  const uint8_t pair = Lane(lines, k % 16 / 4, lane)[k % 4];
  return k < 16 ? pair & 15 : pair >> 4;
}

// Bits `shift` and `shift` + 1, as two lines.
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

// Bit `shift`, as one line.
void WriteBits(const uint8_t* codes, int shift, int lane, std::byte* line) {
  uint32_t bits = 0;
  for (int j = 0; j < 8; ++j) bits |= (Word(codes + 4 * j) >> shift & 0x01010101u) << j;
  StoreWord(bits, Lane(line, 0, lane));
}
int Bit(const std::byte* line, int k, int lane) {
  return Lane(line, 0, lane)[k % 4] >> (k / 4) & 1;
}

// Where the pair of inputs (k, k + 1), k even, of a lane stands in a group of mxfp8 and fp8.
size_t PairOffset(int k, int lane) {
  return static_cast<size_t>(k / 4) * kLineBytes + static_cast<size_t>(lane / 4) * 16 +
         static_cast<size_t>(k % 4 / 2) * 8 + static_cast<size_t>(lane % 4) * 2;
}

void ReadPairedCodes(const std::byte* group, int lane, uint8_t* codes) {
  for (int k = 0; k < kQuantGroup; k += 2) std::memcpy(codes + k, group + PairOffset(k, lane), 2);
}
void WritePairedCodes(const uint8_t* codes, int lane, std::byte* group) {
  for (int k = 0; k < kQuantGroup; k += 2) std::memcpy(group + PairOffset(k, lane), codes + k, 2);
}

bool HasPairedCodes(WeightFormat format) {
  return format == WeightFormat::kMxfp8 || format == WeightFormat::kFp8;
}

void ReadGroupCodes(const std::byte* group, WeightFormat format, int lane, uint8_t* codes) {
  if (HasPairedCodes(format)) return ReadPairedCodes(group, lane, codes);
  const int bits = CodeBits(format);
  for (int k = 0; k < kQuantGroup; ++k) {
    int code = 0;
    int done = 0;
    const auto rest = [&] { return group + static_cast<size_t>(done) * kLineBytes; };
    if (bits == 8) {
      code = Lane(group, k / 4, lane)[k % 4];
      done = 8;
    } else if (bits >= 4) {
      code = Nibble(group, k, lane);
      done = 4;
    }
    if (bits - done >= 2) {
      code |= TwoBits(rest(), k, lane) << done;
      done += 2;
    }
    if (bits > done) code |= Bit(rest(), k, lane) << done;
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

// -(scale * zero) is exact: scales have 11 bits, zeros 9.
float BiasOf(uint16_t bits, float scale, const AffineScales& affine) {
  const float bias = Widen(bits, affine.dtype);
  return affine.has_zeros ? -(scale * bias) : bias;
}

void ReadAffineRow(const std::byte* panel, int64_t inputs, WeightFormat format,
                   const AffineScales& affine, int lane, float* out) {
  const GroupUnits units = UnitsOf(format, affine);
  uint8_t codes[kQuantGroup];
  for (size_t g = 0; g < static_cast<size_t>(inputs / kQuantGroup); ++g) {
    ReadGroupCodes(panel + units.CodesOf(g), format, lane, codes);
    const auto* scales = reinterpret_cast<const uint16_t*>(panel + units.ScalesOf(g)) + lane;
    const float scale = Widen(scales[0], affine.dtype);
    const float bias = BiasOf(scales[kPanelOutputs], scale, affine);
    for (size_t k = 0; k < kQuantGroup; ++k) {
      const float product = Rounded(static_cast<float>(codes[k]) * scale, affine);
      out[g * kQuantGroup + k] = Rounded(product + bias, affine);
    }
  }
}

void ReadHalfScaledRow(const std::byte* panel, int64_t inputs, WeightFormat format, int lane,
                       float* out) {
  const GroupUnits units = UnitsOf(format);
  uint8_t codes[kQuantGroup];
  for (size_t g = 0; g < static_cast<size_t>(inputs / kQuantGroup); ++g) {
    ReadGroupCodes(panel + units.CodesOf(g), format, lane, codes);
    const float scale =
        F16ToFloat(reinterpret_cast<const uint16_t*>(panel + units.ScalesOf(g))[lane]);
    for (size_t k = 0; k < kQuantGroup; ++k) {
      out[g * kQuantGroup + k] = static_cast<float>(CodeLevel(format, codes[k])) * scale;
    }
  }
}

void ReadMicroscaledRow(const std::byte* panel, int64_t inputs, WeightFormat format, int lane,
                        float* out) {
  const GroupUnits units = UnitsOf(format);
  const int shared = SubScaleInputs(format);
  uint8_t codes[kQuantGroup];
  for (size_t g = 0; g < static_cast<size_t>(inputs / kQuantGroup); ++g) {
    ReadGroupCodes(panel + units.CodesOf(g), format, lane, codes);
    const auto* scales = reinterpret_cast<const uint8_t*>(panel + units.ScalesOf(g)) + lane;
    for (int k = 0; k < kQuantGroup; ++k) {
      const uint8_t scale = scales[k / shared * kPanelOutputs];
      out[g * kQuantGroup + static_cast<size_t>(k)] =
          format == WeightFormat::kMxfp8
              ? mxfp8::Value(codes[k], scale)
              : static_cast<float>(CodeLevel(format, codes[k])) * MicroscaleOf(scale, format);
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

bool IsE4m3Nan(uint8_t code) { return (code & 0x7F) == mxfp8::kNanCode; }

void ReadFp8Row(const std::byte* panel, int64_t inputs, int lane, float* out) {
  constexpr GroupUnits kUnits = UnitsOf(WeightFormat::kFp8);
  uint8_t codes[kQuantGroup];
  for (size_t g = 0; g < static_cast<size_t>(inputs / kQuantGroup); ++g) {
    ReadPairedCodes(panel + kUnits.CodesOf(g), lane, codes);
    const float scale = reinterpret_cast<const float*>(panel + kUnits.ScalesOf(g))[lane];
    for (size_t k = 0; k < kQuantGroup; ++k) {
      out[g * kQuantGroup + k] = E4m3Value(codes[k]) * scale;
    }
  }
}

// A NaN among codes makes those that share its scale NaN, as it makes every sum with one of them.
void WriteFp8Row(const CodedRow& row, int64_t inputs, int lane, std::byte* panel) {
  constexpr GroupUnits kUnits = UnitsOf(WeightFormat::kFp8);
  uint8_t codes[kQuantGroup];
  for (size_t g = 0; g < static_cast<size_t>(inputs / kQuantGroup); ++g) {
    float* const scale = reinterpret_cast<float*>(panel + kUnits.ScalesOf(g)) + lane;
    if (g % kUnits.groups == 0) *scale = row.wide_scales[g / kUnits.groups];
    std::memcpy(codes, row.codes.data() + g * kQuantGroup, kQuantGroup);
    if (std::any_of(codes, codes + kQuantGroup, IsE4m3Nan)) {
      *scale = std::numeric_limits<float>::quiet_NaN();
      std::replace_if(codes, codes + kQuantGroup, IsE4m3Nan, uint8_t{0});
    }
    WritePairedCodes(codes, lane, panel + kUnits.CodesOf(g));
  }
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
    ReadGroupCodes(groups + static_cast<size_t>(g) * group_bytes, format, lane,
                   codes + g * kQuantGroup);
  }
  for (size_t k = 0; k < kSuperblockInputs; ++k) {
    const size_t at = k / inputs;
    const uint8_t small = scales[at * kPanelOutputs];
    if (HasNibbleScales(format)) {
      out[k] = d * static_cast<float>(small & 15) * static_cast<float>(codes[k]) -
               dmin * static_cast<float>(small >> 4);
    } else if (HasMins(format)) {
      const float min = dmin * static_cast<float>(scales[(count + at) * kPanelOutputs]);
      out[k] = d * static_cast<float>(small) * static_cast<float>(codes[k]) - min;
    } else {
      out[k] = d * static_cast<float>(static_cast<int8_t>(small)) *
               static_cast<float>(CodeLevel(format, codes[k]));
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
    uint8_t* const scale = scales + i * kPanelOutputs;
    *scale = row.sub_scales[at * count + i];
    if (!HasMins(format)) continue;
    const uint8_t min = row.sub_mins[at * count + i];
    if (HasNibbleScales(format)) {
      *scale = static_cast<uint8_t>((*scale & 15) | min << 4);
    } else {
      scale[count * kPanelOutputs] = min;
    }
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

float E4m3Value(uint8_t code) {
  if (IsE4m3Nan(code)) return std::numeric_limits<float>::quiet_NaN();
  return mxfp8::Value(code, 127);
}

bool IsKeptMicroscale(uint8_t scale, WeightFormat format) {
  if (format == WeightFormat::kMxfp8) return scale <= mxfp8::kMostScale;
  return format == WeightFormat::kMxfp4 ? scale != 0xFF : (scale & 0x7F) != 0x7F;
}

bool IsCodedOnly(WeightFormat format) { return format >= WeightFormat::kQ5; }

int SubScaleInputs(WeightFormat format) {
  using enum WeightFormat;
  return format == kQ2K || format == kQ3K || format == kQ6K || format == kNvfp4 ? 16 : 32;
}

int InputUnit(WeightFormat format, const AffineScales& affine) {
  if (IsAffine(format)) return affine.group_inputs;
  if (IsSuperblocked(format)) return kSuperblockInputs;
  if (format == WeightFormat::kBf16Dot) return 2;
  return IsQuantized(format) ? kQuantGroup : 1;
}

void DecodeAffineRow(const CodedRow& row, const AffineScales& affine, float* out) {
  const auto group = static_cast<size_t>(affine.group_inputs);
  for (size_t i = 0; i < row.codes.size(); ++i) {
    const float scale = Widen(row.scales[i / group], affine.dtype);
    // The product is exact: codes have 8 bits, scales 11.
    out[i] =
        static_cast<float>(row.codes[i]) * scale + BiasOf(row.biases[i / group], scale, affine);
  }
}

size_t CodedPanelBytes(int64_t inputs, WeightFormat format, const AffineScales& affine) {
  KVASIR_CHECK(IsQuantized(format));
  if (IsSuperblocked(format)) {
    return static_cast<size_t>(inputs / kSuperblockInputs) * SuperblockBytes(format);
  }
  return UnitsOf(format, affine).PanelBytes(static_cast<size_t>(inputs / kQuantGroup));
}

void WriteGroupCodes(const uint8_t* codes, WeightFormat format, int lane, std::byte* group) {
  if (HasPairedCodes(format)) return WritePairedCodes(codes, lane, group);
  const int bits = CodeBits(format);
  if (bits == 8) {
    for (int j = 0; j < 8; ++j) StoreWord(Word(codes + 4 * j), Lane(group, j, lane));
    return;
  }
  int done = 0;
  if (bits >= 4) {
    WriteNibbles(codes, 0, lane, group);
    done = 4;
  }
  if (bits - done >= 2) {
    WriteTwoBits(codes, done, lane, group + static_cast<size_t>(done) * kLineBytes);
    done += 2;
  }
  if (bits > done) WriteBits(codes, done, lane, group + static_cast<size_t>(done) * kLineBytes);
}

void WriteCodedRow(const CodedRow& row, int64_t inputs, WeightFormat format,
                   const AffineScales& affine, int lane, std::byte* panel) {
  if (format == WeightFormat::kMxfp8) return WriteMxfp8Row(row, inputs, lane, panel);
  if (format == WeightFormat::kFp8) return WriteFp8Row(row, inputs, lane, panel);
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
  if (IsSuperblocked(format)) {
    for (int64_t i = 0; i < inputs / kSuperblockInputs; ++i) {
      WriteSuperblock(row, i, format, lane, panel + i * SuperblockBytes(format));
    }
    return;
  }
  const GroupUnits units = UnitsOf(format, affine);
  WriteCodes(row.codes, format, units, lane, panel);
  const int shared = IsAffine(format) ? affine.group_inputs : kQuantGroup;
  for (size_t i = 0; i < static_cast<size_t>(inputs / shared); ++i) {
    const size_t group = i * static_cast<size_t>(shared / kQuantGroup);
    auto* scales = reinterpret_cast<uint16_t*>(panel + units.ScalesOf(group)) + lane;
    scales[0] = row.scales[i];
    if (IsAffine(format)) scales[kPanelOutputs] = row.biases[i];
  }
}

void ReadCodedRow(const std::byte* panel, int64_t inputs, WeightFormat format,
                  const AffineScales& affine, int lane, float* out) {
  if (IsAffine(format)) return ReadAffineRow(panel, inputs, format, affine, lane, out);
  if (IsMicroscaled(format)) return ReadMicroscaledRow(panel, inputs, format, lane, out);
  if (format == WeightFormat::kFp8) return ReadFp8Row(panel, inputs, lane, out);
  if (!IsSuperblocked(format)) return ReadHalfScaledRow(panel, inputs, format, lane, out);
  for (int64_t i = 0; i < inputs / kSuperblockInputs; ++i) {
    ReadSuperblock(panel + i * SuperblockBytes(format), format, lane, out + i * kSuperblockInputs);
  }
}

}  // namespace kvasir
