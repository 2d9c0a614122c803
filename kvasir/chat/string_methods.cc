// Python's str methods.
// Deliberately not encode(), maketrans() and translate(): there are no bytes objects here.
#include <algorithm>
#include <string>
#include <unordered_map>

#include "kvasir/chat/methods.h"
#include "kvasir/chat/python_ops.h"
#include "kvasir/chat/string_split.h"
#include "kvasir/chat/unicode.h"

namespace kvasir::chat {
namespace {

using Bound = BoundArguments;

Text Blank(const Text& self) { return Text(" ", self.origin()); }

template <LetterCase kCase>
Result<Value> CaseMethod(Runtime& runtime, const Text& self, const CallArguments& arguments) {
  KVASIR_TRY_OK(Bound::Bind("str case method", arguments, {}, 0).status());
  KVASIR_TRY_OK(runtime.StepCharacters(self.size()));
  return runtime.String(ChangeCase(self, kCase));
}

template <Ends kEnds>
Result<Value> StripMethod(Runtime& runtime, const Text& self, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("strip", arguments, {"chars"}, 0));
  if (bound.GetSome(0) == nullptr) return runtime.String(Strip(self, kEnds, nullptr));
  KVASIR_TRY(const Text characters, bound.TextOr(0, Text()));
  KVASIR_TRY_OK(runtime.Step(static_cast<int64_t>(characters.size())));
  return runtime.String(Strip(self, kEnds, &characters));
}

template <Align kAlign>
Result<Value> PadMethod(Runtime& runtime, const Text& self, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("just", arguments, {"width", "fillchar"}, 1));
  KVASIR_TRY(const int64_t width, bound.IntOr(0, 0));
  KVASIR_TRY(const Text fill, bound.TextOr(1, Blank(self)));
  if (CountCodePoints(fill.bytes()) != 1) {
    return TemplateError("the fill character must be exactly one character long");
  }
  KVASIR_TRY(Text padded, Pad(runtime, self, width, kAlign, fill));
  return runtime.String(std::move(padded));
}

Result<Value> Zfill(Runtime& runtime, const Text& self, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("zfill", arguments, {"width"}, 1));
  KVASIR_TRY(const int64_t width, bound.IntOr(0, 0));
  const bool has_sign = !self.empty() && (self.bytes()[0] == '+' || self.bytes()[0] == '-');
  const size_t sign = has_sign ? 1 : 0;
  KVASIR_TRY(const Text digits,
             Pad(runtime, self.Substr(sign, self.size()), width - static_cast<int64_t>(sign),
                 Align::kRight, Text("0", self.origin())));
  Text result = self.Substr(0, sign);
  result.Append(digits);
  return runtime.String(std::move(result));
}

enum class Side { kStart, kEnd };

template <Side kSide>
bool Touches(std::string_view text, std::string_view part) {
  return kSide == Side::kStart ? text.starts_with(part) : text.ends_with(part);
}

// The bytes [begin, end) that code point bounds `start` and `stop` select.
struct ByteRange {
  size_t begin = 0;
  size_t end = 0;
  bool valid = true;  // false: start lies behind the end, which not even "" matches
};

Result<ByteRange> SelectRange(const Text& self, const Value* start, const Value* stop) {
  ByteRange range{0, self.size()};
  if (start == nullptr && stop == nullptr) return range;
  const int64_t size = CountCodePoints(self.bytes());
  const auto resolve = [&](const Value* bound, int64_t otherwise) -> Result<int64_t> {
    if (bound == nullptr || bound->is_none()) return otherwise;
    if (!bound->is_integral()) return TemplateError("slice indices must be integers or None");
    int64_t index = bound->as_integral();
    if (index < 0) index = std::max<int64_t>(0, index < -size ? 0 : index + size);
    return index;
  };
  KVASIR_TRY(const int64_t first, resolve(start, 0));
  KVASIR_TRY(const int64_t last, resolve(stop, size));
  range.begin = ByteOffsetOfCodePoint(self.bytes(), first);
  range.end = ByteOffsetOfCodePoint(self.bytes(), std::min(last, size));
  range.valid = first <= std::min(last, size);
  return range;
}

