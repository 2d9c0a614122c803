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

std::string_view StopReason(const AnsweredChoice& result) {
  if (result.asks_for_tools() && result.stop_string.empty()) return "tool_use";
  if (!result.stop_string.empty()) return "stop_sequence";
  return result.finish == FinishReason::kLength ? "max_tokens" : "end_turn";
}

Json StopSequence(const AnsweredChoice& result) {
  return result.stop_string.empty() ? Json() : Json(result.stop_string);
}

Json TextBlock(std::string_view text) { return Json::Object{{"type", "text"}, {"text", text}}; }

Json ThinkingBlock(std::string_view text) {
  return Json::Object{{"type", "thinking"}, {"thinking", text}, {"signature", ""}};
}

Json CallBlock(const AnswerItem& call, Json input) {
  return Json::Object{
      {"type", "tool_use"}, {"id", call.call_id}, {"name", call.name}, {"input", std::move(input)}};
}

Json BlockOf(const AnswerItem& item) {
  if (item.is(AnswerPart::Kind::kText)) return TextBlock(item.text);
  if (item.is(AnswerPart::Kind::kReasoning)) return ThinkingBlock(item.text);
  // Arguments that were cut off are no object: the message says max_tokens then.
  auto input = Json::Parse(item.text);
  const bool is_object = input.ok() && input->is_object();
  return CallBlock(item, is_object ? *std::move(input) : Json(Json::Object()));
}

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

Json MessagesFormat::Whole(std::span<const AnsweredChoice> results) {
  const AnsweredChoice& result = results.front();
  Json::Array content;
  for (const AnswerItem& item : result.message.items) content.push_back(BlockOf(item));
  return Message(std::move(content), StopReason(result), StopSequence(result), Usage(result.stats));
}

std::string MessagesFormat::Begin(const PromptProgress& prompt) {
  Json message = Message(Json::Array(), nullptr, nullptr,
                         Usage(prompt.prompt_tokens, prompt.cached_tokens, 0));
  return SseTypedEvent(Json::Object{{"type", "message_start"}, {"message", std::move(message)}});
}

std::string MessagesFormat::CloseBlock() {
  if (!open_) return {};
  open_.reset();
  return SseTypedEvent(Json::Object{{"type", "content_block_stop"}, {"index", blocks_ - 1}});
}

std::string MessagesFormat::OpenBlock(AnswerPart::Kind kind, Json block) {
  std::string events = CloseBlock();
  open_ = kind;
  return events + SseTypedEvent(Json::Object{{"type", "content_block_start"},
                                             {"index", blocks_++},
                                             {"content_block", std::move(block)}});
}

std::string MessagesFormat::Part(size_t, const AnswerPart& part, const AnswerMessage& message,
                                 std::span<const TokenScores>) {
  std::string events;
  Json delta;
  switch (part.kind) {
    case AnswerPart::Kind::kText:
      if (open_ != part.kind) events = OpenBlock(part.kind, TextBlock(""));
      delta = Json::Object{{"type", "text_delta"}, {"text", part.text}};
      break;
    case AnswerPart::Kind::kReasoning:
      if (open_ != part.kind) events = OpenBlock(part.kind, ThinkingBlock(""));
      delta = Json::Object{{"type", "thinking_delta"}, {"thinking", part.text}};
      break;
    case AnswerPart::Kind::kCall:
      return OpenBlock(part.kind, CallBlock(message.items.back(), Json::Object()));
    case AnswerPart::Kind::kArguments:
      delta = Json::Object{{"type", "input_json_delta"}, {"partial_json", part.text}};
      break;
  }
  return events +
         SseTypedEvent(Json::Object{
             {"type", "content_block_delta"}, {"index", blocks_ - 1}, {"delta", std::move(delta)}});
}

std::string MessagesFormat::ChoiceEnd(size_t, const AnsweredChoice& result,
                                      std::span<const TokenScores>) {
  const std::string events = CloseBlock();
  Json delta =
      Json::Object{{"stop_reason", StopReason(result)}, {"stop_sequence", StopSequence(result)}};
  return events + SseTypedEvent(Json::Object{{"type", "message_delta"},
                                             {"delta", std::move(delta)},
                                             {"usage", Usage(result.stats)}});
}

std::string MessagesFormat::End(std::span<const AnsweredChoice>) {
  return SseTypedEvent(Json::Object{{"type", "message_stop"}});
}

std::string MessagesFormat::Error(const ApiError& error) {
  return SseTypedEvent(ErrorJson(error, ErrorStyle::kAnthropic));
}

}  // namespace kvasir
