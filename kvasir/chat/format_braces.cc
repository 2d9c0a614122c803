// str.format(): "{0} {name.attribute[key]!r:>10}".
// Deliberately with the sandbox's look-up: attributes are those a template sees.
#include <algorithm>

#include "kvasir/chat/format_spec.h"
#include "kvasir/chat/python_ops.h"
#include "kvasir/chat/unicode.h"

namespace kvasir::chat {
namespace {

class BraceFormatter {
 public:
  BraceFormatter(Runtime& runtime, const CallArguments& arguments)
      : runtime_(runtime), arguments_(arguments) {}

  // `depth`: a format specification may hold fields itself, but those no further ones.
  Result<Text> Run(const Text& format, int depth) {
    if (depth > 1) return TemplateError("format: the fields are nested too deep");
    const std::string& bytes = format.bytes();
    Text result = format.Substr(0, 0);
    for (size_t at = 0; at < bytes.size();) {
      const size_t brace = std::min(bytes.find_first_of("{}", at), bytes.size());
      result.AppendRange(format, at, brace);
      if (brace >= bytes.size()) break;
      if (brace + 1 < bytes.size() && bytes[brace + 1] == bytes[brace]) {
        result.AppendRange(format, brace, brace + 1);
        at = brace + 2;
        continue;
      }
      if (bytes[brace] == '}') return TemplateError("Single '}' encountered in format string");
      const size_t end = FieldEnd(bytes, brace + 1);
      if (end == std::string::npos) return TemplateError("expected '}' before end of string");
      KVASIR_TRY(const Text field, Field(format.Substr(brace + 1, end), depth));
      result.Append(format.is_markup() ? EscapeHtml(field) : field);
      KVASIR_TRY_OK(runtime_.CheckStringSize(result.size()));
      KVASIR_TRY_OK(runtime_.Step());
      at = end + 1;
    }
    return result;
  }

 private:
  static size_t FieldEnd(const std::string& bytes, size_t at) {
    int open = 1;
    for (; at < bytes.size(); ++at) {
      if (bytes[at] == '{') ++open;
      if (bytes[at] == '}' && --open == 0) return at;
    }
    return std::string::npos;
  }

  Result<Text> Field(const Text& field, int depth) {
    const std::string& bytes = field.bytes();
    size_t name_end = 0;
    for (bool in_brackets = false; name_end < bytes.size(); ++name_end) {
      const char c = bytes[name_end];
      if (c == '[') in_brackets = true;
      if (c == ']') in_brackets = false;
      if (!in_brackets && (c == '!' || c == ':')) break;
    }
    KVASIR_TRY(Value value, LookUp(bytes.substr(0, name_end)));
    size_t at = name_end;
    char conversion = 0;
    if (at < bytes.size() && bytes[at] == '!') {
      conversion = at + 1 < bytes.size() ? bytes[at + 1] : '\0';
      if (conversion != 'r' && conversion != 's' && conversion != 'a') {
        return TemplateError("format: a conversion must be !r, !s or !a");
      }
      at += 2;
    }
    if (at < bytes.size() && bytes[at] != ':') {
      return TemplateError("format: expected ':' after a conversion");
    }
    if (conversion == 's') {
      KVASIR_TRY(Text text, Str(runtime_, value));
      value = runtime_.String(std::move(text));
    } else if (conversion != 0) {
      KVASIR_TRY(const std::string shown, Repr(runtime_, value));
      value = runtime_.String(shown, value.origin());
    }
    if (at + 1 >= bytes.size()) return Str(runtime_, value);
    KVASIR_TRY(const Text spec_text, Run(field.Substr(at + 1, field.size()), depth + 1));
    KVASIR_TRY(const FormatSpec spec, ParseSpec(spec_text.bytes(), value));
    return FormatValue(runtime_, value, spec);
  }

  Result<Value> LookUp(const std::string& name) {
    const size_t first_end = std::min(name.find_first_of(".["), name.size());
    KVASIR_TRY(Value value, First(name.substr(0, first_end)));
    for (size_t at = first_end; at < name.size();) {
      KVASIR_TRY_OK(runtime_.Step());
      if (name[at] == '.') {
        const size_t end = std::min(name.find_first_of(".[", at + 1), name.size());
        KVASIR_TRY(value, chat::GetAttribute(runtime_, value, name.substr(at + 1, end - at - 1)));
        at = end;
      } else {
        const size_t close = name.find(']', at);
        if (close == std::string::npos) return TemplateError("format: missing ']'");
        const std::string key = name.substr(at + 1, close - at - 1);
        const auto index = ParseInt(key, 10);
        KVASIR_TRY(value,
                   GetItem(runtime_, value,
                           index ? Value::Int(*index) : runtime_.String(key, Origin::kTemplate)));
        at = close + 1;
      }
    }
    return value;
  }

  Result<Value> First(const std::string& name) {
    if (name.empty()) return Positional(static_cast<int64_t>(next_++));
    if (const auto index = ParseInt(name, 10)) return Positional(*index);
    const Value* value = arguments_.Find(name);
    if (value == nullptr) return TemplateError("format: there is no argument '" + name + "'");
    return *value;
  }

  Result<Value> Positional(int64_t index) {
    if (index < 0 || index >= static_cast<int64_t>(arguments_.positional.size())) {
      return TemplateError("Replacement index " + std::to_string(index) +
                           " out of range for positional args tuple");
    }
    return arguments_.positional[static_cast<size_t>(index)];
  }

  // [[fill]align][sign][#][0][width][grouping][.precision][type]
  static Result<FormatSpec> ParseSpec(std::string_view text, const Value& value) {
    FormatSpec spec;
    size_t at = 0;
    const auto peek = [&](size_t ahead) { return at + ahead < text.size() ? text[at + ahead] : 0; };
    const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
    const size_t fill_bytes = text.empty() ? 0 : DecodeUtf8(text, 0).size_bytes;
    if (!text.empty() && is_align(static_cast<char>(peek(fill_bytes)))) {
      spec.fill = text.substr(0, fill_bytes);
      spec.align = text[fill_bytes];
      at = fill_bytes + 1;
    } else if (is_align(static_cast<char>(peek(0)))) {
      spec.align = text[at++];
    }
    if (peek(0) == '+' || peek(0) == '-' || peek(0) == ' ') spec.sign = text[at++];
    if (peek(0) == '#') {
      spec.alternate = true;
      ++at;
    }
    if (peek(0) == '0') {
      if (spec.align == 0) {
        spec.fill = "0";
        spec.align = value.is_number() ? '=' : '<';
      }
      ++at;
    }
    const auto read_count = [&] {
      int64_t count = 0;
      for (; peek(0) >= '0' && peek(0) <= '9'; ++at) {
        count = std::min<int64_t>(count * 10 + (text[at] - '0'), INT32_MAX);
      }
      return count;
    };
    spec.width = read_count();
    if (peek(0) == ',' || peek(0) == '_') spec.grouping = text[at++];
    if (peek(0) == '.') {
      ++at;
      spec.precision = read_count();
    }
    if (at < text.size()) spec.type = text[at++];
    if (at != text.size()) {
      return TemplateError("format: invalid specification '" + std::string(text) + "'");
    }
    return spec;
  }

  Runtime& runtime_;
  const CallArguments& arguments_;
  size_t next_ = 0;
};

}  // namespace

Result<Text> FormatBraces(Runtime& runtime, const Text& format, const CallArguments& arguments) {
  return BraceFormatter(runtime, arguments).Run(format, 0);
}

}  // namespace kvasir::chat
