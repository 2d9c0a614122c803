#include "kvasir/tokenizer/regex_syntax.h"

#include <vector>

#include "kvasir/tokenizer/regex_property.h"

namespace kvasir {
namespace {

Error Unsupported(std::string reason) { return {ErrorCode::kUnsupported, std::move(reason)}; }

constexpr std::string_view kNegatedUnion =
    "a class cannot hold a negated class beside other members";

std::string WordMembers() { return std::string(kRegexWordMembers).append(kRegexOddWordMembers); }

std::string Bracketed(std::string_view open, std::string_view members) {
  return std::string(open).append(members).append("]");
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> Run() {
    while (!AtEnd()) KVASIR_TRY_OK(TranslateNext());
    return std::move(out_);
  }

 private:
  // What a class is made of: members for one pair of brackets, and how it is negated.
  struct ClassBody {
    std::string members;
    bool negated = false;
    // The class as a matcher of one character, when brackets alone cannot say it.
    std::string expression;
    bool is_plain() const { return expression.empty(); }
    std::string ToExpression() const {
      if (!is_plain()) return expression;
      return Bracketed(negated ? "[^" : "[", members);
    }
  };

  bool AtEnd() const { return position_ >= pattern_.size(); }
  char Peek(size_t ahead = 0) const {
    return position_ + ahead < pattern_.size() ? pattern_[position_ + ahead] : '\0';
  }
  bool StartsWith(std::string_view text) const {
    return pattern_.substr(position_).starts_with(text);
  }
  void Atom(std::string_view text) {
    atom_begin_ = out_.size();
    out_ += text;
  }

  Status TranslateNext() {
    switch (Peek()) {
      case '\\':
        return TranslateEscape();
      case '[': {
        KVASIR_TRY(const ClassBody body, ParseClass(0));
        Atom(body.ToExpression());
        return {};
      }
      case '(':
        return OpenGroup();
      case ')':
        if (!group_begins_.empty()) {
          atom_begin_ = group_begins_.back();
          group_begins_.pop_back();
        }
        out_ += pattern_[position_++];
        return {};
      case '{':
        return TranslateRepetition();
      case '*':
      case '+':
      case '?':
        out_ += pattern_[position_++];
        return {};
      default:
        return CopyCharacter();
    }
  }

  Status CopyCharacter() {
    atom_begin_ = out_.size();
    out_ += pattern_[position_++];
    while (!AtEnd() && (static_cast<unsigned char>(Peek()) & 0xC0) == 0x80) {
      out_ += pattern_[position_++];
    }
    return {};
  }

  Status OpenGroup() {
    group_begins_.push_back(out_.size());
    out_ += pattern_[position_++];
    if (Peek() == '*') return Unsupported("(*...) verbs are not part of the syntax");
    if (Peek() != '?') return {};
    if (Peek(1) == '#') return SkipComment();
    if (Peek(1) == 'C' || Peek(1) == 'R' || Peek(1) == 'P' || Peek(1) == '&') {
      return Unsupported("(?C), (?R), (?P) and (?&) groups are not part of the syntax");
    }
    out_ += pattern_[position_++];
    // Option letters up to ':' or ')'; look-around and names begin with other characters.
    while (!AtEnd() && ((Peek() >= 'a' && Peek() <= 'z') || Peek() == '-')) {
      if (Peek() == 's') return Unsupported("option s is not part of the syntax");
      out_ += Peek() == 'm' ? 's' : Peek();
      ++position_;
    }
    // (?i) acts on the enclosing group and is closed at once; ')' is copied by the main loop.
    return {};
  }

  Status SkipComment() {
    group_begins_.pop_back();
    out_.pop_back();
    const size_t end = pattern_.find(')', position_);
    if (end == std::string_view::npos) return Unsupported("a (?#...) comment does not end");
    position_ = end + 1;
    return {};
  }

  Status TranslateRepetition() {
    const size_t end = pattern_.find('}', position_);
    std::string_view bounds;
    if (end != std::string_view::npos) bounds = pattern_.substr(position_ + 1, end - position_ - 1);
    if (bounds.empty() || bounds == "," ||
        bounds.find_first_not_of("0123456789,") != std::string_view::npos) {
      out_ += "\\{";
      atom_begin_ = out_.size() - 2;
      ++position_;
      return {};
    }
    out_ += bounds.front() == ',' ? "{0" : "{";
    out_ += bounds;
    out_ += '}';
    position_ = end + 1;
    if (Peek() == '+') {
      out_.insert(atom_begin_, "(?:");
      out_ += ")+";
      ++position_;
    }
    return {};
  }

  Status TranslateEscape() {
    const char escaped = Peek(1);
    switch (escaped) {
      case 's':
        return Replace(2, Bracketed("[", kRegexSpaceMembers));
      case 'S':
        return Replace(2, Bracketed("[^", kRegexSpaceMembers));
      case 'w':
        return Replace(2, Bracketed("[", WordMembers()));
      case 'W':
        return Replace(2, Bracketed("[^", WordMembers()));
      case 'h':
        return Replace(2, "[0-9a-fA-F]");
      case 'H':
        return Replace(2, "[^0-9a-fA-F]");
      case 'b':
        return Replace(2, WordBoundary("(?<=", "(?!", "(?<!", "(?="));
      case 'B':
        return Replace(2, WordBoundary("(?<=", "(?=", "(?<!", "(?!"));
      case 'p':
      case 'P':
        if (Peek(2) != '{') return CopyEscape();
        return TranslateProperty();
      case 'v':
        return Replace(2, "\\x0B");
      case 'O':
        return Replace(2, "(?s:.)");
      case 'u':
        return TranslateCodePoint();
      case 'K':
      case 'C':
      case 'Q':
        return Unsupported(std::string("\\") + escaped + " is not supported");
      default:
        return CopyEscape();
    }
  }

  // "Word before and after as the first pair says, or as the second", by Oniguruma's idea of words.
  static std::string WordBoundary(std::string_view before, std::string_view after,
                                  std::string_view or_before, std::string_view or_after) {
    const std::string word = Bracketed("[", WordMembers()) + ")";
    std::string boundary = "(?:";
    boundary.append(before).append(word).append(after).append(word);
    boundary.append("|").append(or_before).append(word).append(or_after).append(word);
    return boundary + ")";
  }

  Status Replace(size_t size_bytes, std::string_view text) {
    position_ += size_bytes;
    Atom(text);
    return {};
  }

  // Copies \X, or \p{...} and \x{...} whole so that their braces are no repetition.
  Status CopyEscape() {
    atom_begin_ = out_.size();
    out_ += CopiedEscape();
    return {};
  }

  std::string_view CopiedEscape() {
    size_t size = 2;
    const char escaped = Peek(1);
    if ((escaped == 'p' || escaped == 'P' || escaped == 'x') && Peek(2) == '{') {
      const size_t end = pattern_.find('}', position_);
      if (end != std::string_view::npos) size = end + 1 - position_;
    }
    while (position_ + size < pattern_.size() &&
           (static_cast<unsigned char>(pattern_[position_ + size]) & 0xC0) == 0x80) {
      ++size;
    }
    const std::string_view copied = pattern_.substr(position_, size);
    position_ += copied.size();
    return copied;
  }

  // At \p{...} or \P{...}: takes it, and says what it means.
  Result<RegexProperty> TakeProperty() {
    const size_t end = pattern_.find('}', position_);
    if (end == std::string_view::npos) return Unsupported("\\p{ does not end");
    std::string_view name = pattern_.substr(position_ + 3, end - position_ - 3);
    bool negated = Peek(1) == 'P';
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    position_ = end + 1;
    KVASIR_TRY(RegexProperty property, FindRegexProperty(name));
    if (negated) property = property.Negated();
    return property;
  }

  Status TranslateProperty() {
    KVASIR_TRY(const RegexProperty property, TakeProperty());
    Atom(Bracketed(property.negated ? "[^" : "[", property.members));
    return {};
  }

  // \u0041; PCRE2 has \x{0041} only.
  Status TranslateCodePoint() {
    const std::string_view digits = pattern_.substr(position_ + 2, 4);
    if (digits.size() < 4 ||
        digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
      return Unsupported("\\u needs four hexadecimal digits");
    }
    return Replace(6, std::string("\\x{").append(digits).append("}"));
  }

  Result<ClassBody> ParseClass(int depth) {
    constexpr int kMaxClassDepth = 20;
    if (depth > kMaxClassDepth) return Unsupported("classes are nested too deep");
    ++position_;  // '['
    ClassBody body;
    if (Peek() == '^') {
      body.negated = true;
      ++position_;
    }
    std::vector<ClassBody> operands;  // of &&
    ClassBody current;
    bool first = true;
    while (!AtEnd() && (Peek() != ']' || first)) {
      if (StartsWith("&&")) {
        position_ += 2;
        operands.push_back(std::move(current));
        current = {};
      } else {
        KVASIR_TRY_OK(ParseClassMember(depth, &current));
      }
      first = false;
    }
    if (AtEnd()) return Unsupported("a character class does not end");
    ++position_;  // ']'
    if (operands.empty()) return Negate(std::move(current), body.negated);
    operands.push_back(std::move(current));
    return Intersect(operands, body.negated);
  }

  Status ParseClassMember(int depth, ClassBody* current) {
    if (StartsWith("[:")) {
      const size_t end = pattern_.find(":]", position_);
      if (end != std::string_view::npos) return TakePosixBracket(end, current);
    }
    if (Peek() == '[') {
      KVASIR_TRY(ClassBody nested, ParseClass(depth + 1));
      return Join(std::move(nested), current);
    }
    if (Peek() != '\\') {
      return Append(pattern_.substr(position_++, 1), current);
    }
    return ParseClassEscape(current);
  }

  Status ParseClassEscape(ClassBody* current) {
    switch (Peek(1)) {
      case 's':
        return AddMembers(current, kRegexSpaceMembers);
      case 'S':
        return AddMembers(current, "\\P{White_Space}");
      case 'w':
        return AddMembers(current, kRegexWordMembers);
      case 'h':
        return AddMembers(current, "0-9a-fA-F");
      case 'v':
        return AddMembers(current, "\\x0B");
      case 'u':
        return AddCodePoint(current);
      case 'W':
      case 'H':
        return Unsupported("\\W and \\H inside a character class are not supported");
      default:
        break;
    }
    if ((Peek(1) == 'p' || Peek(1) == 'P') && Peek(2) == '{') {
      KVASIR_TRY(const RegexProperty property, TakeProperty());
      return AddProperty(property, current);
    }
    return Append(CopiedEscape(), current);
  }

  // [:punct:] or [:^punct:] inside a class, which ends at `end`.
  Status TakePosixBracket(size_t end, ClassBody* current) {
    std::string_view name = pattern_.substr(position_ + 2, end - position_ - 2);
    const bool negated = name.starts_with('^');
    if (negated) name.remove_prefix(1);
    position_ = end + 2;
    KVASIR_TRY(RegexProperty property, FindPosixBracket(name));
    if (negated) property = property.Negated();
    return AddProperty(property, current);
  }

  static Status AddProperty(const RegexProperty& property, ClassBody* current) {
    if (!property.negated) return Append(property.members, current);
    return Join({property.members, true, ""}, current);
  }

  Status AddCodePoint(ClassBody* current) {
    const size_t atom_begin = out_.size();
    KVASIR_TRY_OK(TranslateCodePoint());
    const std::string member = out_.substr(atom_begin);
    out_.resize(atom_begin);
    return Append(member, current);
  }

  Status AddMembers(ClassBody* current, std::string_view members) {
    position_ += 2;
    return Append(members, current);
  }

  static Status Append(std::string_view members, ClassBody* current) {
    if (current->negated || !current->is_plain()) return Unsupported(std::string(kNegatedUnion));
    current->members += members;
    return {};
  }

  // The union of what stands in `current` already and a nested class.
  static Status Join(ClassBody nested, ClassBody* current) {
    if (nested.is_plain() && !nested.negated) return Append(nested.members, current);
    if (current->is_plain() && current->members.empty()) {
      *current = std::move(nested);
      return {};
    }
    return Unsupported(std::string(kNegatedUnion));
  }

  static ClassBody Negate(ClassBody body, bool negated) {
    if (!negated) return body;
    if (body.is_plain()) {
      body.negated = !body.negated;
      return body;
    }
    body.expression = "(?:(?!" + body.expression + ")(?s:.))";
    return body;
  }

  static Result<ClassBody> Intersect(const std::vector<ClassBody>& operands, bool negated) {
    ClassBody body;
    body.expression = "(?:";
    for (const ClassBody& operand : operands) {
      if (operand.is_plain() && operand.members.empty()) return Unsupported("an empty side of &&");
      if (&operand == &operands.back()) {
        body.expression += operand.ToExpression() + ")";
      } else {
        body.expression += "(?=" + operand.ToExpression() + ")";
      }
    }
    return Negate(std::move(body), negated);
  }

  std::string_view pattern_;
  size_t position_ = 0;
  std::string out_;
  // Where the last complete atom begins in out_: what a following repetition repeats.
  size_t atom_begin_ = 0;
  std::vector<size_t> group_begins_;
};

}  // namespace

Result<std::string> TranslateRegexSyntax(std::string_view pattern) {
  return Translator(pattern).Run();
}

}  // namespace kvasir
