// SchemaTranslator's part for each type: strings, numbers, arrays and objects.
// Deliberately not here: how schemas refer to and combine with each other (schema_translator.cc).
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "kvasir/base/text_hash.h"
#include "kvasir/grammar/json_formats.h"
#include "kvasir/grammar/json_pattern.h"
#include "kvasir/grammar/json_range.h"
#include "kvasir/grammar/schema_translator.h"

namespace kvasir {
namespace {

using Expr = GrammarSyntax::Expr;

constexpr int kUnbounded = GrammarSyntax::kUnbounded;
// Upper bounds beyond this are lowered to it, which leaves every text valid.
constexpr int kMaxCount = 100'000;
// What an integer without a bound on this side may be: 16 digits.
constexpr int64_t kDefaultBound = 9'999'999'999'999'999;

Error Unsupported(const std::string& path, const std::string& what) {
  return {ErrorCode::kUnsupported, path + ": " + what};
}

struct Counts {
  int min = 0;
  int max = kUnbounded;
  bool none = false;  // no count satisfies both
};

Result<std::optional<int64_t>> ReadCount(const Json& schema, const std::string& keyword,
                                         const std::string& path) {
  const Json* value = schema.Find(keyword);
  if (value == nullptr) return std::optional<int64_t>();
  const bool whole = value->is_int() || value->is_above_int() ||
                     (value->is_double() && value->as_double() == std::floor(value->as_double()));
  if (!whole || value->as_double() < 0) {
    return Error{ErrorCode::kInvalidArgument,
                 path + "/" + keyword + ": expected a whole number of 0 or more"};
  }
  // What is larger is more than there may be, whatever it is.
  constexpr int64_t kMost = int64_t{1} << 53;
  return std::optional<int64_t>(
      static_cast<int64_t>(std::min(value->as_double(), static_cast<double>(kMost))));
}

// minItems and maxItems, for example: `what` is "Items".
Result<Counts> ReadCounts(const Json& schema, const std::string& what, const std::string& path) {
  KVASIR_TRY(const auto min, ReadCount(schema, "min" + what, path));
  KVASIR_TRY(const auto max, ReadCount(schema, "max" + what, path));
  Counts counts;
  if (min.value_or(0) > kMaxCount) {
    return Unsupported(path + "/min" + what, "more than " + std::to_string(kMaxCount));
  }
  counts.min = static_cast<int>(min.value_or(0));
  if (max.has_value()) counts.max = static_cast<int>(std::min<int64_t>(*max, kMaxCount));
  counts.none = max.has_value() && counts.max < counts.min;
  return counts;
}

struct Bound {
  const Json& value;
  bool exclusive = false;
};

// minimum and exclusiveMinimum (`sign` 1), or the maxima (`sign` -1), as far as they are there.
Result<std::vector<Bound>> ReadBounds(const Json& schema, int sign, const std::string& path) {
  std::vector<Bound> bounds;
  for (const bool exclusive : {false, true}) {
    const std::string name = sign > 0 ? (exclusive ? "exclusiveMinimum" : "minimum")
                                      : (exclusive ? "exclusiveMaximum" : "maximum");
    const Json* value = schema.Find(name);
    if (value == nullptr) continue;
    if (!value->is_number()) {
      return Error{ErrorCode::kInvalidArgument, path + "/" + name + ": expected a number"};
    }
    bounds.push_back({*value, exclusive});
  }
  return bounds;
}

// The least integer that a lower bound allows (`sign` 1), the greatest that an upper one does (-1);
// empty beyond the integers there are. Exact: doubles would round bounds above 2^53.
std::optional<int64_t> OutermostInteger(const Bound& bound, int sign) {
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  constexpr double kLimit = 9.2e18;
  int64_t whole = 0;
  bool exclusive = bound.exclusive;
  if (bound.value.is_int() && bound.value.as_int() < -kLast) {
    if (sign < 0) return std::nullopt;
    return -kLast;
  }
  if (bound.value.is_int()) {
    whole = bound.value.as_int();
  } else {
    const double mirrored = std::ceil(sign * bound.value.as_double());
    if (mirrored > kLimit) return std::nullopt;
    exclusive = exclusive && mirrored == sign * bound.value.as_double();
    whole = sign * static_cast<int64_t>(std::max(mirrored, -kLimit));
  }
  if (!exclusive) return whole;
  if (whole == sign * kLast) return std::nullopt;
  return whole + sign;
}

// The decimals that a number may have: 2 where it is a multiple of 0.01.
Result<int> MostDecimals(const Json& schema, const std::string& path) {
  const Json* multiple = schema.Find("multipleOf");
  if (multiple == nullptr) return kMostDecimals;
  double step = 1;
  for (int decimals = 0; multiple->is_number() && decimals < kMostDecimals; ++decimals) {
    if (multiple->as_double() == 1 / step) return decimals;
    step *= 10;
  }
  return Unsupported(path + "/multipleOf", "only 1, 0.1, 0.01 and so on are supported");
}

// Whether a reader of calls finds the name again, before its '='.
bool CanBeKeyword(std::string_view name) {
  if (name.empty() || name.front() == ' ' || name.back() == ' ') return false;
  return std::ranges::none_of(name, [](unsigned char c) {
    return c < 0x20 ||
           std::string_view("=,'\"()[]{}").find(static_cast<char>(c)) != std::string_view::npos;
  });
}

bool IsSchema(const Json* value) {
  return value != nullptr && (value->is_bool() || value->is_object());
}

}  // namespace

Result<Expr> SchemaTranslator::String(const Json& schema, const std::string& path) {
  KVASIR_TRY(const Counts counts, ReadCounts(schema, "Length", path));
  const Json* format = schema.Find("format");
  const Json* pattern = schema.Find("pattern");
  // A format that nobody defined says nothing.
  const bool is_silent = format != nullptr && format->is_string() &&
                         PatternOfFormat(format->as_string()).empty() &&
                         !IsUnheldFormat(format->as_string());
  if (is_silent) format = nullptr;
  const Expr quote = syntax_.Literal("\"");
  if (format == nullptr && pattern == nullptr) {
    if (counts.none) return syntax_.Alternatives({});
    if (counts.min == 0 && counts.max == kUnbounded) return json_.String();
    return syntax_.Sequence(
        {quote, syntax_.Repeat(json_.AnyChar(), counts.min, counts.max), quote});
  }
  const std::string keyword = format != nullptr ? "format" : "pattern";
  const std::string here = path + "/" + keyword;
  const bool both = format != nullptr && pattern != nullptr;
  const int shortest = format != nullptr ? 1 : 0;  // no text of a format is empty
  if (both || counts.min > shortest || counts.max != kUnbounded) {
    return Unsupported(here,
                       "together with other limits on the string is not supported; put them "
                       "into one pattern");
  }
  const Json& value = format != nullptr ? *format : *pattern;
  if (!value.is_string()) return Error{ErrorCode::kInvalidArgument, here + ": expected a string"};
  // Once, however many strings have it.
  const GrammarSyntax::Rule rule =
      syntax_.RuleNamed("(" + keyword + " " + value.as_string() + ")" + json_.PlaceSuffix());
  if (!syntax_.IsDefined(rule)) {
    const std::string expression =
        format != nullptr ? PatternOfFormat(value.as_string()) : value.as_string();
    if (format != nullptr && expression.empty()) {
      return Unsupported(
          here, "'" + value.as_string() + "' is not generated; there are " + KnownFormats());
    }
    const Result<Expr> inside = TranslatePattern(expression, &syntax_, &json_);
    if (!inside.ok()) return WithContext(inside.error(), here);
    syntax_.Define(rule, syntax_.Sequence({quote, *inside, quote}));
  }
  return syntax_.Call(rule);
}

Result<Expr> SchemaTranslator::Integer(const Json& schema, const std::string& path) {
  KVASIR_TRY([[maybe_unused]] const int decimals, MostDecimals(schema, path));
  KVASIR_TRY(const std::vector<Bound> minima, ReadBounds(schema, 1, path));
  KVASIR_TRY(const std::vector<Bound> maxima, ReadBounds(schema, -1, path));
  const Json* const format = schema.Find("format");
  const auto range =
      format != nullptr && format->is_string() ? RangeOfFormat(format->as_string()) : std::nullopt;
  if (minima.empty() && maxima.empty() && !range) return json_.Integer();
  constexpr int64_t kLast = std::numeric_limits<int64_t>::max();
  int64_t low = -kLast;
  int64_t high = kLast;
  for (const Bound& bound : minima) {
    const auto least = OutermostInteger(bound, 1);
    if (!least.has_value()) return syntax_.Alternatives({});
    low = std::max(low, *least);
  }
  for (const Bound& bound : maxima) {
    const auto greatest = OutermostInteger(bound, -1);
    if (!greatest.has_value()) return syntax_.Alternatives({});
    high = std::min(high, *greatest);
  }
  if (range) {
    low = std::max(low, range->first);
    high = std::min(high, range->second);
  }
  if (maxima.empty() && low <= kDefaultBound) high = std::min(high, kDefaultBound);
  if (minima.empty() && high >= -kDefaultBound) low = std::max(low, -kDefaultBound);
  return IntegersBetween(low, high, &syntax_);
}

Result<Expr> SchemaTranslator::Number(const Json& schema, const std::string& path) {
  KVASIR_TRY(const int decimals, MostDecimals(schema, path));
  const Json* const format = schema.Find("format");
  const bool is_integer =
      format != nullptr && format->is_string() && RangeOfFormat(format->as_string()).has_value();
  if (decimals == 0 || is_integer) return Integer(schema, path);
  KVASIR_TRY(const std::vector<Bound> minima, ReadBounds(schema, 1, path));
  KVASIR_TRY(const std::vector<Bound> maxima, ReadBounds(schema, -1, path));
  const bool is_any = minima.empty() && maxima.empty() && decimals == kMostDecimals;
  if (is_any) return json_.Number();
  std::optional<DecimalBound> low;
  std::optional<DecimalBound> high;
  constexpr auto kLimit = static_cast<double>(kMaxDecimalBound);
  for (const std::vector<Bound>* bounds : {&minima, &maxima}) {
    const int sign = bounds == &minima ? 1 : -1;
    std::optional<DecimalBound>& outermost = sign > 0 ? low : high;
    for (const Bound& bound : *bounds) {
      const double value = bound.value.as_double();
      // Beyond, texts are read as doubles that lie on the bound.
      if (sign * value > kLimit || (bound.exclusive && sign * value == kLimit)) {
        return Unsupported(path,
                           "bounds of numbers must be within " + std::to_string(kMaxDecimalBound));
      }
      // What is further out than doubles tell integers apart counts as that.
      const double within = std::clamp(value, -kLimit, kLimit);
      const bool tighter = !outermost || sign * within > sign * outermost->value;
      if (tighter || within == outermost->value) {
        outermost = {within, bound.exclusive || (!tighter && outermost->exclusive)};
      }
    }
  }
  return DecimalsBetween(low, high, decimals, &syntax_);
}

Result<Expr> SchemaTranslator::Array(const Json& schema, const std::string& path) {
  KVASIR_TRY(const Counts counts, ReadCounts(schema, "Items", path));
  if (counts.none) return syntax_.Alternatives({});
  // Before 2020 a list under "items" was what "prefixItems" is, "additionalItems" what "items" is.
  const Json* items = schema.Find("items");
  const bool old = items != nullptr && items->is_array();
  const Json* prefix = old ? items : schema.Find("prefixItems");
  if (old) items = schema.Find("additionalItems");
  const std::string items_path = path + (old ? "/additionalItems" : "/items");
  if (items != nullptr && !IsSchema(items)) {
    return Error{ErrorCode::kInvalidArgument, items_path + ": expected a schema"};
  }
  if (prefix != nullptr && !prefix->is_array()) {
    return Error{ErrorCode::kInvalidArgument, path + "/prefixItems: expected a list"};
  }
  if (prefix != nullptr && !prefix->as_array().empty()) {
    return Tuple({.prefix = prefix->as_array(),
                  .items = items,
                  .min = counts.min,
                  .max = counts.max,
                  .prefix_path = path + (old ? "/items" : "/prefixItems"),
                  .items_path = items_path});
  }
  int max = counts.max;
  if (items != nullptr && *items == Json(false)) max = 0;
  if (max == 0) return counts.min > 0 ? syntax_.Alternatives({}) : json_.List("[", 0, 0, 0, "]");
  Expr element = json_.Value();
  if (items != nullptr) {
    KVASIR_TRY(element, Value(*items, items_path));
    element = json_.Shared(element);
  }
  return json_.List("[", element, counts.min, max, "]");
}

// Elements beyond the prefix are generated only where "items" describes them or minItems wants
// them.
Result<Expr> SchemaTranslator::Tuple(const TupleParts& parts) {
  const auto first = static_cast<int>(std::min<size_t>(parts.prefix.size(), kMaxCount));
  const int max = parts.max == kUnbounded ? kMaxCount : parts.max;
  Expr rest = syntax_.Literal("");
  const int more_min = std::max(parts.min - first, 0);
  if (max > first && (parts.items != nullptr || more_min > 0)) {
    Expr element = json_.Value();
    if (parts.items != nullptr) {
      KVASIR_TRY(element, Value(*parts.items, parts.items_path));
    }
    const Expr more = json_.Shared(syntax_.Sequence({json_.Comma(), element}));
    rest = syntax_.Repeat(more, more_min, parts.max == kUnbounded ? kUnbounded : max - first);
  } else if (more_min > 0) {
    return syntax_.Alternatives({});
  }
  for (int i = std::min(first, max); i-- > 0;) {
    KVASIR_TRY(const Expr element, Value(parts.prefix[static_cast<size_t>(i)],
                                         parts.prefix_path + "/" + std::to_string(i)));
    const Expr comma = i > 0 ? json_.Comma() : syntax_.Literal("");
    const Expr with = syntax_.Sequence({comma, element, rest});
    rest = json_.Shared(i < parts.min ? with : syntax_.Optional(with));
  }
  return syntax_.Sequence(
      {syntax_.Literal("["), json_.Blank(), rest, json_.Blank(), syntax_.Literal("]")});
}

Result<std::vector<SchemaTranslator::Property>> SchemaTranslator::Properties(
    const Json& schema, const std::string& path, ObjectForm form) {
  static const Json kNone = Json::Object();
  static const Json kNoNames = Json::Array();
  const Json* listed = schema.Find("properties");
  const Json& properties = listed != nullptr ? *listed : kNone;
  const Json* names = schema.Find("required");
  const Json& required = names != nullptr ? *names : kNoNames;
  if (!properties.is_object()) {
    return Error{ErrorCode::kInvalidArgument, path + "/properties: expected an object"};
  }
  const bool is_list =
      required.is_array() &&
      std::ranges::all_of(required.as_array(), [](const Json& name) { return name.is_string(); });
  if (!is_list) {
    return Error{ErrorCode::kInvalidArgument, path + "/required: expected a list of names"};
  }
  const Json* additional = schema.Find("additionalProperties");
  std::vector<Property> result;
  const auto add = [&](const std::string& name, const Json& value, bool is_required,
                       const std::string& value_path) -> Status {
    const bool is_keyword = form == ObjectForm::kArguments;
    if (is_keyword && !CanBeKeyword(name)) {
      return Unsupported(value_path, "the name cannot be written in a call in Python");
    }
    KVASIR_TRY(const Expr body, Value(value, value_path));
    const Expr head = is_keyword
                          ? syntax_.Literal(name + "=")
                          : syntax_.Sequence({syntax_.Literal(Json(name).Dump()), json_.Colon()});
    const Expr member = syntax_.Sequence({head, body});
    result.push_back({name, json_.Shared(member), is_required});
    return {};
  };
  std::unordered_set<std::string_view, TextHash> missing;  // of the required names
  for (const Json& name : required.as_array()) missing.insert(name.as_string());
  for (const auto& [name, value] : properties.as_object()) {
    const bool is_required = missing.erase(name) > 0;
    KVASIR_TRY_OK(add(name, value, is_required, path + "/properties/" + name));
  }
  for (const Json& name : required.as_array()) {
    if (missing.erase(name.as_string()) == 0) continue;
    const Json value = additional != nullptr ? *additional : Json(true);
    KVASIR_TRY_OK(add(name.as_string(), value, true, path + "/additionalProperties"));
  }
  return result;
}

Result<Expr> SchemaTranslator::Object(const Json& schema, const std::string& path) {
  const bool are_arguments = std::exchange(are_arguments_, false);
  auto object =
      ObjectOf(schema, path, are_arguments ? ObjectForm::kArguments : ObjectForm::kBraces);
  are_arguments_ = are_arguments;
  return object;
}

Result<Expr> SchemaTranslator::ObjectOf(const Json& schema, const std::string& path,
                                        ObjectForm form) {
  const Json* additional = schema.Find("additionalProperties");
  if (additional != nullptr && !IsSchema(additional)) {
    return Error{ErrorCode::kInvalidArgument,
                 path + "/additionalProperties: expected a schema or a boolean"};
  }
  bool is_open =
      additional != nullptr ? *additional != Json(false) : schema.Find("properties") == nullptr;
  KVASIR_TRY(std::vector<Property> properties, Properties(schema, path, form));
  KVASIR_TRY(const Counts counts, ReadCounts(schema, "Properties", path));
  if (counts.none) return syntax_.Alternatives({});
  // Names beside those of the schema are not generated in calls.
  if (form == ObjectForm::kArguments && !properties.empty()) is_open = false;
  std::optional<Expr> other;
  if (is_open) {
    KVASIR_TRY(other, OtherProperty(additional, properties, path, form));
  }
  const auto total = static_cast<int>(properties.size());
  if (total == 0 && is_open) {
    // A name may come twice, so only one property is certain to be there.
    if (counts.min > 1) return Unsupported(path + "/minProperties", "only 0 and 1 are supported");
    const bool has_braces = form == ObjectForm::kBraces;
    return json_.List(has_braces ? "{" : "(", *other, counts.min, counts.max,
                      has_braces ? "}" : ")");
  }
  const auto required = static_cast<int>(std::ranges::count_if(properties, &Property::required));
  if (counts.min == total && !is_open) {
    for (Property& property : properties) property.required = true;
  } else if (counts.min > required) {
    return Unsupported(path + "/minProperties", "above the number of required properties");
  }
  if (counts.max != kUnbounded && (is_open || counts.max < total)) {
    if (counts.max < required) return syntax_.Alternatives({});
    return Unsupported(path + "/maxProperties", "below the number of properties");
  }
  return Members(properties, other, form);
}

Result<Expr> SchemaTranslator::OtherProperty(const Json* additional,
                                             const std::vector<Property>& properties,
                                             const std::string& path, ObjectForm form) {
  std::vector<std::string> names;
  for (const Property& property : properties) {
    if (property.name.size() > JsonText::kMaxNameChars) {
      return Unsupported(path + "/additionalProperties", "beside names this long");
    }
    names.push_back(property.name);
  }
  const Json value = additional != nullptr ? *additional : Json(true);
  KVASIR_TRY(const Expr body, Value(value, path + "/additionalProperties"));
  if (form == ObjectForm::kArguments) {
    return json_.Shared(syntax_.Sequence({json_.Keyword(), syntax_.Literal("="), body}));
  }
  const Expr key = names.empty() ? json_.String() : json_.KeyOtherThan(std::move(names));
  return json_.Shared(syntax_.Sequence({key, json_.Colon(), body}));
}

// In the order of the schema. Each property has a rule for where it is the first one written and a
// rule for where a comma comes before it, so that the size grows with the number of properties.
Expr SchemaTranslator::Members(const std::vector<Property>& properties,
                               const std::optional<Expr>& other, ObjectForm form) {
  const bool has_braces = form == ObjectForm::kBraces;
  const Expr end = syntax_.Sequence({json_.Blank(), syntax_.Literal(has_braces ? "}" : ")")});
  Expr first = end;
  Expr later = end;
  if (other.has_value()) {
    const Expr more = syntax_.Repeat(syntax_.Sequence({json_.Comma(), *other}), 0, kUnbounded);
    later = json_.Shared(syntax_.Sequence({more, end}));
    first = syntax_.Alternatives({syntax_.Sequence({*other, later}), end});
  }
  for (size_t i = properties.size(); i-- > 0;) {
    const Property& property = properties[i];
    const Expr as_first = syntax_.Sequence({property.member, later});
    const Expr as_later = syntax_.Sequence({json_.Comma(), property.member, later});
    first = json_.Shared(property.required ? as_first : syntax_.Alternatives({as_first, first}));
    later = json_.Shared(property.required ? as_later : syntax_.Alternatives({as_later, later}));
  }
  return syntax_.Sequence({syntax_.Literal(has_braces ? "{" : "("), json_.Blank(), first});
}

}  // namespace kvasir
