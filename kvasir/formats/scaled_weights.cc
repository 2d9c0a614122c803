#include "kvasir/formats/scaled_weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/formats/hf_parts.h"
#include "kvasir/formats/integer_weights.h"
#include "kvasir/formats/mlx_weights.h"
#include "kvasir/tensor/packed_codes.h"

namespace kvasir {
namespace {

using hf::Bytes;
using hf::Check;
using hf::CheckMatrix;
using hf::GroupsOfInputs;
using hf::IsScaleType;
using hf::kMostExtent;
using hf::Misfit;
using hf::ReadScale;
using hf::ReadStream;
using hf::StreamCode;
using hf::Word;

// Blocks of a matrix that share a scale.
struct ScaleBlocks {
  TensorView scales;
  int64_t outputs = 0;  // of a block
  int64_t inputs = 0;
  int64_t columns = 1;  // blocks in a row of them

  float At(int64_t row, int64_t column) const {
    return ReadScale(scales, row / outputs * columns + column);
  }
};

struct MatrixSize {
  int64_t outputs = 0;
  int64_t inputs = 0;
};

// One scale for all, for each output, for groups of inputs of each, or for blocks of both, which
// ModelOpt writes as [rows, 1, columns, 1].
Result<ScaleBlocks> BlocksOf(std::string_view part, const TensorView& scales,
                             const MatrixSize& matrix, const HfQuantization* quantization) {
  const HfQuantization usual;
  const HfQuantization& given = quantization == nullptr ? usual : *quantization;
  const std::vector<int64_t>& shape = scales.shape;
  const bool is_spread = shape.size() == 4 && shape[1] == 1 && shape[3] == 1;
  const int64_t rows = shape.empty() ? 1 : shape[0];
  const int64_t columns = is_spread ? shape[2] : shape.size() == 2 ? shape[1] : 1;
  ScaleBlocks blocks;
  blocks.scales = scales;
  blocks.columns = columns;
  const auto is_divided = [](int64_t extent, int64_t block, int64_t count) {
    return block > 0 && (extent + block - 1) / block == count;
  };
  const bool has_channels = rows == matrix.outputs && columns == 1;
  const bool is_of_all = rows == 1 && columns == 1;
  blocks.outputs = rows == matrix.outputs ? 1 : is_of_all ? matrix.outputs : given.block_outputs;
  blocks.inputs = has_channels || is_of_all ? matrix.inputs : given.block_inputs;
  // Groups of an output's inputs are alike, whatever blocks have.
  const bool has_groups = rows == matrix.outputs && columns > 0 && matrix.inputs % columns == 0;
  if (has_groups && given.block_outputs != 1) blocks.inputs = matrix.inputs / columns;
  if (!IsScaleType(scales.dtype) || (shape.size() > 2 && !is_spread) || scales.elements() == 0 ||
      !is_divided(matrix.outputs, blocks.outputs, rows) ||
      !is_divided(matrix.inputs, blocks.inputs, columns)) {
    return Misfit(part, scales,
                  "one float for all, for each of " + std::to_string(matrix.outputs) +
                      " outputs or for each block of " + std::to_string(given.block_outputs) +
                      " outputs and " + std::to_string(given.block_inputs) + " inputs");
  }
  return blocks;
}

void AddSource(const TensorView& view, int64_t rows, WeightTensor* tensor) {
  if (!view.shape.empty() && view.shape[0] == rows) tensor->source.push_back(Bytes(view));
}

// The scales of whole numbers, and the groups that share them. REQUIRES: the matrix has its
// extents.
Result<ScaleBlocks> SetScales(const FindPart& find, const TensorView& scales,
                              IntegerMatrix* matrix) {
  if (!IsFloatType(scales.dtype)) return Misfit("weight_scale", scales, "f16, bf16 or f32");
  KVASIR_TRY(const ScaleBlocks blocks,
             BlocksOf("weight_scale", scales, {matrix->outputs, matrix->inputs}, nullptr));
  matrix->group_inputs = blocks.inputs;
  matrix->scale_type = scales.dtype;
  matrix->scale = [blocks](int64_t row, int64_t group) { return blocks.At(row, group); };
  KVASIR_TRY(matrix->groups_of_inputs,
             GroupsOfInputs("weight_g_idx", find("weight_g_idx"), matrix->inputs, blocks.inputs,
                            blocks.columns));
  return blocks;
}

// How compressed-tensors packs codes into words: as a stream or, before its newest versions, as
// many as fit whole into each.
struct CodePacking {
  int bits = 0;
  bool is_stream = true;

