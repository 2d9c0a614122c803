// ParseChatRequest on requests as clients send them: fixtures/chat_requests.json, written after the
// published descriptions of OpenAI's API and of llama.cpp's and mlx-lm's servers.
#include "kvasir/server/chat_request.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "kvasir/server/api_error.h"
#include "kvasir/server/messages_request.h"
#include "kvasir/server/responses_request.h"

namespace kvasir {
namespace {

constexpr int64_t kVocabulary = 256;
const ChatDefaults kDefaults = {.vocab_size = kVocabulary};

Json Fixtures() {
  auto json = Json::ParseFile(std::string(KVASIR_SOURCE_DIR) +
                              "/kvasir/server/fixtures/chat_requests.json");
  EXPECT_TRUE(json.ok()) << json.error().message;
  return json.ok() ? *std::move(json) : Json(Json::Array());
}

Json Parsed(const std::string& text) {
  auto json = Json::Parse(text);
  EXPECT_TRUE(json.ok()) << text;
  return json.ok() ? *std::move(json) : Json();
}

// The request again as JSON, under the names that fixtures use.
Json Describe(const ChatRequest& request) {
  const SamplingOptions& sampling = request.sampling;
  Json::Array stops(request.stop_strings.begin(), request.stop_strings.end());
  Json::Array biases;
  for (const TokenBias& bias : sampling.logit_bias) {
    biases.push_back(Json::Array{bias.token, static_cast<double>(bias.bias)});
  }
  return Json::Object{{"model", request.model},
                      {"temperature", sampling.temperature},
                      {"top_p", sampling.top_p},
                      {"top_k", sampling.top_k},
                      {"min_p", sampling.min_p},
                      {"repetition_penalty", sampling.repetition_penalty},
                      {"presence_penalty", sampling.presence_penalty},
                      {"frequency_penalty", sampling.frequency_penalty},
                      {"logit_bias", std::move(biases)},
                      {"seed", request.seed ? Json(*request.seed) : Json()},
                      {"max_tokens", request.max_tokens ? Json(*request.max_tokens) : Json()},
                      {"stop", std::move(stops)},
                      {"ignore_eos", request.ignore_stop_tokens},
                      {"stream", request.is_stream},
                      {"include_usage", request.includes_usage}};
}

TEST(ChatRequest, Fixtures) {
  const Json fixtures = Fixtures();
  ASSERT_FALSE(fixtures.as_array().empty());
  for (const Json& fixture : fixtures.as_array()) {
    SCOPED_TRACE(fixture.Find("name")->as_string());
    const auto request = ParseChatRequest(*fixture.Find("body"), kDefaults);
    if (const Json* error = fixture.Find("error")) {
      ASSERT_FALSE(request.ok());
      const ApiError answer = ToApiError(request.error());
      EXPECT_EQ(answer.status, 400);
      const Json body = *ErrorJson(answer).Find("error");
      EXPECT_EQ(body.Find("type")->as_string(), "invalid_request_error");
      for (const auto& [name, value] : error->as_object()) {
        EXPECT_EQ(body.Find(name)->Dump(), value.Dump()) << request.error().message;
      }
      continue;
    }
    ASSERT_TRUE(request.ok()) << request.error().message;
    EXPECT_EQ(request->messages.Dump(), fixture.Find("messages")->Dump());
    const Json described = Describe(*request);
    for (const auto& [name, value] : fixture.Find("expect")->as_object()) {
      ASSERT_NE(described.Find(name), nullptr) << name;
      EXPECT_EQ(described.Find(name)->Dump(), value.Dump()) << name;
    }
  }
}

TEST(ChatRequest, DefaultsHoldWhereTheRequestIsSilent) {
  ChatDefaults defaults;
  defaults.vocab_size = kVocabulary;
  defaults.sampling = {
      .temperature = 0.6, .top_k = 20, .top_p = 0.95, .min_p = 0.1, .repetition_penalty = 1.05};
  const Json plain = Parsed(R"({"messages": [{"role": "user", "content": "a"}]})");
  auto request = ParseChatRequest(plain, defaults);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->sampling.temperature, 0.6);
  EXPECT_EQ(request->sampling.top_p, 0.95);
  EXPECT_EQ(request->sampling.top_k, 20);
  EXPECT_EQ(request->sampling.min_p, 0.1);
  EXPECT_EQ(request->sampling.repetition_penalty, 1.05);

