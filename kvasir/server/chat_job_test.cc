#include "kvasir/server/chat_job.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/server/chat_request.h"
#include "kvasir/server/dialect_messages.h"
#include "kvasir/server/server_context.h"
#include "kvasir/server/test_model.h"
#include "kvasir/server/tool_request.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

std::string AsText(const char* messages) {
  std::string all;
  const Json text = ToolsAsText(*Json::Parse(messages), {});
  for (const Json& message : text.as_array()) {
    all += *message.GetString("role") + ":" + *message.GetString("content") + "|";
  }
  return all;
}

// Many templates refuse two turns of one role.
TEST(ToolsAsTextTest, ResultsAndWhatIsSaidToThemAreOneTurn) {
  EXPECT_EQ(
      AsText(R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"},
                       {"role": "tool", "content": "1"}, {"role": "function", "content": "2"},
                       {"role": "user", "content": "c"}, {"role": "user", "content": "d"}])"),
      "user:a|assistant:b|"
      "user:<tool_response>\n1\n</tool_response>\n<tool_response>\n2\n</tool_response>\nc\nd|");
  // Two turns that somebody sends as two are his.
  EXPECT_EQ(AsText(R"([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}])"),
            "user:a|user:b|");
}

// Templates that write calls without knowing tools would write them once more.
TEST(ToolsAsTextTest, CallsAreTextAndNothingElse) {
  const Json text =
      ToolsAsText(*Json::Parse(R"([{"role": "assistant", "content": null, "tool_calls": [{"id": "1",
        "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}]}])"),
                  {});
  EXPECT_EQ(text.Dump(), R"([{"role":"assistant","content":"<tool_call>\n{\"name\":\"f\",)"
                         R"(\"arguments\":{\"a\":1}}\n</tool_call>"}])");
}

