#include "kvasir/server/tagged_arguments.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "kvasir/chat/argument_value.h"
#include "kvasir/chat/call_text.h"
#include "kvasir/grammar/grammar.h"
#include "kvasir/grammar/json_formats.h"
#include "kvasir/grammar/json_pattern.h"
#include "kvasir/grammar/json_text.h"
#include "kvasir/grammar/schema_merge.h"
#include "kvasir/grammar/schema_relax.h"
#include "kvasir/grammar/schema_translator.h"
#include "kvasir/server/output_rule.h"

namespace kvasir {
namespace {

using Expr = GrammarSyntax::Expr;
using Build = std::function<Result<Expr>(GrammarSyntax*)>;

constexpr int kUnbounded = GrammarSyntax::kUnbounded;
constexpr int kMostReferences = 16;
// Longest text within which the mark behind a value cannot stand.
constexpr int kShortChars = static_cast<int>(kGlmValueClose.size()) - 1;
constexpr int kMostChars = 100'000;

const Json* FindObject(const Json& schema, std::string_view key) {
  const Json* const found = schema.Find(key);
  return found != nullptr && found->is_object() ? found : nullptr;
}

// Any text without the mark behind values: where `size` bytes of the mark have been read.
Expr TextFrom(size_t size, GrammarSyntax* rules) {
  const auto rule_of = [&](size_t read) {
    return rules->RuleNamed("(text in tags " + std::to_string(read) + ")");
  };
  if (!rules->IsDefined(rule_of(0))) {
    const CharSet opening = CharSet::Of('<');
    for (size_t read = 0; read < kGlmValueClose.size(); ++read) {
      const CharSet next = CharSet::Of(static_cast<unsigned char>(kGlmValueClose[read]));
      const auto go = [&](const CharSet& set, size_t to) {
        return rules->Sequence({rules->Chars(set), rules->Call(rule_of(to))});
      };
      // '<' stands at the mark's beginning only, so that it alone begins it anew.
      std::vector<Expr> ways = {rules->Literal(""), go(opening.Union(next).Complement(), 0),
                                go(opening, 1)};
      if (read > 0 && read + 1 < kGlmValueClose.size()) ways.push_back(go(next, read + 1));
      rules->Define(rule_of(read), rules->Alternatives(std::move(ways)));
    }
  }
  return rules->Call(rule_of(size));
}

Expr AnyText(GrammarSyntax* rules) { return TextFrom(0, rules); }

Expr SomeText(GrammarSyntax* rules) {
  const CharSet opening = CharSet::Of('<');
  return rules->Alternatives(
      {rules->Sequence({rules->Chars(opening.Complement()), TextFrom(0, rules)}),
       rules->Sequence({rules->Chars(opening), TextFrom(1, rules)})});
}

class ArgumentsBuilder {
 public:
  ArgumentsBuilder(const Json& function, const std::string& field, int64_t* nodes,
                   GrammarSyntax* rules)
      : field_(field + ".function.parameters"), nodes_(*nodes), rules_(*rules) {
    const Json* const strict = function.Find("strict");
    is_strict_ = strict != nullptr && *strict == Json(true);
    const Json* const parameters = FindObject(function, "parameters");
    if (parameters != nullptr) parameters_ = *parameters;
    constexpr size_t kTextOfNode = 16;
    definition_nodes_ = static_cast<int64_t>(parameters_.Dump().size() / kTextOfNode);
  }

