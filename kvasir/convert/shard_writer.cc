#include "kvasir/convert/shard_writer.h"

#include <algorithm>
#include <span>

#include "kvasir/base/file.h"
#include "kvasir/convert/row_batches.h"

namespace kvasir {
namespace {

constexpr size_t kCopyBytes = size_t{16} << 20;

Error BeyondType(const SourceTensor& source, const WeightEncoding& encoding) {
  const std::string type(DTypeName(encoding.dtype));
  std::string wanted = type + "; choose another type, bf16 or f32";
  if (encoding.is_quantized) {
    wanted = encoding.format.mode == MlxMode::kAffine
                 ? type + ", which its scales would be; convert it to bf16 first"
                 : MlxFormatLabel(encoding.format) + "; choose mxfp4 or int4";
  }
  return {ErrorCode::kInvalidArgument,
          "tensor '" + source.name + "' has numbers beyond those of " + wanted};
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
  // Scales and biases follow all of the weight in the file.
  std::vector<std::byte> scales(static_cast<size_t>(rows) * encoder.scale_bytes());
  std::vector<std::byte> biases(static_cast<size_t>(rows) * encoder.bias_bytes());
  KVASIR_TRY(const NumbersFit fit,
             EncodeRowBatches(
                 &pool_, {rows, inputs, encoder.weight_bytes(), tensor.encoding.is_quantized},
                 [&](int64_t row, float* out) {
                   source.rows.read_row(row, out);
                   if (source.offset == 0) return;
                   for (int64_t k = 0; k < inputs; ++k) out[k] += source.offset;
                 },
                 [&](int64_t row, const float* from, std::byte* weight) {
                   const auto at = static_cast<size_t>(row);
                   return encoder.Encode(from, weight, scales.data() + at * encoder.scale_bytes(),
                                         biases.data() + at * encoder.bias_bytes());
                 },
                 [&](std::span<const std::byte> bytes) -> Status {
                   KVASIR_TRY_OK(writer->Append(parts[0].name, bytes));
                   progress_(bytes.size());
                   return {};
                 }));
  if (fit == NumbersFit::kNotFinite) {
    return NotFinite(source.name, MlxFormatLabel(tensor.encoding.format));
  }
  if (fit == NumbersFit::kBeyondType) {
    return BeyondType(source, tensor.encoding);
  }
  if (!scales.empty()) KVASIR_TRY_OK(writer->Append(parts[1].name, scales));
  if (!biases.empty()) KVASIR_TRY_OK(writer->Append(parts[2].name, biases));
  progress_(scales.size() + biases.size());
  return {};
}

}  // namespace kvasir
