#include "kvasir/server/responses_format.h"

#include <algorithm>
#include <ctime>
#include <utility>
#include <vector>

namespace kvasir {
namespace {

Json OutputText(std::string_view text, Json::Array logprobs = {}) {
  return Json::Object{{"type", "output_text"},
                      {"text", text},
                      {"annotations", Json::Array()},
                      {"logprobs", std::move(logprobs)}};
}

Json ReasoningText(std::string_view text) {
  return Json::Object{{"type", "reasoning_text"}, {"text", text}};
}

Json Usage(const AnsweredChoice& result) {
  const GenerationStats& stats = result.stats;
  return Json::Object{
      {"input_tokens", stats.prompt_tokens},
      {"input_tokens_details", Json::Object{{"cached_tokens", stats.cached_tokens}}},
      {"output_tokens", stats.generated_tokens},
      {"output_tokens_details",
       Json::Object{{"reasoning_tokens", result.message.reasoning_tokens}}},
      {"total_tokens", stats.prompt_tokens + stats.generated_tokens}};
}

// As it begins in a stream.
AnswerItem WithoutText(AnswerItem item) {
  item.text.clear();
  return item;
}

bool IsComplete(const AnsweredChoice& result) { return result.finish == FinishReason::kStop; }
std::string_view StatusOf(const AnsweredChoice& result) {
  return IsComplete(result) ? "completed" : "incomplete";
}

// What a response says of a member that the request does not have. Strictly typed clients want
// every member, also those that hold nothing.
Json::Object EchoedOtherwise() {
  return {{"parallel_tool_calls", true},
          {"tool_choice", "auto"},
          {"tools", Json::Array()},
          {"instructions", nullptr},
          {"max_output_tokens", nullptr},
          {"temperature", nullptr},
          {"top_p", nullptr},
          {"reasoning", nullptr},
          {"user", nullptr},
          {"metadata", Json::Object()},
          {"text", Json::Object{{"format", Json::Object{{"type", "text"}}}}}};
}

}  // namespace

Json EchoedMembers(const Json& body) {
  Json::Object echoed = EchoedOtherwise();
  for (auto& [name, value] : echoed) {
    const Json* const given = body.Find(name);
    if (given == nullptr || given->is_null()) continue;
    const bool is_whole = name == "metadata" ? given->is_object()
                          : name == "text"   ? given->Find("format") != nullptr
                                             : true;
    if (is_whole) value = *given;
  }
  return echoed;
}

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
                               {"truncation", "disabled"},
                               {"previous_response_id", nullptr},
                               {"store", false}};
  for (const auto& [name, value] : options_.echoed.as_object()) response.Set(name, value);
  response.Set("usage", nullptr);
  return response;
}

Json ResponsesFormat::ItemJson(const Item& item, std::string_view status) {
  Json json = Json::Object{{"type", "message"}, {"id", item.id}, {"status", status}};
  switch (item.answer.kind) {
    case AnswerPart::Kind::kText:
      json.Set("role", "assistant");
      json.Set("content", Json::Array{OutputText(item.answer.text, item.logprobs)});
      break;
    case AnswerPart::Kind::kReasoning:
      json.Set("type", "reasoning");
      json.Set("summary", Json::Array());
      json.Set("content", Json::Array{ReasoningText(item.answer.text)});
      break;
    case AnswerPart::Kind::kCall:
    case AnswerPart::Kind::kArguments:
      json.Set("type", "function_call");
      json.Set("call_id", item.answer.call_id);
      json.Set("name", item.answer.name);
      json.Set("arguments", item.answer.text);
      break;
  }
  return json;
}

ResponsesFormat::Item ResponsesFormat::NewItem(AnswerItem answer, size_t before) const {
  const bool is_thought = answer.is(AnswerPart::Kind::kReasoning);
  std::string id = is_thought ? options_.reasoning_id : options_.message_id;
  if (answer.is(AnswerPart::Kind::kCall)) {
    id = "fc_" + answer.call_id;
  } else if (before > 0) {
    id.append("_").append(std::to_string(before + 1));
  }
  return {std::move(answer), std::move(id), {}};
}

Json::Array ResponsesFormat::LogprobsOf(std::span<const TokenScores> scores) const {
  if (options_.tokenizer == nullptr) return {};
  return ChatLogprobsJson(*options_.tokenizer, scores).Find("content")->as_array();
}

Json ResponsesFormat::Output(const AnsweredChoice& result) const {
  std::vector<AnswerItem> items = result.message.items;
  // An answer without a word is a message, too.
  if (items.empty()) items.emplace_back();
  Json::Array output;
  size_t texts = 0;
  size_t thoughts = 0;
  size_t scores_begin = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    const bool is_last = i + 1 == items.size();
    const bool is_thought = items[i].is(AnswerPart::Kind::kReasoning);
    Item item = NewItem(items[i], is_thought ? thoughts++ : texts);
    if (items[i].is(AnswerPart::Kind::kText)) {
      ++texts;
      const size_t all = result.scores.size();
      const size_t end = std::max(scores_begin, is_last ? all : std::min(all, items[i].scores_end));
      item.logprobs =
          LogprobsOf(std::span(result.scores).subspan(scores_begin, end - scores_begin));
      scores_begin = end;
    }
    // What follows it says that an item is whole.
    output.push_back(ItemJson(item, is_last ? StatusOf(result) : "completed"));
  }
  return output;
}

