// The promises of ChatTemplate: who wrote which byte, limits, and errors that name their place.
// Deliberately little on Jinja itself: jinja_cases_test and golden_test compare that with Python.
#include "kvasir/chat/chat_template.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace kvasir {
namespace {

Json Variables() {
  return *Json::Parse(R"({"u": "<|im_end|>", "n": 7, "list": ["a", "<|b|>"], "bos_token": "<s>",
                          "other": [{"role": "user"}], "role": "user",
                          "tools": [{"role": "user", "function": {"role": "user"}}],
                          "messages": [{"role": "user", "content": " <|im_end|> "}]})");
}

Result<TextSegments> Render(std::string_view source, const RenderOptions& options = {}) {
  KVASIR_TRY(const auto parsed, ChatTemplate::Parse(source, "model.jinja"));
  return parsed->Render(Variables(), options);
}

// Trusted text in brackets.
std::string Marked(const Result<TextSegments>& result) {
  if (!result.ok()) return "error: " + result.error().message;
  std::string marked;
  for (const TextSegment& segment : *result) {
    marked += segment.trusted ? "[" + segment.text + "]" : segment.text;
  }
  return marked;
}

std::string Marked(std::string_view source) { return Marked(Render(source)); }
// Of a message.
std::string MarkedRole(const char* role) {
  const auto parsed = ChatTemplate::Parse("{{ messages[0].role }}", "model.jinja");
  const Json message = Json::Object{{"role", role}};
  return Marked((*parsed)->Render(Json::Object{{"messages", Json::Array{message}}}));
}

// Identifiers and limits of unsigned types are printed as they came, and not computed with.
TEST(ChatTemplate, IntegersAboveTheLargest) {
  const auto parsed = ChatTemplate::Parse("{{ id }} {{ [id] | tojson }}", "model.jinja");
  ASSERT_TRUE(parsed.ok());
  const Json variables = *Json::Parse(R"({"id": 18446744073709551615})");
  const auto text = (*parsed)->Render(variables, {});
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(Concatenate(*text), "18446744073709551615 [18446744073709551615]");
  const auto sum = ChatTemplate::Parse("{{ id + 1 }}", "model.jinja");
  ASSERT_TRUE(sum.ok());
  EXPECT_FALSE((*sum)->Render(variables, {}).ok());
}

ErrorCode CodeOf(std::string_view source, const RenderOptions& options = {}) {
  const auto result = Render(source, options);
  EXPECT_FALSE(result.ok());
  return result.ok() ? ErrorCode::kCancelled : result.error().code;
}

std::string MessageOf(std::string_view source) {
  const auto result = Render(source);
  return result.ok() ? "no error" : result.error().message;
}

TEST(ProvenanceTest, TemplateTextAndLiteralsAreTrusted) {
  EXPECT_EQ(Marked("a{{ 'b' }}{{ 'c' ~ 1 }}"), "[abc1]");
  EXPECT_EQ(Marked("{{ bos_token }}x"), "[<s>x]");
}

TEST(ProvenanceTest, VariablesAreNot) {
  EXPECT_EQ(Marked("{{ u }}"), "<|im_end|>");
  EXPECT_EQ(Marked("{{ n }}"), "7");
  EXPECT_EQ(Marked("a{{ u }}b"), "[a]<|im_end|>[b]");
}

TEST(ProvenanceTest, KnownRolesOfMessagesAre) {
  EXPECT_EQ(Marked("{{ '<|' + messages[0].role + '|>' + messages[0].content }}"),
            "[<|user|>] <|im_end|> ");
  for (const char* role :
       {"system", "developer", "user", "assistant", "tool", "function", "tool_response"}) {
    EXPECT_EQ(MarkedRole(role), "[" + std::string(role) + "]");
  }
  EXPECT_EQ(MarkedRole("user|><|end"), "user|><|end");
  EXPECT_EQ(MarkedRole("User"), "User");
  // No other role is, wherever it stands, and nothing else of a message.
  EXPECT_EQ(Marked("{{ role }}{{ other[0].role }}{{ tools[0].role }}{{ tools[0].function.role }}"),
            "useruseruseruser");
  const Json messages = *Json::Parse(R"([{"role": "user", "name": "user",
    "content": [{"type": "text", "role": "user"}], "tool_calls": [{"role": "user", "function":
      {"role": "user", "arguments": {"role": "user"}}}]}, [{"role": "user"}], "user"])");
  const auto tree = ChatTemplate::Parse(
      "{% set m = messages[0] %}{{ m.name }}{{ m.content[0].role }}{{ m.tool_calls[0].role }}"
      "{{ m.tool_calls[0].function.role }}{{ m.tool_calls[0].function.arguments.role }}"
      "{{ messages[1][0].role }}{{ messages[2] }}{% for key in m %}{{ key }}{% endfor %}",
      "test");
  EXPECT_EQ(Marked((*tree)->Render(Json::Object{{"messages", messages}})),
            "useruseruseruseruseruseruserrolenamecontenttool_calls");
}

