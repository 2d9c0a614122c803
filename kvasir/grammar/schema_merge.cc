#include "kvasir/grammar/schema_merge.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "kvasir/base/text_hash.h"

namespace kvasir {
namespace {

constexpr size_t kMaxBranches = 64;

// By name: schemas may have thousands of properties.
using Members = std::unordered_map<std::string_view, const Json*, TextHash>;
using Names = std::unordered_set<std::string_view, TextHash>;

Members MembersOf(const Json* object) {
  Members members;
  if (object == nullptr || !object->is_object()) return members;
  for (const auto& [name, value] : object->as_object()) members.emplace(name, &value);
  return members;
}

Names NamesOf(const Json* list) {
  Names names;
  if (list == nullptr || !list->is_array()) return names;
  for (const Json& name : list->as_array()) {
    if (name.is_string()) names.insert(name.as_string());
  }
  return names;
}

bool IsListOfNames(const Json& list) {
  return list.is_array() && std::ranges::all_of(list.as_array(), &Json::is_string);
}

// The same for numbers that a schema does not tell apart, as 1 and 1.0; other values stand for
// themselves.
std::string KeyOf(const Json& value) {
  if (value.is_double() && !value.is_above_int()) {
    const double number = value.as_double();
    const double size = std::abs(number);
    if (size < 0x1p63 && number == std::floor(number)) {
      return std::to_string(static_cast<int64_t>(number));
    }
    if (number > 0 && size < 0x1p64) return std::to_string(static_cast<uint64_t>(number));
  }
  return value.Dump();
}

Error Malformed(std::string_view keyword, const char* expected) {
  return {ErrorCode::kInvalidArgument, std::string(keyword) + ": expected " + expected};
}

Json AllOf(const Json& a, const Json& b) { return Json::Object{{"allOf", Json::Array{a, b}}}; }

constexpr unsigned kNumber = 1u << 3;   // of kSchemaTypes
constexpr unsigned kInteger = 1u << 4;  // every integer is a number
constexpr unsigned kObject = 1u << 0;
static_assert(kSchemaTypes[0] == "object" && kSchemaTypes[3] == "number" &&
              kSchemaTypes[4] == "integer");

// The types as a bit each; none where something else is named.
std::optional<unsigned> TypesOf(const Json& type) {
  const auto bit = [](const Json& name) -> unsigned {
    if (!name.is_string()) return 0;
    const auto* known = std::ranges::find(kSchemaTypes, name.as_string());
    return known == kSchemaTypes.end() ? 0 : 1u << (known - kSchemaTypes.begin());
  };
  unsigned types = 0;
  const std::span<const Json> names =
      type.is_array() ? std::span<const Json>(type.as_array()) : std::span<const Json>(&type, 1);
  for (const Json& name : names) {
    if (bit(name) == 0) return std::nullopt;
    types |= bit(name);
  }
  return types;
}

Result<std::optional<Json>> MergeTypes(const Json& a, const Json& b) {
  const auto of_a = TypesOf(a);
  const auto of_b = TypesOf(b);
  if (!of_a || !of_b) return Malformed("type", "names of types");
  const auto with_integers = [](unsigned types) {
    return (types & kNumber) != 0 ? types | kInteger : types;
  };
  unsigned both = with_integers(*of_a) & with_integers(*of_b);
  if ((both & kNumber) != 0) both &= ~kInteger;
  Json::Array names;
  for (size_t i = 0; i < kSchemaTypes.size(); ++i) {
    if ((both >> i & 1) != 0) names.emplace_back(kSchemaTypes[i]);
  }
  if (names.empty()) return std::optional<Json>();
  return std::optional<Json>(std::move(names));
}

Result<std::optional<Json>> MergeEnums(const Json& a, const Json& b) {
  if (!a.is_array() || !b.is_array()) return Malformed("enum", "a list");
  std::unordered_set<std::string, TextHash> of_b;
  for (const Json& value : b.as_array()) of_b.insert(KeyOf(value));
  Json::Array both;
  for (const Json& value : a.as_array()) {
    if (of_b.contains(KeyOf(value))) both.push_back(value);
  }
  if (both.empty()) return std::optional<Json>();
  return std::optional<Json>(std::move(both));
}

Result<std::optional<Json>> MergeRequired(const Json& a, const Json& b) {
  if (!IsListOfNames(a) || !IsListOfNames(b)) return Malformed("required", "a list of names");
  Names known = NamesOf(&a);
  Json::Array names = a.as_array();
  for (const Json& name : b.as_array()) {
    if (known.insert(name.as_string()).second) names.push_back(name);
  }
  return std::optional<Json>(std::move(names));
}

// Properties that only one schema has are still subject to the other's additionalProperties.
Json MergeProperties(const Json& a, const Json& b) {
  Json::Object merged;
  const auto add = [&](const Json& from, const Json& other, bool shared) {
    const Json* properties = from.Find("properties");
    if (properties == nullptr || !properties->is_object()) return;
    const Members others = MembersOf(other.Find("properties"));
    const Json* additional = other.Find("additionalProperties");
    for (const auto& [name, schema] : properties->as_object()) {
      const auto twin = others.find(name);
      if (twin != others.end()) {
        if (shared) merged.emplace_back(name, AllOf(schema, *twin->second));
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
  if (keyword == "const") return KeyOf(a) == KeyOf(b) ? std::optional<Json>(a) : std::nullopt;
  if (keyword == "required") return MergeRequired(a, b);
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

// Whether two containers are one value is not looked into.
bool AreConstantsExclusive(const Json::Array& a, const Json::Array& b) {
  const auto key = [](const Json& value) {
    return value.is_array() ? "[" : value.is_object() ? "{" : KeyOf(value);
  };
  std::unordered_set<std::string, TextHash> of_a;
  for (const Json& value : a) of_a.insert(key(value));
  return std::ranges::none_of(b, [&](const Json& value) { return of_a.contains(key(value)); });
}

bool IsOnlyObject(const Json& schema) {
  const Json* type = schema.Find("type");
  return type != nullptr && TypesOf(*type) == kObject;
}

// What tells an object from others.
struct ObjectView {
  explicit ObjectView(const Json& schema)
      : properties(MembersOf(schema.Find("properties"))),
        required(NamesOf(schema.Find("required"))) {
    const Json* additional = schema.Find("additionalProperties");
    is_closed = additional != nullptr && *additional == Json(false);
  }
  // It has no room for a property that `other` requires.
  bool LacksRequiredOf(const ObjectView& other) const {
    return is_closed && std::ranges::any_of(other.required, [&](std::string_view name) {
             return !properties.contains(name);
           });
  }

  Members properties;
  Names required;
  bool is_closed = false;
};

bool AreObjectsExclusive(const Json& a, const Json& b, int depth) {
  const ObjectView of_a(a);
  const ObjectView of_b(b);
  if (of_a.LacksRequiredOf(of_b) || of_b.LacksRequiredOf(of_a)) return true;
  return std::ranges::any_of(of_a.required, [&](std::string_view name) {
    const auto one = of_a.properties.find(name);
    const auto other = of_b.properties.find(name);
    return one != of_a.properties.end() && other != of_b.properties.end() &&
           of_b.required.contains(name) &&
           AreSchemasExclusive(*one->second, *other->second, depth + 1);
  });
}

}  // namespace

bool IsSchemaAnnotation(std::string_view keyword) {
  static constexpr std::array<std::string_view, 20> kAnnotations = {
      "title",
      "description",
      "default",
      "examples",
      "example",
      "deprecated",
      "$schema",
      "$comment",
      "$id",
      "$anchor",
      "readOnly",
      "writeOnly",
      "$defs",
      "definitions",
      "contentMediaType",
      "contentEncoding",
      // Of editors and of other engines.
      "contentSchema",
      "markdownDescription",
      "propertyOrdering",
      // OpenAPI's: what is not null is valid with it and without.
      "nullable",
  };
  // OpenAPI's discriminator only names the property that tells the branches apart.
  return std::ranges::find(kAnnotations, keyword) != kAnnotations.end() ||
         keyword == "discriminator" || keyword.starts_with("x-");
}

Result<Json> MergeSchemas(const Json& a, const Json& b) {
  if (a == Json(true)) return b;
  if (b == Json(true)) return a;
  if (!a.is_object() || !b.is_object()) return Json(false);
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
  if (!a.is_object() || !b.is_object() || depth > kMaxDepth) return false;
  const Json* type_a = a.Find("type");
  const Json* type_b = b.Find("type");
  if (type_a != nullptr && type_b != nullptr) {
    const auto types = MergeTypes(*type_a, *type_b);
    if (!types.ok()) return false;  // is said where it is translated
    if (!types->has_value()) return true;
  }
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
