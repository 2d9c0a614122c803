#include "kvasir/formats/integer_weights.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

namespace kvasir {
namespace {

int64_t GroupOf(const IntegerMatrix& matrix, int64_t input) {
  if (matrix.groups_of_inputs.empty()) return input / matrix.group_inputs;
  return matrix.groups_of_inputs[static_cast<size_t>(input)];
}

void ReadRow(const IntegerMatrix& matrix, int64_t row, float* out) {
  std::vector<uint8_t> codes(static_cast<size_t>(matrix.inputs));
  matrix.read_codes(row, codes.data());
  int64_t known = -1;
  float scale = 0;
  int zero = 0;
  for (int64_t i = 0; i < matrix.inputs; ++i) {
    const int64_t group = GroupOf(matrix, i);
    if (group != known) {
      scale = matrix.scale(row, group);
      zero = matrix.zero(row, group);
      known = group;
    }
    out[i] = static_cast<float>(codes[static_cast<size_t>(i)] - zero) * scale;
  }
}

// Inputs by their groups, if they do not follow each other. Nothing unless all groups are alike.
std::vector<int32_t> OrderByGroups(const IntegerMatrix& matrix) {
  std::vector<int64_t> sizes(static_cast<size_t>(matrix.groups()), 0);
  for (const int32_t group : matrix.groups_of_inputs) ++sizes[static_cast<size_t>(group)];
  const auto is_whole = [&](int64_t size) { return size == matrix.group_inputs; };
  if (!std::all_of(sizes.begin(), sizes.end(), is_whole)) return {};
  std::vector<int32_t> order(matrix.groups_of_inputs.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return matrix.groups_of_inputs[static_cast<size_t>(a)] <
           matrix.groups_of_inputs[static_cast<size_t>(b)];
  });
  return order;
}

// How many inputs share a scale in memory: a part of a group that matmuls take. 0: there is none.
int KeptGroup(const IntegerMatrix& matrix) {
  for (const int group : {128, 64, 32}) {
    const bool is_part = matrix.group_inputs % group == 0 || matrix.group_inputs >= matrix.inputs;
    if (is_part && matrix.inputs % group == 0) return group;
  }
  return 0;
}

uint16_t Narrowed(float value, DType type) {
  return type == DType::kF16 ? FloatToF16(value) : FloatToBf16(value);
}

bool Holds(DType type, float value) {
  const uint16_t bits = Narrowed(value, type);
  return (type == DType::kF16 ? F16ToFloat(bits) : Bf16ToFloat(bits)) == value;
}

// The type of 16 bits that holds every scale.
std::optional<DType> KeptScales(const IntegerMatrix& matrix) {
  if (matrix.scale_type != DType::kF32) return matrix.scale_type;
  for (const DType type : {DType::kBf16, DType::kF16}) {
    bool holds = true;
    for (int64_t row = 0; holds && row < matrix.outputs; ++row) {
      for (int64_t group = 0; holds && group < matrix.groups(); ++group) {
        holds = Holds(type, matrix.scale(row, group));
      }
    }
    if (holds) return type;
  }
  return std::nullopt;
}

void ReadKeptCodes(const IntegerMatrix& matrix, const AffineScales& affine, const InputOrder& order,
                   int64_t row, CodedRow* out) {
  out->codes.resize(static_cast<size_t>(matrix.inputs));
  matrix.read_codes(row, out->codes.data());
  if (order) {
    const std::vector<uint8_t> codes = out->codes;
    for (size_t i = 0; i < codes.size(); ++i) {
      out->codes[i] = codes[static_cast<size_t>((*order)[i])];
    }
  }
  const int64_t groups = matrix.inputs / affine.group_inputs;
  out->scales.resize(static_cast<size_t>(groups));
  out->biases.resize(static_cast<size_t>(groups));
  for (int64_t g = 0; g < groups; ++g) {
    const int64_t group = g * affine.group_inputs / matrix.group_inputs;
    const auto at = static_cast<size_t>(g);
    out->scales[at] = Narrowed(matrix.scale(row, group), affine.dtype);
    out->biases[at] = Narrowed(static_cast<float>(matrix.zero(row, group)), affine.dtype);
  }
}

}  // namespace

WeightFormat AffineFormat(int bits) {
  using enum WeightFormat;
  for (const WeightFormat format :
       {kQ1Affine, kQ2Affine, kQ3Affine, kQ4Affine, kQ5Affine, kQ6Affine}) {
    if (bits <= CodeBits(format)) return format;
  }
  return kQ8Affine;
}

WeightTensor IntegerWeights(IntegerMatrix matrix) {
  const auto shared = std::make_shared<const IntegerMatrix>(std::move(matrix));
  WeightTensor tensor;
  tensor.shape = {shared->outputs, shared->inputs};
  tensor.read_row = [shared](int64_t row, float* out) { ReadRow(*shared, row, out); };
  const int group = KeptGroup(*shared);
  const std::optional<DType> scales = group == 0 ? std::nullopt : KeptScales(*shared);
  const bool is_ordered = !shared->groups_of_inputs.empty();
  std::vector<int32_t> order;
  if (is_ordered) order = OrderByGroups(*shared);
  if (scales && is_ordered == !order.empty()) {
    if (is_ordered) {
      tensor.input_order = std::make_shared<const std::vector<int32_t>>(std::move(order));
    }
    tensor.stored_format = AffineFormat(shared->bits);
    tensor.affine = {
        .group_inputs = group, .dtype = *scales, .rounds_values = false, .has_zeros = true};
    tensor.read_codes = [shared, affine = tensor.affine, kept_order = tensor.input_order](
                            int64_t row, CodedRow* out) {
      ReadKeptCodes(*shared, affine, kept_order, row, out);
    };
  } else {
    tensor.stored_format =
        shared->scale_type == DType::kF16 ? WeightFormat::kF16 : WeightFormat::kBf16;
  }
  return tensor;
}

}  // namespace kvasir