template <Side kSide>
Result<Value> TouchMethod(Runtime&, const Text& self, const CallArguments& arguments) {
  constexpr std::string_view kName = kSide == Side::kStart ? "startswith" : "endswith";
  KVASIR_TRY(const Bound bound, Bound::Bind(kName, arguments, {"prefix", "start", "end"}, 1));
  KVASIR_TRY(const ByteRange range, SelectRange(self, bound.Get(1), bound.Get(2)));
  const std::string_view text =
      std::string_view(self.bytes())
          .substr(range.begin, std::max(range.begin, range.end) - range.begin);
  const Value& parts = *bound.Get(0);
  const auto touches = [&](const Value& part) {
    return range.valid && Touches<kSide>(text, part.bytes());
  };
  if (parts.is_string()) return Value::Bool(touches(parts));
  const bool is_tuple = parts.is_sequence() && parts.sequence().kind == SequenceKind::kTuple;
  bool any = false;
  for (size_t i = 0; is_tuple && i < parts.sequence().items.size(); ++i) {
    const Value& part = parts.sequence().items[i];
    if (!part.is_string()) return TemplateError(std::string(kName) + " wants a tuple of strings");
    any = any || touches(part);
  }
  if (is_tuple) return Value::Bool(any);
  return TemplateError(std::string(kName) + " first arg must be str or a tuple of str, not " +
                       std::string(TypeName(parts)));
}

enum class Missing { kMinusOne, kError };

template <Side kSide, Missing kMissing>
Result<Value> FindMethod(Runtime& runtime, const Text& self, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("find", arguments, {"sub", "start", "end"}, 1));
  KVASIR_TRY(const Text part, bound.TextOr(0, Text()));
  KVASIR_TRY(const ByteRange range, SelectRange(self, bound.Get(1), bound.Get(2)));
  KVASIR_TRY_OK(runtime.StepSearch(self.size(), part.size()));
  size_t found = std::string::npos;
  if (range.valid) {
    const std::string_view text = std::string_view(self.bytes()).substr(0, range.end);
    found = kSide == Side::kStart ? text.find(part.bytes(), range.begin) : text.rfind(part.bytes());
    if (found != std::string::npos && found < range.begin) found = std::string::npos;
  }
  if (found != std::string::npos) {
    return Value::Int(CountCodePoints(std::string_view(self.bytes()).substr(0, found)));
  }
  if (kMissing == Missing::kError) return TemplateError("substring not found");
  return Value::Int(-1);
}

Result<Value> Count(Runtime& runtime, const Text& self, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("count", arguments, {"sub", "start", "end"}, 1));
  KVASIR_TRY(const Text part, bound.TextOr(0, Text()));
  KVASIR_TRY(const ByteRange range, SelectRange(self, bound.Get(1), bound.Get(2)));
  KVASIR_TRY_OK(runtime.StepSearch(self.size(), part.size()));
  if (!range.valid) return Value::Int(0);
  const std::string_view text =
      std::string_view(self.bytes()).substr(range.begin, range.end - range.begin);
  if (part.empty()) return Value::Int(CountCodePoints(text) + 1);
  int64_t count = 0;
  for (size_t at = text.find(part.bytes()); at != std::string_view::npos;
       at = text.find(part.bytes(), at + part.size())) {
    ++count;
  }
  return Value::Int(count);
}

Result<Value> ReplaceMethod(Runtime& runtime, const Text& self, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("replace", arguments, {"old", "new", "count"}, 2));
  KVASIR_TRY(const Text from, bound.TextOr(0, Text()));
  KVASIR_TRY(const Text to, bound.TextOr(1, Text()));
  KVASIR_TRY(const int64_t count, bound.IntOr(2, -1));
  KVASIR_TRY(Text result, Replace(runtime, self, from, to, count));
  return runtime.String(std::move(result));
}

