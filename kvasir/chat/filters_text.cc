// Filters that make strings of strings.
// Deliberately turning any input into a string first, as jinja2 does: none | upper is "NONE".
#include <algorithm>
#include <unordered_map>

#include "kvasir/chat/filters.h"
#include "kvasir/chat/methods.h"
#include "kvasir/chat/python_ops.h"
#include "kvasir/chat/unicode.h"

namespace kvasir::chat {
namespace {

using Bound = BoundArguments;

template <LetterCase kCase>
Result<Value> CaseFilter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY_OK(Bound::Bind("case filter", arguments, {}, 0).status());
  KVASIR_TRY(const Text text, Str(runtime, input));
  KVASIR_TRY_OK(runtime.StepCharacters(text.size()));
  return runtime.String(ChangeCase(text, kCase));
}

// Words begin after blanks, hyphens and opening brackets only, unlike in str.title().
Result<Value> Title(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY_OK(Bound::Bind("title", arguments, {}, 0).status());
  KVASIR_TRY(const Text text, Str(runtime, input));
  Text result;
  bool begins_word = true;
  std::string changed;
  for (size_t at = 0; at < text.size();) {
    const CodePoint next = DecodeUtf8(text.bytes(), at);
    const bool separates =
        IsSpace(next.value) ||
        (next.value < 0x80 &&
         std::string_view("-({[<").find(static_cast<char>(next.value)) != std::string_view::npos);
    changed.clear();
    if (begins_word) {
      AppendUpper(next.value, &changed);
    } else {
      AppendLower(text.bytes(), at, next.value, &changed);
    }
    result.Append(changed, text.OriginAt(at));
    begins_word = separates;
    at += next.size_bytes;
  }
  return runtime.String(std::move(result));
}

Result<Value> Trim(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("trim", arguments, {"chars"}, 0));
  KVASIR_TRY(const Text text, Str(runtime, input));
  if (bound.GetSome(0) == nullptr) return runtime.String(Strip(text, Ends::kBoth, nullptr));
  KVASIR_TRY(const Text characters, bound.TextOr(0, Text()));
  return runtime.String(Strip(text, Ends::kBoth, &characters));
}

Result<Value> ReplaceFilter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("replace", arguments, {"old", "new", "count"}, 2));
  KVASIR_TRY(const Text text, Str(runtime, input));
  KVASIR_TRY(const Text from, Str(runtime, *bound.Get(0)));
  KVASIR_TRY(const Text to, Str(runtime, *bound.Get(1)));
  int64_t count = -1;
  if (bound.GetSome(2) != nullptr) {
    KVASIR_TRY(count, bound.IntOr(2, -1));
  }
  KVASIR_TRY(Text result, Replace(runtime, text.AsPlain(), from, to, count));
  return runtime.String(std::move(result));
}

Result<Value> Indent(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("indent", arguments, {"width", "first", "blank"}, 0));
  if (input.is_undefined()) return TemplateError(input.undefined_message());
  if (!input.is_string()) {
    return TemplateError("indent wants a string, not " + std::string(TypeName(input)));
  }
  Text text = input.text();
  Text indention;
  if (bound.Get(0) != nullptr && bound.Get(0)->is_string()) {
    indention = bound.Get(0)->text();
  } else {
    KVASIR_TRY(const int64_t width, bound.IntOr(0, 4));
    KVASIR_TRY_OK(runtime.CheckStringSize(static_cast<size_t>(std::max<int64_t>(0, width))));
    indention =
        Text(std::string(static_cast<size_t>(std::max<int64_t>(0, width)), ' '), text.origin());
  }
  const Origin newline_origin = text.origin();
  text.Append("\n", newline_origin);
  const bool indents_blank = bound.TruthOr(2, false);
  Text result = text.Substr(0, 0);
  if (bound.TruthOr(1, false)) result.Append(indention);
  bool is_first = true;
  for (const Text& line : SplitLines(text)) {
    if (!is_first) {
      result.Append("\n", newline_origin);
      if (indents_blank || !line.empty()) result.Append(indention);
    }
    is_first = false;
    result.Append(line);
    KVASIR_TRY_OK(runtime.CheckStringSize(result.size()));
  }
  return runtime.String(std::move(result));
}

