#include "kvasir/grammar/schema_relax.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "kvasir/grammar/json_formats.h"
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

// Whether a keyword is held to where it stands alone.
bool IsHeldTo(std::string_view keyword, const Json& value) {
  if (keyword == "uniqueItems" || keyword == "propertyNames") return false;
  if (keyword == "multipleOf") return value == Json(1);
  if (keyword == "format") return value.is_string() && !IsUnheldFormat(value.as_string());
  return IsSchemaKeyword(keyword) || IsSchemaAnnotation(keyword);
}

}  // namespace

Json RelaxedSchema(const Json& schema) {
  if (!schema.is_object()) return schema;
  const Json* const format = schema.Find("format");
  // Of limits on one string that are not held to together the most telling one stays.
  const bool has_format =
      format != nullptr && format->is_string() && !PatternOfFormat(format->as_string()).empty();
  const bool has_pattern = has_format || schema.Find("pattern") != nullptr;
  Json::Object relaxed;
  for (const auto& [keyword, value] : schema.as_object()) {
    if (!IsHeldTo(keyword, value)) continue;
    if (has_format && keyword == "pattern") continue;
    if (has_pattern && (keyword == "minLength" || keyword == "maxLength")) continue;
    // Branches need not exclude each other.
    const bool is_one_of = keyword == "oneOf" && schema.Find("anyOf") == nullptr;
    relaxed.emplace_back(is_one_of ? "anyOf" : keyword, RelaxedMember(keyword, value));
  }
  return relaxed;
}

}  // namespace kvasir
