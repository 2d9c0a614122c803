// The printf-style formatting of Python's `%`.
// Deliberately keeping the origins of the format and of every %s: the pieces are only put together.
#include <algorithm>

#include "kvasir/chat/format_spec.h"
#include "kvasir/chat/python_ops.h"
#include "kvasir/chat/unicode.h"

namespace kvasir::chat {
namespace {

class PercentFormatter {
 public:
  PercentFormatter(Runtime& runtime, const Text& format, const Value& arguments)
      : runtime_(runtime), format_(format), arguments_(arguments) {
    is_tuple_ = arguments.is_sequence() && arguments.sequence().kind == SequenceKind::kTuple;
  }

  Result<Text> Run() {
    const std::string& bytes = format_.bytes();
    Text result = format_.Substr(0, 0);
    while (at_ < bytes.size()) {
      const size_t percent = std::min(bytes.find('%', at_), bytes.size());
      result.AppendRange(format_, at_, percent);
      at_ = percent;
      if (at_ >= bytes.size()) break;
      KVASIR_TRY(const Text field, Field());
      result.Append(format_.is_markup() ? EscapeHtml(field) : field);
      KVASIR_TRY_OK(runtime_.CheckStringSize(result.size()));
      KVASIR_TRY_OK(runtime_.Step());
    }
    const bool takes_all =
        is_tuple_ ? next_ >= arguments_.sequence().items.size()
                  : next_ >= 1 || used_mapping_ || arguments_.is_dict() || arguments_.is_sequence();
    if (!takes_all) return TemplateError("not all arguments converted during string formatting");
    return result;
  }

 private:
  char Peek() const { return at_ < format_.size() ? format_.bytes()[at_] : '\0'; }

  Result<Value> NextArgument() {
    if (is_tuple_) {
      if (next_ >= arguments_.sequence().items.size()) {
        return TemplateError("not enough arguments for format string");
      }
      return arguments_.sequence().items[next_++];
    }
    if (next_++ > 0) return TemplateError("not enough arguments for format string");
    return arguments_;
  }

  // A width or precision: digits, or * for the next argument.
  Result<int64_t> ReadCount() {
    if (Peek() == '*') {
      ++at_;
      KVASIR_TRY(const Value count, NextArgument());
      if (!count.is_integral()) return TemplateError("* wants int");
      return count.as_integral();
    }
    int64_t count = 0;
    for (; Peek() >= '0' && Peek() <= '9'; ++at_) {
      count = std::min<int64_t>(count * 10 + (Peek() - '0'), INT32_MAX);
    }
    return count;
  }

  // From '%' to the conversion character.
  Result<Text> Field() {
    const size_t begin = at_++;
    std::optional<Value> keyed;
    if (Peek() == '(') {
      const size_t close = format_.bytes().find(')', at_);
      if (close == std::string::npos) return TemplateError("incomplete format key");
      if (!arguments_.is_dict()) return TemplateError("format requires a mapping");
      const std::string key = format_.bytes().substr(at_ + 1, close - at_ - 1);
      const Value* found = arguments_.dict().Find(key);
      if (found == nullptr) return TemplateError("the format names an unknown key '" + key + "'");
      keyed = *found;
      used_mapping_ = true;
      at_ = close + 1;
    }
    KVASIR_TRY(FormatSpec spec, ReadSpec());
    if (at_ >= format_.size()) return TemplateError("incomplete format");
    const char type = format_.bytes()[at_++];
    if (type == '%') return format_.Substr(begin, begin + 1);
    KVASIR_TRY(const Value value, keyed ? Result<Value>(*keyed) : NextArgument());
    return Convert(value, type, spec);
  }

  Result<FormatSpec> ReadSpec() {
    FormatSpec spec;
    spec.align = '>';
    bool left = false;
    bool zeros = false;
    for (;; ++at_) {
      const char c = Peek();
      if (c == '-')
        left = true;
      else if (c == '0')
        zeros = true;
      else if (c == '+')
        spec.sign = '+';
      else if (c == ' ')
        spec.sign = spec.sign == '+' ? '+' : ' ';
      else if (c == '#')
        spec.alternate = true;
      else
        break;
    }
    KVASIR_TRY(spec.width, ReadCount());
    if (spec.width < 0) {
      left = true;
      spec.width = spec.width == INT64_MIN ? INT64_MAX : -spec.width;
    }
    if (Peek() == '.') {
      ++at_;
      KVASIR_TRY(spec.precision, ReadCount());
      spec.precision = std::max<int64_t>(0, spec.precision);
    }
    while (Peek() == 'h' || Peek() == 'l' || Peek() == 'L') ++at_;
    if (left) {
      spec.align = '<';
    } else if (zeros) {
      spec.align = '=';
      spec.fill = "0";
    }
    return spec;
  }

  Result<Text> Convert(const Value& value, char type, FormatSpec spec) {
    switch (type) {
      case 's':
      case 'r':
      case 'a': {
        Text text;
        if (type == 's') {
          KVASIR_TRY(text, Str(runtime_, value));
        } else {
          KVASIR_TRY(const std::string shown, Repr(runtime_, value));
          text = Text(shown, value.origin());
        }
        if (spec.align == '=') spec.align = '>';
        spec.fill = " ";
        return FormatText(runtime_, text, spec);
      }
      case 'd':
      case 'i':
      case 'u':
        return ConvertInteger(value, 'd', spec);
      case 'x':
      case 'X':
      case 'o':
        if (!value.is_integral()) return TemplateError("%x format: an integer is required");
        return ConvertInteger(value, type, spec);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (!value.is_number()) return TemplateError("must be real number, not " + Name(value));
        spec.type = type;
        return FormatValue(runtime_, Value::Float(value.as_double(), value.origin()), spec);
      case 'c':
        spec.type = 'c';
        if (value.is_integral()) return FormatValue(runtime_, value, spec);
        if (value.is_string() && CountCodePoints(value.bytes()) == 1) {
          return FormatText(runtime_, value.text(), spec);
        }
        return TemplateError("%c requires int or char");
      default:
        return TemplateError("unsupported format character '" + std::string(1, type) + "'");
    }
  }

  Result<Text> ConvertInteger(const Value& value, char type, FormatSpec spec) {
    if (value.is_undefined()) return TemplateError(value.undefined_message());
    if (!value.is_number()) {
      return TemplateError("%d format: a real number is required, not " + Name(value));
    }
    spec.type = type;
    Value integer = value;
    if (value.is_float()) {
      if (!(value.as_double() > -9e18 && value.as_double() < 9e18)) {
        return TemplateError("%d format: the number does not fit into 64 bits");
      }
      integer = Value::Int(static_cast<int64_t>(value.as_double()), value.origin());
    }
    return FormatValue(runtime_, integer, spec);
  }

  static std::string Name(const Value& value) { return std::string(TypeName(value)); }

  Runtime& runtime_;
  const Text& format_;
  const Value& arguments_;
  bool is_tuple_ = false;
  bool used_mapping_ = false;
  size_t next_ = 0;
  size_t at_ = 0;
};

}  // namespace

Result<Text> FormatPercent(Runtime& runtime, const Text& format, const Value& arguments) {
  return PercentFormatter(runtime, format, arguments).Run();
}

}  // namespace kvasir::chat