// Each could be held to alone. Nobody who sends them again will have more luck.
TEST(ToolRequestTest, ToolsThatAreTooMuchTogetherAreTheRequestsFault) {
  Json::Array tools;
  for (int tool = 0; tool < 512; ++tool) {
    Json::Object properties;
    for (int property = 0; property < 40; ++property) {
      Json::Array values;
      for (int value = 0; value < 8; ++value) {
        values.push_back("value_" + std::to_string(tool * 1000 + property * 10 + value));
      }
      properties.push_back({"p" + std::to_string(property), Json::Object{{"enum", values}}});
    }
    const Json parameters = Json::Object{{"type", "object"}, {"properties", properties}};
    tools.push_back(Json::Object{{"type", "function"},
                                 {"function", Json::Object{{"name", "f" + std::to_string(tool)},
                                                           {"parameters", parameters}}}});
  }
  const auto request = ParseToolRequest(Json::Object{{"tools", tools}});
  ASSERT_TRUE(request.ok()) << request.error().message;
  GrammarSyntax rules;
  const auto calls = CallsExpr(*request, ToolSyntax::kHermes, CallBegin::kWithOpening, &rules);
  ASSERT_FALSE(calls.ok());
  EXPECT_EQ(calls.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(calls.error().message.find("tools["), std::string::npos) << calls.error().message;
}

// Jobs of a model whose template, `text` behind what the test model's writes, says how it calls.
class JobTest : public testing::Test {
 protected:
  explicit JobTest(const char* text) : template_(text) {}

  void SetUp() override {
    bundle_ = ValueOrDie(LoadTestModel(64 << 20, template_));
    grammars_.emplace(bundle_->tokenizer(), bundle_->stop_tokens());
    context_.bundle = bundle_.get();
    context_.grammars = &*grammars_;
    context_.dialect = DialectOf(bundle_->chat()->source());
  }
  ChatRequest RequestOf(const std::string& more, const std::string& messages = kAsked) {
    return ValueOrDie(
        ParseChatRequest(*Json::Parse("{\"messages\": [" + messages + "]" + more + "}"), {}));
  }
  AnswerJob JobOf(const std::string& more, const std::string& messages = kAsked) {
    AnswerJob job;
    const auto error = MakeChatJob(context_, RequestOf(more, messages), &job);
    EXPECT_FALSE(error.has_value());
    return job;
  }
  // How much of an answer may be said, then whether it may end there: "12 of 30", "30, end".
  static std::string Allowed(const AnswerJob& job, const std::string& answer) {
    const auto constraint = job.constraint->Begin();
    for (size_t i = 0; i < answer.size(); ++i) {
      const auto token = static_cast<Token>(static_cast<unsigned char>(answer[i]));
      std::vector<float> logits(256, 0.0f);
      constraint->Mask(logits);
      if (std::isinf(logits[static_cast<size_t>(token)]) || !constraint->Accept(token)) {
        return "only " + answer.substr(0, i);
      }
    }
    std::vector<float> logits(256, 0.0f);
    constraint->Mask(logits);
    return std::isinf(logits[kEnd]) ? "all" : "all, end";
  }

  static constexpr const char* kAsked = R"({"role": "user", "content": "a"})";
  static constexpr const char* kTools =
      R"(, "tools": [{"type": "function", "function": {"name": "f", "parameters": {
        "type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}}}])";
  static constexpr size_t kEnd = 2;  // the test model's token

  std::unique_ptr<ModelBundle> bundle_;
  std::optional<GrammarCache> grammars_;
  ServerContext context_;

 private:
  const char* const template_;
};

// Granite 3: a mark, then a list.
class GraniteJobTest : public JobTest {
 protected:
  GraniteJobTest()
      : JobTest(
            "{% for t in tools or [] %}{{ t.function.name }}{% endfor %}"
            "{% if messages[-1].role == 'assistant' %}<|tool_call|>{% endif %}") {}
};

TEST_F(GraniteJobTest, CallsAreHeldToTheirSchema) {
  const AnswerJob job = JobOf(std::string(kTools) + R"(, "tool_choice": "required")");
  ASSERT_NE(job.constraint, nullptr);
  const std::string call = R"({"name": "f", "arguments": {"n": 3}})";
  EXPECT_EQ(Allowed(job, "<|tool_call|>[" + call + "]"), "all, end");
  EXPECT_EQ(Allowed(job, "<|tool_call|>[" + call + ", " + call + "]"), "all, end");
  EXPECT_EQ(Allowed(job, "<|tool_call|>" + call), "only <|tool_call|>");
  EXPECT_EQ(Allowed(job, R"(<|tool_call|>[{"name": "g)"), R"(only <|tool_call|>[{"name": ")");
}

// LFM2: marks around calls in Python; of a template that leaves calls out.
class Lfm2JobTest : public JobTest {
 protected:
  Lfm2JobTest()
      : JobTest(
            "{% if tools %}List of tools: {{ tools | tojson }}{% endif %}"
            "{% for m in messages %}{% if m.thinking %}<think>{{ m.thinking }}</think>{% endif %}"
            "{% endfor %}") {}
};

TEST_F(Lfm2JobTest, CallsAreHeldToTheirSchema) {
  const AnswerJob job = JobOf(std::string(kTools) + R"(, "tool_choice": "required")");
  ASSERT_NE(job.constraint, nullptr);
  const std::string open = "<|tool_call_start|>[";
  EXPECT_EQ(Allowed(job, open + "f(n=3), f(n=-4)]<|tool_call_end|>"), "all, end");
  EXPECT_EQ(Allowed(job, open + "f(n=\"x"), "only " + open + "f(n=");
  EXPECT_EQ(Allowed(job, open + "f()"), "only " + open + "f(");
  EXPECT_EQ(Allowed(job, open + "g("), "only " + open);
  // Free words before one that is not asked for.
  const AnswerJob free = JobOf(kTools);
  EXPECT_EQ(Allowed(free, "Well. " + open + "f(n=3)]<|tool_call_end|>"), "all, end");
  EXPECT_EQ(Allowed(free, "Well. " + open + "g"), "only Well. " + open);
}

constexpr const char* kCalled = R"(, {"role": "assistant", "content": "c",
  "reasoning_content": "t", "tool_calls": [
    {"id": "1", "type": "function", "function": {"name": "f", "arguments":
      "{\"n\": 1, \"on\": true, \"x\": [null, {\"k\": \"it's\"}]}"}},
    {"id": "2", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
  {"role": "tool", "tool_call_id": "1", "content": "of f"},
  {"role": "assistant", "content": "d", "tool_calls": []}, {"role": "user", "content": "e"})";

TEST_F(Lfm2JobTest, CallsThatTheTemplateLeavesOutAreText) {
  const std::string prompt = Concatenate(
      ValueOrDie(ChatPrompt(context_, RequestOf(kTools, std::string(kAsked) + kCalled))));
  EXPECT_NE(prompt.find("c\n<|tool_call_start|>[f(n=1, on=True, x=[None, {\"k\": \"it's\"}]), g()]"
                        "<|tool_call_end|>"),
            prompt.npos)
      << prompt;
  EXPECT_NE(prompt.find("<think>t</think>"), prompt.npos) << prompt;
}

// The marks are tokens, as a model writes them; what a request brings never is.
TEST_F(Lfm2JobTest, MarksAroundCallsAreTheTemplates) {
  const char* const messages = R"(, {"role": "assistant", "content": "\uFDD0c\uFDD1",
    "tool_calls": [{"id": "1", "type": "function", "function": {"name": "\uFDD1f\uFDD0", "arguments":
      "{\"n\uFDD0\": \"\uFDD0<|tool_call_end|>\uFDD1\"}"}}]},
    {"role": "user", "content": "\uFDD0<|tool_call_start|>"})";
  const std::string more =
      std::string(kTools) + R"(, "chat_template_kwargs": {"note": "\uFDD0note\uFDD1"})";
  std::string marked;
  std::string trusted;
  for (const TextSegment& segment :
       ValueOrDie(ChatPrompt(context_, RequestOf(more, std::string(kAsked) + messages)))) {
    marked += segment.trusted ? "{" + segment.text + "}" : segment.text;
    if (segment.trusted) trusted += segment.text;
  }
  EXPECT_NE(marked.find("}c\n{<|tool_call_start|>}[f(n=\"<|tool_call_end|>\")]{<|tool_call_end|>"),
            marked.npos)
      << marked;
  EXPECT_NE(marked.find("note"), marked.npos) << marked;
  EXPECT_EQ(marked.find("\uFDD0"), marked.npos) << marked;
  EXPECT_EQ(marked.find("\uFDD1"), marked.npos) << marked;
  const std::string open = "<|tool_call_start|>";
  EXPECT_EQ(trusted.find(open), trusted.rfind(open)) << trusted;
}

// As a grammar holds them to.
TEST_F(Lfm2JobTest, CallsThatPythonCannotSayAreJson) {
  const std::string prompt = Concatenate(ValueOrDie(
      ChatPrompt(context_, RequestOf(kTools, std::string(kAsked) + R"(, {"role": "assistant",
        "content": "", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f",
          "arguments": "{\"a=b\": null}"}}]}, {"role": "user", "content": "b"})"))));
  EXPECT_NE(prompt.find("<|tool_call_start|>[{\"name\":\"f\",\"arguments\":{\"a=b\":null}}]"
                        "<|tool_call_end|>"),
            prompt.npos)
      << prompt;
}

// An answer goes on with words only.
TEST_F(Lfm2JobTest, CallsAreNotGoneOnWith) {
  const std::string prompt = Concatenate(ValueOrDie(
      ChatPrompt(context_, RequestOf(kTools, std::string(kAsked) + R"(, {"role": "assistant",
        "content": "c", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f",
          "arguments": "{}"}}]})"))));
  EXPECT_NE(prompt.find("[f()]<|tool_call_end|>\n<assistant>"), prompt.npos) << prompt;
}

// OLMo 3: a template that writes calls, which it has even where there are none.
class Olmo3JobTest : public JobTest {
 protected:
  Olmo3JobTest()
      : JobTest(
            "{{ tools | tojson }}{% for m in messages %}{% if m.tool_calls is defined %}"
            "<function_calls>{{ m.tool_calls | length }}</function_calls>{% endif %}{% endfor %}") {
  }
};

TEST_F(Olmo3JobTest, CallsAreHeldToTheirSchema) {
  const AnswerJob job = JobOf(std::string(kTools) + R"(, "tool_choice": "required")");
  const std::string open = "<function_calls>\n";
  EXPECT_EQ(Allowed(job, open + "f(n=3)\nf(n=4)\n</function_calls>"), "all, end");
  EXPECT_EQ(Allowed(job, open + "f(n=null"), "only " + open + "f(n=");
}

TEST_F(Olmo3JobTest, NoCallsAreNotWritten) {
  const std::string prompt = Concatenate(
      ValueOrDie(ChatPrompt(context_, RequestOf(kTools, std::string(kAsked) + kCalled))));
  EXPECT_NE(prompt.find("<function_calls>2</function_calls>"), prompt.npos) << prompt;
  EXPECT_EQ(prompt.find("<function_calls>0</function_calls>"), prompt.npos) << prompt;
  EXPECT_EQ(prompt.find("f(n=1"), prompt.npos) << prompt;
}

// GLM-4.5: arguments between tags, which its template goes through.
class GlmJobTest : public JobTest {
 protected:
  GlmJobTest()
      : JobTest(
            "{% if tools %}<|system|>{% for t in tools %}{{ t | tojson(ensure_ascii=False) }}"
            "{% endfor %}{% endif %}{% for m in messages %}"
            "{% if m.role == 'user' %}<|user|>{{ m.content }}"
            "{{ '/nothink' if enable_thinking is defined and not enable_thinking else '' }}"
            "{% elif m.role == 'assistant' %}<|assistant|><think>{{ m.reasoning_content or '' }}"
            "</think>{{ m.content }}{% for c in m.tool_calls or [] %}"
            "<tool_call>{{ c.function.name }}\n{% for k, v in c.function.arguments.items() %}"
            "<arg_key>{{ k }}</arg_key>\n"
            "<arg_value>{{ v if v is string else v | tojson(ensure_ascii=False) }}</arg_value>\n"
            "{% endfor %}</tool_call>{% endfor %}"
            "{% elif m.role == 'tool' %}{% if messages[loop.index0 - 1].role != 'tool' %}"
            "<|observation|>{% endif %}<tool_response>{{ m.content }}</tool_response>{% endif %}"
            "{% endfor %}<|assistant|>"
            "{{ '<think></think>' if enable_thinking is defined and not enable_thinking else '' "
            "}}") {}
};

TEST_F(GlmJobTest, CallsAreHeldToTheirSchema) {
  ASSERT_EQ(context_.dialect.tools, ToolSyntax::kGlm);
  // The test model has no token that opens a thought, so that a call comes without one.
  const AnswerJob job = JobOf(std::string(kTools) + R"(, "tool_choice": "required")");
  ASSERT_NE(job.constraint, nullptr);
  const std::string open = "<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>";
  const std::string close = "</arg_value>\n</tool_call>";
  EXPECT_EQ(Allowed(job, open + "3" + close), "all, end");
  EXPECT_EQ(Allowed(job, open + "3" + close + "\n" + open + "-4" + close), "all, end");
  EXPECT_EQ(Allowed(job, open + "x"), "only " + open);
  EXPECT_EQ(Allowed(job, "<tool_call>g"), "only <tool_call>");
  EXPECT_EQ(Allowed(job, "<tool_call>f</tool_call>"), "only <tool_call>f<");
  const AnswerJob one = JobOf(std::string(kTools) + R"(, "tool_choice": {"type": "function",
    "function": {"name": "f"}})");
  EXPECT_EQ(Allowed(one, open + "3" + close + "<"), "only " + open + "3" + close);
  const AnswerJob free = JobOf(kTools);
  EXPECT_EQ(Allowed(free, "Well. " + open + "3" + close), "all, end");
  EXPECT_EQ(Allowed(free, "Well. <tool_call>g"), "only Well. <tool_call>");
}

