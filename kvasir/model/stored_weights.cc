#include "kvasir/model/stored_weights.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <utility>

#include "kvasir/base/checksum.h"

namespace kvasir {
namespace {

// Row i is the tensor's row row_of(i).
template <typename RowOf>
WeightTensor Reordered(WeightTensor tensor, int64_t rows, const RowOf& row_of) {
  tensor.shape = {rows, tensor.shape.back()};
  tensor.is_scattered = true;
  tensor.is_raw = false;
  tensor.read_row = [whole = std::move(tensor.read_row), row_of](int64_t row, float* out) {
    whole(row_of(row), out);
  };
  if (tensor.read_codes) {
    tensor.read_codes = [whole = std::move(tensor.read_codes), row_of](int64_t row, CodedRow* out) {
      whole(row_of(row), out);
    };
  }
  return tensor;
}

// Some columns of a dense matrix [inputs, columns] as rows: `rows` from `column` on, with `step`
// between them. All are decoded when the first is read.
WeightTensor Transposed(WeightTensor tensor, int64_t column, int64_t step, int64_t rows) {
  struct Columns {
    std::once_flag once;
    std::vector<float> values;  // [rows, inputs]
  };
  auto columns = std::make_shared<Columns>();
  const int64_t inputs = tensor.shape[0];
  const auto stored_columns = static_cast<size_t>(tensor.shape[1]);
  tensor.shape = {rows, inputs};
  tensor.is_scattered = true;
  tensor.is_raw = false;
  tensor.read_row = [=, stored = std::move(tensor.read_row)](int64_t row, float* out) {
    std::call_once(columns->once, [&] {
      // So many at once that a row's share of them is a cache line.
      constexpr int64_t kTogether = 16;
      columns->values.resize(static_cast<size_t>(rows * inputs));
      std::vector<float> lines(kTogether * stored_columns);
      for (int64_t begin = 0; begin < inputs; begin += kTogether) {
        const int64_t count = std::min(kTogether, inputs - begin);
        for (int64_t k = 0; k < count; ++k) {
          stored(begin + k, lines.data() + static_cast<size_t>(k) * stored_columns);
        }
        for (int64_t r = 0; r < rows; ++r) {
          float* const to = columns->values.data() + r * inputs + begin;
          const float* const from = lines.data() + column + r * step;
          for (int64_t k = 0; k < count; ++k)
            to[k] = from[k * static_cast<int64_t>(stored_columns)];
        }
      }
    });
    std::copy_n(columns->values.data() + row * inputs, inputs, out);
  };
  return tensor;
}

}  // namespace

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

Result<WeightTensor> StoredWeights::Slice(const MatrixSlice& slice) {
  if (!slice.is_transposed) {
    KVASIR_TRY(WeightTensor tensor, Take(slice.name, slice.shape));
    if (slice.row_step == 1) return RowsOf(std::move(tensor), slice.first_row, slice.rows);
    // With the rows in between, so that their pages are known.
    const int64_t offset = slice.first_row % slice.row_step;
    tensor = RowsOf(std::move(tensor), slice.first_row - offset, slice.rows * slice.row_step);
    return Reordered(std::move(tensor), slice.rows,
                     [offset, step = slice.row_step](int64_t row) { return offset + row * step; });
  }
  const int64_t outputs = slice.shape[slice.shape.size() - 2];
  const int64_t inputs = slice.shape.back();
  std::vector<int64_t> stored = slice.shape;
  std::swap(stored[stored.size() - 2], stored.back());
  KVASIR_TRY(WeightTensor tensor, Take(slice.name, stored));
  tensor = RowsOf(std::move(tensor), slice.first_row / outputs * inputs, inputs);
  return Transposed(std::move(tensor), slice.first_row % outputs, slice.row_step, slice.rows);
}

Result<std::unique_ptr<const WeightMatrix>> StoredWeights::Rows(const MatrixSlice& slice) {
  KVASIR_TRY(const WeightTensor tensor, Slice(slice));
  const std::string part = " from row " + std::to_string(slice.first_row);
  return Pack({slice.name, part}, tensor, format_.value_or(FormatInMemory(tensor)));
}

Result<std::unique_ptr<const WeightMatrix>> StoredWeights::RowsAsColumns(const MatrixSlice& slice) {
  KVASIR_TRY(WeightTensor rows, Slice(slice));
  const int64_t inputs = slice.shape.back();
  if (IsQuantized(rows.stored_format)) {
    // No column of codes is codes.
    const WeightFormat decoded = DecodedFormat(rows);
    rows = Unrounded(std::move(rows));
    rows.stored_format = decoded;
    rows.read_codes = nullptr;
    rows.affine = {};
    rows.code_scales.clear();
    rows.input_order = nullptr;
  }
  // Others read these pages as well.
  rows.source.clear();
  rows.is_mapped = false;
  const WeightTensor columns = Transposed(std::move(rows), 0, 1, inputs);
  const std::string part = " columns of row " + std::to_string(slice.first_row);
  return Pack({slice.name, part}, columns, format_.value_or(FormatInMemory(columns)));
}

Result<std::unique_ptr<const WeightMatrix>> WeightSource::RowsAsColumns(const MatrixSlice& slice) {
  return {ErrorCode::kUnsupported,
          "tensor '" + slice.name + "' cannot be read with rows as columns here"};
}

Result<std::unique_ptr<const WeightMatrix>> WeightSource::Gathered(const std::string& name, int64_t,
                                                                   int64_t,
                                                                   std::span<const int64_t>, bool) {
  return {ErrorCode::kUnsupported, "tensor '" + name + "' cannot be read in another order here"};
}

Result<std::vector<int64_t>> WeightSource::Integers(const std::string& name, int64_t) {
  return {ErrorCode::kUnsupported, "tensor '" + name + "' of whole numbers cannot be read here"};
}

Result<std::unique_ptr<const WeightMatrix>> StoredWeights::Gathered(const std::string& name,
                                                                    int64_t outputs, int64_t inputs,
                                                                    std::span<const int64_t> rows,
                                                                    bool is_exact) {
  KVASIR_TRY(WeightTensor tensor, Take(name, {outputs, inputs}));
  const std::vector<int64_t> order(rows.begin(), rows.end());
  const uint64_t order_sum = Checksum64(std::as_bytes(std::span(order)));
  const auto count = static_cast<int64_t>(order.size());
  tensor = Reordered(std::move(tensor), count,
                     [order](int64_t row) { return order[static_cast<size_t>(row)]; });
  // Others are still to be read from these pages.
  tensor.source.clear();
  tensor.is_mapped = false;
  return Pack({name, " in order " + std::to_string(order_sum)}, tensor,
              is_exact ? DecodedFormat(tensor) : format_.value_or(FormatInMemory(tensor)));
}

Result<std::vector<float>> StoredWeights::Numbers(const std::string& name,
                                                  const std::vector<int64_t>& shape) {
  KVASIR_TRY(const WeightTensor tensor, Take(name, shape));
  const auto columns = static_cast<size_t>(shape.back());
  std::vector<float> values(static_cast<size_t>(RowCount(shape)) * columns);
  for (size_t row = 0; row * columns < values.size(); ++row) {
    tensor.read_row(static_cast<int64_t>(row), values.data() + row * columns);
  }
  return values;
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