  Json explicit_values = plain;
  explicit_values.Set("temperature", 2);
  explicit_values.Set("top_k", 0);
  explicit_values.Set("top_p", 1);
  request = ParseChatRequest(explicit_values, defaults);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->sampling.temperature, 2);
  EXPECT_EQ(request->sampling.top_p, 1);
  EXPECT_EQ(request->sampling.top_k, 0);
}

TEST(ChatRequest, NumbersOutOfRangeAreNamedAsTheyCame) {
  const auto with = [](const char* key, const char* value) {
    Json body = Parsed(R"({"messages": [{"role": "user", "content": "a"}]})");
    body.Set(key, Parsed(value));
    ChatDefaults defaults;
    defaults.vocab_size = kVocabulary;
    return ParseChatRequest(body, defaults);
  };
  EXPECT_EQ(*with("seed", "18446744073709551615")->seed, 18446744073709551615u);
  EXPECT_EQ(with("top_k", "9223372036854775808").error().message,
            "field 'top_k' must be at most 9223372036854775807, not 9223372036854775808");
  EXPECT_EQ(with("top_k", "-2").error().message,
            "field 'top_k' must be at least 0, or -1 for off, not -2");
  EXPECT_EQ(with("top_p", "-0.5").error().message,
            "field 'top_p' must be between 0 and 1, not -0.5");
  EXPECT_EQ(with("max_tokens", "-2").error().message,
            "field 'max_tokens' must be at least 1, or -1 for no limit");
  EXPECT_EQ(with("seed", "18446744073709551616").error().message.substr(0, 38),
            "field 'seed' must be an integer, not 1");
  EXPECT_EQ(with("repeat_penalty", "0").error().message,
            "field 'repeat_penalty' must be above 0 and at most 100, not 0");
  EXPECT_EQ(with("repetition_penalty", "-1").error().message,
            "field 'repetition_penalty' must be above 0 and at most 100, not -1");
  EXPECT_EQ(with("min_p", "1.0000001").error().message,
            "field 'min_p' must be between 0 and 1, not 1.0000001");
}

TEST(ChatRequest, TemplateVariablesArePassedOn) {
  const auto request = ParseChatRequest(Parsed(R"({"messages": [{"role": "user", "content": "a"}],
                 "chat_template_kwargs": {"enable_thinking": false}})"),
                                        kDefaults);
  ASSERT_TRUE(request.ok());
  EXPECT_EQ(request->template_variables.Dump(), R"({"enable_thinking":false})");
}

TEST(ChatRequest, TemplateVariablesAreAHandful) {
  Json body = Parsed(R"({"messages": [{"role": "user", "content": "a"}]})");
  Json variables = Json::Object();
  for (int i = 0; i < 256; ++i) variables.Set("v" + std::to_string(i), i);
  body.Set("chat_template_kwargs", variables);
  EXPECT_TRUE(ParseChatRequest(body, kDefaults).ok());
  variables.Set("one_more", 1);
  body.Set("chat_template_kwargs", variables);
  const auto request = ParseChatRequest(body, kDefaults);
  ASSERT_FALSE(request.ok());
  EXPECT_EQ(request.error().message, "field 'chat_template_kwargs' has 257 members, may have 256");
}

// The fourth member of a result fills the memory that its parser took.
TEST(ChatRequest, ResultsAreNamedAfterTheLatestCallOfTheirId) {
  const auto request = ParseChatRequest(Parsed(R"({"messages": [
      {"role": "assistant", "tool_calls": [{"id": "call_1", "function": {"name": "first"}},
                                           {"id": "call_1", "function": {"name": "second"}}]},
      {"role": "tool", "tool_call_id": "call_1", "content": "1", "id": "a"},
      {"role": "assistant", "tool_calls": [{"id": "call_1", "function": {"name": "third"}},
                                           {"id": 7, "function": {"name": "fourth"}}]},
      {"role": "tool", "tool_call_id": "call_1", "content": "2", "id": "b"},
      {"role": "tool", "tool_call_id": "call_2", "content": "3"}]})"),
                                        kDefaults);
  ASSERT_TRUE(request.ok()) << request.error().message;
  const Json::Array& messages = request->messages.as_array();
  ASSERT_NE(messages[1].Find("name"), nullptr);
  EXPECT_EQ(messages[1].Find("name")->as_string(), "second");
  ASSERT_NE(messages[3].Find("name"), nullptr);
  EXPECT_EQ(messages[3].Find("name")->as_string(), "third");
  EXPECT_EQ(messages[4].Find("name"), nullptr);
}

