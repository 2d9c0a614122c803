// Fuzzes prompt caches of mlx-lm: any bytes are refused, or become a sequence that goes on.
// Deliberately without files: tensors are views of the input.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kvasir/base/check.h"
#include "kvasir/formats/safetensors_header.h"
#include "kvasir/kv/kv_sequence.h"
#include "kvasir/kvio/mlx_prompt_cache.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  const auto header = kvasir::SafetensorsHeader::Parse(file);
  if (!header.ok()) return 0;
  kvasir::MlxTensors tensors;
  for (const kvasir::SafetensorsEntry& entry : header->entries) {
    tensors.emplace(entry.name,
                    kvasir::TensorView{entry.dtype, entry.shape,
                                       file.data() + header->data_offset + entry.begin});
  }
  const auto cache = kvasir::ParseMlxCache(tensors, header->metadata);
  if (!cache.ok()) return 0;
  kvasir::KvPoolOptions options;
  options.budget_bytes = size_t{16} << 20;
  kvasir::KvPool pool(std::move(options));
  const auto imported = kvasir::ImportMlxCache(&pool, *cache);
  if (!imported.ok()) return 0;
  auto sequence = kvasir::KvSequence::Restore(&pool, imported->snapshot);
  KVASIR_CHECK(sequence.ok());
  if (sequence->Reserve(3).ok()) sequence->Advance(3);
  KVASIR_CHECK(sequence->Trim(std::min<int64_t>(3, sequence->MaxTrim())).ok());
  return 0;
}