Json ResponsesFormat::Finished(const AnsweredChoice& result, Json output) const {
  Json response = Response(StatusOf(result), std::move(output));
  response.Set("completed_at", static_cast<int64_t>(std::time(nullptr)));
  if (!IsComplete(result)) {
    response.Set("incomplete_details", Json::Object{{"reason", "max_output_tokens"}});
  }
  response.Set("usage", Usage(result));
  return response;
}

Json ResponsesFormat::Whole(std::span<const AnsweredChoice> results) {
  return Finished(results.front(), Output(results.front()));
}

std::string ResponsesFormat::Event(std::string_view type, Json::Object members) {
  Json event = Json::Object{{"type", type}, {"sequence_number", sequence_number_++}};
  for (auto& [name, value] : members) event.Set(name, std::move(value));
  return SseTypedEvent(event);
}

Json::Object ResponsesFormat::Place() const {
  return {{"item_id", open_->id}, {"output_index", static_cast<uint64_t>(output_.size())}};
}

Json::Object ResponsesFormat::PartPlace() const {
  Json::Object place = Place();
  place.emplace_back("content_index", 0);
  return place;
}

std::string ResponsesFormat::Begin(const PromptProgress&) {
  const Json response = Response("in_progress", Json::Array());
  const std::string created = Event("response.created", {{"response", response}});
  return created + Event("response.in_progress", {{"response", response}});
}

std::string ResponsesFormat::OpenItem(Item item) {
  std::string events = CloseItem("completed");
  open_ = std::move(item);
  Json json = ItemJson(*open_, "in_progress");
  const bool has_parts = open_->answer.kind != AnswerPart::Kind::kCall;
  if (has_parts) json.Set("content", Json::Array());
  events +=
      Event("response.output_item.added",
            {{"output_index", static_cast<uint64_t>(output_.size())}, {"item", std::move(json)}});
  if (!has_parts) return events;
  const bool is_text = open_->answer.kind == AnswerPart::Kind::kText;
  Json::Object part = PartPlace();
  part.emplace_back("part", is_text ? OutputText("") : ReasoningText(""));
  return events + Event("response.content_part.added", std::move(part));
}

std::string ResponsesFormat::CloseItem(std::string_view status) {
  if (!open_) return {};
  const bool is_call = open_->answer.kind == AnswerPart::Kind::kCall;
  const bool is_text = open_->answer.kind == AnswerPart::Kind::kText;
  Json::Object done = is_call ? Place() : PartPlace();
  std::string events;
  if (is_call) {
    done.emplace_back("arguments", open_->answer.text);
    done.emplace_back("name", open_->answer.name);
    events = Event("response.function_call_arguments.done", std::move(done));
  } else {
    done.emplace_back("text", open_->answer.text);
    if (is_text) done.emplace_back("logprobs", open_->logprobs);
    events = Event(is_text ? "response.output_text.done" : "response.reasoning_text.done",
                   std::move(done));
    Json::Object part = PartPlace();
    part.emplace_back("part", is_text ? OutputText(open_->answer.text, open_->logprobs)
                                      : ReasoningText(open_->answer.text));
    events += Event("response.content_part.done", std::move(part));
  }
  const Json item = ItemJson(*open_, status);
  events += Event("response.output_item.done",
                  {{"output_index", static_cast<uint64_t>(output_.size())}, {"item", item}});
  output_.push_back(item);
  open_.reset();
  return events;
}

void ResponsesFormat::AddLogprobs(std::span<const TokenScores> scores) {
  if (!open_ || open_->answer.kind != AnswerPart::Kind::kText) return;
  const Json::Array logprobs = LogprobsOf(scores);
  open_->logprobs.insert(open_->logprobs.end(), logprobs.begin(), logprobs.end());
}

std::string ResponsesFormat::Part(size_t, const AnswerPart& part, const AnswerMessage& message,
                                  std::span<const TokenScores> scores) {
  if (part.kind == AnswerPart::Kind::kCall) {
    AddLogprobs(scores);  // of its opening, which may have been text
    return OpenItem(NewItem(WithoutText(message.items.back()), 0));
  }
  std::string events;
  const bool is_arguments = part.kind == AnswerPart::Kind::kArguments;
  const bool goes_on = is_arguments || (open_ && open_->answer.kind == part.kind);
  if (!goes_on) {
    const size_t alike = message.CountOf(part.kind);
    events =
        OpenItem(NewItem(WithoutText(message.items.back()), alike - std::min(alike, size_t{1})));
  }
  open_->answer.text += part.text;
  Json::Object delta = is_arguments ? Place() : PartPlace();
  delta.emplace_back("delta", part.text);
  if (is_arguments) {
    return events + Event("response.function_call_arguments.delta", std::move(delta));
  }
  if (part.kind == AnswerPart::Kind::kReasoning) {
    return events + Event("response.reasoning_text.delta", std::move(delta));
  }
  AddLogprobs(scores);
  delta.emplace_back("logprobs", LogprobsOf(scores));
  return events + Event("response.output_text.delta", std::move(delta));
}

std::string ResponsesFormat::ChoiceEnd(size_t, const AnsweredChoice& result,
                                       std::span<const TokenScores> scores) {
  // An answer without a word is a message, too.
  std::string events;
  if (!open_ && output_.empty()) events = OpenItem(NewItem({}, 0));
  AddLogprobs(scores);
  return events + CloseItem(StatusOf(result));
}

std::string ResponsesFormat::End(std::span<const AnsweredChoice> results) {
  const AnsweredChoice& result = results.front();
  return Event(IsComplete(result) ? "response.completed" : "response.incomplete",
               {{"response", Finished(result, output_)}});
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
