#include "kvasir/model/stored_weights.h"

namespace kvasir {

Result<std::unique_ptr<const WeightMatrix>> StoredWeights::Matrix(const std::string& name,
                                                                  int64_t outputs, int64_t inputs) {
  KVASIR_TRY(const WeightTensor tensor, Take(name, {outputs, inputs}));
  WeightFormat format = format_.value_or(tensor.stored_format);
  const bool makes_codes = format_ && IsQuantized(format);
  if (makes_codes && inputs % kQuantGroup != 0) format = tensor.stored_format;
  auto packed = backend_.PackRows(tensor, format);
  if (!packed.ok()) return WithContext(packed.error(), Where(name));
  return packed;
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