Result<Value> Center(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("center", arguments, {"width"}, 0));
  KVASIR_TRY(const int64_t width, bound.IntOr(0, 80));
  KVASIR_TRY(const Text text, Str(runtime, input));
  KVASIR_TRY(Text padded, Pad(runtime, text, width, Align::kCenter, Text(" ", text.origin())));
  return runtime.String(std::move(padded));
}

Result<Value> Format(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Text format, Str(runtime, input));
  if (!arguments.positional.empty() && !arguments.named.empty()) {
    return TemplateError("format: positional and keyword arguments cannot be mixed");
  }
  Value values;
  if (arguments.named.empty()) {
    values = runtime.Tuple(arguments.positional);
  } else {
    Dict dict;
    for (const auto& [name, value] : arguments.named) {
      dict.Set(runtime.String(name, Origin::kTemplate), value);
    }
    values = runtime.DictValue(std::move(dict));
  }
  KVASIR_TRY(Text result, FormatPercent(runtime, format, values));
  return runtime.String(std::move(result));
}

Result<Value> Truncate(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound,
             Bound::Bind("truncate", arguments, {"length", "killwords", "end", "leeway"}, 0));
  if (!input.is_string()) return TemplateError("truncate wants a string");
  const Text& text = input.text();
  KVASIR_TRY(const int64_t length, bound.IntOr(0, 255));
  KVASIR_TRY(const Text end, bound.TextOr(2, Text("...", Origin::kTemplate)));
  int64_t leeway = 5;
  if (bound.GetSome(3) != nullptr) {
    KVASIR_TRY(leeway, bound.IntOr(3, 5));
  }
  const int64_t end_length = CountCodePoints(end.bytes());
  if (length < end_length || leeway < 0) {
    return TemplateError("truncate: the length must not be smaller than that of the end mark");
  }
  const int64_t size = CountCodePoints(text.bytes());
  if (size <= length || size - length <= leeway) return input;
  Text result = text.Substr(0, ByteOffsetOfCodePoint(text.bytes(), length - end_length));
  if (!bound.TruthOr(1, false)) {
    const size_t blank = result.bytes().rfind(' ');
    if (blank != std::string::npos) result = result.Substr(0, blank);
  }
  result.Append(end);
  return runtime.String(std::move(result));
}

Result<Value> WordCount(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY_OK(Bound::Bind("wordcount", arguments, {}, 0).status());
  KVASIR_TRY(const Text text, Str(runtime, input));
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const CodePoint next = DecodeUtf8(text.bytes(), at);
    const bool is_word = next.value == '_' || IsAlpha(next.value) || IsNumeric(next.value);
    words += is_word && !inside ? 1 : 0;
    inside = is_word;
    at += next.size_bytes;
  }
  return Value::Int(words);
}

// Quotes all but RFC 3986's unreserved characters; '/' stays unless it is part of a query.
void AppendUrlQuoted(const std::string& bytes, bool for_query, std::string* out) {
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_kept = std::isalnum(byte) != 0 || c == '_' || c == '.' || c == '-' || c == '~' ||
                         (c == '/' && !for_query);
    if (is_kept && byte < 0x80) {
      out->push_back(c);
    } else if (c == ' ' && for_query) {
      out->push_back('+');
    } else {
      static constexpr char kHex[] = "0123456789ABCDEF";
      out->push_back('%');
      out->push_back(kHex[byte >> 4]);
      out->push_back(kHex[byte & 15]);
    }
  }
}

