// The JSON of answers, byte by byte. How they look on the wire: api_test.
#include <gtest/gtest.h>

#include <limits>

#include "kvasir/server/chat_format.h"
#include "kvasir/server/messages_format.h"
#include "kvasir/server/metrics.h"
#include "kvasir/server/responses_format.h"
#include "kvasir/server/text_format.h"

namespace kvasir {
namespace {

const AnswerHead kHead = {"chatcmpl-1", 1700000000, "m"};

AnsweredChoice OneResult() {
  AnsweredChoice result;
  result.text = "Hi \"you\"";
  result.message.Add({AnswerPart::Kind::kText, result.text}, "", 0);
  result.finish = FinishReason::kLength;
  result.stats.prompt_tokens = 10;
  result.stats.cached_tokens = 6;
  result.stats.generated_tokens = 3;
  result.stats.prefill_ms = 2;
  result.stats.decode_ms = 4;
  return result;
}

AnswerPart Text(std::string text) { return {AnswerPart::Kind::kText, std::move(text)}; }

constexpr const char* kUsage = R"({"prompt_tokens":10,"completion_tokens":3,"total_tokens":13,)"
                               R"("prompt_tokens_details":{"cached_tokens":6},)"
                               R"("completion_tokens_details":{"reasoning_tokens":0}})";
// 4 tokens in 2 ms; the first of 3 came out of the prompt, so 2 in 4 ms.
constexpr const char* kTimings =
    R"({"cache_n":6,"prompt_n":4,"prompt_ms":2.0,"prompt_per_token_ms":0.5,)"
    R"("prompt_per_second":2000.0,"predicted_n":3,"predicted_ms":4.0,)"
    R"("predicted_per_token_ms":1.3333333333333333,"predicted_per_second":500.0})";

TEST(ChatFormat, Whole) {
  ChatFormat format({.head = kHead});
  EXPECT_EQ(format.Whole(std::vector{OneResult()}).Dump(),
            std::string(R"({"id":"chatcmpl-1","object":"chat.completion","created":1700000000,)"
                        R"("model":"m","system_fingerprint":"kvasir","choices":[{"index":0,)"
                        R"("message":{"role":"assistant","content":"Hi \"you\"","refusal":null},)"
                        R"("logprobs":null,"finish_reason":"length"}],"usage":)") +
                kUsage + R"(,"timings":)" + kTimings + "}");
}

constexpr const char* kChunkHead =
    R"(data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,)"
    R"("model":"m","system_fingerprint":"kvasir","choices":[)";

TEST(ChatFormat, Stream) {
  const std::string head = kChunkHead;
  ChatFormat plain({.head = kHead});
  EXPECT_EQ(plain.Begin({}), head + R"({"index":0,"delta":{"role":"assistant","content":""},)"
                                    R"("logprobs":null,"finish_reason":null}]})"
                                    "\n\n");
  EXPECT_EQ(plain.ChoiceEnd(0, OneResult(), {}),
            head +
                R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}],)"
                R"("timings":)" +
                kTimings + "}\n\n");
  EXPECT_EQ(plain.End(std::vector{OneResult()}), "data: [DONE]\n\n");

  ChatFormat with_usage({.head = kHead, .includes_usage = true});
  EXPECT_EQ(with_usage.Part(2, Text("\n\x01"), {}, {}),
            head + R"({"index":2,"delta":{"content":"\n\u0001"},"logprobs":null,)"
                   R"("finish_reason":null}],"usage":null})"
                   "\n\n");
  EXPECT_EQ(with_usage.ChoiceEnd(0, OneResult(), {}),
            head + R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}],)"
                   R"("usage":null})"
                   "\n\n");
  EXPECT_EQ(
      with_usage.End(std::vector{OneResult()}),
      head + R"(],"usage":)" + kUsage + R"(,"timings":)" + kTimings + "}\n\ndata: [DONE]\n\n");
}