Result<Value> Join(Runtime& runtime, const Text& self, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("join", arguments, {"iterable"}, 1));
  KVASIR_TRY(const auto items, Iterate(runtime, *bound.Get(0)));
  Text result = self.Substr(0, 0);
  for (size_t i = 0; i < items.size(); ++i) {
    if (!items[i].is_string()) {
      return TemplateError("sequence item " + std::to_string(i) + ": expected str instance, " +
                           std::string(TypeName(items[i])) + " found");
    }
    if (i != 0) result.Append(self);
    result.Append(self.is_markup() ? EscapeHtml(items[i].text()) : items[i].text());
    KVASIR_TRY_OK(runtime.CheckStringSize(result.size()));
  }
  return runtime.String(std::move(result));
}

Result<Value> Format(Runtime& runtime, const Text& self, const CallArguments& arguments) {
  KVASIR_TRY(Text result, FormatBraces(runtime, self, arguments));
  return runtime.String(std::move(result));
}

template <Side kSide>
Result<Value> RemoveMethod(Runtime& runtime, const Text& self, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("remove", arguments, {"part"}, 1));
  KVASIR_TRY(const Text part, bound.TextOr(0, Text()));
  if (!Touches<kSide>(self.bytes(), part.bytes())) return runtime.String(self);
  const size_t rest = self.size() - part.size();
  return runtime.String(kSide == Side::kStart ? self.Substr(part.size(), self.size())
                                              : self.Substr(0, rest));
}

Result<Value> ExpandTabs(Runtime& runtime, const Text& self, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("expandtabs", arguments, {"tabsize"}, 0));
  KVASIR_TRY(const int64_t tab_size, bound.IntOr(0, 8));
  Text result;
  int64_t column = 0;
  for (size_t at = 0; at < self.size();) {
    const CodePoint next = DecodeUtf8(self.bytes(), at);
    if (next.value == '\t') {
      const int64_t blanks = tab_size > 0 ? tab_size - column % tab_size : 0;
      KVASIR_TRY_OK(runtime.CheckStringSize(result.size() + static_cast<size_t>(blanks)));
      KVASIR_TRY_OK(runtime.StepBytes(static_cast<size_t>(blanks)));
      result.Append(std::string(static_cast<size_t>(blanks), ' '), self.OriginAt(at));
      column += blanks;
    } else {
      result.AppendRange(self, at, at + next.size_bytes);
      column = next.value == '\n' || next.value == '\r' ? 0 : column + 1;
    }
    at += next.size_bytes;
  }
  return runtime.String(std::move(result));
}

using Predicate = bool (*)(uint32_t);

// All characters satisfy it and there is at least one.
template <Predicate kPredicate>
Result<Value> AllMethod(Runtime&, const Text& self, const CallArguments&) {
  for (size_t at = 0; at < self.size();) {
    const CodePoint next = DecodeUtf8(self.bytes(), at);
    if (!kPredicate(next.value)) return Value::Bool(false);
    at += next.size_bytes;
  }
  return Value::Bool(!self.empty());
}

bool IsAlnum(uint32_t c) { return IsAlpha(c) || IsNumeric(c) || IsDigit(c); }

Result<Value> IsAscii(Runtime&, const Text& self, const CallArguments&) {
  return Value::Bool(std::all_of(self.bytes().begin(), self.bytes().end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0x80; }));
}

Result<Value> IsPrintableMethod(Runtime& runtime, const Text& self, const CallArguments& none) {
  if (self.empty()) return Value::Bool(true);
  return AllMethod<IsPrintable>(runtime, self, none);
}

// At least one cased letter and none of the other case.
template <Predicate kWanted, Predicate kForbidden>
Result<Value> CaseTest(Runtime&, const Text& self, const CallArguments&) {
  bool seen = false;
  for (size_t at = 0; at < self.size();) {
    const CodePoint next = DecodeUtf8(self.bytes(), at);
    if (kForbidden(next.value) || IsTitle(next.value)) return Value::Bool(false);
    seen = seen || kWanted(next.value);
    at += next.size_bytes;
  }
  return Value::Bool(seen);
}