  int64_t PerWord() const { return 32 / bits; }
  int64_t Words(int64_t codes) const {
    return is_stream ? RowWords(codes, bits) : (codes + PerWord() - 1) / PerWord();
  }
  // Code `index` of those that begin with word `first` and go on `stride` words further.
  int Code(const TensorView& words, int64_t first, int64_t stride, int64_t index) const {
    if (is_stream) return StreamCode(words, first, stride, bits, index);
    const uint32_t word = Word(words, first + index / PerWord() * stride);
    return static_cast<int>(word >> index % PerWord() * bits & ((1u << bits) - 1));
  }
  void Read(const TensorView& words, int64_t first, int64_t count, uint8_t* codes) const {
    if (is_stream) return ReadStream(words, first, 1, bits, count, codes);
    for (int64_t i = 0; i < count; ++i) codes[i] = static_cast<uint8_t>(Code(words, first, 1, i));
  }
};

// The packings that give rows of so many codes so many words. `bits`: those that codes may have;
// empty: any, as a stream.
std::vector<CodePacking> PackingsOf(int64_t codes, int64_t words, const std::vector<int>& bits) {
  std::vector<CodePacking> found;
  for (int some = 1; some <= 8; ++some) {
    const bool is_known = std::find(bits.begin(), bits.end(), some) != bits.end();
    if (!bits.empty() && !is_known) continue;
    const CodePacking stream = {some, true};
    const CodePacking whole = {some, false};
    if (stream.Words(codes) == words) found.push_back(stream);
    // Of codes that divide a word the two are one.
    if (is_known && 32 % some != 0 && whole.Words(codes) == words) found.push_back(whole);
  }
  return found;
}

// pack-quantized of compressed-tensors: codes with half of their range added.
Result<WeightTensor> PackedIntegers(const FindPart& find, const TensorView& packed,
                                    const TensorView& scales, const std::vector<int>& known_bits) {
  const TensorView* const shape = find("weight_shape");
  const TensorView* const zeros = find("weight_zero_point");
  if (shape == nullptr || shape->shape != std::vector<int64_t>{2} ||
      (shape->dtype != DType::kI64 && shape->dtype != DType::kI32)) {
    return {ErrorCode::kCorrupt, "weight_shape must be two numbers"};
  }
  const auto extent = [&](int64_t i) {
    int64_t wide;
    if (shape->dtype == DType::kI32) return int64_t{static_cast<int32_t>(Word(*shape, i))};
    std::memcpy(&wide, shape->data + i * 8, sizeof(wide));
    return wide;
  };
  IntegerMatrix matrix;
  matrix.outputs = extent(0);
  matrix.inputs = extent(1);
  if (matrix.outputs != packed.shape[0] || matrix.inputs < 1 || matrix.inputs >= kMostExtent) {
    return {ErrorCode::kCorrupt, "weight_shape says " + ShapeString({extent(0), extent(1)}) +
                                     ", weight_packed has " + ShapeString(packed.shape)};
  }
  const std::vector<CodePacking> packings = PackingsOf(matrix.inputs, packed.shape[1], known_bits);
  // Fewer than 32 inputs may take as many words with one bit more.
  if (packings.empty() || matrix.inputs < 32) {
    std::string bits;
    for (const int some : known_bits) bits += (bits.empty() ? "" : " or ") + std::to_string(some);
    return Misfit("weight_packed", packed,
                  "rows of at least 32 codes of " + (bits.empty() ? "at most 8" : bits) +
                      " bits, here " + std::to_string(matrix.inputs));
  }
  if (packings.size() > 1) {
    return {ErrorCode::kUnsupported, "weight_packed " + ShapeString(packed.shape) +
                                         " may have codes of " + std::to_string(packings[0].bits) +
                                         " or of " + std::to_string(packings[1].bits) +
                                         " bits, by config.json, and the words do not tell"};
  }
  const CodePacking packing = packings.front();
  matrix.bits = packing.bits;
  KVASIR_TRY(const ScaleBlocks blocks, SetScales(find, scales, &matrix));
  matrix.read_codes = [packed, packing, inputs = matrix.inputs](int64_t row, uint8_t* out) {
    packing.Read(packed, row * packed.shape[1], inputs, out);
  };
  matrix.zero = [half = 1 << (packing.bits - 1)](int64_t, int64_t) { return half; };
  if (zeros != nullptr) {
    // Those of each column are packed like a row.
    KVASIR_TRY_OK(Check("weight_zero_point", zeros, DType::kI32,
                        {packing.Words(matrix.outputs), blocks.columns}));
    matrix.zero = [zeros = *zeros, packing](int64_t row, int64_t group) {
      return packing.Code(zeros, group, zeros.shape[1], row);
    };
  }
  const int64_t outputs = matrix.outputs;
  WeightTensor tensor = IntegerWeights(std::move(matrix));
  AddSource(packed, outputs, &tensor);
  AddSource(scales, outputs, &tensor);
  return tensor;
}

// Bytes with a sign.
Result<WeightTensor> SignedBytes(const FindPart& find, const TensorView& weight,
                                 const TensorView& scales) {
  IntegerMatrix matrix;
  matrix.outputs = weight.shape[0];
  matrix.inputs = weight.shape[1];
  matrix.bits = 8;
  KVASIR_TRY(const ScaleBlocks blocks, SetScales(find, scales, &matrix));
  matrix.read_codes = [weight](int64_t row, uint8_t* out) {
    const int64_t inputs = weight.shape[1];
    for (int64_t i = 0; i < inputs; ++i) {
      out[i] = static_cast<uint8_t>(weight.data[row * inputs + i]) ^ 0x80;
    }
  };
  matrix.zero = [](int64_t, int64_t) { return 128; };
  if (const TensorView* const zeros = find("weight_zero_point"); zeros != nullptr) {
    if (zeros->dtype != DType::kI8 || zeros->elements() != scales.elements()) {
      return Misfit("weight_zero_point", *zeros, "i8 " + ShapeString(scales.shape));
    }
    matrix.zero = [zeros = *zeros, blocks](int64_t row, int64_t group) {
      const int64_t at = row / blocks.outputs * blocks.columns + group;
      return 128 + static_cast<int>(static_cast<int8_t>(zeros.data[at]));
    };
  }
  const int64_t outputs = matrix.outputs;
  WeightTensor tensor = IntegerWeights(std::move(matrix));
  AddSource(weight, outputs, &tensor);
  AddSource(scales, outputs, &tensor);
  return tensor;
}

void ReadFp8Row(const TensorView& weight, const ScaleBlocks& blocks, int64_t row, float* out) {
  const int64_t inputs = weight.shape[1];
  const auto* const codes = reinterpret_cast<const uint8_t*>(weight.data) + row * inputs;
  for (int64_t begin = 0; begin < inputs; begin += blocks.inputs) {
    const float scale = blocks.At(row, begin / blocks.inputs);
    const int64_t end = std::min(begin + blocks.inputs, inputs);
    for (int64_t i = begin; i < end; ++i) out[i] = E4m3Value(codes[i]) * scale;
  }
}

void ReadFp8Codes(const TensorView& weight, const ScaleBlocks& blocks, int64_t row, CodedRow* out) {
  const int64_t inputs = weight.shape[1];
  const auto* const codes = reinterpret_cast<const uint8_t*>(weight.data) + row * inputs;
  out->codes.assign(codes, codes + inputs);
  out->wide_scales.clear();
  for (int64_t begin = 0; begin < inputs; begin += kFp8Inputs) {
    out->wide_scales.push_back(blocks.At(row, begin / blocks.inputs));
  }
}

Result<WeightTensor> Fp8Weights(const FindPart& find, const TensorView& weight,
                                std::string_view part, const TensorView& scales,
                                const HfQuantization* quantization) {
  const MatrixSize size = {weight.shape[0], weight.shape[1]};
  KVASIR_TRY(const ScaleBlocks blocks, BlocksOf(part, scales, size, quantization));
  KVASIR_TRY(const auto groups, GroupsOfInputs("weight_g_idx", find("weight_g_idx"), size.inputs,
                                               blocks.inputs, blocks.columns));
  if (!groups.empty()) {
    return {ErrorCode::kUnsupported, "weight_g_idx: FP8 in the order of activations is not read"};
  }
  WeightTensor tensor;
  tensor.shape = weight.shape;
  tensor.read_row = [weight, blocks](int64_t row, float* out) {
    ReadFp8Row(weight, blocks, row, out);
  };
  const bool has_groups = blocks.inputs % kFp8Inputs == 0 || blocks.columns == 1;
  if (has_groups && size.inputs % kQuantGroup == 0) {
    tensor.stored_format = WeightFormat::kFp8;
    tensor.read_codes = [weight, blocks](int64_t row, CodedRow* out) {
      ReadFp8Codes(weight, blocks, row, out);
    };
  } else {
    tensor.stored_format = WeightFormat::kBf16;
  }
  AddSource(weight, size.outputs, &tensor);
  AddSource(scales, size.outputs, &tensor);
  return tensor;
}

// What MLX stores alike but for the types of the tensors: its words are the same bytes.
Result<WeightTensor> MicroscaledWeights(std::string_view name, const TensorView& weight,
                                        const TensorView& scales, MlxFormat format) {
  const int64_t outputs = weight.shape[0];
  const int64_t inputs = weight.shape[1] * 8 / format.bits;
  if (weight.shape[1] % 4 != 0 || inputs % format.group_size != 0) {
    return Misfit(name, weight,
                  "rows of a multiple of " + std::to_string(format.group_size) + " codes of " +
                      std::to_string(format.bits) + " bits");
  }
  KVASIR_TRY_OK(
      Check("weight_scale", &scales, scales.dtype, {outputs, inputs / format.group_size}));
  const TensorView words = {DType::kU32, {outputs, weight.shape[1] / 4}, weight.data};
  const TensorView bytes = {DType::kU8, scales.shape, scales.data};
  return MlxWeights({&words, &bytes, nullptr}, format, outputs, inputs);
}

// What multiplies all of a matrix of NVFP4: compressed-tensors divides by one number, ModelOpt
// multiplies with the other.
Result<float> ScaleOfAll(const FindPart& find) {
  const TensorView* const divisor = find("weight_global_scale");
  const TensorView* const factor = find("weight_scale_2");
  const TensorView* const view = divisor != nullptr ? divisor : factor;
  const char* const part = divisor != nullptr ? "weight_global_scale" : "weight_scale_2";
  if (view == nullptr) {
    return {ErrorCode::kCorrupt, "weight_global_scale, or weight_scale_2, is missing"};
  }
  if (view->dtype != DType::kF32 || view->elements() != 1) return Misfit(part, *view, "one f32");
  const float scale = ReadScale(*view, 0);
  if (!(scale > 0) || !std::isfinite(scale) || !std::isfinite(1 / scale)) {
    return {ErrorCode::kCorrupt, std::string(part) + " is " + std::to_string(scale) +
                                     ", which no matrix can be scaled with"};
  }
  return divisor != nullptr ? 1 / scale : scale;
}

Result<WeightTensor> FourBitFloats(const FindPart& find, std::string_view name,
                                   const TensorView& weight, const TensorView& scales) {
  if (scales.dtype == DType::kU8 || scales.dtype == DType::kF8E8m0) {
    return MicroscaledWeights(name, weight, scales, {MlxMode::kMxfp4, 4, 32});
  }
  if (scales.dtype != DType::kF8E4m3) {
    return Misfit("weight_scale", scales, "u8, f8_e8m0 or f8_e4m3");
  }
  KVASIR_TRY(WeightTensor tensor,
             MicroscaledWeights(name, weight, scales, {MlxMode::kNvfp4, 4, 16}));
  KVASIR_TRY(const float scale, ScaleOfAll(find));
  if (scale != 1) ScaleMatrices({scale}, &tensor);
  return tensor;
}

// E4M3 with scales of 32 inputs that are powers of two.
bool IsMxfp8(const TensorView& weight, const TensorView& scales) {
  const bool has_powers = scales.dtype == DType::kU8 || scales.dtype == DType::kF8E8m0;
  return has_powers && scales.shape == std::vector<int64_t>{weight.shape[0], weight.shape[1] / 32};
}

}  // namespace

Result<WeightTensor> ScaledWeights(const FindPart& find, const HfQuantization* quantization) {
  const TensorView* const packed = find("weight_packed");
  const TensorView* const weight = packed != nullptr ? packed : find("weight");
  const std::string_view name = packed != nullptr ? "weight_packed" : "weight";
  const TensorView* scales = find("weight_scale");
  std::string_view part = "weight_scale";
  if (scales == nullptr) {
    scales = find("weight_scale_inv");
    part = "weight_scale_inv";
  }
  KVASIR_TRY_OK(CheckMatrix(name, weight));
  if (scales == nullptr) return {ErrorCode::kCorrupt, "weight_scale is missing"};
  if (find("pre_quant_scale") != nullptr) {
    return {ErrorCode::kUnsupported,
            "pre_quant_scale: weights that want their inputs scaled are not read"};
  }
  switch (weight->dtype) {
    case DType::kI32:
      if (packed == nullptr) break;
      return PackedIntegers(
          find, *weight, *scales,
          quantization == nullptr ? std::vector<int>() : quantization->packed_bits);
    case DType::kI8:
      return SignedBytes(find, *weight, *scales);
    case DType::kU8:
      return FourBitFloats(find, name, *weight, *scales);
    case DType::kF8E4m3:
      if (IsMxfp8(*weight, *scales)) {
        return MicroscaledWeights(name, *weight, *scales, {MlxMode::kMxfp8, 8, 32});
      }
      return Fp8Weights(find, *weight, part, *scales, quantization);
    default:
      break;
  }
  return {ErrorCode::kUnsupported, std::string(name) + " is " +
                                       std::string(DTypeName(weight->dtype)) +
                                       " with scales; i32, i8, u8 and f8_e4m3 are read"};
}

}  // namespace kvasir
