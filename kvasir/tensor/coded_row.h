// CodedRow: a row of weights as integer codes and the scales that make them values, as quantized
// files hold them; and how such rows lie in the panels of a PackedMatrix.
// Deliberately never quantizes: what a file says is kept to the bit, at about the file's size.
//
// Lanes are the 16 outputs of a panel. Codes of a group of 32 inputs take 64 bytes a bit; how they
// lie depends on their bits alone (CodeBits):
//
//   8          [8][16][4]: byte [j][lane][i] is the code of input 4j + i
//   4          [4][16][4]: byte [j][lane][i] holds that of input 4j + i in its low nibble, of
//              input 16 + 4j + i in its high one
//   2          [2][16][4]: bits 2j and 2j + 1 of byte [h][lane][i] are that of input 16h + 4j + i
//   6          bits 0 to 3 as those of 4, then bits 4 and 5 as those of 2
//   1          [16][4]: bit j of byte [lane][i] is that of input 4j + i
//   5, 3       the lower bits as those of 4 and 2, then the highest ones as those of 1
//
// Scales stand before the codes they are for, where they are read first:
//
//   qN_affine  per group_inputs inputs: scales [16], biases [16], 16 bits each; groups
//   q8, q4, q5, iq4_nl
//              per 64 inputs: f16 scales [2][16]; groups
//   q4_k, q5_k per 256 inputs: u8 scale [8][16], u8 min [8][16], f16 d [16], f16 dmin [16]; groups
//   q2_k       the same with u8 [16][16], low nibbles scales and high ones mins
//   q3_k, q6_k per 256 inputs: i8 scale [16][16], f16 d [16]; groups
//   iq4_xs     per 256 inputs: i8 scale [8][16], f16 d [16]; groups
//   mxfp4      per 128 inputs: u8 scales [4][16]; groups
//   nvfp4      per 64 inputs: u8 scales [4][16]; groups
//   mxfp8      per 128 inputs: u8 scales [4][16]; groups [8][4][2][4][2]: byte [j][q][h][t][i]
//              is of input 4j + 2h + i and lane 4q + t, so that the pairs of bf16_dot are
//              neighbours. Of each group what mxfp8::StoreGroup makes of it
//   fp8        per 128 inputs: f32 scales [16]; groups as those of mxfp8. NaN is in scales alone
//
// Where there are fewer inputs than the last line of scales is for, the panel ends with the last
// group's codes (GroupUnits).
//
//   value      qN_affine: code * scale + bias, or (code - bias) * scale (AffineScales)
//              q8, q4, q5, iq4_nl: scale * CodeLevel(code)
//              q2_k, q4_k, q5_k: d * scale * code - dmin * min
//              q3_k, q6_k, iq4_xs: d * scale * CodeLevel(code)
//              mxfp4, nvfp4: MicroscaleOf(scale) * CodeLevel(code)
//              mxfp8: mxfp8::Value(code, scale)
//              fp8: E4m3Value(code) * scale
#ifndef KVASIR_TENSOR_CODED_ROW_H_
#define KVASIR_TENSOR_CODED_ROW_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvasir/tensor/dtype.h"
#include "kvasir/tensor/weight_format.h"

namespace kvasir {

inline constexpr int kSuperblockInputs = 256;  // of the K formats
inline constexpr int kFp8Inputs = 128;         // that share a scale of fp8

// What the scales and biases of an affine matrix are.
struct AffineScales {
  int group_inputs = 32;      // 32, 64 or 128 inputs share a scale and a bias
  DType dtype = DType::kF16;  // or kBf16
  // Single values are rounded to dtype after the product and after the sum, as MLX's are. Matmuls
  // never round them (nor do MLX's).
  bool rounds_values = false;
  // A bias is a natural number, the code of 0, and stands for -(scale * it), which 16 bits would
  // not hold.
  bool has_zeros = false;

