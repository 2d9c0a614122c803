#include "kvasir/model/stored_weights.h"

#include <utility>

namespace kvasir {

Result<std::unique_ptr<const WeightMatrix>> StoredWeights::Pack(
    const std::string& name, const WeightTensor& tensor, std::optional<WeightFormat> wanted) const {
  WeightFormat format = wanted.value_or(tensor.stored_format);
  const bool makes_codes = wanted && IsQuantized(format);
  if (makes_codes && tensor.shape[1] % kQuantGroup != 0) format = tensor.stored_format;
  auto packed = backend_.PackRows(tensor, format);
  if (!packed.ok()) return WithContext(packed.error(), Where(name));
  return packed;
}

Result<std::unique_ptr<const WeightMatrix>> StoredWeights::Matrix(const std::string& name,
                                                                  int64_t outputs, int64_t inputs) {
  KVASIR_TRY(const WeightTensor tensor, Take(name, {outputs, inputs}));
  return Pack(name, tensor, format_);
}

Result<std::unique_ptr<const WeightMatrix>> StoredWeights::StoredMatrix(const std::string& name,
                                                                        int64_t outputs,
                                                                        int64_t inputs) {
  KVASIR_TRY(const WeightTensor tensor, Take(name, {outputs, inputs}));
  return Pack(name, tensor, std::nullopt);
}

Result<std::unique_ptr<const WeightMatrix>> StoredWeights::Rows(const MatrixSlice& slice) {
  KVASIR_TRY(WeightTensor tensor, Take(slice.name, slice.shape));
  return Pack(slice.name, RowsOf(std::move(tensor), slice.first_row, slice.rows), format_);
}

Result<std::vector<float>> StoredWeights::Vector(const std::string& name, int64_t size,
                                                 float offset) {
  KVASIR_TRY(const WeightTensor tensor, Take(name, {size}));
  std::vector<float> values(static_cast<size_t>(size));
  tensor.read_row(0, values.data());
  for (float& value : values) value += offset;
  return values;
}

}  // namespace kvasir
