#include "kvasir/model/stored_weights.h"

#include <utility>

#include "kvasir/base/checksum.h"

namespace kvasir {

WeightFormat FormatInMemory(const WeightTensor& tensor) {
  const bool is_bf16 = tensor.stored_format == WeightFormat::kBf16;
  return is_bf16 && tensor.shape.back() % 2 == 0 ? WeightFormat::kBf16Dot : tensor.stored_format;
}

Result<std::unique_ptr<const WeightMatrix>> StoredWeights::Pack(const Part& part,
                                                                const WeightTensor& tensor,
                                                                WeightFormat format) const {
  const bool makes_codes = format != tensor.stored_format && IsQuantized(format);
  if (makes_codes && tensor.shape[1] % kQuantGroup != 0) format = tensor.stored_format;
  if (format == WeightFormat::kBf16Dot && tensor.shape[1] % 2 != 0) format = WeightFormat::kBf16;
  // One tensor may be asked for in two formats.
  const std::string key = part.name + part.part + " " + std::string(WeightFormatName(format));
  if (cache_ != nullptr && cache_->is_mapped()) {
    KVASIR_TRY(PackedMatrix matrix, cache_->Find(key, {.outputs = tensor.shape[0],
                                                       .inputs = tensor.shape[1],
                                                       .format = format,
                                                       .affine = tensor.affine}));
    return backend_.Adopt(std::move(matrix), TraitsOfPacked(tensor, format));
  }
  const bool is_widened = format == WeightFormat::kF32;
  auto packed = backend_.PackRows(is_widened ? Unrounded(tensor) : tensor, format);
  if (!packed.ok()) return WithContext(packed.error(), Where(part.name));
  if (cache_ != nullptr) cache_->Add(key, **packed);
  return packed;
}

Result<std::unique_ptr<const WeightMatrix>> StoredWeights::Matrix(const std::string& name,
                                                                  int64_t outputs, int64_t inputs) {
  KVASIR_TRY(const WeightTensor tensor, Take(name, {outputs, inputs}));
  return Pack({name, ""}, tensor, format_.value_or(FormatInMemory(tensor)));
}

Result<std::unique_ptr<const WeightMatrix>> StoredWeights::ExactMatrix(const std::string& name,
                                                                       int64_t outputs,
                                                                       int64_t inputs) {
  KVASIR_TRY(const WeightTensor tensor, Take(name, {outputs, inputs}));
  return Pack({name, ""}, tensor, DecodedFormat(tensor));
}

Result<std::unique_ptr<const WeightMatrix>> StoredWeights::Rows(const MatrixSlice& slice) {
  KVASIR_TRY(WeightTensor tensor, Take(slice.name, slice.shape));
  const WeightFormat format = format_.value_or(FormatInMemory(tensor));
  const std::string part = " from row " + std::to_string(slice.first_row);
  return Pack({slice.name, part}, RowsOf(std::move(tensor), slice.first_row, slice.rows), format);
}

Result<std::unique_ptr<const WeightMatrix>> WeightSource::Gathered(const std::string& name, int64_t,
                                                                   int64_t,
                                                                   std::span<const int64_t>) {
  return {ErrorCode::kUnsupported, "tensor '" + name + "' cannot be read in another order here"};
}

Result<std::vector<int64_t>> WeightSource::Integers(const std::string& name, int64_t) {
  return {ErrorCode::kUnsupported, "tensor '" + name + "' of whole numbers cannot be read here"};
}

Result<std::unique_ptr<const WeightMatrix>> StoredWeights::Gathered(const std::string& name,
                                                                    int64_t outputs, int64_t inputs,
                                                                    std::span<const int64_t> rows) {
  KVASIR_TRY(WeightTensor tensor, Take(name, {outputs, inputs}));
  const std::vector<int64_t> order(rows.begin(), rows.end());
  const uint64_t order_sum = Checksum64(std::as_bytes(std::span(order)));
  tensor.shape[0] = static_cast<int64_t>(order.size());
  tensor.read_row = [whole = std::move(tensor.read_row), order](int64_t row, float* out) {
    whole(order[static_cast<size_t>(row)], out);
  };
  if (tensor.read_codes) {
    tensor.read_codes = [whole = std::move(tensor.read_codes), order](int64_t row, CodedRow* out) {
      whole(order[static_cast<size_t>(row)], out);
    };
  }
  // The rows no longer lie in one piece, and others are still to be read from these pages.
  tensor.source.clear();
  tensor.is_mapped = tensor.is_raw = false;
  return Pack({name, " in order " + std::to_string(order_sum)}, tensor,
              format_.value_or(FormatInMemory(tensor)));
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