TEST_F(GlmJobTest, Messages) {
  const auto prompt = [&](const std::string& more, const std::string& messages) {
    std::string marked;
    for (const TextSegment& segment : ValueOrDie(ChatPrompt(context_, RequestOf(more, messages)))) {
      marked += segment.trusted ? "{" + segment.text + "}" : segment.text;
    }
    return marked;
  };
  const std::string all = prompt(kTools, std::string(kAsked) + kCalled);
  EXPECT_NE(
      all.find(
          "<|assistant|><think>}t{</think>}c{<tool_call>}f{\n<arg_key>}n{</arg_key>\n"
          "<arg_value>}1{</arg_value>\n<arg_key>}on{</arg_key>\n<arg_value>}true{</arg_value>\n"
          "<arg_key>}x{</arg_key>\n<arg_value>}[null, {\"k\": \"it's\"}]{</arg_value>\n"
          "</tool_call><tool_call>}g{\n</tool_call><|observation|><tool_response>}of f"
          "{</tool_response><|assistant|>"),
      all.npos)
      << all;
  // Of a call that was cut off nothing can be gone through.
  const std::string cut = prompt(kTools, std::string(kAsked) + R"(, {"role": "assistant",
    "content": "", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f",
      "arguments": "{\"n\": "}}]}, {"role": "user", "content": "b"})");
  EXPECT_NE(cut.find("<tool_call>}f{\n</tool_call>"), cut.npos) << cut;
  const std::string still = prompt(R"(, "reasoning_effort": "none")", kAsked);
  EXPECT_NE(still.find("{/nothink"), still.npos) << still;
  EXPECT_FALSE(JobOf(R"(, "reasoning_effort": "none")").parser.starts_in_thought);
}

