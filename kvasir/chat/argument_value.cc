#include "kvasir/chat/argument_value.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

namespace kvasir {
namespace {

using Types = ArgumentTypes;

constexpr int kMaxDepth = 64;
// Values that are looked at: more than real schemas have, and as nothing to what an answer takes.
constexpr int kMostValues = 4096;

struct Keyword {
  std::string_view name;
  unsigned type;
};
// Keywords that limit a type, which is the one that is meant where no other is named.
constexpr std::array<Keyword, 20> kLimits = {{
    {"minLength", Types::kString},
    {"maxLength", Types::kString},
    {"pattern", Types::kString},
    {"format", Types::kString},
    {"minimum", Types::kInteger | Types::kFraction},
    {"maximum", Types::kInteger | Types::kFraction},
    {"exclusiveMinimum", Types::kInteger | Types::kFraction},
    {"exclusiveMaximum", Types::kInteger | Types::kFraction},
    {"multipleOf", Types::kInteger | Types::kFraction},
    {"items", Types::kArray},
    {"prefixItems", Types::kArray},
    {"additionalItems", Types::kArray},
    {"minItems", Types::kArray},
    {"maxItems", Types::kArray},
    {"uniqueItems", Types::kArray},
    {"properties", Types::kObject},
    {"required", Types::kObject},
    {"additionalProperties", Types::kObject},
    {"minProperties", Types::kObject},
    {"maxProperties", Types::kObject},
}};
constexpr std::array<std::string_view, 11> kSayNothing = {
    "type",     "title", "description", "default", "examples", "deprecated",
    "readOnly", "$defs", "definitions", "$schema", "$comment"};

std::optional<unsigned> TypeNamed(const Json& name) {
  constexpr std::array<Keyword, 7> kNames = {{{"null", Types::kNull},
                                              {"boolean", Types::kBoolean},
                                              {"integer", Types::kInteger},
                                              {"number", Types::kInteger | Types::kFraction},
                                              {"string", Types::kString},
                                              {"array", Types::kArray},
                                              {"object", Types::kObject}}};
  if (!name.is_string()) return std::nullopt;
  const auto* known = std::ranges::find(kNames, name.as_string(), &Keyword::name);
  return known != kNames.end() ? std::optional<unsigned>(known->type) : std::nullopt;
}

unsigned TypeOf(const Json& value) {
  if (value.is_double()) {
    return value.as_double() == std::floor(value.as_double()) ? Types::kInteger : Types::kFraction;
  }
  if (value.is_number()) return Types::kInteger;
  return TypeNamed(Json(value.type_name())).value_or(Types::kNull);
}

Types Nothing() { return {.allowed = 0, .unlimited = 0, .texts = {}}; }

bool HasText(const Types& types, const std::string& text) {
  return std::ranges::find(types.texts, text) != types.texts.end();
}

Types Either(Types a, Types b) {
  a.allowed |= b.allowed;
  a.unlimited |= b.unlimited;
  for (std::string& text : b.texts) a.texts.push_back(std::move(text));
  return a;
}

Types Both(const Types& a, const Types& b) {
  Types both = {
      .allowed = a.allowed & b.allowed, .unlimited = a.unlimited & b.unlimited, .texts = {}};
  for (const std::string& text : a.texts) {
    if (b.Allows(Types::kString) || HasText(b, text)) both.texts.push_back(text);
  }
  for (const std::string& text : b.texts) {
    if (a.Allows(Types::kString)) both.texts.push_back(text);
  }
  return both;
}

class SchemaReader {
 public:
  explicit SchemaReader(const Json& document) : document_(document) {}

  // Recursion is bounded by kMaxDepth.
  Types Read(const Json& schema, int depth = 0) {
    if (schema == Json(false)) return Nothing();
    if (!schema.is_object() || !MayGoOn(depth)) return {};
    Types types = Own(schema);
    return Combined(schema, types, [&](const Json& part) { return Read(part, depth + 1); });
  }

  Types ReadProperty(const Json& schema, std::string_view name, int depth = 0) {
    if (!schema.is_object() || !MayGoOn(depth)) return {};
    Types types;
    const Json* properties = schema.Find("properties");
    const Json* property =
        properties != nullptr && properties->is_object() ? properties->Find(name) : nullptr;
    if (property == nullptr) property = schema.Find("additionalProperties");
    // What is named none the less is not refused here.
    if (property != nullptr && *property != Json(false)) types = Read(*property, depth + 1);
    return Combined(schema, types,
                    [&](const Json& part) { return ReadProperty(part, name, depth + 1); });
  }

 private:
  bool MayGoOn(int depth) { return depth < kMaxDepth && ++values_ < kMostValues; }