TEST(ChatRequest, LongStringsAreRefusedByName) {
  Json body = Parsed(R"({"messages": [{"role": "user", "content": "a"}]})");
  body.Set("stop", std::string(kMaxStopStringBytes + 1, 'x'));
  EXPECT_EQ(ToApiError(ParseChatRequest(body, kDefaults).error()).param, "stop");
  body.Set("stop", std::string(kMaxStopStringBytes, 'x'));
  EXPECT_TRUE(ParseChatRequest(body, kDefaults).ok());
  body.Set("model", std::string(257, 'x'));
  EXPECT_EQ(ToApiError(ParseChatRequest(body, kDefaults).error()).param, "model");
}

Json ResponsesChat(const std::string& body) {
  const auto chat = ChatBodyOfResponses(Parsed(body));
  EXPECT_TRUE(chat.ok()) << chat.error().message;
  return chat.ok() ? *chat : Json();
}

// What chats understand is passed on, but for names that mean something else there.
TEST(ResponsesRequest, FieldsOfChatsAreTaken) {
  const Json chat = ResponsesChat(
      R"({"input": "hi", "grammar": "root ::= \"yes\"", "frequency_penalty": 1.5, "n": 3,
          "max_output_tokens": 7, "max_completion_tokens": 9, "stream_options": {"x": 1},
          "top_logprobs": 5, "metadata": {"a": "b"}})");
  EXPECT_EQ(*chat.Find("grammar"), Json("root ::= \"yes\""));
  EXPECT_EQ(*chat.Find("frequency_penalty"), Json(1.5));
  for (const char* other : {"n", "stream_options", "metadata", "input"}) {
    EXPECT_EQ(chat.Find(other), nullptr) << other;
  }
  auto request = ParseChatRequest(chat, kDefaults);
  ASSERT_TRUE(request.ok()) << request.error().message;
  EXPECT_EQ(request->max_tokens, 7);
  EXPECT_FALSE(request->rule.is_free());
}

TEST(ResponsesRequest, CallsAndThoughtsOfATurnStandTogether) {
  const Json chat = ResponsesChat(
      R"({"input": [
          {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "one"}]},
          {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
          {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "two"}]},
          {"type": "function_call", "call_id": "b", "name": "g", "arguments": "{}"}]})");
  const Json::Array& messages = chat.Find("messages")->as_array();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_EQ(*messages[0].Find("reasoning_content"), Json("one\ntwo"));
  ASSERT_EQ(messages[0].Find("tool_calls")->as_array().size(), 2u);
  EXPECT_EQ(*messages[0].Find("tool_calls")->as_array()[1].Find("id"), Json("b"));
}

TEST(ResponsesRequest, ToolsOfOthersAreLeftOut) {
  const Json chat = *ChatBodyOfResponses(Parsed(R"({"input": "a", "tools": [
      {"type": "web_search"}, {"type": "function", "name": "f"},
      {"type": "namespace", "name": "n", "tools": []}]})"));
  EXPECT_EQ(chat.Find("tools")->Dump(), R"([{"type":"function","function":{"name":"f"}}])");
  const auto unknown = ChatBodyOfResponses(
      Parsed(R"({"input": "a", "tools": [{"type": "web_search"}, {"type": "guess"}]})"));
  EXPECT_EQ(ParseChatRequest(*unknown, {}).error().message.substr(0, 32),
            "field 'tools[0].type' must be \"f");
}

// Sessions that were begun elsewhere go on.
TEST(ResponsesRequest, ItemsOfToolsOfOthers) {
  const Json chat = *ChatBodyOfResponses(Parsed(R"({"input": [
      {"role": "user", "content": "a"}, {"type": "web_search_call", "id": "ws_1"},
      {"type": "custom_tool_call", "call_id": "c1", "name": "apply_patch", "input": "+x"},
      {"type": "custom_tool_call_output", "call_id": "c1", "output": "done"},
      {"type": "local_shell_call_output", "output": "y"}, {"type": "compaction"},
      {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}]})"));
  EXPECT_EQ(chat.Find("messages")->Dump(),
            R"([{"role":"user","content":"a"},{"role":"assistant","content":"","tool_calls":)"
            R"([{"id":"c1","type":"function","function":{"name":"apply_patch","arguments":)"
            R"({"input":"+x"}}}]},{"role":"tool","tool_call_id":"c1","content":"done"},)"
            R"({"role":"assistant","content":"no"}])");
  EXPECT_FALSE(ChatBodyOfResponses(Parsed(R"({"input": [{"type": "guess_call"}]})")).ok());
}