TEST(AnswerJson, ThePromptOfSeveralChoicesCountsOnce) {
  const std::vector<AnsweredChoice> results(6, OneResult());
  const GenerationStats total = TotalStats(results, 3);  // two prompts
  EXPECT_EQ(total.prompt_tokens, 20);
  EXPECT_EQ(total.cached_tokens, 12);
  EXPECT_EQ(total.generated_tokens, 18);
}

TEST(AnswerJson, NoTokenAndNoTimeGiveFiniteNumbers) {
  EXPECT_EQ(TimingsJson({}).Dump(),
            R"({"cache_n":0,"prompt_n":0,"prompt_ms":0.0,"prompt_per_token_ms":0.0,)"
            R"("prompt_per_second":0.0,"predicted_n":0,"predicted_ms":0.0,)"
            R"("predicted_per_token_ms":0.0,"predicted_per_second":0.0})");
  EXPECT_EQ(FiniteLogprob(-std::numeric_limits<double>::infinity()), -9999.0);
}

TEST(AnswerJson, EventFraming) {
  EXPECT_EQ(SseEvent(Json::Object{{"text", "a\n\nb"}}), "data: {\"text\":\"a\\n\\nb\"}\n\n");
  EXPECT_EQ(SseTypedEvent(Json::Object{{"type", "ping"}}),
            "event: ping\ndata: {\"type\":\"ping\"}\n\n");
  EXPECT_EQ(SseComment("prompt 1/2"), ": prompt 1/2\n\n");
  EXPECT_EQ(kSseDone, "data: [DONE]\n\n");
}

// OpenAI's legacy form: the chosen token is among the likeliest ones, and offsets are into the text
// that comes back, where a special token has a place if it was written there.
TEST(TextFormat, LegacyLogprobs) {
  const auto json = Json::Parse(R"({"added_tokens": [
    {"id": 0, "content": "<s>", "special": true}, {"id": 4, "content": "<|x|>", "special": true}],
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
    "decoder": {"type": "ByteLevel"},
    "model": {"type": "BPE", "vocab": {"<s>": 0, "a": 1, "b": 2, "c": 3, "<|x|>": 4},
              "merges": []}})");
  ASSERT_TRUE(json.ok()) << json.error().message;
  const auto tokenizer = Tokenizer::FromJson(*json);
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.error().message;
  TextFormat format({.head = kHead,
                     .prompts = {{0, 1, 4, 2}},
                     .echoes = {"a<|x|>b"},
                     .has_logprobs = true,
                     .tokenizer = tokenizer->get()});
  AnsweredChoice result = OneResult();
  for (const Token token : {1, 4, 2}) result.prompt_scores.push_back({{token, -1.0}, {}});
  result.scores = {{{3, -2.0}, {{1, -0.5}}}, {{0, -3.0}, {{0, -3.0}}}, {{1, -1.0}, {}}};
  const Json whole = format.Whole(std::vector{result});
  const Json* logprobs = whole.Find("choices")->as_array()[0].Find("logprobs");
  EXPECT_EQ(logprobs->Find("tokens")->Dump(), R"(["<s>","a","<|x|>","b","c","<s>","a"])");
  EXPECT_EQ(logprobs->Find("text_offset")->Dump(), "[0,0,1,6,7,8,8]");
  EXPECT_EQ(logprobs->Find("top_logprobs")->Dump(),
            R"([null,{"a":-1.0},{"<|x|>":-1.0},{"b":-1.0},{"a":-0.5,"c":-2.0},{"<s>":-3.0},)"
            R"({"a":-1.0}])");
}

TEST(MessagesFormat, InputTokensAreWithoutTheCachedOnes) {
  MessagesFormat format({"msg_1", 0, "m"});
  AnsweredChoice result = OneResult();
  result.finish = FinishReason::kStop;
  result.stop_string = "END";
  EXPECT_EQ(format.Whole(std::vector{result}).Dump(),
            R"({"id":"msg_1","type":"message","role":"assistant","model":"m",)"
            R"("content":[{"type":"text","text":"Hi \"you\""}],"stop_reason":"stop_sequence",)"
            R"("stop_sequence":"END","usage":{"input_tokens":4,"cache_creation_input_tokens":0,)"
            R"("cache_read_input_tokens":6,"output_tokens":3}})");
}