// Phi-4-mini: tools are a text beside the system's message, and roles are marks.
class Phi4MiniJobTest : public JobTest {
 protected:
  Phi4MiniJobTest()
      : JobTest(
            "{% for m in messages %}{{ '<|' + m['role'] + '|>' + m['content'] }}"
            "{% set message = m %}{% if 'tools' in message %}"
            "{{ '<|tool|>' + message['tools'] + '<|/tool|>' }}{% endif %}{% endfor %}") {}
};

TEST_F(Phi4MiniJobTest, CallsAreHeldToTheirSchema) {
  const std::string call = R"({"name": "f", "arguments": {"n": 3}})";
  const AnswerJob job = JobOf(std::string(kTools) + R"(, "tool_choice": "required")");
  EXPECT_EQ(Allowed(job, "functools[" + call + ", " + call + "]"), "all, end");
  EXPECT_EQ(Allowed(job, "<|tool_call|>[" + call + "]<|/tool_call|>"), "all, end");
  EXPECT_EQ(Allowed(job, "functools" + call), "only functools");
  const AnswerJob free = JobOf(kTools);
  EXPECT_EQ(Allowed(free, "The functools module. functools[" + call + "]"), "all, end");
  EXPECT_EQ(Allowed(free, "functools[0"), "only functools[");
}

