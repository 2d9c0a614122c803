#include "kvasir/grammar/grammar_syntax.h"

#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {

GrammarSyntax::Expr GrammarSyntax::Add(Node node) {
  text_bytes_ += node.text.size();
  if (nodes_.size() >= kMaxNodes || text_bytes_ > kMaxTextBytes) {
    too_large_ = true;
    if (!nodes_.empty()) return 0;
    node = Node();
  }
  nodes_.push_back(std::move(node));
  return static_cast<Expr>(nodes_.size()) - 1;
}

GrammarSyntax::Expr GrammarSyntax::Literal(std::string_view text) {
  return Add({.kind = Kind::kLiteral, .text = std::string(text)});
}

GrammarSyntax::Expr GrammarSyntax::Chars(CharSet set) {
  return Add({.kind = Kind::kCharSet, .set = std::move(set)});
}

GrammarSyntax::Expr GrammarSyntax::Sequence(std::vector<Expr> parts) {
  if (parts.size() == 1) return parts[0];
  return Add({.kind = Kind::kSequence, .parts = std::move(parts)});
}

GrammarSyntax::Expr GrammarSyntax::Alternatives(std::vector<Expr> parts) {
  if (parts.size() == 1) return parts[0];
  return Add({.kind = Kind::kAlternatives, .parts = std::move(parts)});
}

GrammarSyntax::Expr GrammarSyntax::Repeat(Expr part, int min, int max) {
  KVASIR_CHECK(min >= 0 && (max == kUnbounded || max >= min));
  return Add({.kind = Kind::kRepeat, .min = min, .max = max, .parts = {part}});
}

GrammarSyntax::Expr GrammarSyntax::Call(Rule rule) {
  return Add({.kind = Kind::kRule, .min = rule});
}

GrammarSyntax::Rule GrammarSyntax::RuleNamed(std::string_view name) {
  const auto [entry, added] =
      rule_of_.try_emplace(std::string(name), static_cast<Rule>(rules_.size()));
  if (added) rules_.push_back({std::string(name)});
  return entry->second;
}

}  // namespace kvasir
