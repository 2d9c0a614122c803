#include "kvasir/server/chat_request.h"

#include <array>
#include <string_view>
#include <utility>

#include "kvasir/server/chat_messages.h"

namespace kvasir {
namespace {

bool IsString(const Json& value, std::string_view text) {
  return value.is_string() && value.as_string() == text;
}

constexpr std::array kUnsupported = {
    UnsupportedField{"functions",
                     [](const Json& v) { return v.is_array() && v.as_array().empty(); },
                     "is not supported by this server; use tools"},
    UnsupportedField{"function_call",
                     [](const Json& v) { return IsString(v, "none") || IsString(v, "auto"); },
                     "is not supported by this server; use tool_choice"},
    UnsupportedField{"modalities",
                     [](const Json& v) {
                       return v.is_array() && v.as_array().size() == 1 &&
                              IsString(v.as_array()[0], "text");
                     },
                     "must be [\"text\"]: this server writes nothing else"},
    UnsupportedField{"audio", [](const Json&) { return false; },
                     "is not supported: this server writes text only"},
};

// logprobs says whether, top_logprobs how many alternatives.
Result<std::optional<int64_t>> ParseLogprobs(const Json& body) {
  KVASIR_TRY(const bool is_wanted, body.GetBoolOr("logprobs", false));
  KVASIR_TRY(const int64_t top, body.GetIntOr("top_logprobs", 0));
  if (top < 0 || top > kMaxTopLogprobs) {
    return FieldError(ErrorCode::kInvalidArgument, "top_logprobs", "must be 0 to 20");
  }
  if (top > 0 && !is_wanted) {
    return FieldError(ErrorCode::kInvalidArgument, "top_logprobs", "needs \"logprobs\": true");
  }
  return is_wanted ? std::optional<int64_t>(top) : std::optional<int64_t>();
}

// Variables that the server or the model's files set: a request's text in their place would be
// taken for the template's own.
constexpr std::array<std::string_view, 12> kReservedVariables = {
    "messages",  "tools",     "documents",  "add_generation_prompt",
    "bos_token", "eos_token", "pad_token",  "unk_token",
    "sep_token", "cls_token", "mask_token", "functions"};

Result<Json> ParseTemplateVariables(const Json& body) {
  constexpr std::string_view kField = "chat_template_kwargs";
  const Json* variables = FindSet(body, kField);
  if (variables == nullptr) return Json(Json::Object());
  if (!variables->is_object()) return WrongType(kField, "an object", *variables);
  // A template looks them up one by one.
  constexpr size_t kMostVariables = 256;
  if (variables->as_object().size() > kMostVariables) {
    return FieldError(ErrorCode::kInvalidArgument, kField,
                      "has " + std::to_string(variables->as_object().size()) +
                          " members, may have " + std::to_string(kMostVariables));
  }
  for (const std::string_view name : kReservedVariables) {
    if (variables->Find(name) == nullptr) continue;
    return FieldError(ErrorCode::kInvalidArgument, "chat_template_kwargs." + std::string(name),
                      "cannot be set by a request");
  }
  return *variables;
}

// Fields beside chat_template_kwargs that become variables: enable_thinking, reasoning_effort, and
// a budget of thoughts, of which none and no limit are known.
Status ParseThinking(const Json& body, Json* variables) {
  const auto set = [&](std::string_view name, Json value) {
    if (variables->Find(name) == nullptr) variables->Set(name, std::move(value));
  };
  if (FindSet(body, "enable_thinking") != nullptr) {
    KVASIR_TRY(const bool is_on, body.GetBool("enable_thinking"));
    set("enable_thinking", is_on);
  }
  KVASIR_TRY(const std::string effort, body.GetStringOr("reasoning_effort", ""));
  if (effort == "none") set("enable_thinking", false);
  if (!effort.empty()) set("reasoning_effort", effort);
  for (const std::string_view name : {"thinking_budget_tokens", "reasoning_budget"}) {
    KVASIR_TRY(const int64_t budget, body.GetIntOr(name, -1));
    if (budget == 0) set("enable_thinking", false);
    if (budget != 0 && budget != -1) {
      return FieldError(ErrorCode::kUnsupported, name,
                        "must be 0 (no thoughts) or -1 (no limit): this server counts none");
    }
  }
  return {};
}

Result<bool> ParseReadsThoughts(const Json& body) {
  KVASIR_TRY(const std::string format, body.GetStringOr("reasoning_format", "auto"));
  if (format == "none") return false;
  if (format == "auto" || format == "deepseek") return true;
  return FieldError(ErrorCode::kUnsupported, "reasoning_format",
                    "must be \"auto\", \"deepseek\" or \"none\"");
}

}  // namespace

Result<ChatRequest> ParseChatRequest(Json body, const ChatDefaults& defaults) {
  KVASIR_TRY_OK(RequireObject(body));
  KVASIR_TRY_OK(RefuseUnsupported(body, kUnsupported));
  ChatRequest request;
  KVASIR_TRY(static_cast<GenerationFields&>(request), ParseGenerationFields(body, defaults, 1));
  KVASIR_TRY(request.top_logprobs, ParseLogprobs(body));
  KVASIR_TRY(request.template_variables, ParseTemplateVariables(body));
  KVASIR_TRY_OK(ParseThinking(body, &request.template_variables));
  KVASIR_TRY(request.reads_thoughts, ParseReadsThoughts(body));
  KVASIR_TRY(const bool goes_on, body.GetBoolOr("continue_final_message", true));
  if (!goes_on) request.last_answer = LastAnswer::kFinished;
  KVASIR_TRY(request.tools, ParseToolRequest(body));
  for (auto& [name, value] : body.as_object()) {
    if (name != "messages") continue;
    KVASIR_TRY(request.messages, NormalizeMessages(std::move(value)));
    return request;
  }
  return FieldError(ErrorCode::kCorrupt, "messages", "is missing; give an array of messages");
}

}  // namespace kvasir
