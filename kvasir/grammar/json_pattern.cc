#include "kvasir/grammar/json_pattern.h"

#include <cctype>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/tokenizer/utf8.h"

namespace kvasir {
namespace {

using Expr = GrammarSyntax::Expr;

constexpr int kMaxGroupDepth = 50;
constexpr int kMaxRepeat = 100'000;
constexpr int kUnbounded = GrammarSyntax::kUnbounded;

std::optional<CharSet> ClassOfEscape(char c) {
  const CharSet digit({{'0', '9'}});
  const CharSet word({{'0', '9'}, {'A', 'Z'}, {'a', 'z'}, {'_', '_'}});
  // WhiteSpace and LineTerminator of ECMA-262.
  const CharSet space({{0x09, 0x0D},
                       {0x20, 0x20},
                       {0xA0, 0xA0},
                       {0x1680, 0x1680},
                       {0x2000, 0x200A},
                       {0x2028, 0x2029},
                       {0x202F, 0x202F},
                       {0x205F, 0x205F},
                       {0x3000, 0x3000},
                       {0xFEFF, 0xFEFF}});
  switch (c) {
    case 'd':
      return digit;
    case 'D':
      return digit.Complement();
    case 'w':
      return word;
    case 'W':
      return word.Complement();
    case 's':
      return space;
    case 'S':
      return space.Complement();
    default:
      return std::nullopt;
  }
}

class PatternParser {
 public:
  PatternParser(std::string_view text, GrammarSyntax* syntax, JsonText* json)
      : text_(text), syntax_(*syntax), json_(*json) {}

  Result<Expr> Parse() {
    if (!IsValidUtf8(text_)) return Malformed("invalid UTF-8");
    std::vector<Expr> alternatives;
    do {
      KVASIR_TRY(const Expr alternative, ParseOutermost({}, 0));
      alternatives.push_back(alternative);
    } while (Take('|'));
    if (position_ < text_.size()) return Malformed("unmatched ')'");
    return syntax_.Alternatives(std::move(alternatives));
  }

 private:
  Error Fail(ErrorCode code, const std::string& what) const {
    return {code, "pattern, byte " + std::to_string(position_) + ": " + what};
  }
  Error Malformed(const std::string& what) const { return Fail(ErrorCode::kInvalidArgument, what); }
  Error Unsupported(const std::string& what) const {
    return Fail(ErrorCode::kUnsupported, what + " not supported");
  }

  bool AtEnd() const { return position_ >= text_.size(); }
  char Peek(size_t ahead = 0) const {
    return position_ + ahead < text_.size() ? text_[position_ + ahead] : '\0';
  }
  bool Take(char c) {
    if (AtEnd() || text_[position_] != c) return false;
    ++position_;
    return true;
  }

  struct Anchors {
    bool begin = false;
    bool end = false;
  };

  // Without an anchor a match may begin or end anywhere. `outside`: anchors around the group whose
  // alternative this is.
  Result<Expr> ParseOutermost(Anchors outside, int depth) {
    const Expr anything = syntax_.Repeat(json_.AnyChar(), 0, kUnbounded);
    const bool begins = Take('^') || outside.begin;
    if (const size_t end = EndOfOnlyGroup(); end != std::string_view::npos) {
      const bool ends = outside.end || (end < text_.size() && text_[end] == '$');
      KVASIR_TRY(const Expr group, ParseOutermostGroup({begins, ends}, depth));
      Take('$');
      return group;
    }
    std::vector<Expr> parts;
    if (!begins) parts.push_back(anything);
    KVASIR_TRY(const Expr inner, ParseSequence(depth));
    parts.push_back(inner);
    if (!Take('$') && !outside.end) parts.push_back(anything);
    if (!AtEnd() && Peek() != '|' && Peek() != ')') {
      return Unsupported("'$' before the end of the pattern is");
    }
    return syntax_.Sequence(std::move(parts));
  }

  // A group that is all of an alternative: what is anchored in it is anchored to the text.
  Result<Expr> ParseOutermostGroup(Anchors outside, int depth) {
    if (depth >= kMaxGroupDepth) return Unsupported("groups nested this deep are");
    KVASIR_TRY_OK(OpenGroup());
    std::vector<Expr> alternatives;
    do {
      KVASIR_TRY(const Expr alternative, ParseOutermost(outside, depth + 1));
      alternatives.push_back(alternative);
    } while (Take('|'));
    if (!Take(')')) return Malformed("expected ')'");
    return syntax_.Alternatives(std::move(alternatives));
  }