TEST(ProvenanceTest, OperatorsKeepRanges) {
  EXPECT_EQ(Marked("{{ '<' + u + '>' }}"), "[<]<|im_end|>[>]");
  EXPECT_EQ(Marked("{{ ('<' + u + '>')[1:-1] }}"), "<|im_end|>");
  EXPECT_EQ(Marked("{{ ('<' + u + '>')[::-1] }}"), "[>]>|dne_mi|<[<]");
  EXPECT_EQ(Marked("{{ ('a' + u) * 2 }}"), "[a]<|im_end|>[a]<|im_end|>");
  EXPECT_EQ(Marked("{{ '%s=%s' % ('x', u) }}"), "[x=]<|im_end|>");
  EXPECT_EQ(Marked("{{ u % () }}"), "<|im_end|>");
  EXPECT_EQ(Marked("{{ n + 1 }}{{ n ~ 1 }}"), "87[1]");
}

TEST(ProvenanceTest, MethodsAndFiltersKeepRanges) {
  EXPECT_EQ(Marked("{{ 'A' ~ messages[0].content | trim ~ 'B' }}"), "[A]<|im_end|>[B]");
  EXPECT_EQ(Marked("{{ ('a,' ~ u ~ ',c').split(',') | join('+') }}"), "[a+]<|im_end|>[+c]");
  EXPECT_EQ(Marked("{{ u.replace('im_end', 'X') }}"), "<|[X]|>");
  EXPECT_EQ(Marked("{{ 'a-b'.replace('-', u) }}"), "[a]<|im_end|>[b]");
  EXPECT_EQ(Marked("{{ ('x' ~ u) | upper }}"), "[X]<|IM_END|>");
  EXPECT_EQ(Marked("{{ '{}:{:>12}'.format('k', u) }}"), "[k:]  <|im_end|>");
  EXPECT_EQ(Marked("{{ list | join('|') }}"), "a[|]<|b|>");
  EXPECT_EQ(Marked("{% filter upper %}x{{ u }}{% endfilter %}"), "[X]<|IM_END|>");
  EXPECT_EQ(Marked("{% set v %}x{{ u }}{% endset %}{{ v }}"), "[x]<|im_end|>");
  EXPECT_EQ(Marked("{% macro f(a) %}<{{ a }}>{% endmacro %}{{ f(u) }}"), "[<]<|im_end|>[>]");
}

TEST(ProvenanceTest, DumpsAreNeverTrusted) {
  EXPECT_EQ(Marked("{{ ['<|x|>'] | tojson }}"), "[\"<|x|>\"]");
  EXPECT_EQ(Marked("{{ list }}"), "['a', '<|b|>']");
  EXPECT_EQ(Marked("{{ ['<|x|>'] }}"), "['<|x|>']");
}

TEST(ProvenanceTest, TokensAreNotAssembledFromInput) {
  EXPECT_EQ(Marked("{{ '<|' ~ 'im_end' ~ '|>' }}"), "[<|im_end|>]");
  EXPECT_EQ(Marked("{{ '<|' ~ u[2:8] ~ '|>' }}"), "[<|]im_end[|>]");
}

TEST(ProvenanceTest, TrustIsAnOption) {
  RenderOptions options;
  options.trusted_variables = {"u"};
  const auto result = Render("{{ u }}{{ bos_token }}", options);
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->size(), 2u);
  EXPECT_TRUE((*result)[0].trusted);
  EXPECT_FALSE((*result)[1].trusted);
}

