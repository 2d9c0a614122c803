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

// Whether a keyword is held to where it stands alone.
bool IsHeldTo(std::string_view keyword, const Json& value) {
  if (keyword == "uniqueItems" || keyword == "propertyNames") return false;
  if (keyword == "multipleOf") return IsStep(value);
  if (keyword == "exclusiveMinimum" || keyword == "exclusiveMaximum") return !value.is_bool();
  if (value.is_string()) {
    const std::string& text = value.as_string();
    if (keyword == "format") return !IsUnheldFormat(text);
    if (keyword == "pattern") return IsTranslated(text);
    if (keyword == "$ref") return text.starts_with("#");
  }
  return IsSchemaKeyword(keyword) || IsSchemaAnnotation(keyword);
}

// Whether a keyword is held to beside the others of its schema.
class Company {
 public:
  explicit Company(const Json& schema) : schema_(schema) {
    const Json* const format = schema.Find("format");
    has_format_ =
        format != nullptr && format->is_string() && !PatternOfFormat(format->as_string()).empty();
    has_pattern_ = has_format_ || Has("pattern");
    has_constants_ = Has("enum") || Has("const");
  }

  bool Takes(std::string_view keyword) const {
    if (has_constants_ && keyword != "enum" && keyword != "const" && keyword != "type") {
      return IsSchemaAnnotation(keyword);
    }
    // Of limits on one string the most telling one stays.
    if (keyword == "pattern") return !has_format_;
    if (keyword == "minLength" || keyword == "maxLength") return !has_pattern_;
    if (keyword == "minProperties" || keyword == "maxProperties") return !Has("properties");
    // What others allow is no member that nobody allows.
    if (keyword == "additionalProperties") return !Has("patternProperties");
    return true;
  }

 private:
  bool Has(std::string_view keyword) const { return schema_.Find(keyword) != nullptr; }

  const Json& schema_;
  bool has_format_;
  bool has_pattern_;
  bool has_constants_;
};

}  // namespace

Json RelaxedSchema(const Json& schema) {
  if (!schema.is_object()) return schema;
  const Company company(schema);
  Json::Object relaxed;
  for (const auto& [keyword, value] : schema.as_object()) {
    if (!IsHeldTo(keyword, value) || !company.Takes(keyword)) continue;
    // Branches need not exclude each other.
    const bool is_one_of = keyword == "oneOf" && schema.Find("anyOf") == nullptr;
    relaxed.emplace_back(is_one_of ? "anyOf" : keyword, RelaxedMember(keyword, value));
  }
  // Without it no others would be written beside those that are listed.
  const bool has_others = schema.Find("patternProperties") != nullptr;
  if (has_others && schema.Find("properties") != nullptr) {
    relaxed.emplace_back("additionalProperties", true);
  }
  return relaxed;
}

}  // namespace kvasir
