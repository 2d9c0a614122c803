#include "kvasir/grammar/gbnf_parser.h"

#include <cctype>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/tokenizer/utf8.h"

namespace kvasir {
namespace {

using Expr = GrammarSyntax::Expr;

constexpr size_t kMaxTextBytes = size_t{1} << 20;
constexpr int kMaxGroupDepth = 100;
constexpr int kMaxRepeat = 1'000'000;

bool IsNameChar(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

std::optional<unsigned> HexDigit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A') + 10;
  return std::nullopt;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<GrammarSyntax> Parse() {
    SkipBlanks(Lines::kCross);
    while (position_ < text_.size()) {
      KVASIR_TRY_OK(ParseRule());
      SkipBlanks(Lines::kCross);
    }
    return std::move(syntax_);
  }

 private:
  enum class Lines { kStay, kCross };

  Error Fail(std::string_view what, ErrorCode code = ErrorCode::kInvalidArgument) const {
    size_t line = 1;
    size_t line_begin = 0;
    for (size_t i = 0; i < position_ && i < text_.size(); ++i) {
      if (text_[i] != '\n') continue;
      ++line;
      line_begin = i + 1;
    }
    return {code, "grammar line " + std::to_string(line) + ", column " +
                      std::to_string(position_ - line_begin + 1) + ": " + std::string(what)};
  }

  char Peek() const { return position_ < text_.size() ? text_[position_] : '\0'; }
  bool Take(char c) {
    if (position_ >= text_.size() || text_[position_] != c) return false;
    ++position_;
    return true;
  }

  void SkipBlanks(Lines lines) {
    while (position_ < text_.size()) {
      const char c = text_[position_];
      if (c == '#') {
        while (position_ < text_.size() && text_[position_] != '\n') ++position_;
      } else if (c == ' ' || c == '\t' || (lines == Lines::kCross && (c == '\n' || c == '\r'))) {
        ++position_;
      } else {
        return;
      }
    }
  }

  Result<std::string> ParseName() {
    const size_t begin = position_;
    while (position_ < text_.size() && IsNameChar(text_[position_])) ++position_;
    if (position_ == begin) return Fail("expected the name of a rule");
    return std::string(text_.substr(begin, position_ - begin));
  }

  Status ParseRule() {
    KVASIR_TRY(const std::string name, ParseName());
    const GrammarSyntax::Rule rule = syntax_.RuleNamed(name);
    if (syntax_.IsDefined(rule)) return Fail("rule '" + name + "' is defined twice");
    SkipBlanks(Lines::kCross);
    if (text_.substr(position_, 3) != "::=") return Fail("expected ::= after '" + name + "'");
    position_ += 3;
    SkipBlanks(Lines::kCross);
    KVASIR_TRY(const Expr body, ParseAlternatives(0));
    syntax_.Define(rule, body);
    if (position_ < text_.size() && Peek() != '\n' && Peek() != '\r' && !BeginsRule()) {
      return Fail("expected the end of rule '" + name + "'");
    }
    return {};
  }

  // Inside a group line ends are blanks. Outside, they end the rule unless '|' follows.
  Result<Expr> ParseAlternatives(int depth) {
    std::vector<Expr> alternatives;
    do {
      SkipBlanks(Lines::kCross);
      if (depth == 0 && BeginsRule()) {
        alternatives.push_back(syntax_.Sequence({}));
      } else {
        KVASIR_TRY(const Expr sequence, ParseSequence(depth));
        alternatives.push_back(sequence);
      }
      const size_t end = position_;
      SkipBlanks(Lines::kCross);
      if (Peek() != '|' && depth == 0) position_ = end;
    } while (Take('|'));
    if (syntax_.too_large()) return Fail("the grammar is too large", ErrorCode::kResourceExhausted);
    return syntax_.Alternatives(std::move(alternatives));
  }

  bool BeginsRule() const {
    size_t i = position_;
    while (i < text_.size() && IsNameChar(text_[i])) ++i;
    if (i == position_) return false;
    while (i < text_.size() && (text_[i] == ' ' || text_[i] == '\t')) ++i;
    return text_.substr(i, 3) == "::=";
  }

  Result<Expr> ParseSequence(int depth) {
    std::vector<Expr> parts;
    for (;;) {
      SkipBlanks(depth > 0 ? Lines::kCross : Lines::kStay);
      KVASIR_TRY(const std::optional<Expr> item, ParseItem(depth));
      if (!item.has_value()) return syntax_.Sequence(std::move(parts));
      KVASIR_TRY(const Expr repeated, ParseRepeats(*item, depth));
      parts.push_back(repeated);
      if (syntax_.too_large()) return syntax_.Sequence({});
    }
  }

  // Empty where no item begins.
  Result<std::optional<Expr>> ParseItem(int depth) {
    const char c = Peek();
    if (c == '"') return Present(ParseLiteral());
    if (c == '[') return Present(ParseCharClass());
    if (c == '(') return Present(ParseGroup(depth));
    if (Take('.')) return std::optional<Expr>(syntax_.Chars(CharSet::All()));
    if (!IsNameChar(c)) return std::optional<Expr>();
    KVASIR_TRY(const std::string name, ParseName());
    return std::optional<Expr>(syntax_.Call(syntax_.RuleNamed(name)));
  }

  static Result<std::optional<Expr>> Present(Result<Expr> expr) {
    if (!expr.ok()) return expr.error();
    return std::optional<Expr>(*expr);
  }

  Result<Expr> ParseGroup(int depth) {
    if (depth >= kMaxGroupDepth) {
      return Fail("groups nest deeper than " + std::to_string(kMaxGroupDepth),
                  ErrorCode::kResourceExhausted);
    }
    ++position_;
    KVASIR_TRY(const Expr inner, ParseAlternatives(depth + 1));
    if (!Take(')')) return Fail("expected ')'");
    return inner;
  }

  Result<Expr> ParseLiteral() {
    ++position_;
    std::string bytes;
    while (Peek() != '"') {
      KVASIR_TRY(const char32_t code, ParseChar("\""));
      AppendUtf8(code, &bytes);
    }
    ++position_;
    return syntax_.Literal(bytes);
  }

  Result<Expr> ParseCharClass() {
    ++position_;
    const bool negated = Take('^');
    std::vector<CharRange> ranges;
    while (Peek() != ']') {
      KVASIR_TRY(const char32_t low, ParseChar("]"));
      char32_t high = low;
      if (Peek() == '-' && position_ + 1 < text_.size() && text_[position_ + 1] != ']') {
        ++position_;
        KVASIR_TRY(high, ParseChar("]"));
        if (high < low) return Fail("the range ends before it begins");
      }
      ranges.push_back({low, high});
    }
    ++position_;
    CharSet set(std::move(ranges));
    return syntax_.Chars(negated ? set.Complement() : std::move(set));
  }

  // One character, written or escaped. `closer` names what is missing at the end of the text.
  Result<char32_t> ParseChar(std::string_view closer) {
    if (position_ >= text_.size()) return Fail("expected a closing " + std::string(closer));
    if (Take('\\')) return ParseEscape();
    if (ScanUtf8(text_, position_).status != Utf8Status::kComplete) {
      return Fail("invalid UTF-8");
    }
    const Utf8Char read = DecodeUtf8(text_, position_);
    position_ += read.size_bytes;
    return read.code;
  }

  Result<char32_t> ParseEscape() {
    const char c = Peek();
    if (position_ < text_.size()) ++position_;
    switch (c) {
      case 'n':
        return U'\n';
      case 'r':
        return U'\r';
      case 't':
        return U'\t';
      case 'x':
        return ParseHex(2);
      case 'u':
        return ParseHex(4);
      case 'U':
        return ParseHex(8);
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
      case '^':
        return static_cast<char32_t>(c);
      default:
        return Fail("unknown escape; known are \\n \\r \\t \\\\ \\\" \\[ \\] \\- \\^ \\x \\u \\U");
    }
  }

  Result<char32_t> ParseHex(int digits) {
    uint32_t code = 0;
    for (int i = 0; i < digits; ++i, ++position_) {
      const auto digit = HexDigit(Peek());
      if (!digit.has_value()) return Fail("expected " + std::to_string(digits) + " hex digits");
      code = code * 16 + *digit;
    }
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
      return Fail("the escape is no Unicode character");
    }
    return static_cast<char32_t>(code);
  }

