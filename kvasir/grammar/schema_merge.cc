#include "kvasir/grammar/schema_merge.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kvasir {
namespace {

constexpr size_t kMaxBranches = 64;

bool Contains(const Json::Array& array, const Json& value) {
  return std::ranges::find(array, value) != array.end();
}

Json AllOf(const Json& a, const Json& b) { return Json::Object{{"allOf", Json::Array{a, b}}}; }

Json::Array TypesOf(const Json& type) {
  return type.is_array() ? type.as_array() : Json::Array{type};
}

std::optional<Json> MergeTypes(const Json& a, const Json& b) {
  const Json::Array of_a = TypesOf(a);
  const Json::Array of_b = TypesOf(b);
  Json::Array both;
  const auto keep = [&](const Json::Array& from, const Json::Array& other) {
    for (const Json& type : from) {
      const bool as_number = type == Json("integer") && Contains(other, Json("number"));
      if ((Contains(other, type) || as_number) && !Contains(both, type)) both.push_back(type);
    }
  };
  keep(of_a, of_b);
  keep(of_b, of_a);
  if (both.empty()) return std::nullopt;
  return Json(std::move(both));
}

std::optional<Json> MergeEnums(const Json& a, const Json& b) {
  if (!a.is_array() || !b.is_array()) return std::nullopt;
  Json::Array both;
  for (const Json& value : a.as_array()) {
    if (Contains(b.as_array(), value)) both.push_back(value);
  }
  if (both.empty()) return std::nullopt;
  return Json(std::move(both));
}

Json MergeRequired(const Json& a, const Json& b) {
  if (!a.is_array() || !b.is_array()) return a;
  Json::Array names = a.as_array();
  for (const Json& name : b.as_array()) {
    if (!Contains(names, name)) names.push_back(name);
  }
  return names;
}

// Properties that only one schema has are still subject to the other's additionalProperties.
Json MergeProperties(const Json& a, const Json& b) {
  Json::Object merged;
  const auto add = [&](const Json& from, const Json& other, bool shared) {
    const Json* properties = from.Find("properties");
    if (properties == nullptr || !properties->is_object()) return;
    const Json* others = other.Find("properties");
    const Json* additional = other.Find("additionalProperties");
    for (const auto& [name, schema] : properties->as_object()) {
      const Json* twin = others != nullptr ? others->Find(name) : nullptr;
      if (twin != nullptr) {
        if (shared) merged.emplace_back(name, AllOf(schema, *twin));
      } else if (additional != nullptr) {
        merged.emplace_back(name, AllOf(schema, *additional));
      } else {
        merged.emplace_back(name, schema);
      }
    }
  };
  add(a, b, true);
  add(b, a, false);
  return merged;
}

Result<Json> MergeBranches(std::string_view keyword, const Json& a, const Json& b) {
  const bool valid = a.is_array() && b.is_array();
  if (!valid || a.as_array().size() * b.as_array().size() > kMaxBranches) {
    return Error{ErrorCode::kUnsupported,
                 std::string(keyword) + " twice, with too many branches to combine"};
  }
  Json::Array branches;
  for (const Json& of_a : a.as_array()) {
    for (const Json& of_b : b.as_array()) branches.push_back(AllOf(of_a, of_b));
  }
  return Json(std::move(branches));
}

// Exact for integers, which doubles would round. REQUIRES: numbers.
bool IsLess(const Json& a, const Json& b) {
  return a.is_int() && b.is_int() ? a.as_int() < b.as_int() : a.as_double() < b.as_double();
}

bool IsOneOf(std::string_view keyword, std::initializer_list<std::string_view> keywords) {
  return std::ranges::find(keywords, keyword) != keywords.end();
}

// Empty: the two exclude each other.
Result<std::optional<Json>> MergeKeyword(std::string_view keyword, const Json& a, const Json& b) {
  if (a == b || IsSchemaAnnotation(keyword)) return std::optional<Json>(a);
  if (keyword == "type") return MergeTypes(a, b);
  if (keyword == "enum") return MergeEnums(a, b);
  if (keyword == "const") return std::optional<Json>();
  if (keyword == "required") return std::optional<Json>(MergeRequired(a, b));
  if (IsOneOf(keyword, {"items", "additionalProperties", "additionalItems"})) {
    return std::optional<Json>(AllOf(a, b));
  }
  const bool numbers = a.is_number() && b.is_number();
  if (numbers &&
      IsOneOf(keyword, {"minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"})) {
    return std::optional<Json>(IsLess(b, a) ? a : b);
  }
  if (numbers &&
      IsOneOf(keyword, {"maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"})) {
    return std::optional<Json>(IsLess(a, b) ? a : b);
  }
  if (IsOneOf(keyword, {"anyOf", "oneOf"})) {
    KVASIR_TRY(Json branches, MergeBranches(keyword, a, b));
    return std::optional<Json>(std::move(branches));
  }
  return Error{ErrorCode::kUnsupported,
               std::string(keyword) + " has two different values, which cannot be combined"};
}

const Json::Array* ConstantsOf(const Json& schema, Json::Array* storage) {
  if (const Json* constant = schema.Find("const"); constant != nullptr) {
    *storage = {*constant};
    return storage;
  }
  const Json* values = schema.Find("enum");
  return values != nullptr && values->is_array() ? &values->as_array() : nullptr;
}

// 1 and 1.0 are one value; whether two containers are is not looked into.
bool MayBeEqual(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  return a == b || (a.is_array() && b.is_array()) || (a.is_object() && b.is_object());
}

bool AreConstantsExclusive(const Json::Array& a, const Json::Array& b) {
  return std::ranges::none_of(a, [&](const Json& of_a) {
    return std::ranges::any_of(b, [&](const Json& of_b) { return MayBeEqual(of_a, of_b); });
  });
}

bool Requires(const Json& schema, const std::string& name) {
  const Json* required = schema.Find("required");
  return required != nullptr && required->is_array() && Contains(required->as_array(), Json(name));
}

// The longest of the lists that are searched for each element of another schema's.
size_t LongestList(const Json& schema) {
  size_t longest = 0;
  for (const char* keyword : {"enum", "required", "properties"}) {
    const Json* const list = schema.Find(keyword);
    if (list == nullptr) continue;
    longest = std::max(longest, list->is_array()    ? list->as_array().size()
                                : list->is_object() ? list->as_object().size()
                                                    : 0);
  }
  return longest;
}

// Beyond, comparing each with each would take long. REQUIRES: both are objects.
bool AreTooLong(const Json& a, const Json& b) {
  constexpr size_t kMost = 4096;
  return std::max(LongestList(a), LongestList(b)) > kMost;
}

bool IsOnlyObject(const Json& schema) {
  const Json* type = schema.Find("type");
  return type != nullptr && TypesOf(*type) == Json::Array{Json("object")};
}

// `closed` has no room for a property that `other` requires.
bool LacksRequired(const Json& closed, const Json& other) {
  const Json* additional = closed.Find("additionalProperties");
  const Json* required = other.Find("required");
  if (additional == nullptr || *additional != Json(false)) return false;
  if (required == nullptr || !required->is_array()) return false;
  const Json* properties = closed.Find("properties");
  return std::ranges::any_of(required->as_array(), [&](const Json& name) {
    return name.is_string() &&
           (properties == nullptr || properties->Find(name.as_string()) == nullptr);
  });
}

bool AreObjectsExclusive(const Json& a, const Json& b, int depth) {
  if (LacksRequired(a, b) || LacksRequired(b, a)) return true;
  const Json* of_a = a.Find("properties");
  const Json* of_b = b.Find("properties");
  if (of_a == nullptr || of_b == nullptr || !of_a->is_object()) return false;
  return std::ranges::any_of(of_a->as_object(), [&](const Json::Member& member) {
    const Json* twin = of_b->Find(member.first);
    return twin != nullptr && Requires(a, member.first) && Requires(b, member.first) &&
           AreSchemasExclusive(member.second, *twin, depth + 1);
  });
}

}  // namespace

