// Tests of masks against brute force, and of matchers going on, back and apart.
#include "kvasir/grammar/grammar_masks.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/grammar/grammar_matcher.h"
#include "kvasir/grammar/grammar_test_util.h"

namespace kvasir {
namespace {

std::shared_ptr<const Grammar> FromGbnf(std::string_view gbnf) {
  auto grammar = Grammar::FromGbnf(gbnf);
  KVASIR_CHECK(grammar.ok());
  return *std::move(grammar);
}

// Words that cut characters, cross borders of rules, repeat each other and are long.
std::shared_ptr<const GrammarVocabulary> TestVocabulary() {
  return ByteVocabulary({"aa",
                         "ab",
                         "\"a",
                         "a\"",
                         "\",\"",
                         "[[",
                         "]]",
                         "],",
                         "\xC3",
                         "\xA4\xC3",
                         "\xA4\"",
                         "\xF0\x9F",
                         "\x98\x80",
                         "\xF0\x9F\x98\x80",
                         "äö",
                         "a\xC3",
                         "ab",
                         "",
                         "abababababababababab",
                         "aaaaaaaaaaaaaaaa",
                         "aaaaaaaaaaaaaaaaa",
                         "12",
                         "-1",
                         " ",
                         "  ",
                         "\n",
                         "\\n",
                         "\\",
                         "\\\""});
}

constexpr const char* kGrammars[] = {
    "root ::= \"a\" root \"b\" | \"a\" root \"c\" | \"\"",
    R"(root ::= "[" (value ("," value)*)? "]"
value ::= root | "\"" char* "\"" | "-"? [0-9]+
char ::= [^"\\\x00-\x1F] | "\\" [n"\\])",
    R"(root ::= "\"" [^"\\\x00-\x1F]{0,20} "\"")",
    R"(root ::= "\"" [^"\\\x00-\x1F]{3,} "\"")",
    "root ::= [äöü😀]+ | \"aa\"*",
    "root ::= .*",
    "root ::= [^a]*",
};

// Its texts can be read in very many ways: states have hundreds of places, and nearly every byte
// leads to a new one.
std::shared_ptr<const Grammar> AmbiguousGrammar(const std::string& letter) {
  std::string first = "e ::= " + letter;
  std::string rest;
  for (int i = 0; i < 40; ++i) {
    const std::string name = "e" + std::to_string(i);
    first.append(" | ").append(letter).append(" ").append(name).append(" e ").append(name);
    rest.append(name).append(" ::= e e | ").append(letter).append("\n");
  }
  return FromGbnf("root ::= e+\n" + first + "\n" + rest);
}

// What may come first is as bounded as what comes later: 300 callers times 2,000 rules they call.
TEST(GrammarMasks, AnAmbiguousBeginningIsRefused) {
  const auto grammar = [](int callers, int rules) {
    std::string text = "root ::= \"y\"";
    for (int i = 0; i < callers; ++i) text += " | a \"x\"";
    text += "\na ::= \"z\"";
    for (int i = 0; i < rules; ++i) text += " | s" + std::to_string(i);
    for (int i = 0; i < rules; ++i) text += "\ns" + std::to_string(i) + " ::= \"1\" \"2\"";
    return Grammar::FromGbnf(text + "\n");
  };
  EXPECT_TRUE(grammar(10, 100).ok());
  EXPECT_EQ(grammar(300, 2000).error().code, ErrorCode::kResourceExhausted);
  // Alternatives that are one and the same are none.
  std::string same = "root ::= \"y\"";
  for (int i = 0; i < 3000; ++i) same += " | a \"x\"";
  same += "\na ::= \"z\"";
  for (int i = 0; i < 3000; ++i) same += " | s";
  EXPECT_TRUE(Grammar::FromGbnf(same + "\ns ::= \"1\" \"2\"\n").ok());
}

// What a mask costs is bounded, and what it allows then is a part of the grammar that depends on
// nothing that was asked before, and lets the text go on where a byte may follow.
TEST(GrammarMasks, AnAmbiguousGrammarCostsNobodyTheirTime) {
  std::vector<std::string> words;
  for (int i = 0; i < 3000; ++i) {
    std::string word;
    for (int letter = 0, rest = i * 7919; letter < 8; ++letter, rest /= 3) {
      word += static_cast<char>('a' + (rest + letter) % 26);
    }
    words.push_back(word);
  }
  const auto vocabulary = ByteVocabulary(words);
  for (const char* letter : {"[a-z]", R"([^"\\\x00-\x1F])"}) {
    const auto grammar = AmbiguousGrammar(letter);
    GrammarMasks masks(grammar, vocabulary);
    GrammarMasks small(grammar, vocabulary, 1 << 16);  // forgets before every mask
    bool was_cut = false;
    bool was_alive = false;
    std::string text;
    for (int step = 0; step < 8; ++step, text += static_cast<char>('a' + step)) {
      auto state = masks.Advance(masks.start(), text);
      if (state == GrammarAutomaton::kDead) break;
      const TokenMask mask = masks.Mask(&state);
      auto other = small.Advance(small.start(), text);
      EXPECT_EQ(small.Mask(&other), mask) << step;
      int64_t allowed = 0;
      bool may_go_on = false;
      for (Token token = 0; token < static_cast<Token>(vocabulary->size()); ++token) {
        if (vocabulary->IsEnd(token)) continue;
        const std::string_view bytes = vocabulary->bytes(token);
        allowed += mask.Test(token);
        if (bytes.size() != 1) continue;
        auto before = small.Advance(small.start(), text);
        const bool may_follow = small.Advance(before, bytes) != GrammarAutomaton::kDead;
        may_go_on |= may_follow;
        EXPECT_TRUE(may_follow || !mask.Test(token)) << bytes;
      }
      EXPECT_EQ(allowed > 0, may_go_on) << text;
      was_alive |= step > 0 && allowed > 0;
      was_cut |= allowed > 0 && allowed < 3000;
    }
    EXPECT_TRUE(was_cut);
    EXPECT_TRUE(was_alive);
  }
}

