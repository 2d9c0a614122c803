// Fuzzes Modelfiles: any text is refused with a line's number, or names a model.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kvasir/base/check.h"
#include "kvasir/convert/modelfile.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file =
      kvasir::Modelfile::Parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!file.ok()) {
    KVASIR_CHECK(!file.error().message.empty());
    return 0;
  }
  KVASIR_CHECK(!file->from.empty());
  for (const kvasir::Modelfile::Parameter& parameter : file->parameters) {
    KVASIR_CHECK(!parameter.name.empty());
  }
  return 0;
}
