// Tests of the text form of grammars: what it accepts, and where it says an error is.
#include "kvasir/grammar/gbnf_parser.h"

#include <gtest/gtest.h>

#include <string>

#include "kvasir/grammar/grammar_test_util.h"

namespace kvasir {
namespace {

bool GrammarMatches(std::string_view gbnf, std::string_view text) {
  const auto grammar = Grammar::FromGbnf(gbnf);
  EXPECT_TRUE(grammar.ok()) << grammar.error().message;
  if (!grammar.ok()) return false;
  GrammarAutomaton automaton(*grammar);
  return Matches(&automaton, text);
}

std::string ErrorOf(std::string_view gbnf) {
  const auto grammar = Grammar::FromGbnf(gbnf);
  return grammar.ok() ? "no error" : grammar.error().message;
}

TEST(Gbnf, ReadsEveryConstruct) {
  constexpr std::string_view kGrammar = R"(
# chess, in part
root   ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")*
move   ::= (pawn | nonpawn | castle) [+#]?   # check
pawn   ::= ([a-h] "x")? [a-h] [1-8]
           ("=" [NBKQR])?
nonpawn ::= [NBKQR] [a-h]? [1-8]?
    [x]? [a-h] [1-8]
castle ::= "O-O" "-O"?
)";
  // A rule ends with its line, so nonpawn stops after [1-8]? and what follows is an error.
  EXPECT_NE(ErrorOf(kGrammar), "no error");
  constexpr std::string_view kOneLine = R"(
root ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")*
move ::= (pawn
          | nonpawn | castle) [+#]?   # check
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
castle ::= "O-O"
         | "O-O-O"
)";
  EXPECT_TRUE(GrammarMatches(kOneLine, "1. e4 Nf6\n2. O-O-O exd5+\n"));
  EXPECT_FALSE(GrammarMatches(kOneLine, "1. e4 Nf9\n"));
}

TEST(Gbnf, Repetitions) {
  const auto count = [](std::string_view repeat, int n) {
    return GrammarMatches("root ::= \"a\"" + std::string(repeat),
                          std::string(static_cast<size_t>(n), 'a'));
  };
  for (int n = 0; n < 9; ++n) {
    EXPECT_EQ(count("*", n), true);
    EXPECT_EQ(count("+", n), n >= 1);
    EXPECT_EQ(count("?", n), n <= 1);
    EXPECT_EQ(count("{3}", n), n == 3);
    EXPECT_EQ(count("{3,}", n), n >= 3);
    EXPECT_EQ(count("{,3}", n), n <= 3);
    EXPECT_EQ(count("{ 2 , 5 }", n), n >= 2 && n <= 5);
    EXPECT_EQ(count("{0}", n), n == 0);
    EXPECT_EQ(count("{2}{2}", n), n == 4);
  }
}

TEST(Gbnf, LargeRepetitionsCountExactly) {
  const auto grammar = Grammar::FromGbnf("root ::= [ab]{300,1000} \"!\" \"c\"{777}");
  ASSERT_TRUE(grammar.ok()) << grammar.error().message;
  GrammarAutomaton automaton(*grammar);
  for (const size_t n : {0, 299, 300, 301, 511, 512, 768, 999, 1000, 1001}) {
    for (const size_t m : {776, 777, 778}) {
      EXPECT_EQ(Matches(&automaton, std::string(n, 'a') + "!" + std::string(m, 'c')),
                n >= 300 && n <= 1000 && m == 777)
          << n << " " << m;
    }
  }
  EXPECT_TRUE(Grammar::FromGbnf("root ::= .{0,65535}").ok());
}

TEST(Gbnf, CharactersAndEscapes) {
  EXPECT_TRUE(GrammarMatches(R"(root ::= "\x41\u00e4\U0001F600\n\t\r\\\"")", "Aä😀\n\t\r\\\""));
  EXPECT_TRUE(GrammarMatches(R"(root ::= [^"\\\x00-\x1F]+)", "aä😀"));
  EXPECT_FALSE(GrammarMatches(R"(root ::= [^"\\\x00-\x1F]+)", "a\"b"));
  EXPECT_TRUE(GrammarMatches(R"(root ::= [\]\[\-\^^-]+)", "[]-^"));
  EXPECT_TRUE(GrammarMatches("root ::= [α-ω]+", "λγσ"));
  EXPECT_TRUE(GrammarMatches("root ::= [a-]+", "a-a"));
  EXPECT_TRUE(GrammarMatches("root ::= . .", "ä\n"));
  // Bytes that are no UTF-8 match nothing.
  EXPECT_FALSE(GrammarMatches("root ::= .", "\xFF"));
  EXPECT_FALSE(GrammarMatches("root ::= .", "\xED\xA0\x80"));
}

