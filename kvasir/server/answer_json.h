// The JSON that answers of several APIs share: usage, timings, log-probabilities, and the framing
// of server-sent events.
// Deliberately only values in, JSON out: when something is sent is answer's business.
#ifndef KVASIR_SERVER_ANSWER_JSON_H_
#define KVASIR_SERVER_ANSWER_JSON_H_

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/engine/generation.h"
#include "kvasir/server/answer_message.h"
#include "kvasir/tokenizer/tokenizer.h"

namespace kvasir {

// What all parts of one answer share.
struct AnswerHead {
  std::string id;       // "chatcmpl-..."
  int64_t created = 0;  // Unix seconds
  std::string model;
};

// prefix + 24 random characters.
std::string NewId(std::string_view prefix);

// {id, object, created, model, system_fingerprint}
Json Envelope(const AnswerHead& head, std::string_view object);

// Of all choices of a request, `per_prompt` of which have the same prompt: that one counts once.
GenerationStats TotalStats(std::span<const AnsweredChoice> results, int64_t per_prompt);

// {prompt_tokens, completion_tokens, total_tokens, prompt_tokens_details: {cached_tokens}, ...}
Json UsageJson(const GenerationStats& stats, int64_t reasoning_tokens);
// Of all choices.
int64_t ReasoningTokens(std::span<const AnsweredChoice> results);
// As llama.cpp's server: cache_n, prompt_n, prompt_ms, ..., predicted_per_second. prompt_n counts
// the evaluated tokens only, so cache_n + prompt_n is the prompt.
Json TimingsJson(const GenerationStats& stats);

// A logprob as JSON can hold it: -infinity is -9999.
double FiniteLogprob(double logprob);
// {"content": [{token, logprob, bytes, top_logprobs}], "refusal": null}
Json ChatLogprobsJson(const Tokenizer& tokenizer, std::span<const TokenScores> scores);

// "data: {...}\n\n"
std::string SseEvent(const Json& data);
// "event: type\ndata: {...}\n\n". REQUIRES: data has the string member "type".
std::string SseTypedEvent(const Json& data);
// ": text\n\n", which clients ignore. REQUIRES: no line break in `text`.
std::string SseComment(std::string_view text);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

}  // namespace kvasir

#endif  // KVASIR_SERVER_ANSWER_JSON_H_
