#include "kvasir/server/chat_format.h"

#include <utility>

namespace kvasir {
namespace {

constexpr std::string_view kChunkObject = "chat.completion.chunk";

std::string_view FinishName(const AnsweredChoice& result) {
  return result.asks_for_tools() ? "tool_calls" : FinishReasonName(result.finish);
}

// Id and name come with the beginning of a call, then only pieces of its arguments.
Json CallDelta(const AnswerPart& part, const AnswerMessage& message) {
  const size_t calls = message.CountOf(AnswerPart::Kind::kCall);
  Json delta = Json::Object{{"index", static_cast<uint64_t>(calls - 1)}};
  if (part.kind == AnswerPart::Kind::kArguments) {
    delta.Set("function", Json::Object{{"arguments", part.text}});
    return delta;
  }
  delta.Set("id", message.items.back().call_id);
  delta.Set("type", "function");
  delta.Set("function", Json::Object{{"name", part.text}, {"arguments", ""}});
  return delta;
}

Json MessageJson(const AnswerMessage& message) {
  Json json = Json::Object{{"role", "assistant"}};
  const std::string text = message.TextOf(AnswerPart::Kind::kText);
  const std::string reasoning = message.TextOf(AnswerPart::Kind::kReasoning);
  json.Set("content", text.empty() && message.has_calls() ? Json() : Json(text));
  if (!reasoning.empty()) json.Set("reasoning_content", reasoning);
  json.Set("refusal", nullptr);
  Json::Array calls;
  for (const AnswerItem& item : message.items) {
    if (!item.is(AnswerPart::Kind::kCall)) continue;
    Json function = Json::Object{{"name", item.name}, {"arguments", item.text}};
    calls.push_back(Json::Object{
        {"id", item.call_id}, {"type", "function"}, {"function", std::move(function)}});
  }
  if (!calls.empty()) json.Set("tool_calls", std::move(calls));
  return json;
}

}  // namespace

Json ChatFormat::LogprobsOf(std::span<const TokenScores> scores) const {
  if (options_.tokenizer == nullptr) return {};
  return ChatLogprobsJson(*options_.tokenizer, scores);
}

Json ChatFormat::Chunk(size_t choice, Json delta, Json logprobs, Json finish_reason) const {
  Json chunk = Envelope(options_.head, kChunkObject);
  Json entry = Json::Object{{"index", static_cast<uint64_t>(choice)},
                            {"delta", std::move(delta)},
                            {"logprobs", std::move(logprobs)},
                            {"finish_reason", std::move(finish_reason)}};
  chunk.Set("choices", Json::Array{std::move(entry)});
  if (options_.includes_usage) chunk.Set("usage", nullptr);
  return chunk;
}

Json ChatFormat::Whole(std::span<const AnsweredChoice> results) {
  Json::Array choices;
  for (const AnsweredChoice& result : results) {
    choices.push_back(Json::Object{{"index", static_cast<uint64_t>(choices.size())},
                                   {"message", MessageJson(result.message)},
                                   {"logprobs", LogprobsOf(result.scores)},
                                   {"finish_reason", FinishName(result)}});
  }
  const GenerationStats total = TotalStats(results, options_.choices);
  Json completion = Envelope(options_.head, "chat.completion");
  completion.Set("choices", std::move(choices));
  completion.Set("usage", UsageJson(total, ReasoningTokens(results)));
  completion.Set("timings", TimingsJson(total));
  return completion;
}

std::string ChatFormat::Begin(const PromptProgress&) {
  std::string events;
  for (int64_t i = 0; i < options_.choices; ++i) {
    Json delta = Json::Object{{"role", "assistant"}, {"content", ""}};
    events += SseEvent(Chunk(static_cast<size_t>(i), std::move(delta), nullptr, nullptr));
  }
  return events;
}

std::string ChatFormat::Part(size_t choice, const AnswerPart& part, const AnswerMessage& message,
                             std::span<const TokenScores> scores) {
  Json delta = Json::Object();
  switch (part.kind) {
    case AnswerPart::Kind::kText:
      delta.Set("content", part.text);
      break;
    case AnswerPart::Kind::kReasoning:
      delta.Set("reasoning_content", part.text);
      break;
    case AnswerPart::Kind::kCall:
    case AnswerPart::Kind::kArguments:
      delta.Set("tool_calls", Json::Array{CallDelta(part, message)});
      break;
  }
  return SseEvent(Chunk(choice, std::move(delta), LogprobsOf(scores), nullptr));
}

std::string ChatFormat::ChoiceEnd(size_t choice, const AnsweredChoice& result,
                                  std::span<const TokenScores> scores) {
  Json logprobs = scores.empty() ? Json() : LogprobsOf(scores);
  Json chunk = Chunk(choice, Json::Object(), std::move(logprobs), FinishName(result));
  if (!options_.includes_usage) chunk.Set("timings", TimingsJson(result.stats));
  return SseEvent(chunk);
}

std::string ChatFormat::End(std::span<const AnsweredChoice> results) {
  std::string events;
  if (options_.includes_usage) {
    const GenerationStats total = TotalStats(results, options_.choices);
    Json chunk = Envelope(options_.head, kChunkObject);
    chunk.Set("choices", Json::Array());
    chunk.Set("usage", UsageJson(total, ReasoningTokens(results)));
    chunk.Set("timings", TimingsJson(total));
    events = SseEvent(chunk);
  }
  return events.append(kSseDone);
}

}  // namespace kvasir
