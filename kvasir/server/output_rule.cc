#include "kvasir/server/output_rule.h"

#include <utility>

#include "kvasir/grammar/gbnf_parser.h"
#include "kvasir/grammar/json_text.h"
#include "kvasir/grammar/schema_translator.h"
#include "kvasir/server/request_fields.h"

namespace kvasir {
namespace {

OutputRule SchemaRule(std::string field, const Json& schema) {
  return {.kind = OutputRule::Kind::kJsonSchema, .field = std::move(field), .schema = schema};
}

Status CheckSchema(const Json* schema, const std::string& field) {
  if (schema == nullptr) return FieldError(ErrorCode::kCorrupt, field, "is missing");
  if (schema->is_object() || schema->is_bool()) return {};
  return WrongType(field, "a JSON schema", *schema);
}

Result<OutputRule> ParseResponseFormat(const Json& format) {
  const std::string name = "response_format";
  if (!format.is_object()) return WrongType(name, "an object", format);
  const Json* type = FindSet(format, "type");
  if (type == nullptr || !type->is_string()) {
    return FieldError(ErrorCode::kCorrupt, name + ".type", "must be a string");
  }
  if (type->as_string() == "text") return OutputRule();
  if (type->as_string() == "json_object") {
    const Json* schema = FindSet(format, "schema");
    if (schema == nullptr) return OutputRule{.kind = OutputRule::Kind::kJsonObject, .field = name};
    KVASIR_TRY_OK(CheckSchema(schema, name + ".schema"));
    return SchemaRule(name + ".schema", *schema);
  }
  if (type->as_string() != "json_schema") {
    return FieldError(ErrorCode::kUnsupported, name + ".type",
                      "must be \"text\", \"json_object\" or \"json_schema\"");
  }
  const Json* wrapper = FindSet(format, "json_schema");
  if (wrapper == nullptr || !wrapper->is_object()) {
    return FieldError(ErrorCode::kCorrupt, name + ".json_schema", "must be an object");
  }
  const std::string field = name + ".json_schema.schema";
  const Json* schema = FindSet(*wrapper, "schema");
  KVASIR_TRY_OK(CheckSchema(schema, field));
  return SchemaRule(field, *schema);
}

// A text in GBNF's quotes.
std::string Quoted(std::string_view text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\r') {
      quoted += "\\r";
    } else {
      if (c == '"' || c == '\\') quoted += '\\';
      quoted += c;
    }
  }
  return quoted + "\"";
}

Result<OutputRule> ChoiceRule(std::string field, const Json& choices) {
  if (!choices.is_array()) return WrongType(field, "an array of strings", choices);
  if (choices.as_array().empty()) {
    return FieldError(ErrorCode::kInvalidArgument, field, "must hold at least one text");
  }
  std::string gbnf = "root ::= ";
  for (const Json& choice : choices.as_array()) {
    if (!choice.is_string()) return WrongType(field, "an array of strings", choice);
    if (&choice != &choices.as_array().front()) gbnf += " | ";
    gbnf += Quoted(choice.as_string());
  }
  return OutputRule{
      .kind = OutputRule::Kind::kGbnf, .field = std::move(field), .gbnf = std::move(gbnf)};
}

// What vLLM calls structured_outputs.KIND, and guided_KIND before.
Result<OutputRule> RuleOfKind(std::string_view kind, std::string field, const Json& value) {
  if (kind == "choice") return ChoiceRule(std::move(field), value);
  if (kind == "json_object") {
    if (!value.is_bool()) return WrongType(field, "a boolean", value);
    if (!value.as_bool()) return OutputRule();
    return OutputRule{.kind = OutputRule::Kind::kJsonObject, .field = std::move(field)};
  }
  if (kind == "json") {
    if (!value.is_string()) {
      KVASIR_TRY_OK(CheckSchema(&value, field));
      return SchemaRule(std::move(field), value);
    }
    const auto schema = Json::Parse(value.as_string());
    if (!schema.ok()) return FieldError(ErrorCode::kCorrupt, field, "is no JSON");
    KVASIR_TRY_OK(CheckSchema(&*schema, field));
    return SchemaRule(std::move(field), *schema);
  }
  if (kind == "grammar") {
    if (!value.is_string()) return WrongType(field, "a string", value);
    return OutputRule{
        .kind = OutputRule::Kind::kGbnf, .field = std::move(field), .gbnf = value.as_string()};
  }
  return FieldError(ErrorCode::kUnsupported, field,
                    "is not supported; there are json, json_object, grammar (GBNF) and choice");
}

}  // namespace

