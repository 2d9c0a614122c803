// The lexer, a hand-written equal of jinja2's regular expressions (jinja2/lexer.py).
// Deliberately quadratic nowhere: every search moves forward only.
#include "kvasir/chat/lexer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kvasir/chat/python_escapes.h"
#include "kvasir/chat/python_ops.h"
#include "kvasir/chat/unicode.h"

namespace kvasir::chat {
namespace {

// "\n" for every kind of line end, and without one final line end (keep_trailing_newline is off).
std::string NormalizeLines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out.push_back('\n');
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out.push_back(source[i]);
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(NormalizeLines(source)) {}

  Result<std::vector<Token>> Run() {
    while (at_ < source_.size()) KVASIR_TRY_OK(LexRoot());
    Add(TokenKind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool StartsWith(std::string_view text) const { return rest().starts_with(text); }
  Error Fail(const std::string& message) const { return SyntaxError(line_, message); }

  void Add(TokenKind kind, std::string text) {
    Token token;
    token.kind = kind;
    token.line = line_;
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
  }

  void Advance(size_t bytes) {
    const auto begin = source_.begin() + static_cast<std::ptrdiff_t>(at_);
    line_ += static_cast<int>(std::count(begin, begin + static_cast<std::ptrdiff_t>(bytes), '\n'));
    at_ += bytes;
  }

  // The end of the white space that begins at `position`.
  size_t SkipSpace(size_t position) const {
    while (position < source_.size()) {
      const CodePoint next = DecodeUtf8(source_, position);
      if (!IsSpace(next.value)) break;
      position += next.size_bytes;
    }
    return position;
  }

  // The text before a tag, after white-space control by the tag's sign.
  std::string_view Stripped(size_t begin, size_t end, char sign, bool is_variable) const {
    const std::string_view text = std::string_view(source_).substr(begin, end - begin);
    if (sign == '-') return TrimRight(text);
    if (sign == '+' || is_variable) return text;
    const size_t newline = text.rfind('\n');
    const size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
    const bool starts_line = line_begin > 0 || begin == 0 || source_[begin - 1] == '\n';
    const bool only_space = TrimRight(text).size() <= line_begin;
    return starts_line && only_space ? text.substr(0, line_begin) : text;
  }

  char SignAt(size_t position) const {
    if (position >= source_.size()) return 0;
    const char c = source_[position];
    return c == '-' || c == '+' ? c : static_cast<char>(0);
  }

  void AddData(std::string_view text) {
    if (!text.empty()) Add(TokenKind::kData, std::string(text));
  }

  Status LexRoot() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        AddData(rest());
        Advance(source_.size() - at_);
        return Status();
      }
      const char kind = source_[tag + 1];
      if (kind == '%' || kind == '{' || kind == '#') break;
    }
    const char kind = source_[tag + 1];
    const char sign = SignAt(tag + 2);
    AddData(Stripped(at_, tag, sign, kind == '{'));
    Advance(tag - at_);
    const size_t tag_bytes = sign == 0 ? 2 : 3;
    if (kind == '#') {
      Advance(tag_bytes);
      return LexComment();
    }
    if (kind == '%' && MatchRawBegin(tag_bytes)) return LexRaw();
    Add(kind == '%' ? TokenKind::kBlockBegin : TokenKind::kVariableBegin, "");
    Advance(tag_bytes);
    return LexTag(kind == '%');
  }

  // Consumes what ends a block, comment or raw tag: "-%}" and white space, "+%}", or "%}" and a
  // line end (trim_blocks). False when `close` is not here.
  bool ConsumeEnd(std::string_view close, bool trims_newline) {
    const bool is_signed = SignAt(at_) != 0;
    const char sign = SignAt(at_);
    if (!rest().substr(is_signed ? 1 : 0).starts_with(close)) return false;
    size_t end = at_ + close.size() + (is_signed ? 1 : 0);
    if (sign == '-') {
      end = SkipSpace(end);
    } else if (sign == 0 && trims_newline && end < source_.size() && source_[end] == '\n') {
      ++end;
    }
    Advance(end - at_);
    return true;
  }

  Status LexComment() {
    const int begin_line = line_;
    const size_t close = source_.find("#}", at_);
    if (close == std::string::npos) {
      return SyntaxError(begin_line, "a comment is not closed; end it with '#}'");
    }
    const bool is_signed = close > at_ && SignAt(close - 1) != 0;
    Advance(close - at_ - (is_signed ? 1 : 0));
    ConsumeEnd("#}", true);
    return Status();
  }

  // "{%- raw -%}" begins here.
  bool MatchRawBegin(size_t tag_bytes) {
    const size_t name = SkipSpace(at_ + tag_bytes);
    if (source_.compare(name, 3, "raw") != 0) return false;
    const size_t end = SkipSpace(name + 3);
    const bool minus = end < source_.size() && source_[end] == '-';
    if (source_.compare(end + (minus ? 1 : 0), 2, "%}") != 0) return false;
    const size_t after = end + (minus ? 3 : 2);
    Advance((minus ? SkipSpace(after) : after) - at_);
    return true;
  }

