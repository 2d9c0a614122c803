// The statement half of the parser.
// Deliberately strict about tags that no chat template needs: they are refused by name.
#include <algorithm>
#include <array>
#include <utility>

#include "kvasir/chat/lexer.h"
#include "kvasir/chat/parser.h"

namespace kvasir::chat {
namespace {

constexpr int kMaxBlockNesting = 100;

bool NameIsOneOf(const Token& token, const std::vector<const char*>& names) {
  return std::any_of(names.begin(), names.end(),
                     [&](const char* name) { return token.IsName(name); });
}

std::string Join(const std::vector<const char*>& names) {
  std::string joined;
  for (const char* name : names)
    joined += (joined.empty() ? "'" : " or '") + std::string(name) + "'";
  return joined;
}

}  // namespace

Result<Body> ParseTemplate(std::string_view source) {
  KVASIR_TRY(std::vector<Token> tokens, Tokenize(source));
  return Parser(std::move(tokens)).Run();
}

Result<Body> Parser::Run() {
  KVASIR_TRY(Body body, ParseBody({}));
  if (!unknown_names_.empty()) return unknown_names_.front();
  return body;
}

// Ends at one of the names, which stays current, or at the end of the template if there are none.
Result<Body> Parser::ParseBody(std::vector<const char*> end_names) {
  Body body;
  while (current().kind != TokenKind::kEnd) {
    const int line = current().line;
    if (current().kind == TokenKind::kData) {
      auto stmt = std::make_unique<Stmt>();
      stmt->line = line;
      Expr data;
      data.constant =
          Value::String(std::make_shared<const Text>(current().text, Origin::kTemplate));
      stmt->value = std::make_unique<const Expr>(std::move(data));
      body.push_back(std::move(stmt));
      Skip();
    } else if (current().kind == TokenKind::kVariableBegin) {
      Skip();
      auto stmt = std::make_unique<Stmt>();
      stmt->kind = StmtKind::kPrint;
      stmt->line = line;
      KVASIR_TRY(stmt->value, ParseTuple(&Parser::ParseExpression, TupleEnd::kStatement));
      KVASIR_TRY_OK(Expect(TokenKind::kVariableEnd, "'}}'"));
      body.push_back(std::move(stmt));
    } else {
      KVASIR_TRY_OK(Expect(TokenKind::kBlockBegin, "'{%'"));
      if (NameIsOneOf(current(), end_names)) return body;
      KVASIR_TRY(auto stmt, ParseStatement());
      body.push_back(std::move(stmt));
      KVASIR_TRY_OK(Expect(TokenKind::kBlockEnd, "'%}'"));
    }
  }
  if (!end_names.empty()) return Fail("the template ends where " + Join(end_names) + " is missing");
  return body;
}

// From the end of the opening tag on.
Result<Body> Parser::ParseBlockBody(std::vector<const char*> end_names) {
  const Level level(&depth_);
  if (depth_ > kMaxBlockNesting) {
    return Fail("more than " + std::to_string(kMaxBlockNesting) + " blocks are nested");
  }
  SkipOperator(":");
  KVASIR_TRY_OK(Expect(TokenKind::kBlockEnd, "'%}'"));
  return ParseBody(std::move(end_names));
}

Result<Body> Parser::ParseBlockBodyAndEnd(const char* end_name) {
  KVASIR_TRY(Body body, ParseBlockBody({end_name}));
  Skip();
  return body;
}

Result<std::unique_ptr<const Stmt>> Parser::ParseStatement() {
  auto stmt = std::make_unique<Stmt>();
  stmt->line = current().line;
  if (current().kind != TokenKind::kName) return Unexpected("the name of a statement");
  const std::string name = current().text;
  Skip();
  Status status;
  if (name == "set")
    status = ParseSet(stmt.get());
  else if (name == "for")
    status = ParseFor(stmt.get());
  else if (name == "if")
    status = ParseIf(stmt.get());
  else if (name == "macro")
    status = ParseMacro(stmt.get());
  else if (name == "call")
    status = ParseCallBlock(stmt.get());
  else if (name == "filter")
    status = ParseFilterBlock(stmt.get());
  else if (name == "with")
    status = ParseWith(stmt.get());
  else if (name == "generation")
    status = ParseScope(stmt.get(), "endgeneration");
  else if (name == "autoescape")
    status = ParseScope(stmt.get(), "endautoescape");
  else if (name == "block")
    status = ParseBlock(stmt.get());
  else if (name == "print")
    status = ParsePrint(stmt.get());
  else if (name == "break")
    status = ParseJump(stmt.get(), StmtKind::kBreak);
  else if (name == "continue")
    status = ParseJump(stmt.get(), StmtKind::kContinue);
  else if (name == "include" || name == "import" || name == "from" || name == "extends") {
    return Error{ErrorCode::kUnsupported,
                 std::to_string(stmt->line) + ": '{% " + name +
                     " %}' is not supported: a chat template is one file; put the text here"};
  } else {
    return SyntaxError(stmt->line, "unknown statement '" + name + "'");
  }
  if (!status.ok()) return status.error();
  return std::unique_ptr<const Stmt>(std::move(stmt));
}

Result<Target> Parser::ParseSingleTarget(bool with_attribute) {
  const Level level(&depth_);
  if (depth_ > kMaxBlockNesting) return Fail("too many brackets in an assignment");
  Target target;
  target.line = current().line;
  if (SkipOperator("(")) {
    KVASIR_TRY(target, ParseTarget(with_attribute));
    KVASIR_TRY_OK(ExpectOperator(")"));
    return target;
  }
  KVASIR_TRY(target.name, TakeName());
  static constexpr std::array<std::string_view, 6> kConstants = {"true",  "True", "false",
                                                                 "False", "none", "None"};
  if (std::find(kConstants.begin(), kConstants.end(), target.name) != kConstants.end()) {
    return Fail("cannot assign to '" + target.name + "'");
  }
  if (with_attribute && SkipOperator(".")) {
    target.kind = Target::Kind::kAttribute;
    KVASIR_TRY(target.attribute, TakeName());
  }
  return target;
}

Result<Target> Parser::ParseTarget(bool with_attribute) {
  KVASIR_TRY(Target first, ParseSingleTarget(with_attribute));
  if (!current().IsOperator(",")) return first;
  Target tuple;
  tuple.kind = Target::Kind::kTuple;
  tuple.line = first.line;
  tuple.items.push_back(std::move(first));
  while (SkipOperator(",")) {
    if (AtTupleEnd(TupleEnd::kStatement) || current().IsName("in") || current().IsOperator("=")) {
      break;
    }
    KVASIR_TRY(Target item, ParseSingleTarget(with_attribute));
    tuple.items.push_back(std::move(item));
  }
  return tuple;
}

Status Parser::ParseSet(Stmt* stmt) {
  KVASIR_TRY(stmt->target, ParseTarget(true));
  if (SkipOperator("=")) {
    stmt->kind = StmtKind::kSet;
    KVASIR_TRY(stmt->value, ParseTuple(&Parser::ParseExpression, TupleEnd::kStatement));
    return Status();
  }
  stmt->kind = StmtKind::kSetBlock;
  while (SkipOperator("|")) {
    KVASIR_TRY(stmt->value, ParseFilter(std::move(stmt->value)));
  }
  KVASIR_TRY(stmt->body, ParseBlockBodyAndEnd("endset"));
  return Status();
}

Status Parser::ParseFor(Stmt* stmt) {
  stmt->kind = StmtKind::kFor;
  KVASIR_TRY(stmt->target, ParseTarget(false));
  KVASIR_TRY_OK(ExpectName("in"));
  KVASIR_TRY(stmt->value, ParseTuple(&Parser::ParseOr, TupleEnd::kFor));
  if (SkipName("if")) {
    KVASIR_TRY(stmt->condition, ParseExpression());
  }
  stmt->is_recursive = SkipName("recursive");
  {
    const Level loop(&loop_depth_);
    KVASIR_TRY(stmt->body, ParseBlockBody({"endfor", "else"}));
  }
  const bool has_else = current().IsName("else");
  Skip();
  if (has_else) {
    KVASIR_TRY(stmt->else_body, ParseBlockBodyAndEnd("endfor"));
  }
  return Status();
}

Status Parser::ParseIf(Stmt* stmt) {
  stmt->kind = StmtKind::kIf;
  const Level soft(&soft_depth_);
  for (;;) {
    KVASIR_TRY(ExprPtr condition, ParseTuple(&Parser::ParseOr, TupleEnd::kStatement));
    KVASIR_TRY(Body body, ParseBlockBody({"elif", "else", "endif"}));
    stmt->branches.emplace_back(std::move(condition), std::move(body));
    if (SkipName("elif")) continue;
    const bool has_else = current().IsName("else");
    Skip();
    if (has_else) {
      KVASIR_TRY(stmt->else_body, ParseBlockBodyAndEnd("endif"));
    }
    return Status();
  }
}

Status Parser::ParseSignature(MacroSpec* macro) {
  KVASIR_TRY_OK(ExpectOperator("("));
  while (!current().IsOperator(")")) {
    if (!macro->parameters.empty()) KVASIR_TRY_OK(ExpectOperator(","));
    KVASIR_TRY(std::string name, TakeName());
    macro->parameters.push_back(std::move(name));
    if (SkipOperator("=")) {
      KVASIR_TRY(ExprPtr value, ParseExpression());
      macro->defaults.push_back(std::move(value));
    } else if (!macro->defaults.empty()) {
      return Fail("a parameter without default follows one with a default");
    }
  }
  Skip();
  return Status();
}

Status Parser::ParseMacroBody(MacroSpec* macro, const char* end_name) {
  // A loop around a macro is not a loop of its body.
  const int outer_loops = std::exchange(loop_depth_, 0);
  open_macros_.push_back(macro);
  auto body = ParseBlockBodyAndEnd(end_name);
  open_macros_.pop_back();
  loop_depth_ = outer_loops;
  if (!body.ok()) return body.error();
  macro->body = std::move(body).value();
  return Status();
}

Status Parser::ParseMacro(Stmt* stmt) {
  stmt->kind = StmtKind::kMacro;
  auto macro = std::make_unique<MacroSpec>();
  KVASIR_TRY(macro->name, TakeName());
  KVASIR_TRY_OK(ParseSignature(macro.get()));
  KVASIR_TRY_OK(ParseMacroBody(macro.get(), "endmacro"));
  stmt->macro = std::move(macro);
  return Status();
}

Status Parser::ParseCallBlock(Stmt* stmt) {
  stmt->kind = StmtKind::kCallBlock;
  auto macro = std::make_unique<MacroSpec>();
  macro->name = "caller";
  if (current().IsOperator("(")) KVASIR_TRY_OK(ParseSignature(macro.get()));
  KVASIR_TRY(stmt->value, ParseExpression());
  if (stmt->value->kind != ExprKind::kCall) return Fail("'{% call %}' expects a call");
  KVASIR_TRY_OK(ParseMacroBody(macro.get(), "endcall"));
  stmt->macro = std::move(macro);
  return Status();
}

Status Parser::ParseFilterBlock(Stmt* stmt) {
  stmt->kind = StmtKind::kFilterBlock;
  KVASIR_TRY(stmt->value, ParseFilter(nullptr));
  while (SkipOperator("|")) {
    KVASIR_TRY(stmt->value, ParseFilter(std::move(stmt->value)));
  }
  KVASIR_TRY(stmt->body, ParseBlockBodyAndEnd("endfilter"));
  return Status();
}

Status Parser::ParseWith(Stmt* stmt) {
  stmt->kind = StmtKind::kWith;
  while (current().kind != TokenKind::kBlockEnd) {
    if (!stmt->targets.empty()) KVASIR_TRY_OK(ExpectOperator(","));
    KVASIR_TRY(Target target, ParseSingleTarget(false));
    KVASIR_TRY_OK(ExpectOperator("="));
    KVASIR_TRY(ExprPtr value, ParseExpression());
    stmt->targets.push_back(std::move(target));
    stmt->values.push_back(std::move(value));
  }
  KVASIR_TRY(stmt->body, ParseBlockBodyAndEnd("endwith"));
  return Status();
}

// {% generation %} only marks what the assistant wrote; {% autoescape %} changes nothing here.
Status Parser::ParseScope(Stmt* stmt, const char* end_name) {
  stmt->kind = StmtKind::kScope;
  if (current().kind != TokenKind::kBlockEnd) {
    KVASIR_TRY(stmt->value, ParseExpression());
  }
  KVASIR_TRY(stmt->body, ParseBlockBodyAndEnd(end_name));
  return Status();
}

Status Parser::ParseBlock(Stmt* stmt) {
  stmt->kind = StmtKind::kBlock;
  KVASIR_TRY(const std::string name, TakeName());
  while (SkipName("scoped") || SkipName("required")) {
  }
  const int outer_loops = std::exchange(loop_depth_, 0);
  auto body = ParseBlockBodyAndEnd("endblock");
  loop_depth_ = outer_loops;
  if (!body.ok()) return body.error();
  stmt->body = std::move(body).value();
  SkipName(name.c_str());
  return Status();
}

Status Parser::ParsePrint(Stmt* stmt) {
  stmt->kind = StmtKind::kPrint;
  Expr all;
  all.kind = ExprKind::kConcat;
  all.line = stmt->line;
  while (current().kind != TokenKind::kBlockEnd && current().kind != TokenKind::kEnd) {
    if (!all.operands.empty()) KVASIR_TRY_OK(ExpectOperator(","));
    KVASIR_TRY(ExprPtr value, ParseExpression());
    all.operands.push_back(std::move(value));
  }
  KVASIR_TRY(stmt->value, Finish(std::move(all)));
  return Status();
}

Status Parser::ParseJump(Stmt* stmt, StmtKind kind) {
  if (loop_depth_ == 0) {
    return SyntaxError(stmt->line, "'break' and 'continue' belong into a loop");
  }
  stmt->kind = kind;
  return Status();
}

}  // namespace kvasir::chat