std::string OutputRule::Key() const {
  switch (kind) {
    case Kind::kFree:
      return "free";
    case Kind::kJsonObject:
      return "object";
    case Kind::kJsonSchema:
      return "schema " + schema.Dump();
    case Kind::kGbnf:
      return "gbnf " + gbnf;
  }
  return {};
}

Result<OutputRule> ParseOutputRule(const Json& body) {
  OutputRule rule;
  const auto take = [&](OutputRule other) -> Status {
    if (other.is_free()) return {};
    if (!rule.is_free()) {
      return FieldError(
          ErrorCode::kInvalidArgument, other.field,
          "says what the answer has to be, and so does '" + rule.field + "'; give one of them");
    }
    rule = std::move(other);
    return {};
  };
  if (const Json* format = FindSet(body, "response_format")) {
    KVASIR_TRY(OutputRule other, ParseResponseFormat(*format));
    KVASIR_TRY_OK(take(std::move(other)));
  }
  if (const Json* schema = FindSet(body, "json_schema")) {
    KVASIR_TRY_OK(CheckSchema(schema, "json_schema"));
    KVASIR_TRY_OK(take(SchemaRule("json_schema", *schema)));
  }
  KVASIR_TRY(std::string gbnf, body.GetStringOr("grammar", ""));
  if (!gbnf.empty()) {
    KVASIR_TRY_OK(
        take({.kind = OutputRule::Kind::kGbnf, .field = "grammar", .gbnf = std::move(gbnf)}));
  }
  if (const Json* outputs = FindSet(body, "structured_outputs")) {
    if (!outputs->is_object()) return WrongType("structured_outputs", "an object", *outputs);
    for (const auto& [kind, value] : outputs->as_object()) {
      // Those say how, not what.
      const bool is_option = kind.starts_with("disable_") || kind.starts_with("whitespace_");
      if (value.is_null() || is_option) continue;
      KVASIR_TRY(OutputRule other, RuleOfKind(kind, "structured_outputs." + kind, value));
      KVASIR_TRY_OK(take(std::move(other)));
    }
  }
  for (const char* kind : {"json", "json_object", "grammar", "choice", "regex"}) {
    const std::string field = std::string("guided_") + kind;
    const Json* value = FindSet(body, field);
    if (value == nullptr) continue;
    KVASIR_TRY(OutputRule other, RuleOfKind(kind, field, *value));
    KVASIR_TRY_OK(take(std::move(other)));
  }
  return rule;
}

Error GrammarError(const Error& error, const std::string& field) {
  const ErrorCode code =
      error.code == ErrorCode::kResourceExhausted ? ErrorCode::kInvalidArgument : error.code;
  return FieldError(code, field, "cannot be held to: " + error.message);
}

Result<OutputLanguage> LanguageOf(const OutputRule& rule) {
  OutputLanguage language;
  if (rule.kind == OutputRule::Kind::kJsonObject) {
    language.text = JsonText(&language.syntax).Object();
  } else if (rule.kind == OutputRule::Kind::kJsonSchema) {
    const auto root = SchemaTranslator(rule.schema, &language.syntax).Translate();
    if (!root.ok()) return GrammarError(root.error(), rule.field);
    language.text = language.syntax.Call(*root);
  } else {
    auto syntax = ParseGbnf(rule.gbnf);
    if (!syntax.ok()) return GrammarError(syntax.error(), rule.field);
    language.syntax = *std::move(syntax);
    const GrammarSyntax::Rule root = language.syntax.RuleNamed("root");
    if (!language.syntax.IsDefined(root)) {
      return GrammarError({ErrorCode::kInvalidArgument, "there is no rule 'root'"}, rule.field);
    }
    language.text = language.syntax.Call(root);
  }
  return language;
}

}  // namespace kvasir
