// CodedRow: a row of weights as integer codes and the scales that make them values, as quantized
// files hold them; and how such rows lie in the panels of a PackedMatrix.
// Deliberately never quantizes: what a file says is kept to the bit, at about the file's size.
//
// Lanes are the 16 outputs of a panel. "Low and high" codes: byte [j][lane][i] of a group of 32
// inputs holds input 4j + i in its low nibble and input 16 + 4j + i in its high one, j = 0..3.
//
//   q4_affine  per group_inputs inputs: scales [16], biases [16], 16 bits each, codes
//              [group_inputs/32][4][16][4] low and high
//   q8_affine  scales and biases likewise, codes u8 [group_inputs/32][8][16][4]
//   q4_k       per 256 inputs: u8 scale [8][16], u8 min [8][16], f16 d [16], f16 dmin [16], codes
//              [8][4][16][4] low and high
//   q5_k       the same with [16][4] bytes after each 32 inputs' codes: bit j of byte [lane][i]
//              is bit 4 of the code of input 4j + i
//   q6_k       per 256 inputs: i8 scale [16][16], f16 d [16], codes [8] of { [4][16][4] low and
//   high,
//              [2][16][4] bytes whose bits 2j and 2j + 1 are bits 4 and 5 of the code of input
//              16h + 4j + i, h the first index }. Scales stand first, where they are read first
//   q2_k       per 256 inputs: u8 scale [16][16], u8 min [16][16], f16 d [16], f16 dmin [16], codes
//              [8][2][16][4]: as the last bytes of q6_k, bits 0 and 1 of the code
//   iq4_xs     per 256 inputs: i8 scale [8][16], f16 d [16], codes [8][4][16][4] low and high
//   mxfp4      per 128 inputs: u8 scales [4][16], codes [4][4][16][4] low and high
//   nvfp4      per 64 inputs: u8 scales [4][16], codes [2][4][16][4] low and high
//   mxfp8      per 128 inputs: u8 scales [4][16], codes [4][8][4][2][4][2]: byte [j][q][h][t][i] of
//              a group is of input 4j + 2h + i and lane 4q + t, so that the pairs of bf16_dot are
//              neighbours. Of each group what mxfp8::StoreGroup makes of it
//
// Where these and q8 and q4 have fewer inputs than the last line of scales is for, the panel ends
// with the last group's codes (GroupUnits).
//
//   value      q4_affine, q8_affine: code * scale + bias; q4_k, q5_k: d * scale * code - dmin * min
//              q6_k: d * scale * (code - 32); q2_k: as q4_k, scale and min of 16 inputs
//              iq4_xs: d * scale * kIq4Values[code]
//              mxfp4, nvfp4: MicroscaleOf(scale) * kE2m1Values[code]; mxfp8: mxfp8::Value(code,
//              scale)
#ifndef KVASIR_TENSOR_CODED_ROW_H_
#define KVASIR_TENSOR_CODED_ROW_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvasir/tensor/dtype.h"
#include "kvasir/tensor/weight_format.h"

namespace kvasir {

inline constexpr int kSuperblockInputs = 256;  // of the K formats

// What the scales and biases of an affine matrix are.
struct AffineScales {
  int group_inputs = 32;      // 32, 64 or 128 inputs share a scale and a bias
  DType dtype = DType::kF16;  // or kBf16
  // Single values are rounded to dtype after the product and after the sum, as MLX's are. Matmuls
  // never round them (nor do MLX's).
  bool rounds_values = false;

  bool operator==(const AffineScales&) const = default;
};

struct CodedRow {
  std::vector<uint8_t> codes;    // [inputs]; q8 plus 128, q4 plus 8
  std::vector<uint16_t> scales;  // bits: q8, q4 f16 of 32 inputs; affine of a group; K: d
  std::vector<uint16_t> biases;  // affine: of a group; q4_k, q5_k, q2_k: dmin
  // Of SubScaleInputs; q6_k and iq4_xs: signed; mxfp4, mxfp8: E8M0, nvfp4: E4M3 (OCP
  // Microscaling 1.0).
  std::vector<uint8_t> sub_scales;
  std::vector<uint8_t> sub_mins;  // likewise; q4_k, q5_k, q2_k
};

// What the codes of iq4_xs mean, as in ggml.
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

// Inputs that share a small scale: 16 or 32.
int SubScaleInputs(WeightFormat format);

// The formats above: those that hold CodedRows and nothing else.
bool IsCodedOnly(WeightFormat format);

// How the groups of 32 inputs lie in a panel of q8, q4 and of the affine and microscaled formats,
// in bytes from its start: in units of a line of scales and the codes that they are for, so that a
// panel is read from end to end. The last unit may have fewer groups.
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
  constexpr size_t kCodes = kQuantGroup * kPanelOutputs;
  const bool is_byte = format == kQ8 || format == kQ8Affine || format == kMxfp8;
  const size_t code_bytes = is_byte ? kCodes : kCodes / 2;
  if (format == kQ8Affine || format == kQ4Affine) {
    return {static_cast<size_t>(affine.group_inputs / kQuantGroup), code_bytes, 0};
  }
  const size_t scale_bytes =
      format == kMxfp4 || format == kMxfp8 ? kPanelOutputs : 2 * kPanelOutputs;
  return {GroupUnits::kLineBytes / scale_bytes, code_bytes, scale_bytes};
}

// Of one panel. REQUIRES: IsCodedOnly; inputs a multiple of InputUnit.
size_t CodedPanelBytes(int64_t inputs, WeightFormat format, const AffineScales& affine);
// Multiples that the inputs of a matrix must be.
int InputUnit(WeightFormat format, const AffineScales& affine);

// code * scale + bias in float32, whatever `affine` says of rounding, of codes.size() inputs.
void DecodeAffineRow(const CodedRow& row, const AffineScales& affine, float* out);

// Only the codes of one lane and 32 inputs, where those of the group begin.
void WriteGroupCodes(const uint8_t* codes, WeightFormat format, int lane, std::byte* group);
// One lane of one panel. `row` has what its format needs.
void WriteCodedRow(const CodedRow& row, int64_t inputs, WeightFormat format,
                   const AffineScales& affine, int lane, std::byte* panel);
void ReadCodedRow(const std::byte* panel, int64_t inputs, WeightFormat format,
                  const AffineScales& affine, int lane, float* out);

}  // namespace kvasir

#endif  // KVASIR_TENSOR_CODED_ROW_H_
