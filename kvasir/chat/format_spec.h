// One number or string written to a format: what `%` and str.format() share.
// Deliberately limited in width: a format is part of a template that could ask for gigabytes.
#ifndef KVASIR_CHAT_FORMAT_SPEC_H_
#define KVASIR_CHAT_FORMAT_SPEC_H_

#include <cstdint>
#include <string>

#include "kvasir/base/result.h"
#include "kvasir/chat/runtime.h"

namespace kvasir::chat {

struct FormatSpec {
  std::string fill = " ";  // one code point
  char align = 0;          // < > ^ = or 0 for the default of the type
  char sign = 0;           // + - blank or 0
  bool alternate = false;  // '#'
  char grouping = 0;       // , or _
  int64_t width = 0;       // in code points
  int64_t precision = -1;  // -1: not given
  char type = 0;           // 0: the default of the value's type
};

// ERRORS: kInvalidArgument for types that do not fit, kResourceExhausted for huge widths.
Result<Text> FormatValue(Runtime& runtime, const Value& value, const FormatSpec& spec);
// Cuts to the precision and pads to the width.
Result<Text> FormatText(Runtime& runtime, const Text& text, const FormatSpec& spec);

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_FORMAT_SPEC_H_