TEST(MessagesFormat, AnAnswerWithoutTextHasNoBlock) {
  MessagesFormat format({"msg_1", 0, "m"});
  EXPECT_EQ(format.Begin({10, 6, 4}),
            "event: message_start\n"
            R"(data: {"type":"message_start","message":{"id":"msg_1","type":"message",)"
            R"("role":"assistant","model":"m","content":[],"stop_reason":null,)"
            R"("stop_sequence":null,"usage":{"input_tokens":4,"cache_creation_input_tokens":0,)"
            R"("cache_read_input_tokens":6,"output_tokens":0}}})"
            "\n\n");
  EXPECT_TRUE(format.ChoiceEnd(0, OneResult(), {}).starts_with("event: message_delta\n"));
  EXPECT_EQ(format.Error({503, "full", "", ""}),
            "event: error\n"
            R"(data: {"type":"error","error":{"type":"overloaded_error","message":"full"}})"
            "\n\n");
}

TEST(ResponsesFormat, CachedTokensAndNumberedEvents) {
  ResponsesFormat format({.head = {"resp_1", 5, "m"}, .message_id = "msg_1"});
  const Json whole = format.Whole(std::vector{OneResult()});
  EXPECT_EQ(whole.Find("usage")->Dump(),
            R"({"input_tokens":10,"input_tokens_details":{"cached_tokens":6},"output_tokens":3,)"
            R"("output_tokens_details":{"reasoning_tokens":0},"total_tokens":13})");
  const AnswerMessage message = OneResult().message;
  std::string events = format.Begin({});
  for (const char* text : {"a", "b"}) events += format.Part(0, Text(text), message, {});
  for (int i = 0; i < 6; ++i) {
    EXPECT_NE(events.find("\"sequence_number\":" + std::to_string(i) + ","), std::string::npos);
  }
}

// The items of a stream's last event.
Json StreamedOutput(AnswerFormat& format, std::span<const AnswerPart> parts) {
  AnsweredChoice result;
  result.finish = FinishReason::kLength;
  std::string events = format.Begin({});
  for (const AnswerPart& part : parts) {
    const bool is_call = part.kind == AnswerPart::Kind::kCall;
    result.message.Add(part, is_call ? "call_" + part.text : "", 0);
    events += format.Part(0, part, result.message, {});
  }
  events += format.ChoiceEnd(0, result, {});
  events += format.End(std::vector{result});
  const Json last = Json::Parse(events.substr(events.rfind("data: ") + 6)).value();
  const Json whole = format.Whole(std::vector{result});
  EXPECT_EQ(last.Find("response")->Find("output")->Dump(), whole.Find("output")->Dump());
  return *whole.Find("output");
}

// As the model wrote them, a text behind a call as well, and whole but for the last.
TEST(ResponsesFormat, ItemsAreInOrderWholeAndStreamed) {
  using enum AnswerPart::Kind;
  ResponsesFormat format(
      {.head = {"resp_1", 5, "m"}, .message_id = "msg_1", .reasoning_id = "rs_1"});
  const std::vector<AnswerPart> parts = {{kReasoning, "hm"}, {kText, "a"},        {kText, "b"},
                                         {kCall, "f"},       {kArguments, "{}"},  {kText, "c"},
                                         {kCall, "g"},       {kArguments, "{\"x"}};
  std::string items;
  const Json output = StreamedOutput(format, parts);
  for (const Json& item : output.as_array()) {
    items += item.Find("id")->as_string() + " " + item.Find("status")->as_string() + "\n";
  }
  EXPECT_EQ(items,
            "rs_1 completed\nmsg_1 completed\nfc_call_f completed\nmsg_1_2 completed\n"
            "fc_call_g incomplete\n");
  EXPECT_EQ(*output.as_array()[1].Find("content")->as_array()[0].Find("text"), Json("ab"));
  EXPECT_EQ(*output.as_array()[4].Find("arguments"), Json("{\"x"));
}

