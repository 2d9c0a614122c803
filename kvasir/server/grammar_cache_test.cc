#include "kvasir/server/grammar_cache.h"

#include <gtest/gtest.h>

#include "kvasir/server/test_model.h"

namespace kvasir {
namespace {

TEST(GrammarCache, CompilesOnceAndForgetsTheLeastRecentlyUsed) {
  const auto bundle = LoadTestModel();
  ASSERT_TRUE(bundle.ok());
  GrammarCache cache((*bundle)->tokenizer(), (*bundle)->stop_tokens(), {}, {.max_grammars = 2});
  int builds = 0;
  const auto get = [&](const std::string& text) {
    return cache.Get(text, [&] {
      ++builds;
      return Grammar::FromGbnf(text);
    });
  };
  const auto a = get("root ::= \"a\"");
  ASSERT_TRUE(a.ok());
  EXPECT_EQ(*get("root ::= \"a\""), *a);
  EXPECT_EQ(builds, 1);
  ASSERT_TRUE(get("root ::= \"b\"").ok());
  ASSERT_TRUE(get("root ::= \"a\"").ok());
  ASSERT_TRUE(get("root ::= \"c\"").ok());  // "b" goes
  EXPECT_EQ(cache.size(), 2u);
  EXPECT_EQ(builds, 3);
  EXPECT_EQ(*get("root ::= \"a\""), *a);
  EXPECT_EQ(builds, 3);
  ASSERT_TRUE(get("root ::= \"b\"").ok());
  EXPECT_EQ(builds, 4);
}

TEST(GrammarCache, ErrorsAreNotRemembered) {
  const auto bundle = LoadTestModel();
  ASSERT_TRUE(bundle.ok());
  GrammarCache cache((*bundle)->tokenizer(), {});
  EXPECT_FALSE(cache.Get("x", [] { return Grammar::FromGbnf("root ::= ("); }).ok());
  EXPECT_TRUE(cache.Get("x", [] { return Grammar::FromGbnf("root ::= \"x\""); }).ok());
}

}  // namespace
}  // namespace kvasir