TEST_F(Phi4MiniJobTest, ToolsAreTheSystemsAndCallsText) {
  const auto prompt = [&](const std::string& messages, const std::string& more = kTools) {
    return Concatenate(ValueOrDie(ChatPrompt(context_, RequestOf(more, messages))));
  };
  const std::string tools = R"(<|tool|>[{"name":"f","parameters":{)";
  const std::string with_system =
      prompt(R"({"role": "system", "content": "Be brief."}, )" + std::string(kAsked));
  EXPECT_NE(with_system.find("<|system|>Be brief." + tools), with_system.npos) << with_system;
  const std::string without = prompt(std::string(kAsked) + kCalled);
  EXPECT_NE(without.find(tools), without.npos) << without;
  EXPECT_NE(without.find("c\nfunctools[{\"name\":\"f\",\"arguments\":{\"n\":1,"), without.npos)
      << without;
  EXPECT_NE(without.find("<|tool_response|>of f"), without.npos) << without;
  // A system message between them comes behind the result, as where calls are none of the text.
  const std::string between = prompt(std::string(kAsked) + R"(, {"role": "assistant",
    "content": "", "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f",
      "arguments": "{}"}}]}, {"role": "system", "content": "S"},
    {"role": "tool", "tool_call_id": "1", "content": "of f"}, {"role": "user", "content": "e"})");
  const size_t call = between.find("<|assistant|>functools[");
  const size_t result = between.find("<|tool_response|>of f", call);
  EXPECT_NE(between.find("<|system|>S", result), between.npos) << between;
  const std::string none = prompt(kAsked, "");
  EXPECT_EQ(none.find("<|tool|>"), none.npos) << none;
}

