// GrammarSyntax: the rules of a grammar as expressions, before they become an automaton. The GBNF
// parser and the schema translator both build one.
// Deliberately without meaning: undefined rules and left recursion are the compiler's to find.
#ifndef KVASIR_GRAMMAR_GRAMMAR_SYNTAX_H_
#define KVASIR_GRAMMAR_GRAMMAR_SYNTAX_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kvasir/base/text_hash.h"
#include "kvasir/grammar/char_set.h"

namespace kvasir {

class GrammarSyntax {
 public:
  using Expr = int32_t;
  using Rule = int32_t;

  enum class Kind : uint8_t { kLiteral, kCharSet, kSequence, kAlternatives, kRepeat, kRule };
  static constexpr int kUnbounded = -1;

  struct Node {
    Kind kind = Kind::kLiteral;
    int32_t min = 0;          // kRepeat; kRule: the rule
    int32_t max = 0;          // kRepeat, may be kUnbounded
    std::string text;         // kLiteral, bytes
    CharSet set;              // kCharSet
    std::vector<Expr> parts;  // kSequence, kAlternatives, kRepeat (one); each smaller than this
  };

  // Past this many nodes nothing is added and too_large() stays true: builders need not check.
  static constexpr size_t kMaxNodes = size_t{1} << 18;
  // Past this much text in literals likewise.
  static constexpr size_t kMaxTextBytes = size_t{1} << 22;

  Expr Literal(std::string_view text);
  Expr Chars(CharSet set);  // one character in UTF-8; none at all if the set is empty
  Expr Sequence(std::vector<Expr> parts);
  Expr Alternatives(std::vector<Expr> parts);  // none: matches nothing
  // REQUIRES: 0 <= min <= max, or max == kUnbounded.
  Expr Repeat(Expr part, int min, int max);
  Expr Optional(Expr part) { return Repeat(part, 0, 1); }
  Expr Call(Rule rule);

  // The rule of that name, which becomes known but not yet defined.
  Rule RuleNamed(std::string_view name);
  // A second definition replaces the first.
  void Define(Rule rule, Expr body) { rules_[static_cast<size_t>(rule)].body = body; }
  bool IsDefined(Rule rule) const { return body(rule) >= 0; }

  bool too_large() const { return too_large_; }
  const Node& node(Expr expr) const { return nodes_[static_cast<size_t>(expr)]; }
  size_t rule_count() const { return rules_.size(); }
  Expr body(Rule rule) const { return rules_[static_cast<size_t>(rule)].body; }
  const std::string& name(Rule rule) const { return rules_[static_cast<size_t>(rule)].name; }

 private:
  struct RuleEntry {
    std::string name;
    Expr body = -1;
  };

  Expr Add(Node node);

  std::vector<Node> nodes_;
  std::vector<RuleEntry> rules_;
  std::unordered_map<std::string, Rule, TextHash> rule_of_;
  size_t text_bytes_ = 0;
  bool too_large_ = false;
};

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_GRAMMAR_SYNTAX_H_