  bool operator==(const AffineScales&) const = default;
};

struct CodedRow {
  std::vector<uint8_t> codes;  // [inputs], natural numbers of CodeBits
  // Bits: of q8, q4, q5 and iq4_nl f16, of 32 inputs; affine: of a group; those of 256 inputs: d.
  std::vector<uint16_t> scales;
  std::vector<uint16_t> biases;  // affine: of a group; q2_k, q4_k, q5_k: dmin
  // Of SubScaleInputs; q3_k, q6_k and iq4_xs: signed; mxfp4, mxfp8: E8M0, nvfp4: E4M3 (OCP
  // Microscaling 1.0).
  std::vector<uint8_t> sub_scales;
  std::vector<uint8_t> sub_mins;   // likewise; q2_k (both below 16), q4_k, q5_k
  std::vector<float> wide_scales;  // fp8: of kFp8Inputs
};

// What the codes of iq4_nl and iq4_xs mean, as in ggml.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

// What the codes of mxfp4 and nvfp4 (E2M1) mean, doubled.
inline constexpr int8_t kE2m1Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
// Half of what a scale of mxfp4 (E8M0) or nvfp4 (E4M3) means, exactly; NaN is a number here.
float MicroscaleOf(uint8_t scale, WeightFormat format);
// Whether a matrix with such a scale can be kept: not with NaN, and of mxfp8 none that is larger
// than mxfp8::kMostScale.
bool IsKeptMicroscale(uint8_t scale, WeightFormat format);
// mxfp4, nvfp4 and mxfp8.
bool IsMicroscaled(WeightFormat format);
// What a code of fp8 means (OCP 8-bit Floating Point 1.0, E4M3), without its scale.
float E4m3Value(uint8_t code);

// Inputs that share a small scale: 16 or 32.
int SubScaleInputs(WeightFormat format);

// Those that hold CodedRows and nothing else: the quantized ones but q8 and q4.
bool IsCodedOnly(WeightFormat format);

// Scales and biases of 16 bits for a number of inputs that a matrix says (AffineScales).
constexpr bool IsAffine(WeightFormat format) {
  return format >= WeightFormat::kQ1Affine && format <= WeightFormat::kQ8Affine;
}

// Superblocks of 256 inputs, whose small scales are multiplied with those of all of them.
constexpr bool IsSuperblocked(WeightFormat format) {
  return format >= WeightFormat::kQ2K && format <= WeightFormat::kIq4Xs;
}

// Natural numbers below 2^bits. REQUIRES: a quantized format.
constexpr int CodeBits(WeightFormat format) {
  using enum WeightFormat;
  switch (format) {
    case kQ1Affine:
      return 1;
    case kQ2Affine:
    case kQ2K:
      return 2;
    case kQ3Affine:
    case kQ3K:
      return 3;
    case kQ5:
    case kQ5Affine:
    case kQ5K:
      return 5;
    case kQ6Affine:
    case kQ6K:
      return 6;
    case kQ8:
    case kQ8Affine:
    case kMxfp8:
    case kFp8:
      return 8;
    default:
      return 4;
  }
}

// What a code is multiplied with its scales as. REQUIRES: a quantized format but mxfp8 and fp8.
constexpr int CodeLevel(WeightFormat format, int code) {
  using enum WeightFormat;
  switch (format) {
    case kQ8:
      return code - 128;
    case kQ4:
      return code - 8;
    case kQ5:
      return code - 16;
    case kQ3K:
      return code - 4;
    case kQ6K:
      return code - 32;
    case kIq4Nl:
    case kIq4Xs:
      return kIq4Values[code];
    case kMxfp4:
    case kNvfp4:
      return kE2m1Values[code];
    default:
      return code;
  }
}

// How the groups of 32 inputs lie in a panel of all formats but superblocks, in bytes from its
// start: in units of a line of scales and the codes that they are for, so that a panel is read from
// end to end. The last unit may have fewer groups.
struct GroupUnits {
  static constexpr size_t kLineBytes = 64;

  size_t groups;       // of a unit
  size_t code_bytes;   // of a group
  size_t scale_bytes;  // of a group; 0 where those of a unit share theirs

  constexpr size_t unit_bytes() const { return kLineBytes + groups * code_bytes; }
  constexpr size_t ScalesOf(size_t group) const {
    return group / groups * unit_bytes() + group % groups * scale_bytes;
  }
  constexpr size_t CodesOf(size_t group) const {
    return group / groups * unit_bytes() + kLineBytes + group % groups * code_bytes;
  }
  constexpr size_t PanelBytes(size_t count) const {
    return count == 0 ? 0 : CodesOf(count - 1) + code_bytes;
  }
};
// REQUIRES: one of those formats.
constexpr GroupUnits UnitsOf(WeightFormat format, const AffineScales& affine = {}) {
  using enum WeightFormat;
  const size_t code_bytes = static_cast<size_t>(CodeBits(format) * kQuantGroup * kPanelOutputs / 8);
  if (IsAffine(format)) {
    return {static_cast<size_t>(affine.group_inputs / kQuantGroup), code_bytes, 0};
  }
  if (format == kFp8) return {kFp8Inputs / kQuantGroup, code_bytes, 0};
  const size_t scale_bytes =
      format == kMxfp4 || format == kMxfp8 ? kPanelOutputs : 2 * kPanelOutputs;
  return {GroupUnits::kLineBytes / scale_bytes, code_bytes, scale_bytes};
}

// Of one panel. REQUIRES: a quantized format; inputs a multiple of InputUnit.
size_t CodedPanelBytes(int64_t inputs, WeightFormat format, const AffineScales& affine);
// Multiples that the inputs of a matrix must be.
int InputUnit(WeightFormat format, const AffineScales& affine);

// code * scale + bias in float32, whatever `affine` says of rounding, of codes.size() inputs.
void DecodeAffineRow(const CodedRow& row, const AffineScales& affine, float* out);

// Only the codes of one lane and 32 inputs, where those of the group begin.
void WriteGroupCodes(const uint8_t* codes, WeightFormat format, int lane, std::byte* group);
// One lane of one panel of a quantized format. `row` has what it needs.
void WriteCodedRow(const CodedRow& row, int64_t inputs, WeightFormat format,
                   const AffineScales& affine, int lane, std::byte* panel);
void ReadCodedRow(const std::byte* panel, int64_t inputs, WeightFormat format,
                  const AffineScales& affine, int lane, float* out);

}  // namespace kvasir

#endif  // KVASIR_TENSOR_CODED_ROW_H_