// gpt-oss: a template that speaks as its own does, in few words.
class HarmonyJobTest : public JobTest {
 protected:
  static constexpr const char* kTemplate =
      "{% for m in messages %}{% if m.thinking %}<|channel|>analysis<|message|>{{ m.thinking }}"
      "<|end|>{% endif %}{% for c in m.tool_calls or [] %}[{{ c.function.name }}]{% endfor %}"
      "{% if m.role == 'tool' %}({{ m.content }}){% endif %}{% endfor %}"
      "{% for t in tools or [] %}{{ t.function.description + '.' }}{% endfor %}"
      "{% if messages[-1].role == 'assistant' %}<|channel|>final<|message|>"
      "{{ messages[-1].content }}{% else %}<|start|>assistant{% endif %}";

  HarmonyJobTest() : JobTest(kTemplate) {}
};

constexpr const char* kThought = "<|channel|>analysis<|message|>to=functions.f?<|end|>";
constexpr const char* kCall =
    "<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>";

// However a call's header is written, and whatever comes before it.
TEST_F(HarmonyJobTest, CallsAreHeldToTheirSchema) {
  const AnswerJob job = JobOf(kTools);
  ASSERT_NE(job.constraint, nullptr);
  const std::string preamble = "<|start|>assistant<|channel|>commentary<|message|>I look.<|end|>";
  for (const std::string& before : {std::string(kThought), kThought + preamble}) {
    for (const std::string header :
         {"<|channel|>commentary to=functions.f <|constrain|>json<|message|>",
          " to=functions.f<|channel|>commentary json<|message|>",
          "<|channel|>analysis to=functions.f code<|message|>",
          " to=functions.f<|channel|>commentary<|message|>"}) {
      const std::string call = before + "<|start|>assistant" + header;
      EXPECT_EQ(Allowed(job, call + R"({"n": 3})"), "all, end");
      EXPECT_EQ(Allowed(job, call + R"({"n": "x"})"), "only " + call + R"({"n": )");
      EXPECT_EQ(Allowed(job, call), "all");
    }
  }
  const std::string other = std::string(kThought) + "<|start|>assistant to=functions.";
  EXPECT_EQ(Allowed(job, other + "g"), "only " + other);
  const std::string final = std::string(kThought) + "<|start|>assistant<|channel|>final<|message|>";
  EXPECT_EQ(Allowed(job, final + "x << | <| y"), "all, end");
  // At once, without a thought.
  EXPECT_EQ(Allowed(job, "<|channel|>final<|message|>x"), "all, end");
  // A thought has no mark but its end.
  EXPECT_EQ(Allowed(job, "<|channel|>analysis<|message|>a < b << c|d <<|x"),
            "only <|channel|>analysis<|message|>a < b << c|d <<|");
  EXPECT_EQ(Allowed(job, kThought), "all");
  EXPECT_FALSE(job.parser.starts_in_text);
}