Result<Value> IsTitleMethod(Runtime&, const Text& self, const CallArguments&) {
  bool seen = false;
  bool after_letter = false;
  for (size_t at = 0; at < self.size();) {
    const CodePoint next = DecodeUtf8(self.bytes(), at);
    const bool is_initial = IsUpper(next.value) || IsTitle(next.value);
    if (is_initial && after_letter) return Value::Bool(false);
    if (IsLower(next.value) && !after_letter) return Value::Bool(false);
    after_letter = is_initial || IsLower(next.value);
    seen = seen || after_letter;
    at += next.size_bytes;
  }
  return Value::Bool(seen);
}

Result<Value> IsIdentifier(Runtime&, const Text& self, const CallArguments&) {
  for (size_t at = 0; at < self.size();) {
    const CodePoint next = DecodeUtf8(self.bytes(), at);
    if (at == 0 ? !IsIdentifierStart(next.value) : !IsIdentifierPart(next.value)) {
      return Value::Bool(false);
    }
    at += next.size_bytes;
  }
  return Value::Bool(!self.empty());
}

}  // namespace

StringMethod FindStringMethod(std::string_view name) {
  static const std::unordered_map<std::string_view, StringMethod> kMethods = {
      {"capitalize", CaseMethod<LetterCase::kCapitalize>},
      {"casefold", CaseMethod<LetterCase::kFold>},
      {"center", PadMethod<Align::kCenter>},
      {"count", Count},
      {"endswith", TouchMethod<Side::kEnd>},
      {"expandtabs", ExpandTabs},
      {"find", FindMethod<Side::kStart, Missing::kMinusOne>},
      {"format", Format},
      {"index", FindMethod<Side::kStart, Missing::kError>},
      {"isalnum", AllMethod<IsAlnum>},
      {"isalpha", AllMethod<IsAlpha>},
      {"isascii", IsAscii},
      {"isdecimal", AllMethod<IsDecimal>},
      {"isdigit", AllMethod<IsDigit>},
      {"isidentifier", IsIdentifier},
      {"islower", CaseTest<IsLower, IsUpper>},
      {"isnumeric", AllMethod<IsNumeric>},
      {"isprintable", IsPrintableMethod},
      {"isspace", AllMethod<IsSpace>},
      {"istitle", IsTitleMethod},
      {"isupper", CaseTest<IsUpper, IsLower>},
      {"join", Join},
      {"ljust", PadMethod<Align::kLeft>},
      {"lower", CaseMethod<LetterCase::kLower>},
      {"lstrip", StripMethod<Ends::kLeft>},
      {"partition", PartitionFromLeft},
      {"removeprefix", RemoveMethod<Side::kStart>},
      {"removesuffix", RemoveMethod<Side::kEnd>},
      {"replace", ReplaceMethod},
      {"rfind", FindMethod<Side::kEnd, Missing::kMinusOne>},
      {"rindex", FindMethod<Side::kEnd, Missing::kError>},
      {"rjust", PadMethod<Align::kRight>},
      {"rpartition", PartitionFromRight},
      {"rsplit", SplitFromRight},
      {"rstrip", StripMethod<Ends::kRight>},
      {"split", SplitFromLeft},
      {"splitlines", SplitLinesMethod},
      {"startswith", TouchMethod<Side::kStart>},
      {"strip", StripMethod<Ends::kBoth>},
      {"swapcase", CaseMethod<LetterCase::kSwap>},
      {"title", CaseMethod<LetterCase::kTitle>},
      {"upper", CaseMethod<LetterCase::kUpper>},
      {"zfill", Zfill},
  };
  const auto found = kMethods.find(name);
  return found == kMethods.end() ? nullptr : found->second;
}

}  // namespace kvasir::chat