Result<Value> UrlEncode(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY_OK(Bound::Bind("urlencode", arguments, {}, 0).status());
  std::string out;
  if (input.is_dict() || input.is_sequence()) {
    Value pairs = input;
    if (input.is_dict()) {
      KVASIR_TRY(pairs, FindValueMethod(input, "items")(runtime, input, {}));
    }
    KVASIR_TRY(const auto items, Iterate(runtime, pairs));
    for (const Value& item : items) {
      KVASIR_TRY(const auto pair, Iterate(runtime, item));
      if (pair.size() != 2) return TemplateError("urlencode wants pairs");
      if (!out.empty()) out.push_back('&');
      KVASIR_TRY(const Text key, Str(runtime, pair[0]));
      KVASIR_TRY(const Text value, Str(runtime, pair[1]));
      AppendUrlQuoted(key.bytes(), true, &out);
      out.push_back('=');
      AppendUrlQuoted(value.bytes(), true, &out);
      KVASIR_TRY_OK(runtime.CheckStringSize(out.size()));
    }
    return runtime.String(out, Origin::kInput);
  }
  KVASIR_TRY(const Text text, Str(runtime, input));
  AppendUrlQuoted(text.bytes(), false, &out);
  return runtime.String(out, text.origin());
}

Result<Value> StripTags(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY_OK(Bound::Bind("striptags", arguments, {}, 0).status());
  KVASIR_TRY(const Text text, Str(runtime, input));
  Text kept;
  // What was looked for once in vain is not there later either.
  bool has_close[2] = {true, true};
  for (size_t at = 0; at < text.size();) {
    const bool is_comment = text.bytes().compare(at, 4, "<!--") == 0;
    const std::string_view close = is_comment ? "-->" : ">";
    size_t end = std::string::npos;
    if (text.bytes()[at] == '<' && has_close[is_comment]) {
      end = text.bytes().find(close, at);
      has_close[is_comment] = end != std::string::npos;
    }
    if (end != std::string::npos) {
      at = end + close.size();
    } else {
      kept.AppendRange(text, at, at + 1);
      ++at;
    }
  }
  CallArguments none;
  KVASIR_TRY(const Value words, FindStringMethod("split")(runtime, kept, none));
  CallArguments list;
  list.positional.push_back(words);
  return FindStringMethod("join")(runtime, Text(" ", text.origin()), list);
}

Result<Value> XmlAttributes(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("xmlattr", arguments, {"autospace"}, 0));
  if (!input.is_dict()) return TemplateError("xmlattr wants a dict");
  Text result;
  for (const auto& [key, value] : input.dict().entries()) {
    if (value.is_none() || value.is_undefined()) continue;
    KVASIR_TRY(const Text name, Str(runtime, key));
    KVASIR_TRY(const Text text, Str(runtime, value));
    if (name.bytes().find_first_of(" \t\n\r\f\v/>=") != std::string::npos) {
      return TemplateError("xmlattr: invalid character in attribute name " +
                           ReprString(name.bytes()));
    }
    if (!result.empty() || bound.TruthOr(0, true)) result.Append(" ", Origin::kTemplate);
    result.Append(EscapeHtml(name));
    result.Append("=\"", Origin::kTemplate);
    result.Append(EscapeHtml(text));
    result.Append("\"", Origin::kTemplate);
    KVASIR_TRY_OK(runtime.CheckStringSize(result.size()));
  }
  return runtime.String(std::move(result));
}

}  // namespace

FilterFunction FindTextFilter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFunction> kFilters = {
      {"capitalize", CaseFilter<LetterCase::kCapitalize>},
      {"center", Center},
      {"format", Format},
      {"indent", Indent},
      {"lower", CaseFilter<LetterCase::kLower>},
      {"replace", ReplaceFilter},
      {"striptags", StripTags},
      {"title", Title},
      {"trim", Trim},
      {"truncate", Truncate},
      {"upper", CaseFilter<LetterCase::kUpper>},
      {"urlencode", UrlEncode},
      {"wordcount", WordCount},
      {"xmlattr", XmlAttributes},
  };
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? nullptr : found->second;
}

}  // namespace kvasir::chat
