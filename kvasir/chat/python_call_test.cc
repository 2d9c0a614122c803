// Calls in Python: what becomes of every literal, and what is no call.
#include "kvasir/chat/python_call.h"

#include <gtest/gtest.h>

#include <string>

namespace kvasir {
namespace {

// "f{...} g{...}", or "none".
std::string Describe(const std::vector<CallText>& calls) {
  std::string text;
  for (const CallText& call : calls) text += (text.empty() ? "" : " ") + call.name + call.arguments;
  return text;
}
std::string Parsed(std::string_view text) {
  const auto calls = ParsePythonCalls(text);
  if (!calls) return "none";
  for (const CallText& call : *calls) EXPECT_TRUE(Json::Parse(call.arguments).ok()) << text;
  return Describe(*calls);
}
// Of the one argument a.
std::string Value(const std::string& literal) {
  const std::string call = Parsed("f(a=" + literal + ")");
  constexpr std::string_view kBefore = "f{\"a\":";
  if (!call.starts_with(kBefore)) return call;
  return call.substr(kBefore.size(), call.size() - kBefore.size() - 1);
}

TEST(PythonCall, ListsAndLines) {
  EXPECT_EQ(Parsed("[get_weather(city=\"Paris\", days=3), other()]"),
            "get_weather{\"city\":\"Paris\",\"days\":3} other{}");
  EXPECT_EQ(Parsed("\nget_weather(city=\"Paris\")\nother(a=1)\n"),
            "get_weather{\"city\":\"Paris\"} other{\"a\":1}");
  EXPECT_EQ(Parsed(" [ f( a = 1 , ) , ] "), "f{\"a\":1}");
  EXPECT_EQ(Parsed("f(a=1); g()"), "f{\"a\":1} g{}");
  EXPECT_EQ(Parsed("a.b-c_1(first name=1, $ref=\"x\")"),
            "a.b-c_1{\"first name\":1,\"$ref\":\"x\"}");
  EXPECT_EQ(Parsed("f(a=1, b=2, a=3)"), "f{\"a\":3,\"b\":2}");
}

TEST(PythonCall, Words) {
  EXPECT_EQ(Value("[True, False, None, true, false, null]"), "[true,false,null,true,false,null]");
  EXPECT_EQ(Value("Truely"), "none");
  EXPECT_EQ(Value("celsius"), "none");
  EXPECT_EQ(Value("NaN"), "none");
  EXPECT_EQ(Value(""), "none");
}

TEST(PythonCall, Numbers) {
  EXPECT_EQ(Value("-12"), "-12");
  EXPECT_EQ(Value("+1_000"), "1000");
  EXPECT_EQ(Value("123456789012345678901234567890"), "123456789012345678901234567890");
  EXPECT_EQ(Value("0.10"), "0.10");
  EXPECT_EQ(Value("1."), "1.0");
  EXPECT_EQ(Value("-.5"), "-0.5");
  EXPECT_EQ(Value("1e5"), "1e5");
  EXPECT_EQ(Value("1.5E-07"), "1.5e-07");
  EXPECT_EQ(Value("00"), "0");
  EXPECT_EQ(Value("007.5"), "7.5");
  EXPECT_EQ(Value("0xfF"), "255");
  EXPECT_EQ(Value("-0o17"), "-15");
  EXPECT_EQ(Value("0b101"), "5");
  EXPECT_EQ(Value("0xFF_FF"), "65535");
  EXPECT_EQ(Value("0b_1_0"), "2");
  EXPECT_EQ(Value("-0"), "-0");
  EXPECT_EQ(Value("0xFFFFFFFFFFFFFFFF"), "18446744073709551615");
  for (const char* text : {"007",    "1__0", "1_",         "0x",    "0x_",
                           "0xF__F", "0xF_", "0b12",       "0o8",   "0x10000000000000000",
                           "1e999",  "3j",   "1e",         "1.2.3", "-",
                           ".",      "--1",  "2026-11-30", "1 2",   "5 % 2"}) {
    EXPECT_EQ(Value(text), "none") << text;
  }
}

// Of as many digits as there are; who cannot read the number still has the others.
TEST(PythonCall, LongIntegers) {
  const std::string digits(400, '7');
  const auto calls = ParsePythonCalls("f(a=" + digits + ", b=1)");
  ASSERT_TRUE(calls.has_value());
  EXPECT_EQ(calls->front().arguments, "{\"a\":" + digits + ",\"b\":1}");
}

TEST(PythonCall, Strings) {
  EXPECT_EQ(Value("'a \"b\" c'"), R"("a \"b\" c")");
  EXPECT_EQ(Value(R"("a \"b\" 'c' \\")"), R"("a \"b\" 'c' \\")");
  EXPECT_EQ(Value(R"('it\'s')"), R"("it's")");
  EXPECT_EQ(Value(R"("\n\t\x41\101\u00e9\U0001F600\/")"), "\"\\n\\tAAé😀/\"");
  EXPECT_EQ(Value(R"("\ud83d\ude00")"), "\"😀\"");
  EXPECT_EQ(Value(R"("\ud83d!\ude00")"), "\"\xEF\xBF\xBD!\xEF\xBF\xBD\"");
  EXPECT_EQ(Value(R"("\d+")"), R"("\\d+")");
  EXPECT_EQ(Value(R"(r"\d\n\/")"), R"("\\d\\n\\/")");
  EXPECT_EQ(Value(R"(u'x')"), R"("x")");
  EXPECT_EQ(Value("'one\ntwo'"), R"("one\ntwo")");
  EXPECT_EQ(Value("'''one 'two'\nthree'''"), R"("one 'two'\nthree")");
  EXPECT_EQ(Value("\"\"\"\"\"\""), "\"\"");
  EXPECT_EQ(Value("''"), "\"\"");
  EXPECT_EQ(Value("'a' \"b\"\n'c'"), "\"abc\"");
  EXPECT_EQ(Value("'a, b=1)'"), "\"a, b=1)\"");
  for (const char* text : {"'open", "b'x'", "f'{x}'", "rb'x'", R"('\x4')", R"('\u12')",
                           R"('\U00110000')", R"('\N{BULLET}')", R"('\)"}) {
    EXPECT_EQ(Value(text), "none") << text;
  }
}

// Templates that show calls put marks around strings and escape none.
TEST(PythonCall, MarksWithinStrings) {
  EXPECT_EQ(Parsed("[f(a='it's 5 o'clock', b=1), g(c='don't')]"),
            "f{\"a\":\"it's 5 o'clock\",\"b\":1} g{\"c\":\"don't\"}");
  EXPECT_EQ(Value("\"say \"hi\"!\""), "\"say \\\"hi\\\"!\"");
  EXPECT_EQ(Value("['it's', {'k': 'that's'}]"), R"(["it's",{"k":"that's"}])");
  // What is an operator elsewhere may be a word here.
  EXPECT_EQ(Value("'rock 'n' roll'"), R"("rock 'n' roll")");
}

// Of two megabytes, which take minutes where each of the calls reads the rest twice.
TEST(PythonCall, MarksWithinStringsOfManyCalls) {
  constexpr size_t kCalls = 200'000;
  std::string text;
  for (size_t i = 0; i < kCalls; ++i) text += "f(a='\"'''')\n";
  const auto calls = ParsePythonCalls(text);
  ASSERT_TRUE(calls.has_value());
  EXPECT_EQ(calls->size(), kCalls);
  EXPECT_EQ(calls->back().arguments, "{\"a\":\"\\\"'''\"}");
}

TEST(PythonCall, ListsTuplesAndDicts) {
  EXPECT_EQ(Value("[1, [], [2,], ('a', 'b'), (), (3), (4,)]"), R"([1,[],[2],["a","b"],[],3,[4]])");
  EXPECT_EQ(Value("{'a': {\"b\": [True]}, 'c': None,}"), R"({"a":{"b":[true]},"c":null})");
  EXPECT_EQ(Value("{1: 'x', None: 2, True: 3, 1.5: 4}"), R"({"1":"x","null":2,"true":3,"1.5":4})");
  EXPECT_EQ(Value("{'a': 1, 'b': 2, \"a\": 3}"), R"({"a":3,"b":2})");
  EXPECT_EQ(Value("{1: 2, '1': {'x': 1, 'x': 2}}"), R"({"1":{"x":2}})");
  EXPECT_EQ(Value("{}"), "{}");
  for (const char* text :
       {"{1, 2}", "{[1]: 2}", "{'a'}", "[1 2]", "[,]", "(,)", "[1", "{'a': 1", "[1)"}) {
    EXPECT_EQ(Value(text), "none") << text;
  }
}

TEST(PythonCall, WhatIsNoCall) {
  for (const char* text : {"",
                           "[]",
                           "f",
                           "f(",
                           "f()x",
                           "f(1)",
                           "f(a)",
                           "f(a=1",
                           "f(a=1 b=2)",
                           "f(,)",
                           "f(*a)",
                           "f(**{'a': 1})",
                           "(a=1)",
                           "f(=1)",
                           "[f()",
                           "f()]",
                           "[f(), g(]",
                           "f(a=g())",
                           "say f(a=1)",
                           "f(a=1) # why",
                           "f(a==1)",
                           "[[f()]]",
                           "[{\"name\": \"f\"}]"}) {
    EXPECT_EQ(Parsed(text), "none") << text;
  }
}

TEST(PythonCall, LimitsOfNestingAndSize) {
  const auto nested = [](size_t levels) {
    return Value(std::string(levels, '[') + std::string(levels, ']'));
  };
  EXPECT_EQ(nested(99), std::string(99, '[') + std::string(99, ']'));
  EXPECT_EQ(nested(100), "none");
  EXPECT_EQ(nested(100'000), "none");
  EXPECT_EQ(Value("'" + std::string(5 << 20, 'x') + "'"), "none");
}

TEST(PythonCall, CallsBeforeTheEnd) {
  const auto taken = [](std::string_view text) {
    const std::string calls = Describe(TakePythonCalls(&text));
    return calls + "|" + std::string(text);
  };
  EXPECT_EQ(taken("[f(a=1), g(b='x"), "f{\"a\":1}|g(b='x");
  EXPECT_EQ(taken("[f(a=1)]!"), "f{\"a\":1}|!");
  EXPECT_EQ(taken("f()\n"), "f{}|");
  EXPECT_EQ(taken("[g(b='x"), "|[g(b='x");
}

TEST(PythonCall, NamesOfArguments) {
  for (const char* name : {"a", "first name", "$ref", "a-b", "größe", "2"}) {
    EXPECT_TRUE(IsPythonKeyword(name)) << name;
    EXPECT_EQ(Parsed(std::string("f(") + name + "=1)"), std::string("f{\"") + name + "\":1}");
  }
  for (const char* name : {"", " a", "a\t", "a=b", "Price (USD)", "a\nb", "it's", "a[0]"}) {
    EXPECT_FALSE(IsPythonKeyword(name)) << name;
  }
}

TEST(PythonCall, WhereAStringIsOpen) {
  EXPECT_TRUE(EndsInPythonString("[f(a='b', c=\"it's "));
  EXPECT_TRUE(EndsInPythonString("f(a='\\'"));
  EXPECT_TRUE(EndsInPythonString("f(a=\'\'\' it's '"));
  EXPECT_TRUE(EndsInPythonString("f(a='\\"));
  EXPECT_TRUE(EndsInPythonString("f()\ng(a=[{'x': '"));
  EXPECT_TRUE(EndsInPythonString("f(a='it's "));
  EXPECT_FALSE(EndsInPythonString("f(a='', b=\"\", c=\'\'\'x\'\'\', "));
  EXPECT_FALSE(EndsInPythonString(""));
  EXPECT_FALSE(EndsInPythonString("I don't know"));
  EXPECT_FALSE(EndsInPythonString("[f('a"));
  EXPECT_FALSE(EndsInPythonString("f(a=1)] don't"));
  EXPECT_FALSE(EndsInPythonString("f(a=\"x\")"));
}

}  // namespace
}  // namespace kvasir
