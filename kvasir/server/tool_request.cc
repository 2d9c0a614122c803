#include "kvasir/server/tool_request.h"

#include <algorithm>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/grammar/grammar.h"
#include "kvasir/grammar/schema_merge.h"
#include "kvasir/grammar/schema_relax.h"
#include "kvasir/grammar/schema_translator.h"
#include "kvasir/server/output_rule.h"
#include "kvasir/server/request_fields.h"
#include "kvasir/server/tagged_arguments.h"

namespace kvasir {
namespace {

using Expr = GrammarSyntax::Expr;

constexpr size_t kMaxNameBytes = 128;

std::string FieldOf(size_t tool) { return "tools[" + std::to_string(tool) + "]"; }

bool IsNameCharacter(char c) {
  const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return is_letter || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

Status CheckTool(const Json& tool, const std::string& field) {
  if (!tool.is_object()) return WrongType(field, "an object", tool);
  const Json* type = FindSet(tool, "type");
  const bool is_function = type != nullptr && type->is_string() && type->as_string() == "function";
  if (!is_function) {
    return FieldError(ErrorCode::kUnsupported, field + ".type",
                      "must be \"function\": this server runs no tools of its own");
  }
  const Json* function = FindSet(tool, "function");
  if (function == nullptr || !function->is_object()) {
    return FieldError(ErrorCode::kCorrupt, field + ".function", "must be an object");
  }
  const Json* name = FindSet(*function, "name");
  if (name == nullptr || !name->is_string()) {
    return FieldError(ErrorCode::kCorrupt, field + ".function.name", "must be a string");
  }
  const std::string& text = name->as_string();
  if (text.empty() || text.size() > kMaxNameBytes || !std::ranges::all_of(text, IsNameCharacter)) {
    return FieldError(ErrorCode::kInvalidArgument, field + ".function.name",
                      "must be 1 to 128 letters, digits, '_', '-' or '.'");
  }
  const Json* parameters = FindSet(*function, "parameters");
  if (parameters != nullptr && !parameters->is_object()) {
    return WrongType(field + ".function.parameters", "a JSON schema", *parameters);
  }
  const Json* deferred = FindSet(tool, "defer_loading");
  if (deferred != nullptr && !deferred->is_bool()) {
    return WrongType(field + ".defer_loading", "true or false", *deferred);
  }
  return {};
}

const std::string& NameOf(const Json& tool) {
  return tool.Find("function")->Find("name")->as_string();
}

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

bool HasTool(const Json& tools, std::string_view name) {
  return std::ranges::any_of(tools.as_array(),
                             [&](const Json& tool) { return NameOf(tool) == name; });
}

// {"type": "function", "function": {"name": ...}}
Status AllowTool(const Json& named, const std::string& field, ToolRequest* request) {
  const Json* function = FindSet(named, "function");
  const Json* name = function == nullptr ? nullptr : FindSet(*function, "name");
  if (name == nullptr || !name->is_string()) {
    return FieldError(ErrorCode::kCorrupt, field + ".function.name", "must be a string");
  }
  if (!HasTool(request->tools, name->as_string())) {
    return FieldError(ErrorCode::kInvalidArgument, field, "names none of the tools");
  }
  request->only.push_back(name->as_string());
  return {};
}

// {"mode": "auto" or "required", "tools": [...]}: the prompt shows all tools, so that it stays the
// same, and these may be used.
Status ParseAllowedTools(const Json& allowed, ToolRequest* request) {
  const std::string field = "tool_choice.allowed_tools";
  const Json* mode = FindSet(allowed, "mode");
  const bool is_required = mode != nullptr && mode->is_string() && mode->as_string() == "required";
  if (!is_required && !(mode != nullptr && mode->is_string() && mode->as_string() == "auto")) {
    return FieldError(ErrorCode::kInvalidArgument, field + ".mode",
                      "must be \"auto\" or \"required\"");
  }
  const Json* tools = FindSet(allowed, "tools");
  if (tools == nullptr || !tools->is_array() || tools->as_array().empty()) {
    return FieldError(ErrorCode::kCorrupt, field + ".tools", "must be an array of functions");
  }
  if (tools->as_array().size() > request->tools.as_array().size()) {
    return FieldError(ErrorCode::kInvalidArgument, field + ".tools",
                      "must hold no more than there are tools");
  }
  if (is_required) request->choice = ToolRequest::Choice::kRequired;
  for (size_t i = 0; i < tools->as_array().size(); ++i) {
    const std::string name = field + ".tools[" + std::to_string(i) + "]";
    KVASIR_TRY_OK(AllowTool(tools->as_array()[i], name, request));
  }
  return {};
}

Status ParseChoice(const Json* choice, ToolRequest* request) {
  const std::string field = "tool_choice";
  request->choice = ToolRequest::Choice::kAuto;
  if (choice == nullptr) return {};
  if (choice->is_string()) {
    const std::string& text = choice->as_string();
    if (text == "auto") return {};
    if (text == "none") request->choice = ToolRequest::Choice::kNone;
    if (text == "required") request->choice = ToolRequest::Choice::kRequired;
    if (text == "none" || text == "required") return {};
    return FieldError(ErrorCode::kInvalidArgument, field,
                      "must be \"none\", \"auto\", \"required\" or name a function");
  }
  if (!choice->is_object()) return WrongType(field, "a string or an object", *choice);
  if (FindSet(*choice, "allowed_tools") != nullptr) {
    return ParseAllowedTools(*choice->Find("allowed_tools"), request);
  }
  request->choice = ToolRequest::Choice::kRequired;
  return AllowTool(*choice, field, request);
}

// Whether no member is described, allowed or asked for.
bool SaysNothing(const Json& parameters) {
  return std::ranges::all_of(parameters.as_object(), [](const Json::Member& member) {
    return IsSchemaAnnotation(member.first) || member == Json::Member("type", "object") ||
           member == Json::Member("required", Json::Array());
  });
}

// What a call's arguments are written as, best first.
std::vector<SchemaForm> ArgumentsForms(ToolSyntax syntax) {
  switch (syntax) {
    case ToolSyntax::kLfm2:
      return {SchemaForm::kPythonCall, SchemaForm::kJson};
    case ToolSyntax::kOlmo3:  // its template shows values of JSON
      return {SchemaForm::kJsonWordCall, SchemaForm::kJson};
    default:
      return {SchemaForm::kJson};
  }
}

// Also that there is a value at all. `options`: without a name.
Status CanBeHeldTo(const Json& schema, SchemaOptions options) {
  GrammarSyntax trial;
  options.name = "parameters";
  KVASIR_TRY(const GrammarSyntax::Rule rule,
             SchemaTranslator(schema, &trial, std::move(options)).Translate());
  return Grammar::FromSyntax(trial, rule).status();
}

// The schema with `true` for each property that nothing satisfies or that cannot be read.
Json WithoutImpossibleProperties(Json schema, const SchemaOptions& options) {
  constexpr size_t kMostTried = 64;  // each takes a grammar of its own
  Json* const properties = schema.Find("properties");
  const bool are_few = properties != nullptr && properties->is_object() &&
                       properties->as_object().size() <= kMostTried;
  if (!are_few) return schema;
  Json alone = schema;  // with what its references lead to
  for (auto& [name, property] : properties->as_object()) {
    alone.Set("properties", Json::Object{{name, property}});
    alone.Set("required", Json::Array{name});
    if (!CanBeHeldTo(alone, options).ok()) property = true;
  }
  return schema;
}

// A tool's arguments.
struct Arguments {
  Expr expr;
  SchemaForm form;
};

// What they can be held to in one of `forms`, best first, which may have Python's before JSON's: it
// cannot say all that JSON can, names of properties above all. Sets `form`.
Result<Json> HeldSchema(const Json& function, const Json& parameters,
                        const std::vector<SchemaForm>& forms, SchemaOptions* options) {
  const auto held = [&](const auto& schema_of_form) -> Result<Json> {
    Status status;
    for (const SchemaForm form : forms) {
      options->form = form;
      Json schema = schema_of_form();
      status = CanBeHeldTo(schema, *options);
      if (status.ok()) return schema;
    }
    return status.error();
  };
  Json schema = parameters;
  if (schema.Find("type") == nullptr) schema.Set("type", "object");
  auto whole = held([&] { return schema; });
  const Json* strict = FindSet(function, "strict");
  const bool is_strict = strict != nullptr && strict->is_bool() && strict->as_bool();
  if (whole.ok() || is_strict) return whole;
  schema = RelaxedSchema(schema);
  if (auto relaxed = held([&] { return schema; }); relaxed.ok()) return relaxed;
  auto possible = held([&] { return WithoutImpossibleProperties(schema, *options); });
  if (possible.ok()) return possible;
  options->form = forms.front();
  return Json(Json::Object{{"type", "object"}});
}

// In one of `forms`. `options`: without a name or form.
Result<Arguments> ArgumentsExpr(const Json& tool, const std::string& field,
                                const std::vector<SchemaForm>& forms, SchemaOptions options,
                                GrammarSyntax* rules) {
  const Json& function = *tool.Find("function");
  const Json* given = FindSet(function, "parameters");
  options.form = forms.front();
  // Without parameters, or with such as say of none, a function takes none.
  if (given == nullptr || SaysNothing(*given)) {
    const bool is_json = options.form == SchemaForm::kJson;
    return Arguments{rules->Literal(is_json ? "{}" : "()"), options.form};
  }
  const std::string name = field + ".function.parameters";
  const auto schema = HeldSchema(function, *given, forms, &options);
  if (!schema.ok()) return GrammarError(schema.error(), name);
  options.name = name;
  options.nodes = nullptr;
  const auto rule = SchemaTranslator(*schema, rules, options).Translate();
  // Each was tried alone; all of them together may still be too much.
  if (!rule.ok()) return GrammarError(rule.error(), name);
  return Arguments{rules->Call(*rule), options.form};
}

// What a call is made of but its arguments.
struct CallForm {
  std::string before_name;
  std::string before_arguments;
  std::string after;
};

CallForm FormOf(ToolSyntax syntax, SchemaForm arguments) {
  switch (syntax) {
    case ToolSyntax::kHermes:
    case ToolSyntax::kMistral:
    case ToolSyntax::kGranite:
    case ToolSyntax::kPhi4Mini:
      return {"{\"name\": \"", "\", \"arguments\": ", "}"};
    case ToolSyntax::kLlama:
      return {"{\"name\": \"", "\", \"parameters\": ", "}"};
    case ToolSyntax::kMistralArgs:
      return {"", "[ARGS]", ""};
    case ToolSyntax::kQwenXml:
      return {"<function=", ">\n", ""};
    case ToolSyntax::kGlm:
      return {"", "", "</tool_call>"};
    case ToolSyntax::kGemma:
      return {"call:", "{", ""};
    case ToolSyntax::kLfm2:
    case ToolSyntax::kOlmo3:
      if (arguments == SchemaForm::kJson) return FormOf(ToolSyntax::kHermes, arguments);
      return {};  // the arguments have their brackets
    case ToolSyntax::kHarmony:
      return {};  // HarmonyAnswerExpr
  }
  return {};
}

// One call of each kind that there is: in the family's form and, for tools whose arguments that
// form cannot have, in JSON, which the same list does not mix.
Result<std::vector<Expr>> OneCalls(const ToolRequest& request, ToolSyntax syntax,
                                   GrammarSyntax* rules) {
  const std::vector<SchemaForm> forms = ArgumentsForms(syntax);
  std::vector<Expr> calls;
  std::vector<Expr> json_calls;
  int64_t nodes = SchemaTranslator::kMostNodes;  // of all schemas
  for (size_t i = 0; i < request.tools.as_array().size(); ++i) {
    const Json& tool = request.tools.as_array()[i];
    const bool is_allowed = request.only.empty() || Contains(request.only, NameOf(tool));
    if (!is_allowed) continue;
    Arguments arguments = {
        rules->Repeat(rules->Chars(CharSet::All()), 0, GrammarSyntax::kUnbounded), forms.front()};
    if (syntax == ToolSyntax::kGlm) {
      KVASIR_TRY(arguments.expr,
                 TaggedArgumentsExpr(*tool.Find("function"), FieldOf(i), &nodes, rules));
    } else if (HasCallGrammar(syntax)) {
      KVASIR_TRY(arguments, ArgumentsExpr(tool, FieldOf(i), forms, {.nodes = &nodes}, rules));
    }
    const CallForm form = FormOf(syntax, arguments.form);
    const std::string head = form.before_name + NameOf(tool) + form.before_arguments;
    std::vector<Expr>& same_form = arguments.form == forms.front() ? calls : json_calls;
    same_form.push_back(
        rules->Sequence({rules->Literal(head), arguments.expr, rules->Literal(form.after)}));
  }
  std::vector<Expr> kinds;
  const auto add = [&](const char* name, std::vector<Expr> ways) {
    if (ways.empty()) return;
    const GrammarSyntax::Rule rule = rules->RuleNamed(name);
    rules->Define(rule, rules->Alternatives(std::move(ways)));
    kinds.push_back(rules->Call(rule));
  };
  add("one call", std::move(calls));
  add("one call in JSON", std::move(json_calls));
  return kinds;
}

}  // namespace

Json ToolRequest::Shown() const {
  Json::Array shown = tools.as_array();
  std::erase_if(shown, [](const Json& tool) {
    const Json* deferred = FindSet(tool, "defer_loading");
    return deferred != nullptr && deferred->as_bool();
  });
  return shown;
}

Result<ToolRequest> ParseToolRequest(const Json& body) {
  ToolRequest request;
  KVASIR_TRY(request.is_parallel, body.GetBoolOr("parallel_tool_calls", true));
  const Json* tools = FindSet(body, "tools");
  const Json* choice = FindSet(body, "tool_choice");
  if (tools != nullptr && !tools->is_array()) return WrongType("tools", "an array", *tools);
  if (tools == nullptr || tools->as_array().empty()) {
    const bool is_neutral =
        choice == nullptr || (choice->is_string() && choice->as_string() != "required");
    if (is_neutral) return request;
    return FieldError(ErrorCode::kInvalidArgument, "tool_choice", "needs tools to choose from");
  }
  if (tools->as_array().size() > kMaxTools) {
    return FieldError(ErrorCode::kInvalidArgument, "tools",
                      "must hold at most " + std::to_string(kMaxTools) + " of them");
  }
  for (size_t i = 0; i < tools->as_array().size(); ++i) {
    KVASIR_TRY_OK(CheckTool(tools->as_array()[i], FieldOf(i)));
  }
  request.tools = *tools;
  KVASIR_TRY_OK(ParseChoice(choice, &request));
  // A function that is named is called once, unless it is said otherwise.
  const bool is_named =
      choice != nullptr && choice->is_object() && FindSet(*choice, "allowed_tools") == nullptr;
  if (is_named && FindSet(body, "parallel_tool_calls") == nullptr) request.is_parallel = false;
  return request;
}

bool HasCallGrammar(ToolSyntax syntax) {
  return syntax != ToolSyntax::kQwenXml && syntax != ToolSyntax::kGemma;
}

Result<Expr> CallsExpr(const ToolRequest& request, ToolSyntax syntax, CallBegin begin,
                       GrammarSyntax* rules) {
  KVASIR_TRY(const std::vector<Expr> kinds, OneCalls(request, syntax, rules));
  const Expr call = kinds.front();
  const Expr opening = rules->Literal(CallOpening(syntax));
  const Expr first = begin == CallBegin::kWithOpening ? opening : rules->Literal("");
  const int more = request.is_parallel ? GrammarSyntax::kUnbounded : 0;
  const auto chain = [&](Expr one, Expr link) {
    return rules->Sequence({one, rules->Repeat(rules->Sequence({link, one}), 0, more)});
  };
  const auto chains = [&](Expr link) {
    std::vector<Expr> ways;
    for (const Expr one : kinds) ways.push_back(chain(one, link));
    return rules->Alternatives(std::move(ways));
  };
  switch (syntax) {
    case ToolSyntax::kHermes: {
      const Expr line = rules->Optional(rules->Literal("\n"));
      const Expr wrapped = rules->Sequence({line, call, line, rules->Literal("</tool_call>")});
      return rules->Sequence({first, chain(wrapped, rules->Sequence({line, opening}))});
    }
    case ToolSyntax::kGlm: {
      const Expr line = rules->Optional(rules->Literal("\n"));
      return rules->Sequence({first, chain(call, rules->Sequence({line, opening}))});
    }
    case ToolSyntax::kMistral:
    case ToolSyntax::kGranite: {
      const Expr blank = rules->Optional(rules->Literal(" "));
      return rules->Sequence({first, blank, rules->Literal("["), chain(call, rules->Literal(", ")),
                              rules->Literal("]")});
    }
    case ToolSyntax::kPhi4Mini: {  // the bracket is the opening's
      const Expr list = rules->Sequence({chain(call, rules->Literal(", ")), rules->Literal("]")});
      if (begin == CallBegin::kBehindOpening) return list;
      const Expr marked = rules->Sequence(
          {rules->Literal("<|tool_call|>["), list, rules->Literal("<|/tool_call|>")});
      return rules->Alternatives({rules->Sequence({opening, list}), marked});
    }
    case ToolSyntax::kLfm2:
      return rules->Sequence({first, rules->Literal("["), chains(rules->Literal(", ")),
                              rules->Literal("]<|tool_call_end|>")});
    case ToolSyntax::kOlmo3: {
      const Expr line = rules->Optional(rules->Literal("\n"));
      return rules->Sequence(
          {first, line, chains(rules->Literal("\n")), line, rules->Literal("</function_calls>")});
    }
    case ToolSyntax::kMistralArgs:
      return rules->Sequence({first, chain(call, opening)});
    case ToolSyntax::kQwenXml:
      return rules->Sequence({first, rules->Optional(rules->Literal("\n")), call});
    case ToolSyntax::kLlama:  // its templates refuse more than one
    case ToolSyntax::kGemma:
      return rules->Sequence({first, call});
    case ToolSyntax::kHarmony:
      break;
  }
  KVASIR_CHECK(false);
}

Result<Expr> HarmonyAnswerExpr(const ToolRequest& request, const HarmonyAnswer& answer,
                               GrammarSyntax* rules) {
  const auto literal = [&](std::string_view text) { return rules->Literal(std::string(text)); };
  const auto either = [&](std::string_view a, std::string_view b) {
    return rules->Alternatives({literal(a), literal(b)});
  };
  const auto define = [&](const char* name, Expr expr) {
    const GrammarSyntax::Rule rule = rules->RuleNamed(name);
    rules->Define(rule, expr);
    return rules->Call(rule);
  };
  // Marks are known by how they begin, so a text has no such beginning: '<'s, then no '|'.
  const CharSet others = CharSet({{'<', '<'}}).Complement();
  const CharSet no_marks = CharSet({{'<', '<'}, {'|', '|'}}).Complement();
  const Expr opened =
      rules->Repeat(rules->Chars(CharSet({{'<', '<'}})), 1, GrammarSyntax::kUnbounded);
  const Expr piece = rules->Alternatives(
      {rules->Chars(others), rules->Sequence({opened, rules->Chars(no_marks)})});
  const Expr text = define("text without marks",
                           rules->Sequence({rules->Repeat(piece, 0, GrammarSyntax::kUnbounded),
                                            rules->Optional(opened)}));
  const Expr message = literal("<|message|>");
  const Expr channel = either("<|channel|>analysis", "<|channel|>commentary");
  const Expr before =
      define("message before the last",
             rules->Sequence({channel, message, text, literal("<|end|><|start|>assistant")}));
  std::vector<Expr> ends;
  // " json", "<|constrain|>json", " <|constrain|>json", " code", or nothing.
  const Expr type = rules->Optional(
      rules->Sequence({rules->Optional(literal(" ")), rules->Optional(literal("<|constrain|>")),
                       either("json", "code")}));
  if (answer.has_final) {
    const Expr any = rules->Repeat(rules->Chars(CharSet::All()), 0, GrammarSyntax::kUnbounded);
    ends.push_back(rules->Sequence(
        {literal("<|channel|>final"), type, message, answer.final_text.value_or(any)}));
  }
  if (answer.has_calls) {
    std::vector<Expr> calls;
    int64_t nodes = SchemaTranslator::kMostNodes;  // of all schemas
    for (size_t i = 0; i < request.tools.as_array().size(); ++i) {
      const Json& tool = request.tools.as_array()[i];
      if (!request.only.empty() && !Contains(request.only, NameOf(tool))) continue;
      KVASIR_TRY(const Arguments arguments,
                 ArgumentsExpr(tool, FieldOf(i), {SchemaForm::kJson}, {.nodes = &nodes}, rules));
      const GrammarSyntax::Rule rule = rules->RuleNamed("arguments of " + std::to_string(i));
      rules->Define(rule, arguments.expr);
      const Expr name = literal(NameOf(tool));
      // The call's header names the channel first, or the tool.
      for (const bool names_channel : {true, false}) {
        const Expr recipient = rules->Sequence({literal(" to=functions."), name});
        calls.push_back(rules->Sequence({names_channel ? channel : recipient,
                                         names_channel ? recipient : channel, type, message,
                                         rules->Call(rule)}));
      }
    }
    ends.push_back(define("one call", rules->Alternatives(std::move(calls))));
  }
  return rules->Sequence(
      {rules->Repeat(before, 0, GrammarSyntax::kUnbounded), rules->Alternatives(std::move(ends))});
}

}  // namespace kvasir
