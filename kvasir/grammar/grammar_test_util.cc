#include "kvasir/grammar/grammar_test_util.h"

#include <map>
#include <set>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/base/rng.h"
#include "kvasir/tokenizer/utf8.h"

namespace kvasir {
namespace {

using Ends = std::set<size_t>;

class Naive {
 public:
  Naive(const GrammarSyntax& syntax, std::string_view text) : syntax_(syntax), text_(text) {}

  Ends Match(GrammarSyntax::Expr expr, size_t begin) {
    const auto [entry, added] = known_.try_emplace({expr, begin});
    if (added) entry->second = MatchNode(syntax_.node(expr), begin);
    return known_.at({expr, begin});
  }

 private:
  Ends MatchNode(const GrammarSyntax::Node& node, size_t begin) {
    Ends ends;
    switch (node.kind) {
      case GrammarSyntax::Kind::kLiteral:
        if (text_.substr(begin, node.text.size()) == node.text) ends = {begin + node.text.size()};
        break;
      case GrammarSyntax::Kind::kCharSet:
        if (begin < text_.size() && ScanUtf8(text_, begin).status == Utf8Status::kComplete) {
          const Utf8Char read = DecodeUtf8(text_, begin);
          if (node.set.Contains(read.code)) ends = {begin + read.size_bytes};
        }
        break;
      case GrammarSyntax::Kind::kSequence:
        ends = {begin};
        for (const auto part : node.parts) ends = MatchFromAll(part, ends);
        break;
      case GrammarSyntax::Kind::kAlternatives:
        for (const auto part : node.parts) ends.merge(Match(part, begin));
        break;
      case GrammarSyntax::Kind::kRepeat:
        return MatchRepeat(node, begin);
      case GrammarSyntax::Kind::kRule:
        return Match(syntax_.body(node.min), begin);
    }
    return ends;
  }

  Ends MatchFromAll(GrammarSyntax::Expr part, const Ends& begins) {
    Ends ends;
    for (const size_t begin : begins) ends.merge(Match(part, begin));
    return ends;
  }

  Ends MatchRepeat(const GrammarSyntax::Node& node, size_t begin) {
    Ends now = {begin};
    Ends ends;
    // Past this many rounds nothing new can come: each must read a byte to matter.
    const int rounds = node.max == GrammarSyntax::kUnbounded
                           ? node.min + static_cast<int>(text_.size()) + 1
                           : node.max;
    for (int round = 0; round <= rounds && !now.empty(); ++round) {
      if (round >= node.min) ends.insert(now.begin(), now.end());
      now = MatchFromAll(node.parts[0], now);
    }
    return ends;
  }

  const GrammarSyntax& syntax_;
  std::string_view text_;
  std::map<std::pair<GrammarSyntax::Expr, size_t>, Ends> known_;
};

}  // namespace

bool NaiveMatch(const GrammarSyntax& syntax, GrammarSyntax::Rule root, std::string_view text) {
  return Naive(syntax, text).Match(syntax.body(root), 0).contains(text.size());
}

GrammarAutomaton::State StateAfter(GrammarAutomaton* automaton, std::string_view text) {
  GrammarAutomaton::State state = automaton->start();
  for (const char c : text) state = automaton->Next(state, static_cast<uint8_t>(c));
  return state;
}

bool Matches(GrammarAutomaton* automaton, std::string_view text) {
  return automaton->CanEnd(StateAfter(automaton, text));
}

std::shared_ptr<const GrammarVocabulary> ByteVocabulary(const std::vector<std::string>& words) {
  std::vector<std::string> bytes;
  for (int byte = 0; byte < 256; ++byte) bytes.emplace_back(1, static_cast<char>(byte));
  bytes.insert(bytes.end(), words.begin(), words.end());
  bytes.emplace_back("<end>");
  const Token end = static_cast<Token>(bytes.size()) - 1;
  return std::make_shared<const GrammarVocabulary>(std::move(bytes), std::span(&end, 1));
}

Token EndToken(const GrammarVocabulary& vocabulary) {
  return static_cast<Token>(vocabulary.size()) - 1;
}

TokenMask BruteForceMask(const std::shared_ptr<const Grammar>& grammar,
                         const GrammarVocabulary& vocabulary, std::string_view text) {
  TokenMask mask(vocabulary.size());
  GrammarAutomaton automaton(grammar);
  const GrammarAutomaton::State state = StateAfter(&automaton, text);
  for (size_t i = 0; i < vocabulary.size(); ++i) {
    const auto token = static_cast<Token>(i);
    if (vocabulary.IsEnd(token) && automaton.CanEnd(state)) mask.Set(token);
    if (vocabulary.bytes(token).empty()) continue;
    GrammarAutomaton::State next = state;
    for (const char c : vocabulary.bytes(token)) {
      next = automaton.Next(next, static_cast<uint8_t>(c));
    }
    if (next != GrammarAutomaton::kDead) mask.Set(token);
  }
  return mask;
}

Walked RandomWalk(GrammarMatcher* matcher, const GrammarVocabulary& vocabulary, uint64_t seed,
                  int max_tokens) {
  Walked walked;
  for (int i = 0; i < max_tokens; ++i) {
    const TokenMask& mask = matcher->Mask();
    std::vector<Token> allowed;
    for (size_t id = 0; id < vocabulary.size(); ++id) {
      if (mask.Test(static_cast<Token>(id))) allowed.push_back(static_cast<Token>(id));
    }
    KVASIR_CHECK(!allowed.empty());
    const double uniform = UniformDouble(seed, static_cast<uint64_t>(i));
    const Token token = allowed[static_cast<size_t>(uniform * static_cast<double>(allowed.size()))];
    KVASIR_CHECK(matcher->Accept(token));
    walked.text += vocabulary.bytes(token);
    if (matcher->ended()) {
      walked.ended = true;
      return walked;
    }
  }
  return walked;
}

}  // namespace kvasir