// What changes with every conversation, and says nothing, would keep the rest out of the cache.
TEST(MessagesRequest, ClaudeCodesBillingIsNoPrompt) {
  const Json chat = *ChatBodyOfMessages(
      Parsed(R"({"system": [{"type": "text", "text": "x-anthropic-billing-header: cch=1;"},
                            {"type": "text", "text": "be brief"}],
                 "messages": [{"role": "user", "content": [
                   {"type": "text", "text": "x-anthropic-billing-header: what is it?"}]},
                   {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t",
                   "content": [{"type": "tool_reference", "tool_name": "f"}]}]}],
                 "tools": [{"name": "f", "strict": true, "input_schema": {}}]})"),
      MaxTokensRule::kOptional);
  EXPECT_EQ(*chat.Find("messages")->as_array()[0].Find("content"), Json("be brief"));
  EXPECT_EQ(*chat.Find("messages")->as_array()[1].Find("content"),
            Json("x-anthropic-billing-header: what is it?"));
  EXPECT_EQ(*chat.Find("messages")->as_array()[2].Find("content"), Json("(the tool f)"));
  EXPECT_EQ(*chat.Find("tools")->as_array()[0].Find("function")->Find("strict"), Json(true));
}

// The prompt's beginning stays the same while tools are found, so what follows stays cached.
TEST(MessagesRequest, DeferredToolsAreShownWhereTheyWereFound) {
  const auto body_with = [](const std::string& more_messages, const std::string& more_tools) {
    return Parsed(R"({"messages": [{"role": "user", "content": "a"})" + more_messages +
                  R"(], "tools": [{"name": "search", "input_schema": {}},
                   {"name": "f", "description": "d", "input_schema": {"type": "object"},
                    "defer_loading": true},
                   {"name": "g", "input_schema": {}, "defer_loading": true})" +
                  more_tools + "]}");
  };
  const auto names_of = [](const Json& tools) {
    std::string names;
    for (const Json& tool : tools.as_array()) {
      names += tool.Find("function")->Find("name")->as_string() + " ";
    }
    return names;
  };
  const auto request_of = [](const Json& body) {
    return *ParseChatRequest(*ChatBodyOfMessages(body, MaxTokensRule::kOptional), {});
  };
  const ChatRequest before = request_of(body_with("", ""));
  EXPECT_EQ(names_of(before.tools.tools), "search ");

  const ChatRequest found = request_of(body_with(
      R"(, {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": [
          {"type": "tool_reference", "tool_name": "f"},
          {"type": "tool_reference", "tool_name": "f"},
          {"type": "tool_reference", "tool_name": "search"}]}]})",
      ""));
  EXPECT_EQ(names_of(found.tools.tools), "search f ");
  EXPECT_EQ(found.tools.Shown(), before.tools.Shown());
  EXPECT_EQ(*found.messages.as_array()[1].Find("content"),
            Json("The tool f can be called from now on:\n"
                 R"({"type":"function","function":{"name":"f","description":"d",)"
                 R"("parameters":{"type":"object"}}})"
                 "\n(the tool f)(the tool search)"));

  // Nobody here runs the service's own search.
  const ChatRequest all =
      request_of(body_with("", R"(, {"type": "tool_search_tool_regex_20251119", "name": "s"})"));
  EXPECT_EQ(names_of(all.tools.Shown()), "search f g ");
  EXPECT_EQ(ChatBodyOfMessages(Parsed(R"({"messages": [{"role": "user", "content": "a"}],
                                 "tools": [{"name": "f", "defer_loading": 1}]})"),
                               MaxTokensRule::kOptional)
                .error()
                .message,
            "field 'tools[0].defer_loading' must be true or false, not integer");
}

TEST(MessagesRequest, DocumentsOfTextAreRead) {
  const auto content_of = [](const std::string& blocks) {
    return ChatBodyOfMessages(
        Parsed(R"({"messages": [{"role": "user", "content": [)" + blocks + "]}]}"),
        MaxTokensRule::kOptional);
  };
  const Json chat = *content_of(
      R"({"type": "document", "title": "T", "context": "C",
          "source": {"type": "text", "media_type": "text/plain", "data": "one"}},
         {"type": "document", "source": {"type": "content", "content": [
          {"type": "text", "text": "two"}]}},
         {"type": "search_result", "title": "S", "source": "https://s", "content": [
          {"type": "text", "text": "three"}]}, {"type": "text", "text": "four"})");
  EXPECT_EQ(*chat.Find("messages")->as_array()[0].Find("content"),
            Json("T\nC\none\ntwo\nS\nhttps://s\nthree\nfour"));
  EXPECT_EQ(content_of(R"({"type": "text", "text": ""}, {"type": "document",
                           "source": {"type": "url", "url": "https://s"}})")
                .error()
                .message,
            "field 'messages[0].content[1].source.type' must be \"text\" or \"content\": this "
            "server reads no files");
}