TEST(MessagesFormat, BlocksAreInOrder) {
  using enum AnswerPart::Kind;
  AnsweredChoice result;
  for (const AnswerPart& part : std::vector<AnswerPart>{
           {kText, "a"}, {kCall, "f"}, {kArguments, "{\"x\":1}"}, {kText, "b"}, {kCall, "g"}}) {
    result.message.Add(part, "", 0);
  }
  const Json whole = MessagesFormat(kHead).Whole(std::vector{result});
  EXPECT_EQ(whole.Find("content")->Dump(),
            R"([{"type":"text","text":"a"},{"type":"tool_use","id":"","name":"f","input":{"x":1}},)"
            R"({"type":"text","text":"b"},{"type":"tool_use","id":"","name":"g","input":{}}])");
}

// Of several texts each has the scores of its own tokens.
TEST(AnswerMessage, ScoresBelongToTheTextTheyAreOf) {
  using enum AnswerPart::Kind;
  AnswerMessage message;
  message.Add({kText, "a"}, "", 1);
  message.Add({kText, "b"}, "", 2);
  message.Add({kCall, "f"}, "c", 3);  // with that of its opening
  message.Add({kArguments, "{}"}, "", 3);
  message.Add({kText, "d"}, "", 5);
  EXPECT_EQ(message.items[0].scores_end, 3u);
  EXPECT_EQ(message.items[2].scores_end, 5u);
  EXPECT_EQ(message.TextOf(kText), "abd");
}

TEST(Metrics, Text) {
  Metrics metrics;
  RequestRecord record;
  record.prompt_tokens = 10;
  record.cached_tokens = 6;
  record.generated_tokens = 3;
  record.first_token_ms = 30;
  metrics.Add(record);
  record.status = 503;
  record.first_token_ms = 90'000;
  metrics.Add(record);
  SlotStatus busy;
  busy.is_processing = true;
  const std::string text = metrics.Render({{busy, {}}, 2, 100, 1000, {}}, {});
  for (const char* line :
       {"# TYPE kvasir_requests_total counter\n", "kvasir_requests_total{status=\"200\"} 1\n",
        "kvasir_requests_total{status=\"503\"} 1\n", "kvasir_prompt_tokens_total 20\n",
        "kvasir_cached_tokens_total 12\n", "kvasir_generated_tokens_total 6\n",
        "kvasir_time_to_first_token_seconds_bucket{le=\"0.025\"} 0\n",
        "kvasir_time_to_first_token_seconds_bucket{le=\"0.05\"} 1\n",
        "kvasir_time_to_first_token_seconds_bucket{le=\"60\"} 1\n",
        "kvasir_time_to_first_token_seconds_bucket{le=\"+Inf\"} 2\n",
        "kvasir_time_to_first_token_seconds_sum 90.03\n",
        "kvasir_time_to_first_token_seconds_count 2\n", "kvasir_requests_running 1\n",
        "kvasir_requests_waiting 2\n", "kvasir_cache_used_bytes 100\n",
        "kvasir_cache_budget_bytes 1000\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
}

TEST(RequestRecord, Line) {
  RequestRecord record;
  record.path = "/v1/messages";
  record.prompt_tokens = 10;
  record.cached_tokens = 6;
  record.known_tokens = 7;
  record.generated_tokens = 3;
  record.first_token_ms = 30.04;
  record.decode_tokens_per_second = 50;
  record.total_ms = 70;
  record.finish = "stop";
  EXPECT_EQ(RecordLine(record),
            "/v1/messages 200: 10 prompt tokens (6 cached, 4 new, parted from the cache at 7), "
            "3 generated, the first after 30.0 ms, then 50.0 per second, 70.0 ms, stop");
  EXPECT_EQ(RecordJson(record).Dump(),
            R"({"path":"/v1/messages","status":200,"prompt_tokens":10,"cached_tokens":6,)"
            R"("new_tokens":4,"known_tokens":7,"generated_tokens":3,"first_token_ms":30.0,)"
            R"("tokens_per_second":50.0,"total_ms":70.0,"finish_reason":"stop","error":null})");
}

}  // namespace
}  // namespace kvasir
