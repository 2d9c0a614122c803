// IntegerMatrix: a quantized matrix whose codes are natural numbers, with a scale and a code of 0
// for each group of inputs, however a file lays them out; and what becomes of it in memory.
// Deliberately knows no layout: hf_weights.h has those of AWQ, GPTQ and compressed-tensors.
#ifndef KVASIR_FORMATS_INTEGER_WEIGHTS_H_
#define KVASIR_FORMATS_INTEGER_WEIGHTS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "kvasir/tensor/tensor_view.h"
#include "kvasir/tensor/weight_tensor.h"

namespace kvasir {

// The affine format of the smallest codes that hold so many bits (1 to 8).
WeightFormat AffineFormat(int bits);

struct IntegerMatrix {
  int64_t outputs = 0;
  int64_t inputs = 0;
  int bits = 4;
  // Inputs of a group follow each other, and the last group may have fewer, unless groups_of_inputs
  // says otherwise.
  int64_t group_inputs = 0;
  std::vector<int32_t> groups_of_inputs;  // [inputs], each below groups()
  DType scale_type = DType::kF16;         // f32, f16 or bf16
  // [inputs] codes of a row. THREADS: all three concurrently.
  std::function<void(int64_t row, uint8_t* codes)> read_codes;
  std::function<float(int64_t row, int64_t group)> scale;
  std::function<int(int64_t row, int64_t group)> zero;  // the code of 0, at most 256

  int64_t groups() const { return (inputs + group_inputs - 1) / group_inputs; }
};

// (code - zero) * scale, which float32 holds exactly where scales have 16 bits. Codes are kept, in
// the order of their groups, where matmuls take those and the scales: an affine format with zeros;
// otherwise values come closest in two bytes, of the scales' type if that has them. Without
// `source`.
WeightTensor IntegerWeights(IntegerMatrix matrix);

}  // namespace kvasir

#endif  // KVASIR_FORMATS_INTEGER_WEIGHTS_H_