bool IsSchemaAnnotation(std::string_view keyword) {
  static constexpr std::array<std::string_view, 16> kAnnotations = {
      "title",   "description", "default",          "examples",
      "example", "deprecated",  "$schema",          "$comment",
      "$id",     "$anchor",     "readOnly",         "writeOnly",
      "$defs",   "definitions", "contentMediaType", "contentEncoding",
  };
  // OpenAPI's discriminator only names the property that tells the branches apart.
  return std::ranges::find(kAnnotations, keyword) != kAnnotations.end() ||
         keyword == "discriminator" || keyword.starts_with("x-");
}

Result<Json> MergeSchemas(const Json& a, const Json& b) {
  if (a == Json(true)) return b;
  if (b == Json(true)) return a;
  if (!a.is_object() || !b.is_object()) return Json(false);
  if (AreTooLong(a, b)) {
    return Error{ErrorCode::kUnsupported,
                 "lists of more than 4096 names or values cannot be combined with other schemas"};
  }
  if (a.Find("prefixItems") != nullptr || b.Find("prefixItems") != nullptr) {
    const bool both = a.Find("items") != nullptr || b.Find("items") != nullptr;
    const bool one = (a.Find("prefixItems") == nullptr) != (b.Find("prefixItems") == nullptr);
    if (one && both) {
      return Error{ErrorCode::kUnsupported, "'prefixItems' cannot be combined with 'items'"};
    }
  }
  Json merged = a;
  for (const auto& [keyword, value] : b.as_object()) {
    const Json* known = a.Find(keyword);
    if (known == nullptr) {
      merged.Set(keyword, value);
    } else if (keyword != "properties") {
      KVASIR_TRY(std::optional<Json> both, MergeKeyword(keyword, *known, value));
      if (!both.has_value()) return Json(false);
      merged.Set(keyword, *std::move(both));
    }
  }
  if (a.Find("properties") != nullptr || b.Find("properties") != nullptr) {
    merged.Set("properties", MergeProperties(a, b));
  }
  return merged;
}

bool AreSchemasExclusive(const Json& a, const Json& b, int depth) {
  constexpr int kMaxDepth = 8;
  if (a == Json(false) || b == Json(false)) return true;
  if (!a.is_object() || !b.is_object() || depth > kMaxDepth || AreTooLong(a, b)) return false;
  const Json* type_a = a.Find("type");
  const Json* type_b = b.Find("type");
  if (type_a != nullptr && type_b != nullptr && !MergeTypes(*type_a, *type_b)) return true;
  Json::Array storage_a;
  Json::Array storage_b;
  const Json::Array* constants_a = ConstantsOf(a, &storage_a);
  const Json::Array* constants_b = ConstantsOf(b, &storage_b);
  if (constants_a != nullptr && constants_b != nullptr) {
    return AreConstantsExclusive(*constants_a, *constants_b);
  }
  return IsOnlyObject(a) && IsOnlyObject(b) && AreObjectsExclusive(a, b, depth);
}

}  // namespace kvasir
