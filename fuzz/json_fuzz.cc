// Fuzzes the JSON parser: any text is refused with a reason, or reads back what it prints.
// Deliberately not a conformance test: which texts are JSON is the wrapped parser's business.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kvasir/base/check.h"
#include "kvasir/base/json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto value =
      kvasir::Json::Parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!value.ok()) {
    KVASIR_CHECK(!value.error().message.empty());
    return 0;
  }
  const std::string text = value->Dump();
  const auto again = kvasir::Json::Parse(text);
  KVASIR_CHECK(again.ok() && *again == *value && again->Dump() == text);
  const auto pretty = kvasir::Json::Parse(value->DumpPretty());
  KVASIR_CHECK(pretty.ok() && *pretty == *value);
  return 0;
}
