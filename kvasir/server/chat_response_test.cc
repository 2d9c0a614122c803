// The JSON of answers, byte by byte.
#include "kvasir/server/chat_response.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

const AnswerHead kHead = {"chatcmpl-1", 1700000000, "m"};

GenerationResult Result() {
  GenerationResult result;
  result.text = "Hi \"you\"";
  result.finish = FinishReason::kLength;
  result.stats.prompt_tokens = 10;
  result.stats.cached_tokens = 6;
  result.stats.generated_tokens = 3;
  result.stats.prefill_ms = 2;
  result.stats.decode_ms = 4;
  return result;
}

constexpr const char* kUsage = R"({"prompt_tokens":10,"completion_tokens":3,"total_tokens":13,)"
                               R"("prompt_tokens_details":{"cached_tokens":6},)"
                               R"("completion_tokens_details":{"reasoning_tokens":0}})";
// 4 tokens in 2 ms; the first of 3 came out of the prompt, so 2 in 4 ms.
constexpr const char* kTimings =
    R"({"cache_n":6,"prompt_n":4,"prompt_ms":2.0,"prompt_per_token_ms":0.5,)"
    R"("prompt_per_second":2000.0,"predicted_n":3,"predicted_ms":4.0,)"
    R"("predicted_per_token_ms":1.3333333333333333,"predicted_per_second":500.0})";

TEST(ChatResponse, Completion) {
  EXPECT_EQ(CompletionJson(kHead, Result()).Dump(),
            std::string(R"({"id":"chatcmpl-1","object":"chat.completion","created":1700000000,)"
                        R"("model":"m","system_fingerprint":"kvasir","choices":[{"index":0,)"
                        R"("message":{"role":"assistant","content":"Hi \"you\"","refusal":null},)"
                        R"("logprobs":null,"finish_reason":"length"}],"usage":)") +
                kUsage + R"(,"timings":)" + kTimings + "}");
}

constexpr const char* kChunkHead =
    R"({"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,)"
    R"("model":"m","system_fingerprint":"kvasir","choices":[)";

TEST(ChatResponse, Chunks) {
  const std::string head = kChunkHead;
  EXPECT_EQ(RoleChunk(kHead, false).Dump(),
            head + R"({"index":0,"delta":{"role":"assistant","content":""},)"
                   R"("logprobs":null,"finish_reason":null}]})");
  EXPECT_EQ(TextChunk(kHead, "\n\x01", true).Dump(),
            head + R"({"index":0,"delta":{"content":"\n\u0001"},"logprobs":null,)"
                   R"("finish_reason":null}],"usage":null})");
  EXPECT_EQ(FinishChunk(kHead, Result(), false).Dump(),
            head +
                R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}],)"
                R"("timings":)" +
                kTimings + "}");
  EXPECT_EQ(FinishChunk(kHead, Result(), true).Dump(),
            head + R"({"index":0,"delta":{},"logprobs":null,"finish_reason":"length"}],)"
                   R"("usage":null})");
  EXPECT_EQ(UsageChunk(kHead, Result()).Dump(),
            head + R"(],"usage":)" + kUsage + R"(,"timings":)" + kTimings + "}");
}

TEST(ChatResponse, NoTokenAndNoTimeGiveFiniteNumbers) {
  EXPECT_EQ(TimingsJson({}).Dump(),
            R"({"cache_n":0,"prompt_n":0,"prompt_ms":0.0,"prompt_per_token_ms":0.0,)"
            R"("prompt_per_second":0.0,"predicted_n":0,"predicted_ms":0.0,)"
            R"("predicted_per_token_ms":0.0,"predicted_per_second":0.0})");
}

TEST(ChatResponse, Models) {
  EXPECT_EQ(ModelsJson("m", 5, 4096, 256, 1000, 4000).Dump(),
            R"({"object":"list","data":[{"id":"m","object":"model","created":5,)"
            R"("owned_by":"kvasir","max_model_len":4096,)"
            R"("meta":{"n_ctx_train":4096,"n_vocab":256,"n_params":1000,"size":4000}}]})");
}

TEST(ChatResponse, EventFraming) {
  EXPECT_EQ(SseEvent(Json::Object{{"text", "a\n\nb"}}), "data: {\"text\":\"a\\n\\nb\"}\n\n");
  EXPECT_EQ(SseComment("prompt 1/2"), ": prompt 1/2\n\n");
  EXPECT_EQ(kSseDone, "data: [DONE]\n\n");
}

}  // namespace
}  // namespace kvasir