  Result<Expr> Arguments() {
    KVASIR_TRY(const Json* const schema, Root());
    KVASIR_TRY_OK(CheckRoot(*schema));
    const Json* const properties = FindObject(*schema, "properties");
    std::vector<std::string> required;
    const Json* const names = schema->Find("required");
    if (names != nullptr && names->is_array()) {
      for (const Json& name : names->as_array()) {
        if (name.is_string()) required.push_back(name.as_string());
      }
    }
    std::vector<Expr> parts = {Line()};
    const auto add = [&](const std::string& name, const Json& value) -> Status {
      const auto at = std::ranges::find(required, name);
      const bool is_required = at != required.end();
      if (is_required) required.erase(at);
      if (!CanBeKey(name)) return NotHeld("/properties/" + name, "this name has no place in a tag");
      KVASIR_TRY(const Expr text, Value(name, value));
      const Expr member = Shared(Member(rules_.Literal(name), text));
      parts.push_back(is_required ? member : rules_.Optional(member));
      return {};
    };
    if (properties != nullptr) {
      for (const auto& [name, value] : properties->as_object()) KVASIR_TRY_OK(add(name, value));
    }
    const Json* const additional = schema->Find("additionalProperties");
    const Json other = additional != nullptr && *additional != Json(false) ? *additional : true;
    for (const std::string& name : std::vector<std::string>(required)) {
      KVASIR_TRY_OK(add(name, other));
    }
    // Names beside those of the schema are not generated.
    const bool is_open = parts.size() == 1 && SaysOfMembers(*schema);
    if (is_open && (additional == nullptr || *additional != Json(false))) {
      KVASIR_TRY(const Expr text, Value("additionalProperties", other));
      const Json* const fewest = schema->Find("minProperties");
      const bool is_some = fewest != nullptr && fewest->is_number() && fewest->as_double() > 0;
      const Expr member = Shared(Member(JsonText(&rules_).Keyword(), text));
      parts.push_back(rules_.Repeat(member, is_some ? 1 : 0, kUnbounded));
    }
    return rules_.Sequence(std::move(parts));
  }

 private:
  // What the whole schema refers to, if that is all that it does.
  Result<const Json*> Root() const {
    const Json* schema = &parameters_;
    for (int i = 0; i < kMostReferences; ++i) {
      const Json* const reference = schema->Find("$ref");
      if (reference == nullptr || !reference->is_string()) return schema;
      const Json* target = nullptr;
      for (const std::string_view folder : {"$defs", "definitions"}) {
        const std::string begin = "#/" + std::string(folder) + "/";
        const Json* const all = FindObject(parameters_, folder);
        if (all == nullptr || !reference->as_string().starts_with(begin)) continue;
        target = all->Find(reference->as_string().substr(begin.size()));
      }
      if (target == nullptr || !target->is_object()) break;
      schema = target;
    }
    KVASIR_TRY_OK(NotHeld("/$ref", "leads to nothing that is known"));
    return &parameters_;
  }

  Status CheckRoot(const Json& schema) const {
    constexpr std::array<std::string_view, 9> kKnown = {
        "type",        "properties", "required", "additionalProperties", "minProperties", "$defs",
        "definitions", "$schema",    "title"};
    for (const auto& [name, value] : schema.as_object()) {
      const bool is_known =
          IsSchemaAnnotation(name) || std::ranges::find(kKnown, name) != kKnown.end();
      if (!is_known)
        KVASIR_TRY_OK(NotHeld("", "keyword '" + name + "' of all arguments is not supported"));
    }
    return {};
  }

  // A function whose schema says nothing takes none.
  static bool SaysOfMembers(const Json& schema) {
    return std::ranges::any_of(schema.as_object(), [](const Json::Member& member) {
      return !IsSchemaAnnotation(member.first) && member != Json::Member("type", "object") &&
             member != Json::Member("required", Json::Array()) &&
             member != Json::Member("properties", Json::Object());
    });
  }

  // For strict functions an error.
  Status NotHeld(const std::string& where, const std::string& why) const {
    if (!is_strict_) return {};
    return GrammarError({ErrorCode::kUnsupported, "parameters" + where + ": " + why}, field_);
  }

  static bool CanBeKey(const std::string& name) {
    constexpr std::string_view kBlanks = " \t\r\n";
    return !name.empty() && name.find('<') == name.npos &&
           kBlanks.find(name.front()) == kBlanks.npos && kBlanks.find(name.back()) == kBlanks.npos;
  }