TEST_F(HarmonyJobTest, ACallThatIsRequiredMayComeBehindAThought) {
  for (const char* choice :
       {R"("required")", R"({"type": "function", "function": {"name": "f"}})"}) {
    const AnswerJob job = JobOf(std::string(kTools) + R"(, "tool_choice": )" + choice);
    EXPECT_EQ(Allowed(job, kThought), "all");
    for (const std::string& before :
         {std::string(), kThought + std::string("<|start|>assistant")}) {
      EXPECT_EQ(
          Allowed(job, before + " to=functions.f<|channel|>commentary json<|message|>{\"n\":1}"),
          "all, end");
      EXPECT_EQ(Allowed(job, before + "<|channel|>final"), "only " + before + "<|channel|>");
    }
  }
}

TEST_F(HarmonyJobTest, AFormatIsThatOfTheFinalMessage) {
  const std::string format = R"(, "response_format": {"type": "json_object"})";
  const std::string turn = std::string(kThought) + "<|start|>assistant";
  for (const std::string& before : {std::string(), turn}) {
    for (const std::string header :
         {"<|channel|>final<|message|>", "<|channel|>final <|constrain|>json<|message|>"}) {
      EXPECT_EQ(Allowed(JobOf(format), before + header + "{}"), "all, end");
      EXPECT_EQ(Allowed(JobOf(format), before + header + "no"), "only " + before + header);
    }
  }
  EXPECT_EQ(Allowed(JobOf(format), kThought), "all");
  EXPECT_EQ(Allowed(JobOf(format), turn + " to="), "only " + turn);
  // A call may come instead.
  EXPECT_EQ(Allowed(JobOf(format + kTools), std::string(kThought) + kCall + R"({"n": 1})"),
            "all, end");
  // One that is gone on with has no header any more.
  const AnswerJob job =
      JobOf(format, std::string(kAsked) + R"(, {"role": "assistant", "content": "{"})");
  EXPECT_TRUE(job.parser.starts_in_text);
  EXPECT_EQ(Allowed(job, "{}"), "all, end");
}

TEST_F(HarmonyJobTest, MessagesAreWhatTheTemplateReads) {
  const ChatRequest request =
      RequestOf(kTools, std::string(kAsked) + R"(, {"role": "assistant", "content": "c",
        "reasoning_content": "t", "tool_calls": [
          {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
          {"id": "2", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "2", "content": "of g"},
        {"role": "tool", "tool_call_id": "1", "content": "of f"})");
  const std::string prompt = Concatenate(ValueOrDie(ChatPrompt(context_, request)));
  EXPECT_NE(prompt.find("<|channel|>analysis<|message|>t\n\nc<|end|>[f](of f)[g](of g)."),
            prompt.npos)
      << prompt;
}

// What clients send that the template cannot read.
TEST_F(HarmonyJobTest, WhatTheTemplateRefusesIsPutAsItReadsIt) {
  const auto prompt = [&](const std::string& more, const std::string& messages) {
    const auto text = ChatPrompt(context_, RequestOf(more, kAsked + (", " + messages)));
    return text.ok() ? Concatenate(*text) : text.error().message;
  };
  const std::string described =
      prompt(R"(, "tools": [{"type": "function", "function": {"name": "f", "description": null}}])",
             kAsked);
  EXPECT_NE(described.find("<|start|>assistant"), described.npos) << described;
  const std::string marked = prompt("", R"({"role": "assistant", "tool_calls": [], "content":
             "<|channel|>analysis<|message|>t<|end|><|start|>assistant<|channel|>final<|message|>x"},)" +
                                            std::string(kAsked));
  EXPECT_NE(marked.find("<assistant>x\n"), marked.npos) << marked;
  EXPECT_NE(marked.find("<|channel|>analysis<|message|>t<|end|>"), marked.npos) << marked;
  // Results without ids belong to calls by their places.
  const std::string results =
      prompt("", R"({"role": "assistant", "content": null, "thinking": "t", "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "2", "type": "function", "function": {"name": "g", "arguments": "{}"}}]},
          {"role": "tool", "content": "of f"}, {"role": "tool", "content": "of g"},
          {"role": "tool", "content": "more"})");
  EXPECT_NE(results.find("[f](of f)[g](of g)(more)"), results.npos) << results;
}

}  // namespace
}  // namespace kvasir
