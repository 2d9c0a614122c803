// str() and repr() as Python prints them, and the reverse for numbers.
// Deliberately without addresses: printing a function or generator is the same every time.
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "kvasir/chat/python_ops.h"
#include "kvasir/chat/unicode.h"

namespace kvasir::chat {
namespace {

void AppendEscape(uint32_t code_point, std::string* out) {
  char buffer[16];
  const char* format = code_point < 0x100     ? "\\x%02x"
                       : code_point < 0x10000 ? "\\u%04x"
                                              : "\\U%08x";
  std::snprintf(buffer, sizeof(buffer), format, code_point);
  out->append(buffer);
}

Status AppendRepr(Runtime& runtime, const Value& value, std::string* out);

Status AppendItems(Runtime& runtime, const Sequence& sequence, std::string_view open,
                   std::string_view close, std::string* out) {
  out->append(open);
  for (size_t i = 0; i < sequence.items.size(); ++i) {
    if (i != 0) out->append(", ");
    KVASIR_TRY_OK(AppendRepr(runtime, sequence.items[i], out));
  }
  out->append(close);
  return Status();
}

Status AppendSequence(Runtime& runtime, const Sequence& sequence, std::string* out) {
  switch (sequence.kind) {
    case SequenceKind::kList:
      return AppendItems(runtime, sequence, "[", "]", out);
    case SequenceKind::kTuple:
      return AppendItems(runtime, sequence, "(", sequence.items.size() == 1 ? ",)" : ")", out);
    case SequenceKind::kIterator:
      out->append("<generator object>");
      return Status();
    case SequenceKind::kItemsView:
      return AppendItems(runtime, sequence, "dict_items([", "])", out);
    case SequenceKind::kKeysView:
      return AppendItems(runtime, sequence, "dict_keys([", "])", out);
    case SequenceKind::kValuesView:
      return AppendItems(runtime, sequence, "dict_values([", "])", out);
    case SequenceKind::kRange:
      break;
  }
  const auto& items = sequence.items;
  const int64_t start = items.empty() ? 0 : items.front().as_integral();
  const int64_t step = items.size() < 2 ? 1 : items[1].as_integral() - start;
  const int64_t stop = items.empty() ? 0 : items.back().as_integral() + (step > 0 ? 1 : -1);
  out->append("range(" + std::to_string(start) + ", " + std::to_string(stop));
  if (step != 1) out->append(", " + std::to_string(step));
  out->append(")");
  return Status();
}

Status AppendDict(Runtime& runtime, const Dict& dict, std::string* out) {
  out->push_back('{');
  bool first = true;
  for (const auto& [key, value] : dict.entries()) {
    if (!first) out->append(", ");
    first = false;
    KVASIR_TRY_OK(AppendRepr(runtime, key, out));
    out->append(": ");
    KVASIR_TRY_OK(AppendRepr(runtime, value, out));
  }
  out->push_back('}');
  return Status();
}

Status AppendRepr(Runtime& runtime, const Value& value, std::string* out) {
  KVASIR_TRY_OK(runtime.Step());
  KVASIR_TRY_OK(runtime.CheckStringSize(out->size()));
  switch (value.kind()) {
    case Value::Kind::kUndefined:
      out->append("Undefined");
      break;
    case Value::Kind::kNone:
      out->append("None");
      break;
    case Value::Kind::kBool:
      out->append(value.as_bool() ? "True" : "False");
      break;
    case Value::Kind::kInt:
      out->append(std::to_string(value.as_integral()));
      break;
    case Value::Kind::kFloat:
      out->append(ReprDouble(value.as_double()));
      break;
    case Value::Kind::kObject:
      out->append(value.object().Repr());
      break;
    case Value::Kind::kSequence:
      return AppendSequence(runtime, value.sequence(), out);
    case Value::Kind::kDict:
      return AppendDict(runtime, value.dict(), out);
    case Value::Kind::kString:
      KVASIR_TRY_OK(runtime.StepBytes(value.bytes().size()));
      if (value.text().is_markup()) {
        out->append("Markup(" + ReprString(value.bytes()) + ")");
      } else {
        out->append(ReprString(value.bytes()));
      }
      break;
  }
  return Status();
}

std::string_view TrimSpace(std::string_view text) {
  text = TrimRight(text);
  while (!text.empty()) {
    const CodePoint first = DecodeUtf8(text, 0);
    if (!IsSpace(first.value)) break;
    text.remove_prefix(first.size_bytes);
  }
  return text;
}

// Removes the underscores that Python allows between digits; false when one stands elsewhere.
bool RemoveUnderscores(std::string_view text, std::string* out) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out->push_back(text[i]);
      continue;
    }
    const auto is_digit = [&](size_t at) {
      return at < text.size() && std::isxdigit(static_cast<unsigned char>(text[at])) != 0;
    };
    if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) return false;
  }
  return true;
}

}  // namespace