  Expr Line() { return rules_.Optional(rules_.Literal("\n")); }
  Expr Member(Expr name, Expr value) {
    return rules_.Sequence({rules_.Literal(kGlmKeyOpen), name, rules_.Literal(kGlmKeyClose), Line(),
                            rules_.Literal(kGlmValueOpen), value, rules_.Literal(kGlmValueClose),
                            Line()});
  }
  Expr Shared(Expr body) { return JsonText(&rules_).Shared(body); }

  // With what its references lead to.
  Json WithDefinitions(const Json& schema) {
    if (!schema.is_object() || schema.Dump().find("\"$ref\"") == std::string::npos) return schema;
    Json whole = schema;
    for (const std::string_view folder : {"$defs", "definitions"}) {
      const Json* const all = FindObject(parameters_, folder);
      if (all == nullptr) continue;
      nodes_ -= definition_nodes_;
      if (nodes_ > 0) whole.Set(folder, *all);
    }
    return whole;
  }

  // Tried alone first: what cannot be built, or has no texts, is not held to.
  std::optional<Expr> Tried(const Build& build) {
    GrammarSyntax trial;
    const auto expr = build(&trial);
    if (!expr.ok()) return std::nullopt;
    const GrammarSyntax::Rule rule = trial.RuleNamed("trial");
    trial.Define(rule, *expr);
    if (!Grammar::FromSyntax(trial, rule).ok()) return std::nullopt;
    const auto held = build(&rules_);
    return held.ok() ? std::optional<Expr>(*held) : std::nullopt;
  }

  Result<Expr> Value(const std::string& name, const Json& schema) {
    const Json whole = WithDefinitions(schema);
    const ArgumentTypes types = TypesOfSchema(whole, whole);
    const std::string where = "/" + name;
    if (!types.may_be_text()) return JsonValue(where, whole);
    if (types.allowed == ArgumentTypes::kAll && types.unlimited == ArgumentTypes::kAll) {
      return AnyText(&rules_);
    }
    if (const auto listed = Tried([&](GrammarSyntax* rules) { return Listed(schema, rules); })) {
      return *listed;
    }
    // What is read as another type than a string is valid then.
    const unsigned others = types.allowed & ~ArgumentTypes::kString;
    if ((others & ~types.unlimited) == 0 && types.Allows(ArgumentTypes::kString)) {
      if ((types.unlimited & ArgumentTypes::kString) != 0) return AnyText(&rules_);
      if (const auto text = Tried([&](GrammarSyntax* rules) { return Text(schema, rules); })) {
        return (others & ArgumentTypes::kNull) != 0
                   ? rules_.Alternatives({*text, rules_.Literal("null")})
                   : *text;
      }
    }
    KVASIR_TRY_OK(NotHeld(where, "these limits are not held to where strings have no marks"));
    return AnyText(&rules_);
  }

  Result<Expr> JsonValue(const std::string& where, const Json& schema) {
    const auto held = [&](const Json& one) {
      return Tried([&](GrammarSyntax* rules) -> Result<Expr> {
        // Names and constants stand as they are.
        if (one.Dump().find(kGlmValueClose) != std::string::npos) {
          return Error{ErrorCode::kUnsupported, ""};
        }
        const std::string name = field_ + where;
        KVASIR_TRY(
            const GrammarSyntax::Rule rule,
            SchemaTranslator(one, rules,
                             {.name = name, .form = SchemaForm::kJsonInTags, .nodes = &nodes_})
                .Translate());
        return rules->Call(rule);
      });
    };
    if (const auto whole = held(schema)) return *whole;
    KVASIR_TRY_OK(NotHeld(where, "cannot be held to"));
    if (const auto relaxed = held(RelaxedSchema(schema))) return *relaxed;
    return JsonText(&rules_, JsonWords::kJson, JsonPlace::kInTags).Value();
  }

