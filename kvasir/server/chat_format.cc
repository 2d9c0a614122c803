#include "kvasir/server/chat_format.h"

#include <utility>

namespace kvasir {
namespace {

constexpr std::string_view kChunkObject = "chat.completion.chunk";

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

Json ChatFormat::Whole(std::span<const GenerationResult> results) {
  Json::Array choices;
  for (const GenerationResult& result : results) {
    Json message =
        Json::Object{{"role", "assistant"}, {"content", result.text}, {"refusal", nullptr}};
    choices.push_back(Json::Object{{"index", static_cast<uint64_t>(choices.size())},
                                   {"message", std::move(message)},
                                   {"logprobs", LogprobsOf(result.scores)},
                                   {"finish_reason", FinishReasonName(result.finish)}});
  }
  const GenerationStats total = TotalStats(results, options_.choices);
  Json completion = Envelope(options_.head, "chat.completion");
  completion.Set("choices", std::move(choices));
  completion.Set("usage", UsageJson(total));
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

std::string ChatFormat::Text(size_t choice, std::string_view text,
                             std::span<const TokenScores> scores) {
  return SseEvent(Chunk(choice, Json::Object{{"content", text}}, LogprobsOf(scores), nullptr));
}

std::string ChatFormat::ChoiceEnd(size_t choice, const GenerationResult& result,
                                  std::span<const TokenScores> scores) {
  Json logprobs = scores.empty() ? Json() : LogprobsOf(scores);
  Json chunk = Chunk(choice, Json::Object(), std::move(logprobs), FinishReasonName(result.finish));
  if (!options_.includes_usage) chunk.Set("timings", TimingsJson(result.stats));
  return SseEvent(chunk);
}

std::string ChatFormat::End(std::span<const GenerationResult> results) {
  std::string events;
  if (options_.includes_usage) {
    const GenerationStats total = TotalStats(results, options_.choices);
    Json chunk = Envelope(options_.head, kChunkObject);
    chunk.Set("choices", Json::Array());
    chunk.Set("usage", UsageJson(total));
    chunk.Set("timings", TimingsJson(total));
    events = SseEvent(chunk);
  }
  return events.append(kSseDone);
}

}  // namespace kvasir
