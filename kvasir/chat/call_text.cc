#include "kvasir/chat/call_text.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "kvasir/chat/argument_value.h"

namespace kvasir {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";
constexpr std::string_view kGemmaQuote = "<|\"|>";
constexpr int kMaxDepth = 64;

std::string_view Trimmed(std::string_view text) {
  const size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
  return text.substr(begin, text.find_last_not_of(kBlanks) + 1 - begin);
}

// Takes `prefix` off the front, after blanks.
bool Take(std::string_view prefix, std::string_view* text) {
  std::string_view rest = *text;
  rest.remove_prefix(std::min(rest.find_first_not_of(kBlanks), rest.size()));
  if (!rest.starts_with(prefix)) return false;
  rest.remove_prefix(prefix.size());
  *text = rest;
  return true;
}

// Takes everything up to `end`, and `end`.
std::optional<std::string_view> TakeUntil(std::string_view end, std::string_view* text) {
  const size_t at = text->find(end);
  if (at == text->npos) return std::nullopt;
  const std::string_view taken = text->substr(0, at);
  text->remove_prefix(at + end.size());
  return taken;
}

bool IsName(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c >= 0x80;
  });
}

bool HasTool(const Json& tools, std::string_view function) {
  if (!tools.is_array()) return false;
  return std::ranges::any_of(tools.as_array(), [&](const Json& tool) {
    const Json* inner = tool.Find("function");
    const Json* name = inner == nullptr ? nullptr : inner->Find("name");
    return name != nullptr && name->is_string() && name->as_string() == function;
  });
}

// Gemma's value: as JSON's, but keys are bare and strings stand between <|"|>.
std::optional<Json> TakeGemmaValue(std::string_view* text, int depth) {
  if (depth > kMaxDepth) return std::nullopt;
  if (Take(kGemmaQuote, text)) {
    const auto value = TakeUntil(kGemmaQuote, text);
    return value ? std::optional<Json>(Json(*value)) : std::nullopt;
  }
  const bool is_object = Take("{", text);
  if (is_object || Take("[", text)) {
    Json members = Json::Object();
    Json::Array elements;
    const std::string_view close = is_object ? "}" : "]";
    for (bool is_first = true; !Take(close, text); is_first = false) {
      if (!is_first && !Take(",", text)) return std::nullopt;
      std::optional<std::string_view> key;
      if (is_object && !(key = TakeUntil(":", text))) return std::nullopt;
      auto value = TakeGemmaValue(text, depth + 1);
      if (!value) return std::nullopt;
      if (is_object) {
        std::string name(Trimmed(*key));
        const bool is_quoted = name.starts_with(kGemmaQuote) && name.ends_with(kGemmaQuote) &&
                               name.size() >= 2 * kGemmaQuote.size();
        if (is_quoted) {
          name = name.substr(kGemmaQuote.size(), name.size() - 2 * kGemmaQuote.size());
        }
        members.Set(name, *std::move(value));
      } else {
        elements.push_back(*std::move(value));
      }
    }
    return is_object ? std::move(members) : Json(std::move(elements));
  }
  const size_t end = std::min(text->find_first_of(",}]"), text->size());
  auto value = Json::Parse(Trimmed(text->substr(0, end)));
  text->remove_prefix(end);
  return value.ok() ? std::optional<Json>(*std::move(value)) : std::nullopt;
}

}  // namespace

std::optional<CallText> ParseQwenXmlCall(std::string_view text, const Json& tools) {
  if (!Take("<function=", &text)) return std::nullopt;
  const auto name = TakeUntil(">", &text);
  if (!name || !IsName(Trimmed(*name))) return std::nullopt;
  CallText call{.name = std::string(Trimmed(*name)), .arguments = {}};
  Json arguments = Json::Object();
  const Json* const parameters = ParametersOf(tools, call.name);
  while (Take("<parameter=", &text)) {
    const auto key = TakeUntil(">", &text);
    auto value = key ? TakeUntil("</parameter>", &text) : std::nullopt;
    if (!value) return std::nullopt;
    // One line end on each side belongs to the form, not to the value.
    if (value->starts_with("\n")) value->remove_prefix(1);
    if (value->ends_with("\n")) value->remove_suffix(1);
    const std::string_view name_of_value = Trimmed(*key);
    arguments.Set(name_of_value, ArgumentValue(*value, TypesOfArgument(parameters, name_of_value)));
  }
  if (!Take("</function>", &text) || !Trimmed(text).empty()) return std::nullopt;
  call.arguments = arguments.Dump();
  return call;
}

GlmCall ParseGlmCall(std::string_view text, const Json& tools) {
  const size_t first = std::min(text.find(kGlmKeyOpen), text.size());
  const std::string_view name = Trimmed(text.substr(0, first));
  text.remove_prefix(first);
  if (!IsName(name)) return {};
  Json arguments = Json::Object();
  const Json* const parameters = ParametersOf(tools, name);
  while (Take(kGlmKeyOpen, &text)) {
    const auto key = TakeUntil(kGlmKeyClose, &text);
    if (!key || !Take(kGlmValueOpen, &text)) return {};
    const auto value = TakeUntil(kGlmValueClose, &text);
    if (!value) return {.call = {}, .ends_in_value = true};
    const std::string_view argument = Trimmed(*key);
    arguments.Set(argument, ArgumentValue(*value, TypesOfArgument(parameters, argument)));
  }
  // Any word would be a call without arguments.
  const bool is_known = !arguments.as_object().empty() || HasTool(tools, name);
  if (!is_known || !Trimmed(text).empty()) return {};
  return {.call = CallText{.name = std::string(name), .arguments = arguments.Dump()}};
}

std::optional<CallText> ParseGemmaCall(std::string_view text) {
  if (!Take("call:", &text)) return std::nullopt;
  const size_t brace = text.find('{');
  if (brace == text.npos || !IsName(Trimmed(text.substr(0, brace)))) return std::nullopt;
  CallText call{.name = std::string(Trimmed(text.substr(0, brace))), .arguments = {}};
  text.remove_prefix(brace);
  const auto arguments = TakeGemmaValue(&text, 0);
  if (!arguments || !Trimmed(text).empty()) return std::nullopt;
  call.arguments = arguments->Dump();
  return call;
}

}  // namespace kvasir
