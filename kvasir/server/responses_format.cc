#include "kvasir/server/responses_format.h"

#include <array>
#include <ctime>
#include <utility>

namespace kvasir {
namespace {

Json OutputText(std::string_view text) {
  return Json::Object{{"type", "output_text"},
                      {"text", text},
                      {"annotations", Json::Array()},
                      {"logprobs", Json::Array()}};
}

Json Usage(const GenerationStats& stats) {
  return Json::Object{
      {"input_tokens", stats.prompt_tokens},
      {"input_tokens_details", Json::Object{{"cached_tokens", stats.cached_tokens}}},
      {"output_tokens", stats.generated_tokens},
      {"output_tokens_details", Json::Object{{"reasoning_tokens", 0}}},
      {"total_tokens", stats.prompt_tokens + stats.generated_tokens}};
}

bool IsComplete(const GenerationResult& result) { return result.finish == FinishReason::kStop; }
std::string_view StatusOf(const GenerationResult& result) {
  return IsComplete(result) ? "completed" : "incomplete";
}

// Strictly typed clients want every member, also those that hold nothing.
constexpr std::array<std::string_view, 6> kEchoed = {
    "instructions", "max_output_tokens", "temperature", "top_p", "reasoning", "user"};

}  // namespace

Json ResponsesFormat::Response(std::string_view status, Json output) const {
  Json response = Json::Object{{"id", options_.head.id},
                               {"object", "response"},
                               {"created_at", options_.head.created},
                               {"completed_at", nullptr},
                               {"status", status},
                               {"error", nullptr},
                               {"incomplete_details", nullptr},
                               {"model", options_.head.model},
                               {"output", std::move(output)},
                               {"parallel_tool_calls", true},
                               {"tool_choice", "auto"},
                               {"tools", Json::Array()},
                               {"truncation", "disabled"},
                               {"previous_response_id", nullptr},
                               {"store", false}};
  for (const std::string_view name : kEchoed) {
    const Json* value = options_.echoed.Find(name);
    response.Set(name, value == nullptr ? Json() : *value);
  }
  const Json* metadata = options_.echoed.Find("metadata");
  const bool has_metadata = metadata != nullptr && metadata->is_object();
  response.Set("metadata", has_metadata ? *metadata : Json(Json::Object()));
  const Json* text = options_.echoed.Find("text");
  const bool has_format = text != nullptr && text->Find("format") != nullptr;
  response.Set("text",
               has_format ? *text : Json(Json::Object{{"format", Json::Object{{"type", "text"}}}}));
  response.Set("usage", nullptr);
  return response;
}

Json ResponsesFormat::Item(std::string_view status, Json content) const {
  return Json::Object{{"type", "message"},
                      {"id", options_.message_id},
                      {"status", status},
                      {"role", "assistant"},
                      {"content", std::move(content)}};
}

Json ResponsesFormat::Finished(const GenerationResult& result) const {
  Json item = Item(StatusOf(result), Json::Array{OutputText(result.text)});
  Json response = Response(StatusOf(result), Json::Array{std::move(item)});
  response.Set("completed_at", static_cast<int64_t>(std::time(nullptr)));
  if (!IsComplete(result)) {
    response.Set("incomplete_details", Json::Object{{"reason", "max_output_tokens"}});
  }
  response.Set("usage", Usage(result.stats));
  return response;
}

Json ResponsesFormat::Whole(std::span<const GenerationResult> results) {
  return Finished(results.front());
}

std::string ResponsesFormat::Event(std::string_view type, Json::Object members) {
  Json event = Json::Object{{"type", type}, {"sequence_number", sequence_number_++}};
  for (auto& [name, value] : members) event.Set(name, std::move(value));
  return SseTypedEvent(event);
}

Json::Object ResponsesFormat::Part() const {
  return {{"item_id", options_.message_id}, {"output_index", 0}, {"content_index", 0}};
}

std::string ResponsesFormat::Begin(const PromptProgress&) {
  const Json response = Response("in_progress", Json::Array());
  std::string events = Event("response.created", {{"response", response}});
  events += Event("response.in_progress", {{"response", response}});
  events += Event("response.output_item.added",
                  {{"output_index", 0}, {"item", Item("in_progress", Json::Array())}});
  Json::Object part = Part();
  part.emplace_back("part", OutputText(""));
  return events + Event("response.content_part.added", std::move(part));
}

std::string ResponsesFormat::Text(size_t, std::string_view text, std::span<const TokenScores>) {
  Json::Object part = Part();
  part.emplace_back("delta", text);
  part.emplace_back("logprobs", Json::Array());
  return Event("response.output_text.delta", std::move(part));
}

std::string ResponsesFormat::ChoiceEnd(size_t, const GenerationResult& result,
                                       std::span<const TokenScores>) {
  Json::Object text = Part();
  text.emplace_back("text", result.text);
  text.emplace_back("logprobs", Json::Array());
  std::string events = Event("response.output_text.done", std::move(text));
  Json::Object part = Part();
  part.emplace_back("part", OutputText(result.text));
  events += Event("response.content_part.done", std::move(part));
  Json item = Item(StatusOf(result), Json::Array{OutputText(result.text)});
  return events +
         Event("response.output_item.done", {{"output_index", 0}, {"item", std::move(item)}});
}

std::string ResponsesFormat::End(std::span<const GenerationResult> results) {
  const GenerationResult& result = results.front();
  return Event(IsComplete(result) ? "response.completed" : "response.incomplete",
               {{"response", Finished(result)}});
}

std::string ResponsesFormat::Error(const ApiError& error) {
  const Json code = error.code.empty() ? Json() : Json(error.code);
  std::string events =
      Event("error", {{"code", code}, {"message", error.message}, {"param", nullptr}});
  Json response = Response("failed", Json::Array());
  response.Set("error", Json::Object{{"code", "server_error"}, {"message", error.message}});
  return events + Event("response.failed", {{"response", std::move(response)}});
}

}  // namespace kvasir
