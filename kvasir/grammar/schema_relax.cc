#include "kvasir/grammar/schema_relax.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "kvasir/grammar/grammar_syntax.h"
#include "kvasir/grammar/json_formats.h"
#include "kvasir/grammar/json_pattern.h"
#include "kvasir/grammar/json_text.h"
#include "kvasir/grammar/schema_merge.h"
#include "kvasir/grammar/schema_translator.h"

namespace kvasir {
namespace {

template <size_t n>
bool IsOneOf(std::string_view name, const std::array<std::string_view, n>& names) {
  return std::ranges::find(names, name) != names.end();
}

// What holds one schema, several, or several by name.
constexpr std::array<std::string_view, 3> kOfOne = {"items", "additionalItems",
                                                    "additionalProperties"};
constexpr std::array<std::string_view, 5> kOfMany = {"prefixItems", "items", "anyOf", "oneOf",
                                                     "allOf"};
constexpr std::array<std::string_view, 3> kOfNamed = {"properties", "$defs", "definitions"};

Json RelaxedMember(std::string_view keyword, const Json& value) {
  if (value.is_array() && IsOneOf(keyword, kOfMany)) {
    Json::Array schemas;
    for (const Json& schema : value.as_array()) schemas.push_back(RelaxedSchema(schema));
    return schemas;
  }
  if (value.is_object() && IsOneOf(keyword, kOfNamed)) {
    Json::Object schemas;
    for (const auto& [name, schema] : value.as_object()) {
      schemas.emplace_back(name, RelaxedSchema(schema));
    }
    return schemas;
  }
  return IsOneOf(keyword, kOfOne) ? RelaxedSchema(value) : value;
}

// 1, 0.1, 0.01 and so on.
bool IsStep(const Json& value) {
  double step = 1;
  for (int digits = 0; digits <= 15; ++digits, step *= 10) {
    if (value.is_number() && value.as_double() == 1 / step) return true;
  }
  return false;
}

bool IsTranslated(const std::string& pattern) {
  GrammarSyntax trial;
  JsonText json(&trial);
  return TranslatePattern(pattern, &trial, &json).ok();
}

bool IsSchema(const Json& value) { return value.is_object() || value.is_bool(); }

bool IsType(const Json& value) {
  return value.is_string() && IsOneOf(value.as_string(), kSchemaTypes);
}

// Whether a keyword has a value of the type that it wants.
bool IsWellFormed(std::string_view keyword, const Json& value) {
  if (keyword == "type" && value.is_array()) {
    return !value.as_array().empty() && std::ranges::all_of(value.as_array(), IsType);
  }
  if (keyword == "type") return IsType(value);
  if (keyword == "enum") return value.is_array() && !value.as_array().empty();
  if (keyword == "required") {
    return value.is_array() && std::ranges::all_of(value.as_array(), &Json::is_string);
  }
  if (keyword == "format" || keyword == "pattern" || keyword == "$ref") return value.is_string();
  if (IsOneOf(keyword, kOfNamed)) return value.is_object();
  if (keyword == "items") return value.is_array() || IsSchema(value);
  if (IsOneOf(keyword, kOfOne)) return IsSchema(value);
  if (IsOneOf(keyword, kOfMany)) return value.is_array() && !value.as_array().empty();
  const bool is_limit = keyword.starts_with("min") || keyword.starts_with("max") ||
                        keyword.starts_with("exclusiveM") || keyword == "multipleOf";
  return !is_limit || (value.is_number() && (value.as_double() >= 0 || keyword.ends_with("imum")));
}

// Whether a keyword is held to where it stands alone.
bool IsHeldTo(std::string_view keyword, const Json& value) {
  if (!IsWellFormed(keyword, value)) return false;
  if (keyword == "uniqueItems" || keyword == "propertyNames") return false;
  if (keyword == "multipleOf") return IsStep(value);
  if (value.is_string()) {
    const std::string& text = value.as_string();
    if (keyword == "format") return !IsUnheldFormat(text);
    if (keyword == "pattern") return IsTranslated(text);
    if (keyword == "$ref") return text.starts_with("#");
  }
  return IsSchemaKeyword(keyword) || IsSchemaAnnotation(keyword);
}

// The keywords of a schema that are held to, where they stand alone.
class HeldKeywords {
 public:
  explicit HeldKeywords(const Json& schema) : schema_(schema) {}

  bool Has(std::string_view keyword) const {
    const Json* const value = schema_.Find(keyword);
    return value != nullptr && IsHeldTo(keyword, *value);
  }
  bool has_format() const {
    return Has("format") && !PatternOfFormat(schema_.Find("format")->as_string()).empty();
  }
  // Members that are not listed had schemas of their own.
  bool has_others() const { return schema_.Find("patternProperties") != nullptr; }

  // Whether it is held to beside the others.
  bool Takes(std::string_view keyword) const {
    const bool has_constants = Has("enum") || Has("const");
    if (has_constants && keyword != "enum" && keyword != "const" && keyword != "type") {
      return IsSchemaAnnotation(keyword);
    }
    // Of limits on one string the most telling one stays.
    if (keyword == "pattern") return !has_format();
    if (keyword == "minLength" || keyword == "maxLength") return !has_format() && !Has("pattern");
    if (keyword == "minProperties" || keyword == "maxProperties") return !Has("properties");
    if (keyword == "additionalProperties") return !has_others();
    return true;
  }

 private:
  const Json& schema_;
};

}  // namespace

Json RelaxedSchema(const Json& schema) {
  if (!schema.is_object()) return schema.is_bool() ? schema : Json(true);
  const HeldKeywords held(schema);
  Json::Object relaxed;
  for (const auto& [keyword, value] : schema.as_object()) {
    // Of others there may be thousands.
    const bool is_annotation = IsSchemaAnnotation(keyword);
    if (!is_annotation && (!IsHeldTo(keyword, value) || !held.Takes(keyword))) continue;
    // Branches need not exclude each other.
    const bool is_one_of = keyword == "oneOf" && !held.Has("anyOf");
    relaxed.emplace_back(is_one_of ? "anyOf" : keyword, RelaxedMember(keyword, value));
  }
  // Without it no others would be written beside those that are listed.
  if (held.has_others() && held.Has("properties")) {
    relaxed.emplace_back("additionalProperties", true);
  }
  return relaxed;
}

}  // namespace kvasir
