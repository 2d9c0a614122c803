// The named formats of JSON schema strings, as patterns.
// Deliberately narrower than their standards where these allow rarities: what is generated is
// valid.
#ifndef KVASIR_GRAMMAR_JSON_FORMATS_H_
#define KVASIR_GRAMMAR_JSON_FORMATS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace kvasir {

// An anchored pattern for TranslatePattern; empty for formats that are not known.
std::string PatternOfFormat(std::string_view format);
// Whether JSON schema has such a format and there is no pattern. Others' formats ("path",
// "password", "binary") say nothing about which texts are valid.
bool IsUnheldFormat(std::string_view format);
// The smallest and the largest integer of "int32" and the like, which OpenAPI and generators of
// schemas use; "uint64" as far as int64_t goes.
std::optional<std::pair<int64_t, int64_t>> RangeOfFormat(std::string_view format);
// "date, date-time, ...", for messages.
std::string KnownFormats();

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_JSON_FORMATS_H_
