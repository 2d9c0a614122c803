// The JSON of answers: chat.completion, chat.completion.chunk, usage, timings, models, and the
// framing of server-sent events.
// Deliberately only values in, JSON out: when a chunk is sent is chat_answer's business.
#ifndef KVASIR_SERVER_CHAT_RESPONSE_H_
#define KVASIR_SERVER_CHAT_RESPONSE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "kvasir/base/json.h"
#include "kvasir/engine/generator.h"

namespace kvasir {

// What all parts of one answer share.
struct AnswerHead {
  std::string id;       // "chatcmpl-..."
  int64_t created = 0;  // Unix seconds
  std::string model;
};

// {prompt_tokens, completion_tokens, total_tokens, prompt_tokens_details: {cached_tokens}, ...}
Json UsageJson(const GenerationStats& stats);
// As llama.cpp's server: cache_n, prompt_n, prompt_ms, ..., predicted_per_second. prompt_n counts
// the evaluated tokens only, so cache_n + prompt_n is the prompt.
Json TimingsJson(const GenerationStats& stats);

// A whole answer.
Json CompletionJson(const AnswerHead& head, const GenerationResult& result);

// Chunks of a streamed one. With `has_usage` (stream_options.include_usage) the last chunk holds
// the usage and all others "usage": null.
Json RoleChunk(const AnswerHead& head, bool has_usage);
Json TextChunk(const AnswerHead& head, std::string_view text, bool has_usage);
Json FinishChunk(const AnswerHead& head, const GenerationResult& result, bool has_usage);
Json UsageChunk(const AnswerHead& head, const GenerationResult& result);

// {"object": "list", "data": [...]} with the one model. `context_tokens` stands in the two places
// where clients look for it.
Json ModelsJson(std::string_view name, int64_t created, int64_t context_tokens, int64_t vocab_size,
                int64_t parameters, size_t weight_bytes);

// "data: {...}\n\n"
std::string SseEvent(const Json& data);
// ": text\n\n", which clients ignore. REQUIRES: no line break in `text`.
std::string SseComment(std::string_view text);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

}  // namespace kvasir

#endif  // KVASIR_SERVER_CHAT_RESPONSE_H_