  Status LexRaw() {
    const int begin_line = line_;
    const size_t begin = at_;
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      const char sign = SignAt(tag + 2);
      const size_t name = SkipSpace(tag + (sign == 0 ? 2 : 3));
      if (source_.compare(name, 6, "endraw") != 0) continue;
      const size_t end = SkipSpace(name + 6);
      const bool is_signed = SignAt(end) != 0;
      if (source_.compare(end + (is_signed ? 1 : 0), 2, "%}") != 0) continue;
      AddData(Stripped(begin, tag, sign, false));
      Advance(end - at_);
      ConsumeEnd("%}", true);
      return Status();
    }
    return SyntaxError(begin_line, "a raw block is not closed; end it with '{% endraw %}'");
  }

  Status LexTag(bool is_block) {
    std::string open;  // brackets that are not closed yet
    while (at_ < source_.size()) {
      if (open.empty()) {
        if (is_block && ConsumeEnd("%}", true)) {
          tokens_.push_back({TokenKind::kBlockEnd, line_, "", 0, 0});
          return Status();
        }
        if (!is_block && !StartsWith("+") && ConsumeEnd("}}", false)) {
          tokens_.push_back({TokenKind::kVariableEnd, line_, "", 0, 0});
          return Status();
        }
      }
      const size_t space = SkipSpace(at_);
      if (space != at_) {
        Advance(space - at_);
      } else {
        KVASIR_TRY_OK(LexExpressionToken(&open));
      }
    }
    return Status();  // the parser reports what is missing at the end
  }

  Status LexExpressionToken(std::string* open) {
    const char c = source_[at_];
    if (c >= '0' && c <= '9') return LexNumber();
    const CodePoint first = DecodeUtf8(source_, at_);
    if (IsIdentifierStart(first.value)) return LexName();
    if (c == '\'' || c == '"') return LexString();
    return LexOperator(open);
  }

  Status LexName() {
    size_t end = at_;
    while (end < source_.size()) {
      const CodePoint next = DecodeUtf8(source_, end);
      if (!IsIdentifierPart(next.value)) break;
      end += next.size_bytes;
    }
    Add(TokenKind::kName, source_.substr(at_, end - at_));
    Advance(end - at_);
    return Status();
  }

  // The end of digits with single underscores between them, from a digit at `position`.
  size_t SkipDigits(size_t position) const {
    const auto is_digit = [&](size_t at) {
      return at < source_.size() && source_[at] >= '0' && source_[at] <= '9';
    };
    while (is_digit(position) ||
           (position < source_.size() && source_[position] == '_' && is_digit(position + 1))) {
      ++position;
    }
    return position;
  }

  // The end of a float that begins here, or at_ when the number is an integer.
  size_t FloatEnd() const {
    if (at_ > 0 && source_[at_ - 1] == '.') return at_;
    const auto is_digit = [&](size_t at) {
      return at < source_.size() && source_[at] >= '0' && source_[at] <= '9';
    };
    size_t end = SkipDigits(at_);
    bool is_float = false;
    if (end < source_.size() && source_[end] == '.' && is_digit(end + 1)) {
      end = SkipDigits(end + 1);
      is_float = true;
    }
    if (end < source_.size() && (source_[end] | 0x20) == 'e') {
      const size_t exponent = end + 1 + (SignAt(end + 1) != 0 ? 1 : 0);
      if (is_digit(exponent)) return SkipDigits(exponent);
    }
    return is_float ? end : at_;
  }

  Status LexNumber() {
    size_t end = FloatEnd();
    const bool is_float = end != at_;
    const char second = at_ + 1 < source_.size() ? source_[at_ + 1] | 0x20 : 0;
    const bool has_prefix =
        source_[at_] == '0' && (second == 'x' || second == 'o' || second == 'b');
    if (!is_float) {
      end = SkipDigits(at_);
      if (has_prefix) {
        end = at_ + 2;
        while (end < source_.size() &&
               (std::isxdigit(static_cast<unsigned char>(source_[end])) || source_[end] == '_')) {
          ++end;
        }
      }
    }
    const std::string text = source_.substr(at_, end - at_);
    Token token{is_float ? TokenKind::kFloat : TokenKind::kInteger, line_, text, 0, 0};
    const auto integer = is_float ? std::nullopt : ParseInt(text, has_prefix ? 0 : 10);
    const auto number = is_float ? ParseFloat(text) : std::nullopt;
    if (!integer && !number) return Fail("the number '" + text + "' cannot be represented");
    token.integer = integer.value_or(0);
    token.number = number.value_or(0);
    tokens_.push_back(std::move(token));
    Advance(end - at_);
    return Status();
  }

  Status LexString() {
    const char quote = source_[at_];
    size_t end = at_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) return Fail("a string is not closed");
    const std::string_view raw = std::string_view(source_).substr(at_ + 1, end - at_ - 1);
    auto text = UnescapePython(raw);
    if (!text.ok()) return Fail(text.error().message);
    Add(TokenKind::kString, *std::move(text));
    Advance(end + 1 - at_);
    return Status();
  }

  Status LexOperator(std::string* open) {
    static constexpr std::array<std::string_view, 26> kOperators = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    const auto* found = std::find_if(kOperators.begin(), kOperators.end(),
                                     [&](std::string_view op) { return StartsWith(op); });
    if (found == kOperators.end()) {
      const CodePoint bad = DecodeUtf8(source_, at_);
      return Fail("unexpected character " +
                  ReprString(std::string_view(source_).substr(at_, bad.size_bytes)));
    }
    const char c = (*found)[0];
    if (c == '{') open->push_back('}');
    if (c == '(') open->push_back(')');
    if (c == '[') open->push_back(']');
    if (c == '}' || c == ')' || c == ']') {
      if (open->empty()) return Fail("unexpected '" + std::string(1, c) + "'");
      if (open->back() != c) {
        return Fail("unexpected '" + std::string(1, c) + "', expected '" +
                    std::string(1, open->back()) + "'");
      }
      open->pop_back();
    }
    Add(TokenKind::kOperator, std::string(*found));
    Advance(found->size());
    return Status();
  }

  const std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

Error SyntaxError(int line, const std::string& message) {
  return {ErrorCode::kCorrupt, std::to_string(line) + ": " + message};
}

Result<std::vector<Token>> Tokenize(std::string_view source) { return Lexer(source).Run(); }

}  // namespace kvasir::chat
