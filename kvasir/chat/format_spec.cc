// Numbers and strings to a format specification.
// Deliberately printf for the digits: it rounds the exact binary value, as Python does.
#include "kvasir/chat/format_spec.h"

#include <cmath>
#include <cstdio>
#include <vector>

#include "kvasir/chat/methods.h"
#include "kvasir/chat/python_ops.h"
#include "kvasir/chat/unicode.h"

namespace kvasir::chat {
namespace {

// More digits than any double has.
constexpr int64_t kMaxPrecision = 1000;

std::string Digits(uint64_t value, unsigned base, bool upper) {
  const char* const alphabet = upper ? "0123456789ABCDEF" : "0123456789abcdef";
  std::string digits;
  do {
    digits.insert(digits.begin(), alphabet[value % base]);
    value /= base;
  } while (value != 0);
  return digits;
}

// Puts `separator` between groups of `size` digits of the integer part.
std::string Group(const std::string& number, char separator, size_t size) {
  const size_t integer_end =
      std::min(number.find_first_not_of("0123456789abcdefABCDEF"), number.size());
  std::string out;
  for (size_t i = 0; i < integer_end; ++i) {
    if (i != 0 && (integer_end - i) % size == 0) out.push_back(separator);
    out.push_back(number[i]);
  }
  return out + number.substr(integer_end);
}

Result<Text> PadNumber(Runtime& runtime, const std::string& sign, const std::string& digits,
                       const FormatSpec& spec, Origin origin) {
  const char align = spec.align == 0 ? '>' : spec.align;
  const Text fill(spec.fill, origin);
  if (align == '=') {
    const int64_t width = spec.width - static_cast<int64_t>(sign.size());
    KVASIR_TRY(const Text padded, Pad(runtime, Text(digits, origin), width, Align::kRight, fill));
    Text result(sign, origin);
    result.Append(padded);
    return result;
  }
  const Align where = align == '<' ? Align::kLeft : align == '^' ? Align::kMiddle : Align::kRight;
  return Pad(runtime, Text(sign + digits, origin), spec.width, where, fill);
}

std::string SignOf(bool negative, char sign) {
  if (negative) return "-";
  return sign == '+' || sign == ' ' ? std::string(1, sign) : "";
}

Result<Text> FormatInteger(Runtime& runtime, int64_t value, const FormatSpec& spec, Origin origin) {
  const bool negative = value < 0;
  const uint64_t magnitude =
      negative ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  std::string prefix;
  unsigned base = 10;
  if (spec.type == 'x' || spec.type == 'X') base = 16;
  if (spec.type == 'o') base = 8;
  if (spec.type == 'b') base = 2;
  if (spec.alternate && base != 10) prefix = std::string("0") + spec.type;
  std::string digits = Digits(magnitude, base, spec.type == 'X');
  if (spec.precision > static_cast<int64_t>(digits.size())) {  // only printf style gives one
    digits.insert(0, static_cast<size_t>(std::min(spec.precision, kMaxPrecision)) - digits.size(),
                  '0');
  }
  if (spec.grouping != 0) digits = Group(digits, spec.grouping, base == 10 ? 3 : 4);
  return PadNumber(runtime, SignOf(negative, spec.sign) + prefix, digits, spec, origin);
}

// Python's 'r' presentation with at least one decimal, or a printf conversion.
std::string DoubleDigits(double magnitude, const FormatSpec& spec) {
  char type = spec.type;
  if (type == 0 && spec.precision < 0) return ReprDouble(magnitude);
  if (type == 0 || type == 'n') type = 'g';
  if (type == '%') {
    type = 'f';
    magnitude *= 100;
  }
  const int precision =
      spec.precision < 0 ? 6 : static_cast<int>(std::min(spec.precision, kMaxPrecision));
  const std::string format = std::string("%") + (spec.alternate ? "#" : "") + ".*" + type;
  std::vector<char> buffer(2 * kMaxPrecision);
  std::snprintf(buffer.data(), buffer.size(), format.c_str(), precision, magnitude);
  std::string digits = buffer.data();
  const bool is_plain = digits.find_first_of(".en") == std::string::npos;
  if (spec.type == 0 && is_plain) digits += ".0";
  return digits;
}

Result<Text> FormatDouble(Runtime& runtime, double value, const FormatSpec& spec, Origin origin) {
  std::string digits = DoubleDigits(std::fabs(value), spec);
  if (spec.grouping != 0) digits = Group(digits, spec.grouping, 3);
  if (spec.type == '%') digits += "%";
  return PadNumber(runtime, SignOf(std::signbit(value) && !std::isnan(value), spec.sign), digits,
                   spec, origin);
}

bool IsOneOf(char c, std::string_view characters) {
  return c != 0 && characters.find(c) != std::string_view::npos;
}

}  // namespace

Result<Text> FormatText(Runtime& runtime, const Text& text, const FormatSpec& spec) {
  Text cut = text;
  if (spec.precision >= 0)
    cut = text.Substr(0, ByteOffsetOfCodePoint(text.bytes(), spec.precision));
  const Align where = spec.align == '>'   ? Align::kRight
                      : spec.align == '^' ? Align::kMiddle
                                          : Align::kLeft;
  return Pad(runtime, cut, spec.width, where, Text(spec.fill, cut.origin()));
}

Result<Text> FormatValue(Runtime& runtime, const Value& value, const FormatSpec& spec) {
  const auto mismatch = [&] {
    return TemplateError("format '" + std::string(1, spec.type) +
                         "' does not fit a value of type " + std::string(TypeName(value)));
  };
  if (value.is_integral() && IsOneOf(spec.type, "eEfFgG%")) {
    return FormatDouble(runtime, value.as_double(), spec, value.origin());
  }
  if (value.is_int() || (value.is_bool() && spec.type != 0 && spec.type != 's')) {
    if (spec.type == 'c') {
      std::string character;
      AppendUtf8(static_cast<uint32_t>(
                     std::min<uint64_t>(static_cast<uint64_t>(value.as_integral()), 0x110000)),
                 &character);
      return FormatText(runtime, Text(character, value.origin()), spec);
    }
    if (spec.type != 0 && !IsOneOf(spec.type, "bdnoxX")) return mismatch();
    return FormatInteger(runtime, value.as_integral(), spec, value.origin());
  }
  if (value.is_float()) {
    if (spec.type != 0 && !IsOneOf(spec.type, "eEfFgGn%")) return mismatch();
    return FormatDouble(runtime, value.as_double(), spec, value.origin());
  }
  if (spec.type != 0 && spec.type != 's') return mismatch();
  KVASIR_TRY(const Text text, Str(runtime, value));
  return FormatText(runtime, text, spec);
}

}  // namespace kvasir::chat
