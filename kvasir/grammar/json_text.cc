#include "kvasir/grammar/json_text.h"

#include <algorithm>
#include <cstdio>

#include "kvasir/tokenizer/utf8.h"

namespace kvasir {
namespace {

constexpr int kUnbounded = GrammarSyntax::kUnbounded;
constexpr int kMaxKeywordChars = 64;

// What a string must escape (RFC 8259, section 7).
CharSet Escaped() { return CharSet({{0, 0x1F}, {'"', '"'}, {'\\', '\\'}}); }

std::string EscapeOf(char32_t code) {
  switch (code) {
    case '"':
      return "\\\"";
    case '\\':
      return "\\\\";
    case '\b':
      return "\\b";
    case '\f':
      return "\\f";
    case '\n':
      return "\\n";
    case '\r':
      return "\\r";
    case '\t':
      return "\\t";
    default: {
      char text[8];
      std::snprintf(text, sizeof(text), "\\u%04x", static_cast<unsigned>(code) & 0xFFFFu);
      return text;
    }
  }
}

CharSet Digits(char32_t low = U'0') { return CharSet({{low, U'9'}}); }

}  // namespace

template <typename Build>
JsonText::Expr JsonText::Named(std::string_view name, const Build& build) {
  const GrammarSyntax::Rule rule = syntax_.RuleNamed(name);
  if (!syntax_.IsDefined(rule)) {
    syntax_.Define(rule, 0);  // build may ask for this rule
    syntax_.Define(rule, build());
  }
  return syntax_.Call(rule);
}

std::string JsonText::PlaceSuffix() const {
  switch (place_) {
    case JsonPlace::kAlone:
      return "";
    case JsonPlace::kInTags:
      return " in tags";
    case JsonPlace::kBareInTags:
      return " bare in tags";
  }
  return "";
}

template <typename Build>
JsonText::Expr JsonText::InPlace(std::string_view name, const Build& build) {
  return Named(std::string(name) + PlaceSuffix(), build);
}

template <typename Build>
JsonText::Expr JsonText::WithWords(std::string_view name, const Build& build) {
  return InPlace(std::string(name) + (words_ == JsonWords::kPython ? " in Python" : ""), build);
}

JsonText::Expr JsonText::Shared(Expr body) {
  const GrammarSyntax::Rule rule =
      syntax_.RuleNamed("(shared " + std::to_string(syntax_.rule_count()) + ")");
  syntax_.Define(rule, body);
  return syntax_.Call(rule);
}

JsonText::Expr JsonText::Blank() {
  return Named("(blank)", [&] {
    const Expr indent = syntax_.Repeat(syntax_.Chars(CharSet({{' ', ' '}, {'\t', '\t'}})), 0, 20);
    return syntax_.Alternatives({syntax_.Literal(""), syntax_.Literal(" "),
                                 syntax_.Sequence({syntax_.Literal("\n"), indent})});
  });
}

JsonText::Expr JsonText::Escape() {
  return Named("(escape)", [&] {
    const auto chars = [&](std::vector<CharRange> ranges) {
      return syntax_.Chars(CharSet(std::move(ranges)));
    };
    const Expr hex = chars({{'0', '9'}, {'a', 'f'}, {'A', 'F'}});
    const Expr d = chars({{'d', 'd'}, {'D', 'D'}});
    // Surrogates come in pairs or not at all.
    const Expr single = syntax_.Alternatives(
        {syntax_.Sequence(
             {chars({{'0', '9'}, {'a', 'c'}, {'e', 'f'}, {'A', 'C'}, {'E', 'F'}}), hex, hex, hex}),
         syntax_.Sequence({d, chars({{'0', '7'}}), hex, hex})});
    const Expr pair =
        syntax_.Sequence({d, chars({{'8', '9'}, {'a', 'b'}, {'A', 'B'}}), hex, hex,
                          syntax_.Literal("\\u"), d, chars({{'c', 'f'}, {'C', 'F'}}), hex, hex});
    const Expr unicode =
        syntax_.Sequence({syntax_.Literal("u"), syntax_.Alternatives({single, pair})});
    std::vector<CharRange> letters;
    for (const char c : {'"', '\\', '/', 'b', 'f', 'n', 'r', 't'}) {
      letters.push_back({static_cast<char32_t>(c), static_cast<char32_t>(c)});
    }
    return syntax_.Sequence(
        {syntax_.Literal("\\"), syntax_.Alternatives({chars(std::move(letters)), unicode})});
  });
}

JsonText::Expr JsonText::AnyChar() {
  if (place_ == JsonPlace::kBareInTags) return Char(CharSet::All());
  return InPlace("(char)", [&] {
    const CharSet plain = Escaped().Complement();
    const CharSet written = place_ == JsonPlace::kAlone ? plain : plain.Minus(CharSet::Of('<'));
    return syntax_.Alternatives({syntax_.Chars(written), Escape()});
  });
}

JsonText::Expr JsonText::Char(const CharSet& set) {
  std::vector<std::pair<char32_t, char32_t>> key;
  for (const CharRange& range : set.ranges()) key.emplace_back(range.low, range.high);
  const auto [entry, added] = chars_.try_emplace(std::move(key), 0);
  if (!added) return entry->second;
  const CharSet opening = CharSet::Of('<');
  if (place_ == JsonPlace::kBareInTags) {
    return entry->second = syntax_.Chars(set.Minus(opening));
  }
  const CharSet all_escaped = place_ == JsonPlace::kInTags ? Escaped().Union(opening) : Escaped();
  std::vector<Expr> ways = {syntax_.Chars(set.Minus(all_escaped))};
  const CharSet escaped = set.Intersect(all_escaped);
  for (const CharRange& range : escaped.ranges()) {
    for (char32_t code = range.low; code <= range.high; ++code) {
      ways.push_back(syntax_.Literal(EscapeOf(code)));
    }
  }
  const bool simple = ways.size() == 1;
  const Expr either = syntax_.Alternatives(std::move(ways));
  return entry->second = simple ? either : Shared(either);
}

JsonText::Expr JsonText::String() {
  return InPlace("(string)", [&] {
    const Expr quote = syntax_.Literal("\"");
    if (place_ != JsonPlace::kInTags) {
      return syntax_.Sequence({quote, syntax_.Repeat(AnyChar(), 0, kUnbounded), quote});
    }
    const Expr opened = syntax_.Repeat(syntax_.Chars(CharSet::Of('<')), 1, kUnbounded);
    const CharSet marks({{'<', '<'}, {'/', '/'}});
    const Expr behind =
        syntax_.Alternatives({syntax_.Chars(Escaped().Union(marks).Complement()), Escape()});
    const Expr piece = syntax_.Alternatives({AnyChar(), syntax_.Sequence({opened, behind})});
    return syntax_.Sequence(
        {quote, syntax_.Repeat(piece, 0, kUnbounded), syntax_.Optional(opened), quote});
  });
}

JsonText::Expr JsonText::Boolean() {
  const bool is_python = words_ == JsonWords::kPython;
  return syntax_.Alternatives({syntax_.Literal(is_python ? "True" : "true"),
                               syntax_.Literal(is_python ? "False" : "false")});
}

JsonText::Expr JsonText::Null() {
  return syntax_.Literal(words_ == JsonWords::kPython ? "None" : "null");
}

JsonText::Expr JsonText::Integer() {
  return Named("(integer)", [&] {
    const Expr more = syntax_.Repeat(syntax_.Chars(Digits()), 0, 15);
    const Expr nonzero = syntax_.Sequence({syntax_.Chars(Digits(U'1')), more});
    return syntax_.Sequence({syntax_.Optional(syntax_.Literal("-")),
                             syntax_.Alternatives({syntax_.Literal("0"), nonzero})});
  });
}

JsonText::Expr JsonText::Number() {
  return Named("(number)", [&] {
    const Expr digit = syntax_.Chars(Digits());
    const Expr decimals = syntax_.Sequence({syntax_.Literal("."), syntax_.Repeat(digit, 1, 16)});
    const Expr exponent =
        syntax_.Sequence({syntax_.Chars(CharSet({{'e', 'e'}, {'E', 'E'}})),
                          syntax_.Optional(syntax_.Chars(CharSet({{'+', '+'}, {'-', '-'}}))),
                          syntax_.Repeat(digit, 1, 2)});
    return syntax_.Sequence({Integer(), syntax_.Optional(decimals), syntax_.Optional(exponent)});
  });
}

JsonText::Expr JsonText::List(std::string_view open, Expr element, int min, int max,
                              std::string_view close) {
  const Expr end = syntax_.Sequence({Blank(), syntax_.Literal(close)});
  std::vector<Expr> parts = {syntax_.Literal(open), Blank()};
  if (max != 0) {
    const Expr more = syntax_.Sequence({Comma(), element});
    const Expr some = syntax_.Sequence(
        {element, syntax_.Repeat(more, std::max(min - 1, 0), max == kUnbounded ? max : max - 1)});
    parts.push_back(min > 0 ? some : syntax_.Optional(some));
  }
  parts.push_back(end);
  return syntax_.Sequence(std::move(parts));
}

JsonText::Expr JsonText::Value() {
  return WithWords("(value)", [&] {
    return syntax_.Alternatives({Object(), Array(), String(), Number(), Boolean(), Null()});
  });
}

JsonText::Expr JsonText::Object() {
  return WithWords("(object)", [&] {
    return List("{", syntax_.Sequence({String(), Colon(), Value()}), 0, kUnbounded, "}");
  });
}

JsonText::Expr JsonText::Array() {
  return WithWords("(array)", [&] { return List("[", Value(), 0, kUnbounded, "]"); });
}

JsonText::Expr JsonText::Keyword() {
  return Named("(keyword)", [&] {
    const CharSet first({{'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
    const CharSet more({{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}});
    return syntax_.Sequence(
        {syntax_.Chars(first), syntax_.Repeat(syntax_.Chars(more), 0, kMaxKeywordChars - 1)});
  });
}

JsonText::Expr JsonText::Keywords() {
  return WithWords("(keywords)", [&] {
    return List("(", syntax_.Sequence({Keyword(), syntax_.Literal("="), Value()}), 0, kUnbounded,
                ")");
  });
}

// Recursion is bounded by Json::kMaxDepth.
JsonText::Expr JsonText::Constant(const Json& value) {
  if (value.is_null()) return Null();
  if (value.is_bool() && words_ == JsonWords::kPython) {
    return syntax_.Literal(value.as_bool() ? "True" : "False");
  }
  if (!value.is_array() && !value.is_object()) return syntax_.Literal(value.Dump());
  std::vector<Expr> parts = {syntax_.Literal(value.is_array() ? "[" : "{"), Blank()};
  const auto add = [&](Expr element) {
    if (parts.size() > 2) parts.push_back(Comma());
    parts.push_back(element);
  };
  if (value.is_array()) {
    for (const Json& element : value.as_array()) add(Constant(element));
  } else {
    for (const auto& [key, member] : value.as_object()) {
      add(syntax_.Sequence({syntax_.Literal(Json(key).Dump()), Colon(), Constant(member)}));
    }
  }
  parts.push_back(Blank());
  parts.push_back(syntax_.Literal(value.is_array() ? "]" : "}"));
  return syntax_.Sequence(std::move(parts));
}

JsonText::Expr JsonText::KeyOtherThan(std::vector<std::string> names) {
  std::vector<std::u32string> decoded;
  for (const std::string& name : names) {
    const std::string valid = ToValidUtf8(name);
    std::u32string codes;
    for (size_t i = 0; i < valid.size();) {
      const Utf8Char read = DecodeUtf8(valid, i);
      codes.push_back(read.code);
      i += read.size_bytes;
    }
    decoded.push_back(std::move(codes));
  }
  std::sort(decoded.begin(), decoded.end());
  decoded.erase(std::unique(decoded.begin(), decoded.end()), decoded.end());
  const Expr quote = syntax_.Literal("\"");
  return syntax_.Sequence({quote, OtherThan(decoded, 0, decoded.size(), 0), quote});
}

// The rest of a key that has the first `depth` characters of names[begin, end), sorted.
JsonText::Expr JsonText::OtherThan(const std::vector<std::u32string>& names, size_t begin,
                                   size_t end, size_t depth) {
  std::vector<Expr> ways;
  const bool is_name = begin < end && names[begin].size() == depth;
  if (!is_name) ways.push_back(syntax_.Literal(""));
  size_t at = begin + (is_name ? 1 : 0);
  std::vector<CharRange> continued;
  while (at < end) {
    const char32_t code = names[at][depth];
    const size_t first = at;
    while (at < end && names[at][depth] == code) ++at;
    continued.push_back({code, code});
    ways.push_back(
        syntax_.Sequence({Char(CharSet::Of(code)), OtherThan(names, first, at, depth + 1)}));
  }
  const Expr rest = syntax_.Repeat(Char(CharSet::All()), 0, kUnbounded);
  const Expr other = Char(CharSet(std::move(continued)).Complement());
  ways.push_back(syntax_.Sequence({other, rest}));
  return syntax_.Alternatives(std::move(ways));
}

}  // namespace kvasir