TEST(Gbnf, EmptyAlternativesAndRules) {
  for (const char* gbnf : {"root ::= \"a\" |", "root ::= | \"a\"", "root ::= (|\"a\")",
                           "root ::= x\nx ::=\n  | \"a\"", "root ::= e \"a\"? e\ne ::=\n"}) {
    EXPECT_TRUE(GrammarMatches(gbnf, "")) << gbnf;
    EXPECT_TRUE(GrammarMatches(gbnf, "a")) << gbnf;
    EXPECT_FALSE(GrammarMatches(gbnf, "aa")) << gbnf;
  }
  EXPECT_TRUE(GrammarMatches("root ::=", ""));
}

TEST(Gbnf, ErrorsNameTheirPlace) {
  EXPECT_EQ(ErrorOf("root ::= \"a\"\nx ::= (\"b\"\n"), "grammar line 3, column 1: expected ')'");
  EXPECT_EQ(ErrorOf("root = \"a\""), "grammar line 1, column 6: expected ::= after 'root'");
  EXPECT_EQ(ErrorOf("root ::= \"a"), "grammar line 1, column 12: expected a closing \"");
  EXPECT_EQ(ErrorOf("root ::= [z-a]"),
            "grammar line 1, column 14: the range ends before it begins");
  EXPECT_EQ(ErrorOf("root ::= \"\\q\"").substr(0, 43),
            "grammar line 1, column 13: unknown escape; ");
  EXPECT_EQ(ErrorOf("root ::= \"a\"{3,1}"),
            "grammar line 1, column 17: the repetition ends before it begins");
  EXPECT_EQ(ErrorOf("root ::= \"a\" )"),
            "grammar line 1, column 14: expected the end of rule 'root'");
  EXPECT_EQ(ErrorOf("root ::= \"a\"\nroot ::= \"b\""),
            "grammar line 2, column 5: rule 'root' is defined twice");
  EXPECT_EQ(ErrorOf("root ::= \"\\ud800\""),
            "grammar line 1, column 17: the escape is no Unicode character");
  EXPECT_EQ(ErrorOf("root ::= \"\xFF\""), "grammar line 1, column 11: invalid UTF-8");
  EXPECT_EQ(ErrorOf("root ::= other"), "grammar rule 'other' is used but not defined");
  EXPECT_EQ(ErrorOf("x ::= \"a\""), "the grammar has no rule 'root' to begin with");
}

TEST(Gbnf, BoundsWhatAGrammarCosts) {
  EXPECT_FALSE(Grammar::FromGbnf("root ::= " + std::string(101, '(')).ok());
  EXPECT_FALSE(Grammar::FromGbnf("root ::= \"a\"{1000001}").ok());
  EXPECT_FALSE(Grammar::FromGbnf("root ::= ([^a]{1000}){1000}{1000}").ok());
  EXPECT_FALSE(Grammar::FromGbnf(std::string((1 << 20) + 1, ' ')).ok());
  EXPECT_FALSE(Grammar::FromGbnf("root ::= \"a\"" + std::string(1000, '?')).ok());
}

}  // namespace
}  // namespace kvasir
