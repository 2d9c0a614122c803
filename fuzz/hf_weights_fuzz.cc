// Fuzzes quantized modules of checkpoints: any tensors are refused, or become a matrix every row of
// which can be decoded and packed. The metadata's "quantization_config" is config.json's.
// Deliberately without files: tensors are views of the input.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kvasir/base/check.h"
#include "kvasir/formats/hf_weights.h"
#include "kvasir/formats/safetensors_header.h"
#include "kvasir/tensor/packed_matrix.h"

namespace {

using namespace kvasir;

void ReadAll(const WeightTensor& weights) {
  const int64_t rows = weights.shape[0];
  const int64_t columns = weights.shape[1];
  KVASIR_CHECK(rows > 0 && columns > 0);
  // The first panel has them all, or the first and the last.
  const int64_t some = std::min<int64_t>(rows, kPanelOutputs);
  auto packed = PackedMatrix::Allocate(some, columns, weights.stored_format, weights.affine);
  KVASIR_CHECK(packed.ok());
  std::vector<float> values(static_cast<size_t>(columns));
  CodedRow codes;
  for (int64_t i = 0; i < some; ++i) {
    const int64_t row = i + 1 == some ? rows - 1 : i;
    weights.read_row(row, values.data());
    if (!IsQuantized(weights.stored_format)) continue;
    weights.read_codes(row, &codes);
    packed->SetCodedRow(i, codes);
    packed->GetRow(i, values.data());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  const auto header = SafetensorsHeader::Parse(file);
  if (!header.ok()) return 0;
  std::map<std::string, TensorView, std::less<>> tensors;
  for (const SafetensorsEntry& entry : header->entries) {
    tensors.emplace(entry.name, TensorView{entry.dtype, entry.shape,
                                           file.data() + header->data_offset + entry.begin});
  }
  const FindPart find = [&](std::string_view part) -> const TensorView* {
    const auto found = tensors.find(part);
    return found == tensors.end() ? nullptr : &found->second;
  };
  if (!IsHfQuantized(find)) return 0;
  const auto described = header->metadata.find("quantization_config");
  HfQuantization quantization;
  if (described != header->metadata.end()) {
    const auto json = Json::Parse(described->second);
    if (!json.ok() || !json->is_object()) return 0;
    const auto parsed = HfQuantization::Parse(*json);
    if (!parsed.ok()) return 0;
    quantization = *parsed;
  }
  const bool is_described = described != header->metadata.end();
  const auto weights = HfWeights(find, is_described ? &quantization : nullptr);
  if (weights.ok()) ReadAll(*weights);
  return 0;
}
