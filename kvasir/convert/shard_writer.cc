#include "kvasir/convert/shard_writer.h"

#include <algorithm>
#include <atomic>
#include <span>

#include "kvasir/base/file.h"

namespace kvasir {
namespace {

// Of floats decoded at a time: large enough to keep threads busy, small beside any model.
constexpr int64_t kBatchNumbers = int64_t{4} << 20;
constexpr size_t kCopyBytes = size_t{16} << 20;

Error BeyondType(const SourceTensor& source, DType dtype, bool is_quantized) {
  return {ErrorCode::kInvalidArgument,
          "tensor '" + source.name + "' has numbers beyond those of " +
              std::string(DTypeName(dtype)) +
              (is_quantized ? ", which its scales would be; convert it to bf16 first"
                            : "; choose another type, bf16 or f32")};
}

}  // namespace

Status ShardWriter::Write(const std::string& path, const std::vector<PlannedTensor>& tensors,
                          const std::string& format_metadata) {
  std::vector<TensorDeclaration> declarations;
  for (const PlannedTensor& tensor : tensors) {
    for (TensorDeclaration& part : tensor.Declarations()) declarations.push_back(std::move(part));
  }
  KVASIR_TRY(SafetensorsWriter writer, SafetensorsWriter::Create(path, std::move(declarations),
                                                                 {{"format", format_metadata}}));
  for (const PlannedTensor& tensor : tensors) {
    KVASIR_TRY_OK(tensor.is_copied ? CopyTensor(tensor, &writer) : WriteTensor(tensor, &writer));
    if (!tensor.source->rows.is_mapped) continue;
    for (const std::span<const std::byte> bytes : tensor.source->rows.source) ReleasePages(bytes);
  }
  return writer.Finish();
}

Status ShardWriter::CopyTensor(const PlannedTensor& tensor, SafetensorsWriter* writer) {
  const std::span<const std::byte> all(tensor.source->raw, tensor.bytes());
  for (size_t begin = 0; begin < all.size(); begin += kCopyBytes) {
    const auto piece = all.subspan(begin, std::min(kCopyBytes, all.size() - begin));
    KVASIR_TRY_OK(writer->Append(tensor.source->name, piece));
    ReleasePages(piece);
    progress_(piece.size());
  }
  return {};
}

Status ShardWriter::WriteTensor(const PlannedTensor& tensor, SafetensorsWriter* writer) {
  const SourceTensor& source = *tensor.source;
  const int64_t inputs = source.shape.back();
  const int64_t rows = RowCount(source.shape);
  if (inputs == 0 || rows == 0) return {};
  const WeightEncoder encoder(tensor.encoding, inputs);
  const std::vector<TensorDeclaration> parts = tensor.Declarations();
  const int64_t batch_rows = std::clamp<int64_t>(kBatchNumbers / inputs, 1, rows);
  std::vector<std::byte> weight(static_cast<size_t>(batch_rows) * encoder.weight_bytes());
  // Scales and biases follow all of the weight in the file.
  std::vector<std::byte> scales(static_cast<size_t>(rows) * encoder.scale_bytes());
  std::vector<std::byte> biases(static_cast<size_t>(rows) * encoder.bias_bytes());
  std::atomic<bool> fits = true;
  std::atomic<bool> is_finite = true;
  for (int64_t first = 0; first < rows; first += batch_rows) {
    const int64_t count = std::min(batch_rows, rows - first);
    pool_.For(static_cast<size_t>(count), [&](size_t begin, size_t end) {
      std::vector<float> row(static_cast<size_t>(inputs));
      for (size_t i = begin; i < end; ++i) {
        const size_t at = static_cast<size_t>(first) + i;
        source.rows.read_row(static_cast<int64_t>(at), row.data());
        if (source.offset != 0) {
          for (float& value : row) value += source.offset;
        }
        if (tensor.encoding.is_quantized && !AllFinite(row)) is_finite = false;
        if (!encoder.Encode(row.data(), weight.data() + i * encoder.weight_bytes(),
                            scales.data() + at * encoder.scale_bytes(),
                            biases.data() + at * encoder.bias_bytes())) {
          fits = false;
        }
      }
    });
    if (!is_finite) return NotFinite(source.name, MlxFormatLabel(tensor.encoding.format));
    if (!fits) return BeyondType(source, tensor.encoding.dtype, tensor.encoding.is_quantized);
    const size_t bytes = static_cast<size_t>(count) * encoder.weight_bytes();
    KVASIR_TRY_OK(writer->Append(parts[0].name, std::span(weight).first(bytes)));
    progress_(bytes);
  }
  if (!scales.empty()) KVASIR_TRY_OK(writer->Append(parts[1].name, scales));
  if (!biases.empty()) KVASIR_TRY_OK(writer->Append(parts[2].name, biases));
  progress_(scales.size() + biases.size());
  return {};
}

}  // namespace kvasir
