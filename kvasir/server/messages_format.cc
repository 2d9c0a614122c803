#include "kvasir/server/messages_format.h"

#include <utility>

namespace kvasir {
namespace {

// input_tokens does not count what was read from the cache.
Json Usage(int64_t prompt_tokens, int64_t cached_tokens, int64_t generated_tokens) {
  return Json::Object{{"input_tokens", prompt_tokens - cached_tokens},
                      {"cache_creation_input_tokens", 0},
                      {"cache_read_input_tokens", cached_tokens},
                      {"output_tokens", generated_tokens}};
}

Json Usage(const GenerationStats& stats) {
  return Usage(stats.prompt_tokens, stats.cached_tokens, stats.generated_tokens);
}

std::string_view StopReason(const GenerationResult& result) {
  if (!result.stop_string.empty()) return "stop_sequence";
  return result.finish == FinishReason::kLength ? "max_tokens" : "end_turn";
}

Json StopSequence(const GenerationResult& result) {
  return result.stop_string.empty() ? Json() : Json(result.stop_string);
}

Json TextBlock(std::string_view text) { return Json::Object{{"type", "text"}, {"text", text}}; }

}  // namespace

Json MessagesFormat::Message(Json content, Json stop_reason, Json stop_sequence, Json usage) const {
  return Json::Object{{"id", head_.id},
                      {"type", "message"},
                      {"role", "assistant"},
                      {"model", head_.model},
                      {"content", std::move(content)},
                      {"stop_reason", std::move(stop_reason)},
                      {"stop_sequence", std::move(stop_sequence)},
                      {"usage", std::move(usage)}};
}

Json MessagesFormat::Whole(std::span<const GenerationResult> results) {
  const GenerationResult& result = results.front();
  Json::Array content;
  if (!result.text.empty()) content.push_back(TextBlock(result.text));
  return Message(std::move(content), StopReason(result), StopSequence(result), Usage(result.stats));
}

std::string MessagesFormat::Begin(const PromptProgress& prompt) {
  Json message = Message(Json::Array(), nullptr, nullptr,
                         Usage(prompt.prompt_tokens, prompt.cached_tokens, 0));
  return SseTypedEvent(Json::Object{{"type", "message_start"}, {"message", std::move(message)}});
}

std::string MessagesFormat::Text(size_t, std::string_view text, std::span<const TokenScores>) {
  std::string events;
  if (!std::exchange(is_block_open_, true)) {
    events = SseTypedEvent(Json::Object{
        {"type", "content_block_start"}, {"index", 0}, {"content_block", TextBlock("")}});
  }
  Json delta = Json::Object{{"type", "text_delta"}, {"text", text}};
  return events + SseTypedEvent(Json::Object{
                      {"type", "content_block_delta"}, {"index", 0}, {"delta", std::move(delta)}});
}

std::string MessagesFormat::ChoiceEnd(size_t, const GenerationResult& result,
                                      std::span<const TokenScores>) {
  std::string events;
  if (std::exchange(is_block_open_, false)) {
    events = SseTypedEvent(Json::Object{{"type", "content_block_stop"}, {"index", 0}});
  }
  Json delta =
      Json::Object{{"stop_reason", StopReason(result)}, {"stop_sequence", StopSequence(result)}};
  return events + SseTypedEvent(Json::Object{{"type", "message_delta"},
                                             {"delta", std::move(delta)},
                                             {"usage", Usage(result.stats)}});
}

std::string MessagesFormat::End(std::span<const GenerationResult>) {
  return SseTypedEvent(Json::Object{{"type", "message_stop"}});
}

std::string MessagesFormat::Error(const ApiError& error) {
  return SseTypedEvent(ErrorJson(error, ErrorStyle::kAnthropic));
}

}  // namespace kvasir