TEST(ApiError, NamesOfOtherApis) {
  constexpr FieldName kNames[] = {{"response_format.json_schema", "text.format"},
                                  {".function.", "."}};
  const auto renamed = [&](const char* param, const std::string& message) {
    const ApiError error = WithFieldNames({400, message, param, ""}, kNames);
    return error.param + ": " + error.message;
  };
  EXPECT_EQ(renamed("response_format.json_schema.schema",
                    "field 'response_format.json_schema.schema' is missing"),
            "text.format.schema: field 'text.format.schema' is missing");
  EXPECT_EQ(renamed("tools[0].function.name", "field 'tools[0].function.name' must be a string"),
            "tools[0].name: field 'tools[0].name' must be a string");
  EXPECT_EQ(renamed("", "the body is large"), ": the body is large");
}

TEST(MessagesRequest, FormatsBecomeSchemas) {
  for (const char* body :
       {R"({"messages": [{"role": "user", "content": "a"}], "output_config": {"effort": "low",
            "format": {"type": "json_schema", "schema": {"type": "null"}}}})",
        R"({"messages": [{"role": "user", "content": "a"}], "reasoning_effort": "low",
            "output_format": {"type": "json_schema", "schema": {"type": "null"}}})"}) {
    const Json chat = *ChatBodyOfMessages(Parsed(body), MaxTokensRule::kOptional);
    EXPECT_EQ(chat.Find("response_format")->Dump(),
              R"({"type":"json_schema","json_schema":{"schema":{"type":"null"}}})");
    EXPECT_EQ(*chat.Find("reasoning_effort"), Json("low"));
  }
}

TEST(ToolRequest, ANamedFunctionIsCalledOnce) {
  const auto is_parallel = [](const char* choice) {
    Json body = Parsed(R"({"tools": [{"type": "function", "function": {"name": "f"}}]})");
    const Json more = Parsed(choice);
    for (const auto& [name, value] : more.as_object()) body.Set(name, value);
    return ParseToolRequest(body)->is_parallel;
  };
  const char* const named = R"({"tool_choice": {"type": "function", "function": {"name": "f"}}})";
  EXPECT_FALSE(is_parallel(named));
  EXPECT_TRUE(is_parallel(R"({"parallel_tool_calls": true, "tool_choice":
                              {"type": "function", "function": {"name": "f"}}})"));
  EXPECT_TRUE(is_parallel(R"({"tool_choice": "required"})"));
  EXPECT_TRUE(is_parallel("{}"));
}

TEST(MessagesRequest, ThoughtsOfATurnStandTogether) {
  const auto chat = ChatBodyOfMessages(Parsed(R"({"messages": [{"role": "assistant", "content": [
                   {"type": "thinking", "thinking": "one"}, {"type": "text", "text": "Hm."},
                   {"type": "thinking", "thinking": "two"}]}]})"),
                                       MaxTokensRule::kOptional);
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  const Json& message = chat->Find("messages")->as_array()[0];
  EXPECT_EQ(*message.Find("reasoning_content"), Json("one\ntwo"));
  EXPECT_EQ(*message.Find("content"), Json("Hm."));
}

TEST(ApiError, StatusesAndTypes) {
  const auto status = [](ErrorCode code) { return ToApiError({code, "x"}).status; };
  EXPECT_EQ(status(ErrorCode::kInvalidArgument), 400);
  EXPECT_EQ(status(ErrorCode::kCorrupt), 400);
  EXPECT_EQ(status(ErrorCode::kUnsupported), 400);
  EXPECT_EQ(status(ErrorCode::kNotFound), 404);
  EXPECT_EQ(status(ErrorCode::kResourceExhausted), 503);
  EXPECT_EQ(status(ErrorCode::kIo), 500);
  const HttpResponse busy = ErrorResponse({503, "busy", "", ""});
  ASSERT_EQ(busy.headers.size(), 1u);
  EXPECT_EQ(busy.headers[0].name, "Retry-After");
  EXPECT_EQ(busy.body,
            R"({"error":{"message":"busy","type":"unavailable_error","param":null,"code":null}})");
}

}  // namespace
}  // namespace kvasir