  // One of the values of "enum" or "const".
  static Result<Expr> Listed(const Json& schema, GrammarSyntax* rules) {
    const Error kNotListed = {ErrorCode::kUnsupported, "there is no list of values"};
    if (!schema.is_object()) return kNotListed;
    Json::Array values;
    const Json* const listed = schema.Find("enum");
    const Json* const constant = schema.Find("const");
    if (listed != nullptr && listed->is_array()) values = listed->as_array();
    if (constant != nullptr) values = {*constant};
    if (values.empty() || (listed != nullptr && constant != nullptr)) return kNotListed;
    for (const auto& [name, value] : schema.as_object()) {
      const bool is_other = name != "enum" && name != "const" && name != "type";
      if (is_other && !IsSchemaAnnotation(name)) return kNotListed;
    }
    const ArgumentTypes types = TypesOfSchema(schema, schema);
    std::vector<Expr> ways;
    for (const Json& value : values) {
      const std::string text = value.is_string() ? value.as_string() : value.Dump();
      // As it is read: where it is none of the types, or another value's text, it is left out.
      if (text.find(kGlmValueClose) != text.npos || ArgumentValue(text, types) != value) continue;
      if (value.is_string() && std::ranges::find(types.texts, text) == types.texts.end()) continue;
      ways.push_back(rules->Literal(text));
    }
    return rules->Alternatives(std::move(ways));
  }

  // A string with limits, or null.
  static Result<Expr> Text(const Json& schema, GrammarSyntax* rules) {
    const Error kNoText = {ErrorCode::kUnsupported, "no limits that are held to"};
    if (!schema.is_object()) return kNoText;
    // {"anyOf": [{"type": "string", ...}, {"type": "null"}]}
    if (const Json* branches = schema.Find("anyOf"); branches != nullptr && branches->is_array()) {
      const Json::Array& two = branches->as_array();
      const Json null = Json::Object{{"type", "null"}};
      if (two.size() != 2 || (two[0] != null && two[1] != null)) return kNoText;
      for (const auto& [name, value] : schema.as_object()) {
        if (name != "anyOf" && !IsSchemaAnnotation(name)) return kNoText;
      }
      return Text(two[0] == null ? two[1] : two[0], rules);
    }
    int least = 0;
    int most = kUnbounded;
    std::optional<std::string> expression;
    for (const auto& [name, value] : schema.as_object()) {
      if (name == "type" || IsSchemaAnnotation(name)) continue;
      const bool is_count = name == "minLength" || name == "maxLength";
      if (is_count && value.is_number() && value.as_double() >= 0 &&
          value.as_double() <= kMostChars && value.as_double() == std::floor(value.as_double())) {
        (name == "minLength" ? least : most) = static_cast<int>(value.as_double());
      } else if ((name == "pattern" || name == "format") && value.is_string() && !expression) {
        expression = name == "pattern" ? value.as_string() : PatternOfFormat(value.as_string());
        if (!expression->empty() || name == "pattern") continue;
        if (IsUnheldFormat(value.as_string())) return kNoText;
        expression.reset();  // it says nothing
      } else {
        return kNoText;
      }
    }
    if (expression) {
      if (least > 0 || most != kUnbounded) return kNoText;
      JsonText bare(rules, JsonWords::kJson, JsonPlace::kBareInTags);
      return TranslatePattern(*expression, rules, &bare);
    }
    const CharSet all = CharSet::All();
    if (most != kUnbounded) {
      if (most > kShortChars || least > most) return kNoText;
      return rules->Repeat(rules->Chars(all), least, most);
    }
    if (least <= 1) return least == 0 ? AnyText(rules) : SomeText(rules);
    const Expr begin = rules->Repeat(rules->Chars(all.Minus(CharSet::Of('<'))), least, least);
    return rules->Sequence({begin, AnyText(rules)});
  }

  const std::string field_;
  int64_t& nodes_;  // that may still be looked at
  GrammarSyntax& rules_;
  bool is_strict_ = false;
  Json parameters_ = Json::Object();
  int64_t definition_nodes_ = 0;  // what copying them costs
};

}  // namespace

Result<Expr> TaggedArgumentsExpr(const Json& function, const std::string& field, int64_t* nodes,
                                 GrammarSyntax* rules) {
  return ArgumentsBuilder(function, field, nodes, rules).Arguments();
}

}  // namespace kvasir
