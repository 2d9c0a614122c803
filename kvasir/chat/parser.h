// Parser: tokens to syntax tree, with jinja2's grammar and precedences (jinja2/parser.py).
// Deliberately no include, import or extends: a chat template is one file.
#ifndef KVASIR_CHAT_PARSER_H_
#define KVASIR_CHAT_PARSER_H_

#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/chat/ast.h"
#include "kvasir/chat/token.h"

namespace kvasir::chat {

// ERRORS: kCorrupt, or kUnsupported for statements outside of the subset; "line: what is wrong".
Result<Body> ParseTemplate(std::string_view source);

// One pass over the tokens. Expressions are in parser_expressions.cc, statements in
// parser_statements.cc.
class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  Result<Body> Run();

 private:
  using ParseFunction = Result<ExprPtr> (Parser::*)();
  // Restores a counter when a scope ends.
  class Level;

  // ---- tokens
  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[at_ + 1 < tokens_.size() ? at_ + 1 : at_]; }
  void Skip() { at_ += at_ + 1 < tokens_.size() ? 1 : 0; }
  bool SkipName(const char* name);
  bool SkipOperator(const char* op);
  Status Expect(TokenKind kind, const char* shown);
  Status ExpectOperator(const char* op);
  Status ExpectName(const char* name);
  Result<std::string> TakeName();
  Error Fail(const std::string& message) const;
  Error Unexpected(const std::string& wanted) const;

  // ---- expressions
  Result<ExprPtr> Finish(Expr expr) const;
  Result<ExprPtr> ParseExpression();
  Result<ExprPtr> ParseOr();
  Result<ExprPtr> ParseAnd();
  Result<ExprPtr> ParseNot();
  Result<ExprPtr> ParseCompare();
  Result<ExprPtr> ParseSum();
  Result<ExprPtr> ParseConcat();
  Result<ExprPtr> ParseProduct();
  Result<ExprPtr> ParsePower();
  Result<ExprPtr> ParseUnary(bool with_filter);
  Result<ExprPtr> ParseUnaryWithFilter() { return ParseUnary(true); }
  Result<ExprPtr> ParsePrimary();
  Result<ExprPtr> ParseNameOrLiteral();
  Result<ExprPtr> ParseString();
  Result<ExprPtr> ParseList();
  Result<ExprPtr> ParseDict();
  Result<ExprPtr> ParsePostfix(ExprPtr operand);
  Result<ExprPtr> ParseFilters(ExprPtr operand);
  Result<ExprPtr> ParseFilter(ExprPtr operand);
  Result<ExprPtr> ParseTest(ExprPtr operand);
  Result<ExprPtr> ParseDot(ExprPtr operand);
  Result<ExprPtr> ParseSubscript(ExprPtr operand);
  Result<ExprPtr> ParseCall(ExprPtr operand);
  Status ParseCallArgument(CallSpec* call);
  Result<CallSpec> ParseCallSpec();
  Result<ExprPtr> BinaryLevel(ParseFunction operand, std::vector<const char*> operators);
  Result<ExprPtr> LogicLevel(ParseFunction operand, const char* name, ExprKind kind);
  // One expression, or a tuple when commas follow.
  enum class TupleEnd { kStatement, kParenthesis, kFor };
  Result<ExprPtr> ParseTuple(ParseFunction item, TupleEnd end);
  bool AtTupleEnd(TupleEnd end) const;
  // A filter or test must exist, unless only a branch that may not run names it.
  void CheckKnown(const char* what, bool known, const std::string& name);

  // ---- statements
  Result<Body> ParseBody(std::vector<const char*> end_names);
  Result<Body> ParseBlockBody(std::vector<const char*> end_names);
  Result<Body> ParseBlockBodyAndEnd(const char* end_name);
  Result<std::unique_ptr<const Stmt>> ParseStatement();
  Status ParseSet(Stmt* stmt);
  Status ParseFor(Stmt* stmt);
  Status ParseIf(Stmt* stmt);
  Status ParseMacro(Stmt* stmt);
  Status ParseCallBlock(Stmt* stmt);
  Status ParseFilterBlock(Stmt* stmt);
  Status ParseWith(Stmt* stmt);
  Status ParseScope(Stmt* stmt, const char* end_name);
  Status ParseBlock(Stmt* stmt);
  Status ParsePrint(Stmt* stmt);
  Status ParseJump(Stmt* stmt, StmtKind kind);
  Status ParseSignature(MacroSpec* macro);
  Status ParseMacroBody(MacroSpec* macro, const char* end_name);
  Result<Target> ParseTarget(bool with_attribute);
  Result<Target> ParseSingleTarget(bool with_attribute);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;       // nested expressions and statements
  int loop_depth_ = 0;  // loops around the current place, within the current macro
  int soft_depth_ = 0;  // conditions around the current place
  std::vector<MacroSpec*> open_macros_;
  // Names that do not exist. Collected, because only the end of `a if b` tells that `a` is a
  // branch.
  std::vector<Error> unknown_names_;
};

class Parser::Level {
 public:
  explicit Level(int* counter) : counter_(counter) { ++*counter_; }
  Level(const Level&) = delete;
  Level& operator=(const Level&) = delete;
  ~Level() { --*counter_; }

 private:
  int* counter_;
};

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_PARSER_H_
