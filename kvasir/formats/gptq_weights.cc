#include "kvasir/formats/gptq_weights.h"

#include <cstdint>
#include <string>
#include <utility>

#include "kvasir/formats/hf_parts.h"
#include "kvasir/formats/integer_weights.h"
#include "kvasir/tensor/packed_codes.h"

namespace kvasir {
namespace {

using hf::Bytes;
using hf::Check;
using hf::CheckMatrix;
using hf::GroupsOfInputs;
using hf::Misfit;
using hf::ReadScale;
using hf::ReadStream;
using hf::StreamCode;
using hf::Word;

// Codes that lie in columns: those of a row are all over the tensor.
WeightTensor InColumns(IntegerMatrix matrix, const TensorView& codes) {
  WeightTensor tensor = IntegerWeights(std::move(matrix));
  tensor.source = {Bytes(codes)};
  tensor.is_scattered = true;
  return tensor;
}

// Words of eight outputs, in an order of their own: which nibble has output `row`.
int AwqShift(int64_t row) {
  const auto output = static_cast<int>(row % 8);
  return 4 * (output % 2 * 4 + output / 2);
}

// How many bits codes have, by the words of their zeros, one for each output; modules may have
// others than config.json says.
Result<int> GptqBits(const TensorView& qweight, const TensorView& qzeros,
                     const HfQuantization& quantization) {
  for (const int bits : {quantization.bits, 4, 8, 2, 3}) {
    const bool fits = RowWords(qweight.shape[1], bits) == qzeros.shape[1];
    if (fits && qweight.shape[0] * 32 % bits == 0) return bits;
  }
  return {ErrorCode::kCorrupt, "qweight is " + ShapeString(qweight.shape) + " and qzeros " +
                                   ShapeString(qzeros.shape) + ", which no 2, 3, 4 or 8 bits take"};
}

// Inputs of a group: the last one may have fewer, which g_idx or config.json tells. 0: no number
// gives so many groups.
int64_t GptqGroup(const TensorView* g_idx, int64_t inputs, int64_t groups,
                  const HfQuantization& quantization) {
  const auto fits = [&](int64_t group) {
    return group > 0 && (inputs + group - 1) / group == groups;
  };
  if (fits(quantization.group_size)) return quantization.group_size;
  int64_t first = 0;
  if (g_idx != nullptr) {
    while (first < inputs && Word(*g_idx, first) == 0) ++first;
  }
  if (fits(first)) return first;
  const int64_t even = (inputs + groups - 1) / groups;
  return fits(even) ? even : 0;
}

// A code of 0 as the first version stores it: one was taken from every field of a word at once, so
// that a field of 0 borrowed from the next, and is added back in the same way. Codes of three bits,
// which go over the ends of words, were taken one from each, modulo 8.
int GptqZero(const TensorView& zeros, int64_t first_word, int bits, int offset, int64_t output) {
  if (32 % bits != 0) return (StreamCode(zeros, first_word, 1, bits, output) + offset) & 7;
  const int64_t bit = output * bits;
  const uint32_t mask = (1u << bits) - 1;
  const uint32_t ones = UINT32_MAX / mask;
  const uint32_t word = Word(zeros, first_word + bit / 32) + ones * static_cast<uint32_t>(offset);
  return static_cast<int>(word >> (bit % 32) & mask);
}

}  // namespace

Result<WeightTensor> AwqWeights(const FindPart& find) {
  const TensorView* const qweight = find("qweight");
  const TensorView* const qzeros = find("qzeros");
  const TensorView* const scales = find("scales");
  KVASIR_TRY_OK(CheckMatrix("qweight", qweight));
  KVASIR_TRY_OK(CheckMatrix("scales", scales));
  const int64_t inputs = qweight->shape[0];
  const int64_t words = qweight->shape[1];
  const int64_t groups = scales->shape[0];
  KVASIR_TRY_OK(Check("qweight", qweight, DType::kI32, {inputs, words}));
  KVASIR_TRY_OK(Check("qzeros", qzeros, DType::kI32, {groups, words}));
  if (!IsFloatType(scales->dtype) || scales->shape[1] != 8 * words || inputs % groups != 0) {
    return Misfit(
        "scales", *scales,
        "f16 of [a divisor of " + std::to_string(inputs) + ", " + std::to_string(8 * words) + "]");
  }
  IntegerMatrix matrix;
  matrix.outputs = 8 * words;
  matrix.inputs = inputs;
  matrix.group_inputs = inputs / groups;
  matrix.scale_type = scales->dtype;
  matrix.read_codes = [codes = *qweight, inputs, words](int64_t row, uint8_t* out) {
    const int shift = AwqShift(row);
    for (int64_t i = 0; i < inputs; ++i) {
      out[i] = static_cast<uint8_t>(Word(codes, i * words + row / 8) >> shift & 15);
    }
  };
  matrix.zero = [zeros = *qzeros, words](int64_t row, int64_t group) {
    return static_cast<int>(Word(zeros, group * words + row / 8) >> AwqShift(row) & 15);
  };
  matrix.scale = [view = *scales](int64_t row, int64_t group) {
    return ReadScale(view, group * view.shape[1] + row);
  };
  return InColumns(std::move(matrix), *qweight);
}

Result<WeightTensor> GptqWeights(const FindPart& find, const HfQuantization& quantization) {
  const TensorView* const qweight = find("qweight");
  const TensorView* const qzeros = find("qzeros");
  const TensorView* const scales = find("scales");
  const TensorView* const g_idx = find("g_idx");
  KVASIR_TRY_OK(CheckMatrix("qweight", qweight));
  KVASIR_TRY_OK(CheckMatrix("qzeros", qzeros));
  KVASIR_TRY_OK(CheckMatrix("scales", scales));
  IntegerMatrix matrix;
  KVASIR_TRY(matrix.bits, GptqBits(*qweight, *qzeros, quantization));
  const int bits = matrix.bits;
  const int64_t inputs = qweight->shape[0] * 32 / bits;
  const int64_t outputs = qweight->shape[1];
  const int64_t groups = scales->shape[0];
  const int64_t zero_words = RowWords(outputs, bits);
  KVASIR_TRY_OK(Check("qweight", qweight, DType::kI32, qweight->shape));
  KVASIR_TRY_OK(Check("qzeros", qzeros, DType::kI32, {groups, zero_words}));
  if (g_idx != nullptr) KVASIR_TRY_OK(Check("g_idx", g_idx, DType::kI32, {inputs}));
  matrix.inputs = inputs;
  matrix.outputs = outputs;
  matrix.group_inputs = GptqGroup(g_idx, inputs, groups, quantization);
  if (!IsFloatType(scales->dtype) || scales->shape[1] != outputs || matrix.group_inputs == 0) {
    return Misfit("scales", *scales,
                  "f16 of [groups of " + std::to_string(inputs) + " inputs, " +
                      std::to_string(outputs) + "]");
  }
  matrix.scale_type = scales->dtype;
  KVASIR_TRY(matrix.groups_of_inputs,
             GroupsOfInputs("g_idx", g_idx, inputs, matrix.group_inputs, groups));
  matrix.read_codes = [codes = *qweight, bits, inputs, outputs](int64_t row, uint8_t* out) {
    ReadStream(codes, row, outputs, bits, inputs, out);
  };
  matrix.zero = [zeros = *qzeros, bits, zero_words, offset = quantization.zero_offset](
                    int64_t row, int64_t group) {
    return GptqZero(zeros, group * zero_words, bits, offset, row);
  };
  matrix.scale = [view = *scales](int64_t row, int64_t group) {
    return ReadScale(view, group * view.shape[1] + row);
  };
  return InColumns(std::move(matrix), *qweight);
}

}  // namespace kvasir
