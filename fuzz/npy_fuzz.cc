// Fuzzes the .npy reader: any bytes, no files.
// Deliberately nothing else.
#include <cstddef>
#include <cstdint>
#include <span>

#include "kvasir/base/check.h"
#include "kvasir/formats/npy.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto matrix = kvasir::ParseNpy(std::as_bytes(std::span(data, size)));
  if (!matrix.ok()) return 0;
  KVASIR_CHECK(matrix->rows >= 0 && matrix->cols >= 0);
  KVASIR_CHECK(matrix->cols == 0
                   ? matrix->values.empty()
                   : matrix->values.size() / matrix->cols == static_cast<uint64_t>(matrix->rows));
  return 0;
}
