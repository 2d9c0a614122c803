// Fuzzes files of packed weights: any bytes, with their checksums put right, are refused or list
// matrices whose panels lie within them.
// Deliberately repairs checksums: a fuzzer that must guess them would only ever test the first one.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "kvasir/base/check.h"
#include "kvasir/base/checksum.h"
#include "kvasir/formats/packed_weights_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> file(bytes, bytes + size);
  const auto put = [&file](size_t at, uint64_t value) {
    std::memcpy(file.data() + at, &value, sizeof(value));
  };
  if (file.size() >= 64) {
    uint64_t index = 0;
    std::memcpy(&index, file.data() + 24, sizeof(index));
    put(16, file.size());
    if (index <= file.size()) {
      put(32, file.size() - index);
      put(40, kvasir::Checksum64(std::span(file).subspan(index)));
    }
    put(56, kvasir::Checksum64(std::span(file).first(56)));
  }
  const auto parsed = kvasir::ParsePackedWeights(file, "f");
  if (!parsed.ok()) {
    KVASIR_CHECK(!parsed.error().message.empty());
    return 0;
  }
  for (const auto& [key, entry] : *parsed) {
    const size_t begin = static_cast<size_t>(entry.panels.data() - file.data());
    KVASIR_CHECK(begin >= 64 && begin % 64 == 0 && begin <= file.size() &&
                 entry.panels.size() <= file.size() - begin);
  }
  return 0;
}
