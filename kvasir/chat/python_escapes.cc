#include "kvasir/chat/python_escapes.h"

#include <cstdint>
#include <optional>

#include "kvasir/chat/python_ops.h"
#include "kvasir/chat/unicode.h"

namespace kvasir::chat {
namespace {

std::optional<uint32_t> ReadHex(std::string_view raw, size_t at, size_t digits) {
  uint32_t value = 0;
  for (size_t d = 0; d < digits; ++d) {
    if (at + d >= raw.size()) return std::nullopt;
    const auto digit = ParseInt(raw.substr(at + d, 1), 16);
    if (!digit) return std::nullopt;
    value = value * 16 + static_cast<uint32_t>(*digit);
  }
  return value;
}

// At raw[*i] stands x, u or U; *i moves to the last digit.
Status AppendHex(std::string_view raw, size_t* i, std::string* out) {
  const size_t digits = raw[*i] == 'x' ? 2 : raw[*i] == 'u' ? 4 : 8;
  const auto value = ReadHex(raw, *i + 1, digits);
  if (!value || *value > 0x10FFFF) {
    return {ErrorCode::kInvalidArgument, "a \\x, \\u or \\U escape is not complete"};
  }
  *i += digits;
  uint32_t code_point = *value;
  if (code_point >= 0xD800 && code_point < 0xDC00 && raw.substr(*i + 1).starts_with("\\u")) {
    const auto low = ReadHex(raw, *i + 3, 4);
    if (low && *low >= 0xDC00 && *low < 0xE000) {
      code_point = 0x10000 + ((code_point - 0xD800) << 10) + (*low - 0xDC00);
      *i += 6;
    }
  }
  AppendUtf8(code_point, out);
  return {};
}

// Up to three digits from raw[*i]; *i moves to the last.
void AppendOctal(std::string_view raw, size_t* i, std::string* out) {
  uint32_t value = 0;
  size_t digits = 0;
  for (; digits < 3 && *i + digits < raw.size(); ++digits) {
    const char digit = raw[*i + digits];
    if (digit < '0' || digit > '7') break;
    value = value * 8 + static_cast<uint32_t>(digit - '0');
  }
  AppendUtf8(value, out);
  *i += digits - 1;
}

}  // namespace

Result<std::string> UnescapePython(std::string_view raw) {
  std::string out;
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\\' || i + 1 >= raw.size()) {
      out.push_back(raw[i]);
      continue;
    }
    const char c = raw[++i];
    static constexpr std::string_view kNames = "abfnrtv\\'\"";
    static constexpr std::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    if (const size_t simple = kNames.find(c); simple != std::string_view::npos) {
      out.push_back(kMeanings[simple]);
    } else if (c == '\n') {  // a line that goes on
    } else if (c >= '0' && c <= '7') {
      AppendOctal(raw, &i, &out);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      KVASIR_TRY_OK(AppendHex(raw, &i, &out));
    } else if (c == 'N') {
      return Error{ErrorCode::kInvalidArgument,
                   "named characters (\\N{...}) are not supported; write \\uXXXX"};
    } else {
      out.push_back('\\');
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace kvasir::chat