  // Behind the group that begins here, if nothing but '$' follows it in its alternative.
  size_t EndOfOnlyGroup() const {
    if (Peek() != '(') return std::string_view::npos;
    int open = 0;
    bool in_class = false;
    for (size_t at = position_; at < text_.size(); ++at) {
      const char c = text_[at];
      if (c == '\\') {
        ++at;
      } else if (in_class) {
        in_class = c != ']';
      } else if (c == '[') {
        in_class = true;
      } else if (c == '(') {
        ++open;
      } else if (c == ')' && --open == 0) {
        size_t next = at + 1;
        if (next < text_.size() && text_[next] == '$') ++next;
        const bool is_all = next == text_.size() || text_[next] == '|' || text_[next] == ')';
        return is_all ? at + 1 : std::string_view::npos;
      }
    }
    return std::string_view::npos;
  }

  Result<Expr> ParseGroup(int depth) {
    if (depth >= kMaxGroupDepth) return Unsupported("groups nested this deep are");
    KVASIR_TRY_OK(OpenGroup());
    std::vector<Expr> alternatives;
    do {
      KVASIR_TRY(const Expr alternative, ParseSequence(depth + 1));
      alternatives.push_back(alternative);
    } while (Take('|'));
    if (Peek() == '$') return Unsupported("'$' inside a group is");
    if (!Take(')')) return Malformed("expected ')'");
    return syntax_.Alternatives(std::move(alternatives));
  }

  // "(", "(?:" or "(?<name>"
  Status OpenGroup() {
    ++position_;
    if (Peek() != '?') return {};
    if (Peek(1) == ':') {
      position_ += 2;
    } else if (Peek(1) == '<' && Peek(2) != '=' && Peek(2) != '!') {
      while (!AtEnd() && Peek() != '>') ++position_;
      if (!Take('>')) return Malformed("the group's name does not end");
    } else {
      return Unsupported("look-around and group options are");
    }
    return {};
  }

  Result<Expr> ParseSequence(int depth) {
    std::vector<Expr> parts;
    while (!AtEnd() && Peek() != '|' && Peek() != ')' && Peek() != '$') {
      KVASIR_TRY(const Expr item, ParseItem(depth));
      KVASIR_TRY(const Expr repeated, ParseRepeat(item));
      parts.push_back(repeated);
      if (syntax_.too_large()) break;
    }
    return syntax_.Sequence(std::move(parts));
  }

  Result<Expr> ParseItem(int depth) {
    switch (Peek()) {
      case '(':
        return ParseGroup(depth);
      case '[':
        return ParseClass();
      case '^':
        return Unsupported("'^' after the beginning of the pattern is");
      case '*':
      case '+':
      case '?':
        return Malformed("nothing to repeat");
      case '{':
        if (IsCounted()) return Malformed("nothing to repeat");
        break;
      case '.':
        ++position_;
        return json_.Char(CharSet({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).Complement());
      default:
        break;
    }
    KVASIR_TRY(const CharSet set, ParseChar());
    return json_.Char(set);
  }

  // A character, or the set that an escape stands for.
  Result<CharSet> ParseChar() {
    if (AtEnd()) return Malformed("the pattern ends too early");
    if (Take('\\')) return ParseEscape();
    const Utf8Char read = DecodeUtf8(text_, position_);
    position_ += read.size_bytes;
    return CharSet::Of(read.code);
  }

  Result<CharSet> ParseEscape() {
    if (AtEnd()) return Malformed("the pattern ends with a backslash");
    const char c = Peek();
    if (auto set = ClassOfEscape(c); set.has_value()) {
      ++position_;
      return *std::move(set);
    }
    constexpr std::string_view kLetters = "nrtfv";
    constexpr std::string_view kMeanings = "\n\r\t\f\v";
    if (const size_t at = kLetters.find(c); at != std::string_view::npos) {
      ++position_;
      return CharSet::Of(static_cast<char32_t>(kMeanings[at]));
    }
    if (c == 'x') return ParseHex(2);
    if (c == 'u') return Peek(1) == '{' ? Result<CharSet>(Unsupported("\\u{...} is")) : ParseHex(4);
    if (c == '0' && std::isdigit(static_cast<unsigned char>(Peek(1))) == 0) {
      ++position_;
      return CharSet::Of(0);
    }
    if (c == 'b' || c == 'B') return Unsupported("the word boundary \\b is");
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) {
      return Unsupported(std::string("the escape \\") + c + " is");
    }
    const Utf8Char read = DecodeUtf8(text_, position_);
    position_ += read.size_bytes;
    return CharSet::Of(read.code);
  }