TEST(GrammarMasks, EqualBruteForceAlongRandomWalks) {
  const auto vocabulary = TestVocabulary();
  for (const char* gbnf : kGrammars) {
    const auto grammar = FromGbnf(gbnf);
    GrammarMasks masks(grammar, vocabulary);
    GrammarMasks small(grammar, vocabulary, 1);  // forgets whenever it may
    for (uint64_t seed = 0; seed < 8; ++seed) {
      SCOPED_TRACE(std::string(gbnf) + " seed " + std::to_string(seed));
      GrammarMatcher matcher(&masks);
      GrammarMatcher forgetful(&small);
      std::string text;
      for (int i = 0; i < 25 && !matcher.ended(); ++i) {
        const TokenMask expected = BruteForceMask(grammar, *vocabulary, text);
        ASSERT_EQ(matcher.Mask(), expected) << text;
        ASSERT_EQ(forgetful.Mask(), expected) << text;
        GrammarMatcher copy = matcher;
        text += RandomWalk(&matcher, *vocabulary, seed * 1000 + static_cast<uint64_t>(i), 1).text;
        RandomWalk(&forgetful, *vocabulary, seed * 1000 + static_cast<uint64_t>(i), 1);
        ASSERT_EQ(copy.Mask(), expected) << text;  // a copy stays where it was
      }
    }
  }
}

TEST(GrammarMasks, AcceptAgreesWithTheMask) {
  const auto vocabulary = TestVocabulary();
  for (const char* gbnf : kGrammars) {
    GrammarMasks masks(FromGbnf(gbnf), vocabulary);
    GrammarMatcher matcher(&masks);
    RandomWalk(&matcher, *vocabulary, 5, 6);
    if (matcher.ended()) matcher.Rollback(1);
    const TokenMask mask = matcher.Mask();
    for (Token token = -1; token <= static_cast<Token>(vocabulary->size()); ++token) {
      GrammarMatcher copy = matcher;
      EXPECT_EQ(copy.Accept(token), mask.Test(token)) << gbnf << " token " << token;
      EXPECT_EQ(copy.accepted(), matcher.accepted() + (mask.Test(token) ? 1 : 0));
    }
  }
}

