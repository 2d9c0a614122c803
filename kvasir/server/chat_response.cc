#include "kvasir/server/chat_response.h"

#include <utility>

namespace kvasir {
namespace {

double PerToken(double ms, int64_t tokens) {
  return tokens > 0 ? ms / static_cast<double>(tokens) : 0.0;
}

Json Envelope(const AnswerHead& head, const char* object) {
  return Json::Object{{"id", head.id},
                      {"object", object},
                      {"created", head.created},
                      {"model", head.model},
                      {"system_fingerprint", "kvasir"}};
}

Json Chunk(const AnswerHead& head, Json delta, Json finish_reason, bool has_usage) {
  Json chunk = Envelope(head, "chat.completion.chunk");
  Json choice = Json::Object{{"index", 0},
                             {"delta", std::move(delta)},
                             {"logprobs", nullptr},
                             {"finish_reason", std::move(finish_reason)}};
  chunk.Set("choices", Json::Array{std::move(choice)});
  if (has_usage) chunk.Set("usage", nullptr);
  return chunk;
}

}  // namespace

Json UsageJson(const GenerationStats& stats) {
  return Json::Object{
      {"prompt_tokens", stats.prompt_tokens},
      {"completion_tokens", stats.generated_tokens},
      {"total_tokens", stats.prompt_tokens + stats.generated_tokens},
      {"prompt_tokens_details", Json::Object{{"cached_tokens", stats.cached_tokens}}},
      {"completion_tokens_details", Json::Object{{"reasoning_tokens", 0}}}};
}

Json TimingsJson(const GenerationStats& stats) {
  const int64_t evaluated = stats.prompt_tokens - stats.cached_tokens;
  return Json::Object{{"cache_n", stats.cached_tokens},
                      {"prompt_n", evaluated},
                      {"prompt_ms", stats.prefill_ms},
                      {"prompt_per_token_ms", PerToken(stats.prefill_ms, evaluated)},
                      {"prompt_per_second", stats.prefill_tokens_per_second()},
                      {"predicted_n", stats.generated_tokens},
                      {"predicted_ms", stats.decode_ms},
                      {"predicted_per_token_ms", PerToken(stats.decode_ms, stats.generated_tokens)},
                      {"predicted_per_second", stats.decode_tokens_per_second()}};
}

Json CompletionJson(const AnswerHead& head, const GenerationResult& result) {
  Json completion = Envelope(head, "chat.completion");
  Json message =
      Json::Object{{"role", "assistant"}, {"content", result.text}, {"refusal", nullptr}};
  Json choice = Json::Object{{"index", 0},
                             {"message", std::move(message)},
                             {"logprobs", nullptr},
                             {"finish_reason", FinishReasonName(result.finish)}};
  completion.Set("choices", Json::Array{std::move(choice)});
  completion.Set("usage", UsageJson(result.stats));
  completion.Set("timings", TimingsJson(result.stats));
  return completion;
}

Json RoleChunk(const AnswerHead& head, bool has_usage) {
  return Chunk(head, Json::Object{{"role", "assistant"}, {"content", ""}}, nullptr, has_usage);
}

Json TextChunk(const AnswerHead& head, std::string_view text, bool has_usage) {
  return Chunk(head, Json::Object{{"content", text}}, nullptr, has_usage);
}

Json FinishChunk(const AnswerHead& head, const GenerationResult& result, bool has_usage) {
  Json chunk = Chunk(head, Json::Object(), FinishReasonName(result.finish), has_usage);
  if (!has_usage) chunk.Set("timings", TimingsJson(result.stats));
  return chunk;
}

Json UsageChunk(const AnswerHead& head, const GenerationResult& result) {
  Json chunk = Envelope(head, "chat.completion.chunk");
  chunk.Set("choices", Json::Array());
  chunk.Set("usage", UsageJson(result.stats));
  chunk.Set("timings", TimingsJson(result.stats));
  return chunk;
}

Json ModelsJson(std::string_view name, int64_t created, int64_t context_tokens, int64_t vocab_size,
                int64_t parameters, size_t weight_bytes) {
  Json meta = Json::Object{{"n_ctx_train", context_tokens},
                           {"n_vocab", vocab_size},
                           {"n_params", parameters},
                           {"size", static_cast<uint64_t>(weight_bytes)}};
  Json model = Json::Object{{"id", name},
                            {"object", "model"},
                            {"created", created},
                            {"owned_by", "kvasir"},
                            {"max_model_len", context_tokens},
                            {"meta", std::move(meta)}};
  return Json::Object{{"object", "list"}, {"data", Json::Array{std::move(model)}}};
}

std::string SseEvent(const Json& data) { return "data: " + data.Dump() + "\n\n"; }

std::string SseComment(std::string_view text) { return ": " + std::string(text) + "\n\n"; }

}  // namespace kvasir
