#include "kvasir/chat/call_text.h"

#include <algorithm>
#include <cctype>
#include <utility>

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

const Json* SchemaOf(const Json& tools, std::string_view function, std::string_view parameter) {
  if (!tools.is_array()) return nullptr;
  for (const Json& tool : tools.as_array()) {
    const Json* inner = tool.Find("function");
    const Json* name = inner == nullptr ? nullptr : inner->Find("name");
    if (name == nullptr || !name->is_string() || name->as_string() != function) continue;
    const Json* parameters = inner->Find("parameters");
    const Json* properties = parameters == nullptr ? nullptr : parameters->Find("properties");
    return properties == nullptr ? nullptr : properties->Find(parameter);
  }
  return nullptr;
}

// Whether a schema says that values may be of this type: by its type, its choices or its values.
bool Allows(const Json* schema, std::string_view type) {
  if (schema == nullptr) return false;
  const auto any = [&](std::string_view key, auto&& matches) {
    const Json* value = schema->Find(key);
    if (value == nullptr) return false;
    if (!value->is_array()) return matches(*value);
    return std::any_of(value->as_array().begin(), value->as_array().end(), matches);
  };
  const auto is_name = [&](const Json& name) {
    return name.is_string() && name.as_string() == type;
  };
  const auto is_value = [&](const Json& value) { return value.type_name() == type; };
  const auto is_choice = [&](const Json& choice) { return Allows(&choice, type); };
  return any("type", is_name) || any("enum", is_value) || any("const", is_value) ||
         any("anyOf", is_choice) || any("oneOf", is_choice);
}

// A value as Qwen writes it, without quotation marks: where the schema allows text, text is what
// the schema allows as nothing else.
Json QwenValue(std::string_view text, const Json* schema) {
  // Its template writes Python's names.
  const bool is_bool = text == "True" || text == "False";
  if (is_bool && Allows(schema, "boolean")) return Json(text == "True");
  if (text == "None" && Allows(schema, "null")) return {};
  auto parsed = Json::Parse(text);
  if (!parsed.ok()) return Json(text);
  if (!Allows(schema, "string")) return *std::move(parsed);
  const std::string_view type = parsed->type_name();
  const bool is_allowed = Allows(schema, type) || (type == "integer" && Allows(schema, "number"));
  return is_allowed ? *std::move(parsed) : Json(text);
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
  while (Take("<parameter=", &text)) {
    const auto key = TakeUntil(">", &text);
    auto value = key ? TakeUntil("</parameter>", &text) : std::nullopt;
    if (!value) return std::nullopt;
    // One line end on each side belongs to the form, not to the value.
    if (value->starts_with("\n")) value->remove_prefix(1);
    if (value->ends_with("\n")) value->remove_suffix(1);
    const std::string_view name_of_value = Trimmed(*key);
    arguments.Set(name_of_value, QwenValue(*value, SchemaOf(tools, call.name, name_of_value)));
  }
  if (!Take("</function>", &text) || !Trimmed(text).empty()) return std::nullopt;
  call.arguments = arguments.Dump();
  return call;
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
