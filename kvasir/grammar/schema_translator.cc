#include "kvasir/grammar/schema_translator.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <optional>
#include <utility>

#include "kvasir/grammar/schema_merge.h"

namespace kvasir {
namespace {

constexpr int kMaxDepth = 200;
constexpr int kMaxFlattenDepth = 64;
constexpr size_t kMaxOneOf = 64;

// The keywords that are held to, each with the type it speaks about.
struct Keyword {
  std::string_view name;
  std::string_view type;
};
constexpr std::array<Keyword, 27> kKeywords = {{
    {"type", ""},
    {"enum", ""},
    {"const", ""},
    {"$ref", ""},
    {"allOf", ""},
    {"anyOf", ""},
    {"oneOf", ""},
    {"properties", "object"},
    {"required", "object"},
    {"additionalProperties", "object"},
    {"minProperties", "object"},
    {"maxProperties", "object"},
    {"items", "array"},
    {"prefixItems", "array"},
    {"additionalItems", "array"},
    {"minItems", "array"},
    {"maxItems", "array"},
    {"uniqueItems", "array"},
    {"minLength", "string"},
    {"maxLength", "string"},
    {"pattern", "string"},
    {"format", "string"},
    {"minimum", "number"},
    {"maximum", "number"},
    {"exclusiveMinimum", "number"},
    {"exclusiveMaximum", "number"},
    {"multipleOf", "number"},
}};

const Keyword* FindKeyword(std::string_view name) {
  const auto* found = std::ranges::find(kKeywords, name, &Keyword::name);
  return found != kKeywords.end() ? found : nullptr;
}

// Names are strings.
bool TakesEveryName(const Json& schema) {
  if (!schema.is_object()) return schema == Json(true);
  return std::ranges::all_of(schema.as_object(), [](const Json::Member& member) {
    return member == Json::Member("type", "string");
  });
}

bool Says(const Json& schema, std::string_view keyword) { return schema.Find(keyword) != nullptr; }

// The schema without some keywords, and without what only the whole document needs.
Json Without(const Json& schema, std::initializer_list<std::string_view> keywords) {
  Json::Object rest;
  for (const auto& [name, value] : schema.as_object()) {
    if (std::ranges::find(keywords, name) == keywords.end() && !IsSchemaAnnotation(name)) {
      rest.emplace_back(name, value);
    }
  }
  return rest;
}

// What copying it costs: its values, and long texts as so many more.
int64_t NodeCount(const Json& json) {
  constexpr size_t kTextOfNode = 64;
  int64_t count = 1;
  if (json.is_string()) {
    count += static_cast<int64_t>(json.as_string().size() / kTextOfNode);
  } else if (json.is_array()) {
    for (const Json& element : json.as_array()) count += NodeCount(element);
  } else if (json.is_object()) {
    for (const auto& [name, member] : json.as_object()) {
      count += NodeCount(member) + static_cast<int64_t>(name.size() / kTextOfNode);
    }
  }
  return count;
}

bool HasType(const Json& value, std::string_view type) {
  if (type == "number") return value.is_number();
  // 5.0 is an integer in a schema.
  if (type == "integer" && value.is_double()) {
    return value.is_above_int() || value.as_double() == std::floor(value.as_double());
  }
  return value.type_name() == type;
}

// "%24defs" and "a~1b" of a pointer's step (RFC 6901, section 6).
std::string DecodeStep(std::string_view step) {
  std::string percent;
  for (size_t i = 0; i < step.size(); ++i) {
    const auto digit = [&](size_t at) { return static_cast<unsigned char>(step[at]); };
    if (step[i] == '%' && i + 2 < step.size() && std::isxdigit(digit(i + 1)) != 0 &&
        std::isxdigit(digit(i + 2)) != 0) {
      percent += static_cast<char>(std::stoi(std::string(step.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      percent += step[i];
    }
  }
  std::string decoded;
  for (size_t i = 0; i < percent.size(); ++i) {
    const char next = i + 1 < percent.size() ? percent[i + 1] : '\0';
    const bool escaped = percent[i] == '~' && (next == '0' || next == '1');
    decoded += escaped ? (next == '0' ? '~' : '/') : percent[i];
    if (escaped) ++i;
  }
  return decoded;
}

const Json* Element(const Json::Array& array, const std::string& step) {
  if (step.empty() || step.size() > 6) return nullptr;
  if (!std::ranges::all_of(step, [](unsigned char c) { return std::isdigit(c) != 0; })) {
    return nullptr;
  }
  const size_t index = std::stoul(step);
  return index < array.size() ? &array[index] : nullptr;
}

}  // namespace

Result<GrammarSyntax::Rule> SchemaTranslator::Translate() {
  KVASIR_TRY(const Expr root, Reference(Json("#"), name_));
  // Rules are translated in the order in which they are first mentioned, not inside each other.
  for (size_t i = 0; i < pending_.size(); ++i) {
    const Pending pending = pending_[i];
    are_arguments_ = pending.are_arguments;
    KVASIR_TRY(const Expr body, Value(*pending.schema, pending.path));
    syntax_.Define(pending.rule, body);
    if (syntax_.too_large()) {
      return Error{ErrorCode::kResourceExhausted, pending.path + ": the schema is too large"};
    }
  }
  return static_cast<GrammarSyntax::Rule>(syntax_.node(root).min);
}

Status SchemaTranslator::Spend(int64_t nodes, const std::string& path) {
  nodes_ -= std::min(nodes, nodes_ + 1);
  if (nodes_ >= 0) return {};
  return {ErrorCode::kResourceExhausted, path +
                                             ": the schema is too large once references and "
                                             "combinations are written out"};
}

bool IsSchemaKeyword(std::string_view name) { return FindKeyword(name) != nullptr; }

Status SchemaTranslator::CheckKeywords(const Json& schema, const std::string& path) const {
  for (const auto& [name, value] : schema.as_object()) {
    if (IsSchemaAnnotation(name) || (name == "propertyNames" && TakesEveryName(value))) continue;
    if (FindKeyword(name) == nullptr) {
      return {ErrorCode::kUnsupported, path + ": keyword '" + name + "' is not supported"};
    }
    if (name == "uniqueItems" && value != Json(false)) {
      return {ErrorCode::kUnsupported, path + "/uniqueItems: only false is supported"};
    }
  }
  return {};
}

Result<SchemaTranslator::Expr> SchemaTranslator::Value(const Json& schema,
                                                       const std::string& path) {
  if (schema.is_bool()) return schema.as_bool() ? AnyValue() : syntax_.Alternatives({});
  if (!schema.is_object()) {
    return Error{ErrorCode::kInvalidArgument, path + ": a schema is an object or a boolean"};
  }
  if (depth_ >= kMaxDepth) {
    return Error{ErrorCode::kResourceExhausted, path + ": the schema is nested too deep"};
  }
  KVASIR_TRY_OK(Spend(NodeCount(schema), path));
  KVASIR_TRY_OK(CheckKeywords(schema, path));
  ++depth_;
  Result<Expr> value = Error{ErrorCode::kUnsupported, ""};
  if (!Says(schema, "$ref") && !Says(schema, "allOf")) {
    value = Constrained(schema, path);
  } else if (Says(schema, "$ref") && Without(schema, {"$ref"}).as_object().empty()) {
    value = Reference(*schema.Find("$ref"), path);
  } else {
    const Result<Json> flat = Flatten(schema, path, 0);
    value = flat.ok() ? FlatValue(*flat, path) : Result<Expr>(flat.error());
  }
  --depth_;
  return value;
}

SchemaTranslator::Expr SchemaTranslator::AnyValue() {
  return are_arguments_ ? json_.Keywords() : json_.Value();
}

Result<SchemaTranslator::Expr> SchemaTranslator::FlatValue(const Json& flat,
                                                           const std::string& path) {
  return flat.is_bool() ? Value(flat, path) : Constrained(flat, path);
}

Result<SchemaTranslator::Expr> SchemaTranslator::Constrained(const Json& schema,
                                                             const std::string& path) {
  for (const std::string_view keyword : {"anyOf", "oneOf"}) {
    if (Says(schema, keyword)) return Branches(schema, keyword, path);
  }
  KVASIR_TRY(const std::vector<std::string_view> types, TypesOf(schema, path));
  if (Says(schema, "enum") || Says(schema, "const")) return Constants(schema, types, path);
  if (types.empty()) return AnyValue();
  std::vector<Expr> ways;
  for (const std::string_view type : types) {
    const bool covered =
        type == "integer" && std::ranges::find(types, std::string_view("number")) != types.end();
    if (covered) continue;
    KVASIR_TRY(const Expr way, OfType(type, schema, path));
    ways.push_back(way);
  }
  return syntax_.Alternatives(std::move(ways));
}

// Without "type", the types that other keywords speak about; without those, none.
Result<std::vector<std::string_view>> SchemaTranslator::TypesOf(const Json& schema,
                                                                const std::string& path) const {
  std::vector<std::string_view> types;
  const auto add = [&](std::string_view type) {
    if (std::ranges::find(types, type) == types.end()) types.push_back(type);
  };
  const Json* type = schema.Find("type");
  if (type == nullptr) {
    for (const auto& [name, value] : schema.as_object()) {
      const Keyword* keyword = FindKeyword(name);
      if (keyword != nullptr && !keyword->type.empty()) add(keyword->type);
    }
    return types;
  }
  const Json::Array names = type->is_array() ? type->as_array() : Json::Array{*type};
  for (const Json& name : names) {
    const auto* known =
        name.is_string() ? std::ranges::find(kSchemaTypes, name.as_string()) : kSchemaTypes.end();
    if (known == kSchemaTypes.end()) {
      return Error{ErrorCode::kInvalidArgument,
                   path +
                       "/type: expected object, array, string, number, integer, boolean or "
                       "null, or a list of them"};
    }
    add(*known);
  }
  if (types.empty()) {
    return Error{ErrorCode::kInvalidArgument, path + "/type: the list of types is empty"};
  }
  return types;
}

Result<SchemaTranslator::Expr> SchemaTranslator::OfType(std::string_view type, const Json& schema,
                                                        const std::string& path) {
  if (type == "object") return Object(schema, path);
  if (are_arguments_) return syntax_.Alternatives({});
  if (type == "array") return Array(schema, path);
  if (type == "string") return String(schema, path);
  if (type == "number") return Number(schema, path);
  if (type == "integer") return Integer(schema, path);
  return type == "boolean" ? json_.Boolean() : json_.Null();
}

Result<SchemaTranslator::Expr> SchemaTranslator::Constants(
    const Json& schema, const std::vector<std::string_view>& types, const std::string& path) {
  if (are_arguments_) {
    return Error{
        ErrorCode::kUnsupported,
        path + ": 'enum' and 'const' of all arguments of a call in Python are not supported"};
  }
  for (const auto& [name, value] : schema.as_object()) {
    if (name == "enum" || name == "const" || name == "type" || IsSchemaAnnotation(name)) continue;
    return Error{ErrorCode::kUnsupported,
                 path + ": 'enum' and 'const' together with '" + name + "' are not supported"};
  }
  const Json* listed = schema.Find("enum");
  if (listed != nullptr && !listed->is_array()) {
    return Error{ErrorCode::kInvalidArgument, path + "/enum: expected a list"};
  }
  const Json* constant = schema.Find("const");
  const Json::Array values = constant != nullptr ? Json::Array{*constant} : listed->as_array();
  std::vector<Expr> ways;
  for (const Json& value : values) {
    const bool is_listed = listed == nullptr || constant == nullptr ||
                           std::ranges::find(listed->as_array(), value) != listed->as_array().end();
    const bool has_type = types.empty() || std::ranges::any_of(types, [&](std::string_view type) {
                            return HasType(value, type);
                          });
    if (is_listed && has_type) ways.push_back(json_.Constant(value));
  }
  return syntax_.Alternatives(std::move(ways));
}

Result<SchemaTranslator::Expr> SchemaTranslator::Branches(const Json& schema,
                                                          std::string_view keyword,
                                                          const std::string& path) {
  const std::string here = path + "/" + std::string(keyword);
  const Json* branches = schema.Find(keyword);
  if (!branches->is_array() || branches->as_array().empty()) {
    return Error{ErrorCode::kInvalidArgument, here + ": expected a list of schemas"};
  }
  const Json::Array& list = branches->as_array();
  if (keyword == "oneOf") KVASIR_TRY_OK(CheckExclusive(list, here));
  const Json rest = Without(schema, {keyword});
  std::vector<Expr> ways;
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string branch_path = here + "/" + std::to_string(i);
    const Json branch =
        rest.as_object().empty() ? list[i] : Json::Object{{"allOf", Json::Array{rest, list[i]}}};
    KVASIR_TRY(const Expr way, Value(branch, branch_path));
    ways.push_back(way);
    if (syntax_.too_large()) break;
  }
  return syntax_.Alternatives(std::move(ways));
}

// A grammar cannot say "and none of the others", so nothing may be valid for two branches.
Status SchemaTranslator::CheckExclusive(const Json::Array& branches, const std::string& path) {
  if (branches.size() > kMaxOneOf) {
    return {ErrorCode::kResourceExhausted,
            path + ": more than " + std::to_string(kMaxOneOf) + " branches; use anyOf"};
  }
  std::vector<Json> flat;
  std::vector<int64_t> nodes;
  for (size_t i = 0; i < branches.size(); ++i) {
    KVASIR_TRY(Json one, Flatten(branches[i], path + "/" + std::to_string(i), 0));
    nodes.push_back(NodeCount(one));
    for (size_t j = 0; j < i; ++j) {
      KVASIR_TRY_OK(Spend(nodes[i] + nodes[j], path));
      if (AreSchemasExclusive(flat[j], one)) continue;
      return {ErrorCode::kUnsupported,
              path + ": branches " + std::to_string(j) + " and " + std::to_string(i) +
                  " are not known to exclude each other; use anyOf, or give both a required "
                  "property with different constants"};
    }
    flat.push_back(std::move(one));
  }
  return {};
}

const Json* SchemaTranslator::Step(const Json& from, const std::string& step) {
  if (from.is_array()) return Element(from.as_array(), step);
  if (!from.is_object()) return nullptr;
  const auto [entry, added] = members_of_.try_emplace(&from);
  auto& members = entry->second;
  if (added) {
    for (const auto& [name, value] : from.as_object()) members.emplace(name, &value);
  }
  const auto found = members.find(step);
  return found != members.end() ? found->second : nullptr;
}

Result<const Json*> SchemaTranslator::Resolve(const Json& reference, const std::string& path) {
  if (!reference.is_string()) {
    return Error{ErrorCode::kInvalidArgument, path + "/$ref: expected a string"};
  }
  const std::string& text = reference.as_string();
  if (text.empty() || text[0] != '#' || (text.size() > 1 && text[1] != '/')) {
    return Error{ErrorCode::kUnsupported,
                 path + "/$ref: only pointers into this schema are supported, as in #/$defs/name"};
  }
  const Json* target = &document_;
  std::string_view rest = std::string_view(text).substr(1);
  while (!rest.empty() && target != nullptr) {
    rest.remove_prefix(1);
    const size_t end = std::min(rest.find('/'), rest.size());
    target = Step(*target, DecodeStep(rest.substr(0, end)));
    rest.remove_prefix(end);
  }
  if (target == nullptr) {
    return Error{ErrorCode::kInvalidArgument, path + "/$ref: '" + text + "' points to nothing"};
  }
  return target;
}

Result<SchemaTranslator::Expr> SchemaTranslator::Reference(const Json& reference,
                                                           const std::string& path) {
  KVASIR_TRY(const Json* const target, Resolve(reference, path));
  const auto [entry, added] = rule_of_.try_emplace({target, are_arguments_}, 0);
  if (added) {
    const std::string target_path = name_ + reference.as_string().substr(1);
    entry->second = syntax_.RuleNamed(target_path + (are_arguments_ ? " (arguments)" : ""));
    pending_.push_back({target, target_path, entry->second, are_arguments_});
  }
  return syntax_.Call(entry->second);
}

Result<Json> SchemaTranslator::Flatten(const Json& schema, const std::string& path, int depth) {
  if (schema.is_bool()) return schema;
  if (!schema.is_object()) {
    return Error{ErrorCode::kInvalidArgument, path + ": a schema is an object or a boolean"};
  }
  if (depth > kMaxFlattenDepth) {
    return Error{ErrorCode::kInvalidArgument,
                 path + ": $ref and allOf lead back to themselves, or are nested too deep"};
  }
  KVASIR_TRY_OK(Spend(NodeCount(schema), path));
  KVASIR_TRY_OK(CheckKeywords(schema, path));
  Json flat = Without(schema, {"$ref", "allOf"});
  const auto merge = [&](const Json& part, const std::string& part_path) -> Status {
    KVASIR_TRY(const Json flat_part, Flatten(part, part_path, depth + 1));
    Result<Json> merged = MergeSchemas(flat, flat_part);
    if (!merged.ok()) return WithContext(merged.error(), part_path);
    flat = *std::move(merged);
    return Spend(NodeCount(flat), part_path);
  };
  if (const Json* reference = schema.Find("$ref"); reference != nullptr) {
    KVASIR_TRY(const Json* const target, Resolve(*reference, path));
    KVASIR_TRY_OK(merge(*target, path + "/$ref"));
  }
  if (const Json* all = schema.Find("allOf"); all != nullptr) {
    if (!all->is_array()) {
      return Error{ErrorCode::kInvalidArgument, path + "/allOf: expected a list of schemas"};
    }
    for (size_t i = 0; i < all->as_array().size(); ++i) {
      KVASIR_TRY_OK(merge(all->as_array()[i], path + "/allOf/" + std::to_string(i)));
    }
  }
  return flat;
}

}  // namespace kvasir