  // Without what it refers to and its branches.
  Types Own(const Json& schema) {
    unsigned limited = 0;
    bool is_known = true;
    for (const auto& [name, value] : schema.as_object()) {
      const auto* limit = std::ranges::find(kLimits, name, &Keyword::name);
      if (limit != kLimits.end()) limited |= limit->type;
      const bool is_combination = name == "$ref" || name == "allOf" || name == "anyOf" ||
                                  name == "oneOf" || name == "enum" || name == "const";
      is_known = is_known && (limit != kLimits.end() || is_combination ||
                              std::ranges::find(kSayNothing, name) != kSayNothing.end());
    }
    Types types;
    if (const Json* type = schema.Find("type"); type != nullptr) {
      types.allowed = 0;
      const Json::Array names = type->is_array() ? type->as_array() : Json::Array{*type};
      for (const Json& name : names) types.allowed |= TypeNamed(name).value_or(Types::kAll);
    } else if (limited != 0) {
      types.allowed = limited;
    }
    // A format may be one of numbers.
    if (schema.Find("format") != nullptr) limited |= Types::kInteger | Types::kFraction;
    types.unlimited = is_known ? types.allowed & ~limited : 0;
    const Json* listed = schema.Find("enum");
    if (listed != nullptr && listed->is_array()) types = Both(types, Listed(listed->as_array()));
    if (const Json* value = schema.Find("const"); value != nullptr) {
      types = Both(types, Listed({*value}));
    }
    return types;
  }

  static Types Listed(const Json::Array& values) {
    Types types = Nothing();
    for (const Json& value : values) {
      if (value.is_string()) {
        types.texts.push_back(value.as_string());
      } else {
        types.allowed |= TypeOf(value);
      }
    }
    types.unlimited = types.allowed & Types::kNull;
    return types;
  }

  template <typename ReadPart>
  Types Combined(const Json& schema, Types types, const ReadPart& read) {
    if (const Json* reference = schema.Find("$ref"); reference != nullptr) {
      const Json* target = Target(*reference);
      types = Both(types, target != nullptr ? read(*target) : Types());
    }
    const auto parts_of = [&](std::string_view keyword) {
      const Json* parts = schema.Find(keyword);
      return parts != nullptr && parts->is_array() ? &parts->as_array() : nullptr;
    };
    if (const Json::Array* parts = parts_of("allOf"); parts != nullptr) {
      for (const Json& part : *parts) types = Both(types, read(part));
    }
    for (const std::string_view keyword : {"anyOf", "oneOf"}) {
      const Json::Array* parts = parts_of(keyword);
      if (parts == nullptr) continue;
      Types any = Nothing();
      for (const Json& part : *parts) any = Either(std::move(any), read(part));
      types = Both(types, any);
    }
    return types;
  }

  // A pointer into the document (RFC 6901), without percent signs.
  const Json* Target(const Json& reference) const {
    if (!reference.is_string() || !reference.as_string().starts_with('#')) return nullptr;
    std::string_view rest = std::string_view(reference.as_string()).substr(1);
    const Json* target = &document_;
    while (!rest.empty() && target != nullptr) {
      if (rest.front() != '/') return nullptr;
      rest.remove_prefix(1);
      const size_t end = std::min(rest.find('/'), rest.size());
      std::string step;
      for (size_t i = 0; i < end; ++i) {
        const bool is_escape = rest[i] == '~' && i + 1 < end;
        step += is_escape ? (rest[i + 1] == '1' ? '/' : '~') : rest[i];
        if (is_escape) ++i;
      }
      target = target->is_object() ? target->Find(step) : nullptr;
      rest.remove_prefix(end);
    }
    return target;
  }

  const Json& document_;
  int values_ = 0;
};

}  // namespace

ArgumentTypes TypesOfSchema(const Json& schema, const Json& document) {
  return SchemaReader(document).Read(schema);
}

ArgumentTypes TypesOfArgument(const Json* parameters, std::string_view argument) {
  if (parameters == nullptr) return {};
  return SchemaReader(*parameters).ReadProperty(*parameters, argument);
}

const Json* ParametersOf(const Json& tools, std::string_view function) {
  if (!tools.is_array()) return nullptr;
  for (const Json& tool : tools.as_array()) {
    const Json* inner = tool.Find("function");
    const Json* name = inner == nullptr ? nullptr : inner->Find("name");
    if (name == nullptr || !name->is_string() || name->as_string() != function) continue;
    return inner->Find("parameters");
  }
  return nullptr;
}

Json ArgumentValue(std::string_view text, const ArgumentTypes& types) {
  if (HasText(types, std::string(text))) return Json(text);
  // Templates that write Python's names are what models have read, too.
  const bool has_words = types.allowed != Types::kAll;
  const bool is_bool = text == "True" || text == "False";
  if (has_words && is_bool && types.Allows(Types::kBoolean)) return Json(text == "True");
  if (has_words && text == "None" && types.Allows(Types::kNull)) return {};
  auto parsed = Json::Parse(text);
  if (!parsed.ok()) return Json(text);
  if (!types.may_be_text() || types.allowed == Types::kAll) return *std::move(parsed);
  // Whose quotation marks are none of the text only where it is listed without them.
  if (parsed->is_string()) return HasText(types, parsed->as_string()) ? *parsed : Json(text);
  return types.Allows(TypeOf(*parsed)) ? *std::move(parsed) : Json(text);
}

}  // namespace kvasir
