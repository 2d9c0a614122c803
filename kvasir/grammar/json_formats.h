// The named formats of JSON schema strings, as patterns.
// Deliberately narrower than their standards where these allow rarities: what is generated is
// valid.
#ifndef KVASIR_GRAMMAR_JSON_FORMATS_H_
#define KVASIR_GRAMMAR_JSON_FORMATS_H_

#include <string>
#include <string_view>

namespace kvasir {

// An anchored pattern for TranslatePattern; empty for formats that are not known.
std::string PatternOfFormat(std::string_view format);
// "date, date-time, ...", for messages.
std::string KnownFormats();

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_JSON_FORMATS_H_
