// Fuzzes the safetensors header parser: any bytes, no files.
// Deliberately reads every tensor it accepts: a view outside the file is a crash, not a surprise.
#include <cstddef>
#include <cstdint>
#include <span>

#include "kvasir/base/check.h"
#include "kvasir/formats/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  const auto header = kvasir::SafetensorsHeader::Parse(file);
  if (!header.ok()) return 0;
  uint64_t expected = header->data_offset;
  uint8_t sum = 0;
  for (const kvasir::SafetensorsEntry& entry : header->entries) {
    KVASIR_CHECK(header->data_offset + entry.begin == expected);
    expected = header->data_offset + entry.end;
    KVASIR_CHECK(expected <= size);
    for (uint64_t i = header->data_offset + entry.begin; i < expected; ++i) sum ^= data[i];
    const auto bytes = kvasir::DenseTensorBytes(entry.dtype, entry.shape);
    KVASIR_CHECK(bytes.ok() && *bytes == entry.end - entry.begin);
  }
  KVASIR_CHECK(expected == size);
  [[maybe_unused]] const volatile uint8_t sink = sum;  // keeps the reads
  return 0;
}
