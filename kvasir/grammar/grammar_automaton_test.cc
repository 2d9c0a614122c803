// Tests of the automaton against a naive matcher, and of what it promises of every state.
#include "kvasir/grammar/grammar_automaton.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/base/rng.h"
#include "kvasir/grammar/gbnf_parser.h"
#include "kvasir/grammar/grammar_test_util.h"

namespace kvasir {
namespace {

using Expr = GrammarSyntax::Expr;

std::shared_ptr<const Grammar> FromGbnf(std::string_view gbnf) {
  auto grammar = Grammar::FromGbnf(gbnf);
  KVASIR_CHECK(grammar.ok());
  return *std::move(grammar);
}

// Calls visit for every text over `alphabet` of at most `max_size` characters.
template <typename Visit>
void ForEachText(std::string_view alphabet, size_t max_size, const Visit& visit) {
  std::vector<std::string> texts = {""};
  for (size_t i = 0; i < texts.size(); ++i) {
    visit(std::as_const(texts[i]));
    if (texts[i].size() == max_size) continue;
    for (const char c : alphabet) texts.push_back(texts[i] + c);
  }
}

void ExpectAgreesWithNaive(const GrammarSyntax& syntax, GrammarSyntax::Rule root,
                           const std::shared_ptr<const Grammar>& grammar, size_t max_size) {
  GrammarAutomaton automaton(grammar);
  ForEachText("abc", max_size, [&](const std::string& text) {
    ASSERT_EQ(Matches(&automaton, text), NaiveMatch(syntax, root, text)) << "text: " << text;
  });
}

TEST(GrammarAutomaton, AgreesWithANaiveMatcher) {
  for (const char* gbnf : {
           "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"",
           "root ::= \"a\" root root | \"b\"",
           "root ::= x x\nx ::= \"a\"* y\ny ::= \"b\"?",
           "root ::= (x? \"c\")* x\nx ::= \"a\" | \"a\" x | y\ny ::= \"b\" x?",
           "root ::= list\nlist ::= \"a\" | \"a\" \"b\" list | \"c\" root \"c\"",
           "root ::= (\"\" | \"a\"*)* \"b\"{1,2}",
           "root ::= e e x e\ne ::=\nx ::= e \"a\" e root? e",
           "root ::= (\"a\" | \"b\" | \"c\"){2,3} | \"a\"{4,}",
       }) {
    SCOPED_TRACE(gbnf);
    auto syntax = ParseGbnf(gbnf);
    ASSERT_TRUE(syntax.ok());
    ExpectAgreesWithNaive(*syntax, syntax->RuleNamed("root"), FromGbnf(gbnf), 7);
  }
}

// Random rules over a, b, c; a fair part of them is left-recursive or endless and refused.
class RandomSyntax {
 public:
  explicit RandomSyntax(uint64_t seed) : seed_(seed) {
    for (const char* name : {"root", "x", "y"}) rules_.push_back(syntax_.RuleNamed(name));
    for (const auto rule : rules_) syntax_.Define(rule, RandomExpr(3));
  }
  GrammarSyntax& syntax() { return syntax_; }

 private:
  int Draw(int below) {
    return static_cast<int>(UniformDouble(seed_, draws_++) * static_cast<double>(below));
  }
  Expr RandomExpr(int depth) {
    switch (depth == 0 ? Draw(3) : Draw(8)) {
      case 0:
        return syntax_.Literal(std::string(1, static_cast<char>('a' + Draw(3))));
      case 1:
        return syntax_.Chars(CharSet({{U'a', static_cast<char32_t>('a' + Draw(3))}}));
      case 2:
        return syntax_.Call(rules_[static_cast<size_t>(Draw(3))]);
      case 3:
      case 4:
        return syntax_.Sequence({RandomExpr(depth - 1), RandomExpr(depth - 1)});
      case 5:
      case 6:
        return syntax_.Alternatives({RandomExpr(depth - 1), RandomExpr(depth - 1)});
      default: {
        const int min = Draw(2);
        const int max = Draw(2) == 0 ? GrammarSyntax::kUnbounded : min + Draw(3);
        return syntax_.Repeat(RandomExpr(depth - 1), min, max);
      }
    }
  }