  Result<CharSet> ParseHex(int digits) {
    ++position_;
    char32_t code = 0;
    for (int i = 0; i < digits; ++i, ++position_) {
      const auto c = static_cast<unsigned char>(Peek());
      if (std::isxdigit(c) == 0) return Malformed("expected a hex digit");
      code = code * 16 +
             static_cast<char32_t>(std::isdigit(c) != 0 ? c - '0' : std::tolower(c) - 'a' + 10);
    }
    if (code >= 0xD800 && code <= 0xDFFF) return Unsupported("an escaped surrogate is");
    return CharSet::Of(code);
  }

  Result<Expr> ParseClass() {
    ++position_;
    const bool negated = Take('^');
    std::vector<CharRange> ranges;
    while (!Take(']')) {
      if (Peek() == '\\' && Peek(1) == 'b') return Unsupported("\\b in a class is");
      KVASIR_TRY(const CharSet low, ParseChar());
      ranges.insert(ranges.end(), low.ranges().begin(), low.ranges().end());
      if (Peek() != '-' || Peek(1) == ']' || position_ + 1 >= text_.size()) continue;
      ++position_;
      KVASIR_TRY(const CharSet high, ParseChar());
      if (!IsOne(low) || !IsOne(high)) {
        // Beside a class, as in [\w-.], a hyphen is one (ECMA-262, B.1.2.8.1).
        ranges.push_back({'-', '-'});
        ranges.insert(ranges.end(), high.ranges().begin(), high.ranges().end());
        continue;
      }
      if (high.ranges()[0].low < low.ranges()[0].low) {
        return Malformed("a range in a class goes from one character to a later one");
      }
      ranges.push_back({low.ranges()[0].low, high.ranges()[0].low});
    }
    CharSet set(std::move(ranges));
    return json_.Char(negated ? set.Complement() : set);
  }

  static bool IsOne(const CharSet& set) {
    return set.ranges().size() == 1 && set.ranges()[0].low == set.ranges()[0].high;
  }

  Result<Expr> ParseRepeat(Expr item) {
    int min = 0;
    int max = kUnbounded;
    if (Take('*')) {
    } else if (Take('+')) {
      min = 1;
    } else if (Take('?')) {
      max = 1;
    } else if (IsCounted()) {
      ++position_;
      KVASIR_TRY(min, ParseCount());
      max = min;
      if (Take(',')) {
        max = kUnbounded;
        if (Peek() != '}') {
          KVASIR_TRY(max, ParseCount());
          if (max < min) return Malformed("the repetition ends before it begins");
        }
      }
      if (!Take('}')) return Malformed("expected '}'");
    } else {
      return item;
    }
    Take('?');  // lazy: the same texts match
    return syntax_.Repeat(item, min, max);
  }

  // "{2}", "{2,}" or "{2,3}"; other braces are characters (ECMA-262, B.1.2).
  bool IsCounted() const {
    if (Peek() != '{') return false;
    size_t ahead = 1;
    const auto skip_digits = [&] {
      const size_t begin = ahead;
      while (Peek(ahead) >= '0' && Peek(ahead) <= '9') ++ahead;
      return ahead > begin;
    };
    if (!skip_digits()) return false;
    if (Peek(ahead) == ',') {
      ++ahead;
      skip_digits();
    }
    return Peek(ahead) == '}';
  }

  Result<int> ParseCount() {
    int count = 0;
    const size_t begin = position_;
    while (Peek() >= '0' && Peek() <= '9') {
      count = count * 10 + (Peek() - '0');
      if (count > kMaxRepeat) return Unsupported("a repetition count this large is");
      ++position_;
    }
    if (position_ == begin) return Malformed("expected a number");
    return count;
  }

  std::string_view text_;
  size_t position_ = 0;
  GrammarSyntax& syntax_;
  JsonText& json_;
};

}  // namespace

Result<Expr> TranslatePattern(std::string_view pattern, GrammarSyntax* syntax, JsonText* json) {
  return PatternParser(pattern, syntax, json).Parse();
}

}  // namespace kvasir