std::string ReprString(std::string_view text) {
  const bool has_single = text.find('\'') != std::string_view::npos;
  const bool has_double = text.find('"') != std::string_view::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  std::string out(1, quote);
  for (size_t at = 0; at < text.size();) {
    const CodePoint next = DecodeUtf8(text, at);
    switch (next.value) {
      case '\\':
        out.append("\\\\");
        break;
      case '\n':
        out.append("\\n");
        break;
      case '\r':
        out.append("\\r");
        break;
      case '\t':
        out.append("\\t");
        break;
      default:
        if (next.value == static_cast<uint32_t>(quote)) {
          out.push_back('\\');
          out.push_back(quote);
        } else if (!IsPrintable(next.value)) {
          AppendEscape(next.value, &out);
        } else {
          out.append(text.substr(at, next.size_bytes));
        }
    }
    at += next.size_bytes;
  }
  out.push_back(quote);
  return out;
}

std::string ReprDouble(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto written = std::to_chars(buffer, buffer + sizeof(buffer), std::fabs(value),
                                     std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(written.ptr - buffer));
  const size_t e = text.find('e');
  std::string digits(text.substr(0, 1));
  if (e > 2) digits.append(text.substr(2, e - 2));
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  const auto digit_count = static_cast<int>(digits.size());
  std::string out = std::signbit(value) ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits.substr(0, 1);
    if (digit_count > 1) out += "." + digits.substr(1);
    std::snprintf(buffer, sizeof(buffer), "e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
    return out + buffer;
  }
  if (exponent < 0)
    return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (digit_count <= exponent + 1) {
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - digit_count), '0') + ".0";
  }
  const auto point = static_cast<size_t>(exponent) + 1;
  return out + digits.substr(0, point) + "." + digits.substr(point);
}

Result<std::string> Repr(Runtime& runtime, const Value& value) {
  std::string out;
  KVASIR_TRY_OK(AppendRepr(runtime, value, &out));
  return out;
}

Result<Text> Str(Runtime& runtime, const Value& value) {
  if (value.is_string()) return value.text();
  if (value.is_undefined()) return Text();
  KVASIR_TRY(const std::string shown, Repr(runtime, value));
  const bool is_scalar = value.is_number() || value.is_none();
  return Text(shown, is_scalar ? value.origin() : Origin::kInput);
}

std::optional<int64_t> ParseInt(std::string_view text, int base) {
  std::string digits;
  if (!RemoveUnderscores(TrimSpace(text), &digits)) return std::nullopt;
  std::string_view rest = digits;
  bool negative = false;
  if (!rest.empty() && (rest[0] == '+' || rest[0] == '-')) {
    negative = rest[0] == '-';
    rest.remove_prefix(1);
  }
  const auto has_prefix = [&](char lower) {
    return rest.size() > 2 && rest[0] == '0' && (rest[1] | 0x20) == lower;
  };
  for (const auto& [letter, radix] : {std::pair{'x', 16}, {'o', 8}, {'b', 2}}) {
    if ((base == radix || base == 0) && has_prefix(letter)) {
      rest.remove_prefix(2);
      base = radix;
      break;
    }
  }
  if (base == 0) base = 10;
  if (base < 2 || base > 36 || rest.empty()) return std::nullopt;
  uint64_t magnitude = 0;
  const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), magnitude, base);
  if (parsed.ec != std::errc() || parsed.ptr != rest.data() + rest.size()) return std::nullopt;
  if (magnitude > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
  return negative ? -static_cast<int64_t>(magnitude) : static_cast<int64_t>(magnitude);
}

std::optional<double> ParseFloat(std::string_view text) {
  std::string digits;
  if (!RemoveUnderscores(TrimSpace(text), &digits)) return std::nullopt;
  std::string_view rest = digits;
  double sign = 1;
  if (!rest.empty() && (rest[0] == '+' || rest[0] == '-')) {
    sign = rest[0] == '-' ? -1 : 1;
    rest.remove_prefix(1);
  }
  if (rest.empty() || rest[0] == '-') return std::nullopt;
  double value = 0;
  const auto parsed = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  // from_chars also reads "nan(...)", which Python does not.
  if (parsed.ptr != rest.data() + rest.size() || rest.back() == ')') return std::nullopt;
  if (parsed.ec == std::errc::result_out_of_range) {
    value = std::strtod(std::string(rest).c_str(), nullptr);
  } else if (parsed.ec != std::errc()) {
    return std::nullopt;
  }
  return sign * value;
}

}  // namespace kvasir::chat