TEST(GrammarMatcher, RollsBackToTheSameMasks) {
  const auto vocabulary = TestVocabulary();
  for (const size_t cache_bytes : {size_t{1}, GrammarMasks::kDefaultCacheBytes}) {
    GrammarMasks masks(FromGbnf(kGrammars[1]), vocabulary, cache_bytes);
    GrammarMatcher matcher(&masks);
    std::vector<TokenMask> history;
    for (uint64_t i = 0; i < 30 && !matcher.ended(); ++i) {
      history.push_back(matcher.Mask());
      RandomWalk(&matcher, *vocabulary, i, 1);
    }
    while (matcher.accepted() > 0) {
      matcher.Rollback(1);
      EXPECT_FALSE(matcher.ended());
      EXPECT_EQ(matcher.Mask(), history[matcher.accepted()]);
    }
  }
}

TEST(GrammarMatcher, MatchersThatShareMasksDoNotDisturbEachOther) {
  const auto vocabulary = TestVocabulary();
  const auto grammar = FromGbnf(kGrammars[1]);
  GrammarMasks shared(grammar, vocabulary, 1);
  std::vector<GrammarMatcher> matchers(4, GrammarMatcher(&shared));
  std::vector<std::string> texts(matchers.size());
  for (uint64_t round = 0; round < 20; ++round) {
    for (size_t i = 0; i < matchers.size(); ++i) {
      if (matchers[i].ended()) continue;
      ASSERT_EQ(matchers[i].Mask(), BruteForceMask(grammar, *vocabulary, texts[i])) << texts[i];
      texts[i] += RandomWalk(&matchers[i], *vocabulary, round * 10 + i, 1).text;
    }
  }
}

TEST(GrammarMatcher, EndsWithAnEndTokenOnlyWhereTheTextMayEnd) {
  const auto vocabulary = ByteVocabulary({});
  GrammarMasks masks(FromGbnf("root ::= \"ab\""), vocabulary);
  GrammarMatcher matcher(&masks);
  EXPECT_FALSE(matcher.CanEnd());
  EXPECT_FALSE(matcher.Accept(EndToken(*vocabulary)));
  EXPECT_TRUE(matcher.Accept('a'));
  EXPECT_FALSE(matcher.Accept('a'));
  EXPECT_TRUE(matcher.Accept('b'));
  EXPECT_TRUE(matcher.CanEnd());
  EXPECT_FALSE(matcher.IsDead());
  EXPECT_TRUE(matcher.Accept(EndToken(*vocabulary)));
  EXPECT_TRUE(matcher.ended());
  EXPECT_TRUE(matcher.IsDead());
  EXPECT_FALSE(matcher.Accept('a'));
  matcher.Rollback(1);
  EXPECT_TRUE(matcher.CanEnd());
  EXPECT_FALSE(matcher.ended());
}

TEST(GrammarMatcher, IsDeadWhereTheVocabularyLacksTheBytes) {
  const auto vocabulary = std::make_shared<const GrammarVocabulary>(
      std::vector<std::string>{"a", "b"}, std::span<const Token>());
  GrammarMasks masks(FromGbnf("root ::= \"ac\""), vocabulary);
  GrammarMatcher matcher(&masks);
  EXPECT_FALSE(matcher.IsDead());
  ASSERT_TRUE(matcher.Accept(0));
  EXPECT_TRUE(matcher.IsDead());
}

TEST(TokenMask, AppliesToLogitsAndTheRowsBeyond) {
  TokenMask mask(70);
  mask.Set(0);
  mask.Set(69);
  std::vector<float> logits(80, 1.0f);
  mask.Apply(logits);
  for (size_t i = 0; i < logits.size(); ++i) {
    EXPECT_EQ(logits[i], i == 0 || i == 69 ? 1.0f : -std::numeric_limits<float>::infinity());
  }
  EXPECT_EQ(mask.Count(), 2u);
  EXPECT_FALSE(mask.None());
  EXPECT_TRUE(TokenMask(70).None());
}

}  // namespace
}  // namespace kvasir