  Result<Expr> ParseRepeats(Expr item, int depth) {
    // Each repeat is one level of the expression, which is walked recursively.
    for (int repeats = 0; repeats <= kMaxRepeatChain; ++repeats) {
      // A repetition may stand on the next line only where line ends are blanks.
      SkipBlanks(depth > 0 ? Lines::kCross : Lines::kStay);
      if (Take('*')) {
        item = syntax_.Repeat(item, 0, GrammarSyntax::kUnbounded);
      } else if (Take('+')) {
        item = syntax_.Repeat(item, 1, GrammarSyntax::kUnbounded);
      } else if (Take('?')) {
        item = syntax_.Optional(item);
      } else if (Take('{')) {
        KVASIR_TRY(item, ParseCounts(item));
      } else {
        return item;
      }
    }
    return Fail("too many repetitions of one item");
  }

  Result<Expr> ParseCounts(Expr item) {
    SkipBlanks(Lines::kStay);
    int min = 0;
    if (Peek() != ',') {
      KVASIR_TRY(min, ParseCount());
    }
    int max = min;
    SkipBlanks(Lines::kStay);
    if (Take(',')) {
      SkipBlanks(Lines::kStay);
      max = GrammarSyntax::kUnbounded;
      if (Peek() != '}') {
        KVASIR_TRY(max, ParseCount());
        if (max < min) return Fail("the repetition ends before it begins");
      }
    }
    SkipBlanks(Lines::kStay);
    if (!Take('}')) return Fail("expected '}'");
    return syntax_.Repeat(item, min, max);
  }

  Result<int> ParseCount() {
    const size_t begin = position_;
    int count = 0;
    while (Peek() >= '0' && Peek() <= '9') {
      count = count * 10 + (Peek() - '0');
      if (count > kMaxRepeat) {
        return Fail("repetitions end at " + std::to_string(kMaxRepeat),
                    ErrorCode::kResourceExhausted);
      }
      ++position_;
    }
    if (position_ == begin) return Fail("expected a number");
    return count;
  }

  static constexpr int kMaxRepeatChain = 8;

  std::string_view text_;
  size_t position_ = 0;
  GrammarSyntax syntax_;
};

}  // namespace

Result<GrammarSyntax> ParseGbnf(std::string_view text) {
  if (text.size() > kMaxTextBytes) {
    return Error{ErrorCode::kResourceExhausted, "the grammar has " + std::to_string(text.size()) +
                                                    " bytes; at most " +
                                                    std::to_string(kMaxTextBytes) + " are read"};
  }
  return Parser(text).Parse();
}

}  // namespace kvasir