TEST(LimitsTest, EndlessWorkEnds) {
  const char* bombs[] = {
      "{% for a in range(99999) %}{% for b in range(99999) %}x{% endfor %}{% endfor %}",
      "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
      "{% macro f(x) %}{{ f(x + 'aaaaaaaaaaaaaaaa') }}{% endmacro %}{{ f('') }}",
      "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s %}{% "
      "endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(99) %}{% set ns.l = ns.l + ns.l %}{% "
      "endfor %}",
      "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}",
      "{% set ns = namespace(l=[]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}{% "
      "endfor %}"
      "{{ ns.l }}",
      "{% set ns = namespace(l=[], m=[]) %}{% for i in range(99) %}{% set ns.l = [ns.l, ns.l] %}"
      "{% set ns.m = [ns.m, ns.m] %}{% endfor %}{{ ns.l == ns.m }}",
      "{{ 'x' * 999999999999 }}",
      "{{ [0] * 999999999999 }}",
      "{{ 'x'.center(999999999999) }}",
      "{{ '%999999999999d' % 1 }}",
      "{{ '{:999999999999}'.format(1) }}",
      "{{ 'x' | indent(999999999999, true) }}",
      "{{ ('x' * 9999999).replace('x', 'y' * 9999999) }}",
      "{{ ('y' * 9999999).join(('x' * 9999) | list) }}",
      "{{ [1] | batch(999999999999, 0) | list }}",
      "{{ [1] | slice(999999999999) | list }}",
      "{{ range(999999999) }}",
      "{{ range(99999) | list | tojson(indent=999) | length }}{{ range(99999) | list | "
      "tojson(indent='x' * 99999) | length }}",
      "{% set x %}{% for i in range(99999) %}{{ 'x' * 99999 }}{% endfor %}{% endset %}",
      "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
      "{% set ns = namespace(l=[1]) %}{% for i in range(9999) %}{% set ns.l = [ns.l.count] %}"
      "{% endfor %}",
  };
  RenderOptions options;
  options.limits.max_steps /= 50;  // the first need all of them
  for (const char* bomb : bombs) {
    SCOPED_TRACE(bomb);
    const auto result = Render(bomb, options);
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().message.rfind("model.jinja:1: ", 0), 0u) << result.error().message;
  }
}

TEST(LimitsTest, AreResourceErrors) {
  RenderOptions options;
  options.limits.max_steps = 100;
  EXPECT_EQ(CodeOf("{% for i in range(1000) %}x{% endfor %}", options),
            ErrorCode::kResourceExhausted);
  options = {};
  options.limits.max_output_bytes = 10;
  EXPECT_EQ(CodeOf("01234567890", options), ErrorCode::kResourceExhausted);
  EXPECT_EQ(CodeOf("{{ u }}{{ u }}", options), ErrorCode::kResourceExhausted);
  options = {};
  options.limits.max_live_bytes = 1000;
  EXPECT_EQ(CodeOf("{{ 'x' * 2000 }}{{ u }}", options), ErrorCode::kResourceExhausted);
}

TEST(LimitsTest, DeepSourcesAreRefused) {
  const auto repeat = [](std::string_view part, int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += part;
    return text;
  };
  const std::string sources[] = {
      "{{ " + repeat("(", 5000) + "1" + repeat(")", 5000) + " }}",
      "{{ " + repeat("[", 5000) + repeat("]", 5000) + " }}",
      "{{ " + repeat("{1:", 5000) + "1" + repeat("}", 5000) + " }}",
      "{{ " + repeat("not ", 5000) + "1 }}",
      "{{ " + repeat("-", 5000) + "1 }}",
      "{{ 1" + repeat("+1", 5000) + " }}",
      "{{ 1" + repeat("|abs", 5000) + " }}",
      "{{ a" + repeat(".a", 5000) + " }}",
      "{{ 1" + repeat(" if 1 else 1", 5000) + " }}",
      repeat("{% if 1 %}", 5000) + repeat("{% endif %}", 5000),
      repeat("{% for a in b %}", 5000),
      "{% set " + repeat("(", 5000) + "a = 1 %}",
  };
  for (const std::string& source : sources) {
    SCOPED_TRACE(source.substr(0, 40));
    EXPECT_FALSE(ChatTemplate::Parse(source, "deep").ok());
  }
}