  uint64_t seed_;
  uint64_t draws_ = 0;
  GrammarSyntax syntax_;
  std::vector<GrammarSyntax::Rule> rules_;
};

TEST(GrammarAutomaton, AgreesWithANaiveMatcherOnRandomGrammars) {
  int compiled = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomSyntax random(seed);
    const auto root = random.syntax().RuleNamed("root");
    const auto grammar = Grammar::FromSyntax(random.syntax(), root);
    if (!grammar.ok()) continue;
    ++compiled;
    ExpectAgreesWithNaive(random.syntax(), root, *grammar, 4);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(compiled, 1000);
}

TEST(GrammarAutomaton, RefusesLeftRecursionByName) {
  const auto error = [](const char* gbnf) {
    const auto grammar = Grammar::FromGbnf(gbnf);
    return grammar.ok() ? std::string() : grammar.error().message;
  };
  EXPECT_NE(error("root ::= root \"a\" | \"b\"").find("rule 'root' is left-recursive"),
            std::string::npos);
  EXPECT_NE(error("root ::= \"x\" e\ne ::= t \"+\" e | t\nt ::= n? e\nn ::= \"n\"")
                .find("left-recursive"),
            std::string::npos);
  EXPECT_NE(error("root ::= x\nx ::= x").find("rule 'x' is left-recursive"), std::string::npos);
  EXPECT_NE(error("root ::= (\"a\"? root)?").find("left-recursive"), std::string::npos);
  EXPECT_EQ(error("root ::= \"a\" root | \"b\""), "");
}

TEST(GrammarAutomaton, RefusesARootThatNoTextFinishes) {
  const auto grammar = Grammar::FromGbnf("root ::= \"a\" root | []");
  ASSERT_FALSE(grammar.ok());
  EXPECT_EQ(grammar.error().message, "no text satisfies the grammar or schema");
}

TEST(GrammarAutomaton, DeadEndsAreNeverEntered) {
  // x can begin but never end, so nothing may lead into it.
  GrammarAutomaton automaton(FromGbnf("root ::= \"a\" x | \"b\"\nx ::= \"c\" x"));
  EXPECT_EQ(StateAfter(&automaton, "a"), GrammarAutomaton::kDead);
  EXPECT_TRUE(Matches(&automaton, "b"));
}

TEST(GrammarAutomaton, LongListsNeedNoDepth) {
  GrammarAutomaton automaton(FromGbnf("root ::= \"a\" | \"a,\" root"));
  std::string text = "a";
  for (int i = 0; i < 10'000; ++i) text += ",a";
  EXPECT_TRUE(Matches(&automaton, text));
}

TEST(GrammarAutomaton, NestingIsBoundedAndStaysFinishable) {
  GrammarAutomaton automaton(
      FromGbnf("root ::= \"(\" root \")\" | \"[\" root x \"]\" | \"\"\n"
               "x ::= \"!\" root \"!\""));
  GrammarAutomaton::State state = automaton.start();
  int depth = 0;
  for (;; ++depth) {
    const auto next = automaton.Next(state, '(');
    if (next == GrammarAutomaton::kDead) break;
    state = next;
  }
  EXPECT_EQ(depth, GrammarAutomaton::kMaxDepth);
  // At the limit the one way left is back.
  EXPECT_EQ(automaton.Next(state, '['), GrammarAutomaton::kDead);
  for (int i = 0; i < depth; ++i) state = automaton.Next(state, ')');
  EXPECT_TRUE(automaton.CanEnd(state));
}

TEST(GrammarAutomaton, EveryLiveStateCanBeFinished) {
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    RandomSyntax random(seed);
    const auto grammar = Grammar::FromSyntax(random.syntax(), random.syntax().RuleNamed("root"));
    if (!grammar.ok()) continue;
    GrammarAutomaton automaton(*grammar);
    ForEachText("abc", 3, [&](const std::string& text) {
      const auto begin = StateAfter(&automaton, text);
      if (begin == GrammarAutomaton::kDead) return;
      std::vector<GrammarAutomaton::State> reached = {begin};
      bool finished = false;
      for (size_t i = 0; i < reached.size() && i < 5000 && !finished; ++i) {
        finished = automaton.CanEnd(reached[i]);
        for (const char c : {'a', 'b', 'c'}) {
          const auto next = automaton.Next(reached[i], static_cast<uint8_t>(c));
          if (next != GrammarAutomaton::kDead) reached.push_back(next);
        }
      }
      EXPECT_TRUE(finished) << text;
    });
  }
}

// Where counted repetitions are nested, ways to read a text multiply; a step stays cheap, and what
// is allowed can still be finished.
TEST(GrammarAutomaton, NestedCountsAreBounded) {
  GrammarAutomaton automaton(FromGbnf("root ::= ([a-c ]{0,250}){0,250} \".\""));
  GrammarAutomaton::State state = automaton.start();
  // Two ranges of bytes, and the end.
  constexpr size_t kMost = 2 * GrammarAutomaton::kMaxCopies + 1;
  size_t most = 0;
  for (int i = 0; i < 600; ++i) {
    state = automaton.Next(state, static_cast<uint8_t>("ab c"[i % 4]));
    ASSERT_NE(state, GrammarAutomaton::kDead) << i;
    most = std::max(most, automaton.place_count(state));
  }
  EXPECT_EQ(most, kMost);
  EXPECT_TRUE(automaton.CanEnd(automaton.Next(state, '.')));
}

TEST(GrammarAutomaton, HugeAlternations) {
  std::string gbnf = "root ::= \"word0\"";
  for (int i = 1; i < 20'000; ++i) gbnf += " | \"word" + std::to_string(i * 7) + "\"";
  GrammarAutomaton automaton(FromGbnf(gbnf));
  EXPECT_TRUE(Matches(&automaton, "word139993"));
  EXPECT_FALSE(Matches(&automaton, "word139994"));
}

TEST(GrammarAutomaton, ForgettingKeepsWhatItIsAskedToKeep) {
  const auto grammar = FromGbnf("root ::= \"a\" root \"b\" | \"c\" root \"d\" | \"\"");
  GrammarAutomaton automaton(grammar);
  std::vector<GrammarAutomaton::State> kept = {StateAfter(&automaton, "acca"), automaton.start(),
                                               GrammarAutomaton::kDead,
                                               StateAfter(&automaton, "accabd")};
  for (int i = 0; i < 3; ++i) {
    automaton.Forget(kept);
    EXPECT_EQ(kept[1], automaton.start());
    EXPECT_EQ(kept[2], GrammarAutomaton::kDead);
    EXPECT_EQ(kept[0], StateAfter(&automaton, "acca"));
    EXPECT_EQ(kept[3], StateAfter(&automaton, "accabd"));
    EXPECT_TRUE(Matches(&automaton, "accabddb"));
  }
  EXPECT_EQ(automaton.generation(), 3u);
}

}  // namespace
}  // namespace kvasir