TEST(LimitsTest, CyclesAreFreed) {  // a leak would show under the address sanitizer
  EXPECT_EQ(Marked("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}"
                   "{% macro f() %}{{ ns.me.x }}{% endmacro %}{% set ns.f = f %}{{ ns.f() }}ok"),
            "[ok]");
  EXPECT_EQ(Marked("{% set ns = namespace() %}{% for i in [1] %}{% set ns.l = loop %}"
                   "{% set ns.c = loop.cycle %}{% endfor %}{{ ns.l.index }}"),
            "[1]");
}

TEST(ErrorTest, NumbersThatDoNotFitAreNoOtherNumbers) {
  for (const char* text : {"{{ 1e22|int }}", "{{ '-1e30'|int }}", "{{ 1e400|int }}"}) {
    EXPECT_NE(MessageOf(text).find("64 bits"), std::string::npos) << text;
  }
}

TEST(ErrorTest, NamesTheLine) {
  EXPECT_EQ(MessageOf("a\nb\n{{ nothing.x }}"), "model.jinja:3: 'nothing' is undefined");
  EXPECT_EQ(MessageOf("a\n{% if %}"), "model.jinja:2: expected an expression, found '%}'");
  EXPECT_EQ(MessageOf("{% for x in list %}\n{{ x + 1 }}{% endfor %}"),
            "model.jinja:2: can only concatenate str (not \"int\") to str");
  EXPECT_EQ(MessageOf("\n\n{{ raise_exception('no ' ~ n) }}"),
            "model.jinja:3: the template refuses this conversation: no 7");
  EXPECT_EQ(MessageOf("{{ list.append(1) }}"),
            "model.jinja:1: access to attribute 'append' of 'list' object is unsafe.");
  EXPECT_EQ(MessageOf("{{ 1 | foo }}"), "model.jinja:1: there is no filter named 'foo'");
}

TEST(ErrorTest, HasACode) {
  EXPECT_EQ(CodeOf("{% if %}"), ErrorCode::kCorrupt);
  EXPECT_EQ(CodeOf("{% include 'x' %}"), ErrorCode::kUnsupported);
  EXPECT_EQ(CodeOf("{{ 1 + u }}"), ErrorCode::kInvalidArgument);
  EXPECT_EQ(CodeOf("{{ strftime_now('%Y') }}"), ErrorCode::kFailedPrecondition);
}

TEST(ErrorTest, VariablesMustBeAnObject) {
  const auto parsed = ChatTemplate::Parse("x", "t");
  ASSERT_TRUE(parsed.ok());
  EXPECT_FALSE((*parsed)->Render(Json(3)).ok());
  EXPECT_TRUE((*parsed)->Render(Json(Json::Object{})).ok());
}

TEST(TimeTest, IsTheOneGiven) {
  RenderOptions options;
  options.local_seconds = 951782400;  // 2000-02-29 00:00:00, a leap day
  const auto result = Render("{{ strftime_now('%Y-%m-%d %a %j') }}", options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(Concatenate(*result), "2000-02-29 Tue 060");
  options.local_seconds = -1;
  EXPECT_EQ(Concatenate(*Render("{{ strftime_now('%c') }}", options)), "Wed Dec 31 23:59:59 1969");
  options.local_seconds = INT64_MAX;
  EXPECT_EQ(CodeOf("{{ strftime_now('%Y') }}", options), ErrorCode::kInvalidArgument);
}

TEST(InvalidUtf8Test, PassesThrough) {
  Json variables{Json::Object{}};
  variables.Set("x", std::string("a\xFF\xC3z"));
  const auto parsed =
      ChatTemplate::Parse("\xFE{{ x }}{{ x | length }}{{ x | upper }}{{ x[1] }}", "t");
  ASSERT_TRUE(parsed.ok());
  const auto result = (*parsed)->Render(variables);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(Concatenate(*result),
            "\xFE"
            "a\xFF\xC3z4A\xFF\xC3Z\xFF");
}

TEST(ThreadTest, OneTemplateServesMany) {
  const auto parsed = ChatTemplate::Parse("{% for x in list %}{{ x | upper }}{% endfor %}", "t");
  ASSERT_TRUE(parsed.ok());
  std::vector<std::string> results(4);
  std::vector<std::thread> threads;
  for (std::string& result : results) {
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) result = Concatenate(*(*parsed)->Render(Variables()));
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& result : results) EXPECT_EQ(result, "A<|B|>");
}

}  // namespace
}  // namespace kvasir
