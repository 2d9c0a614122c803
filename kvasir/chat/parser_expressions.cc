// The expression half of the parser.
// Deliberately one function per precedence level, as in the reference.
#include <algorithm>
#include <utility>

#include "kvasir/chat/filters.h"
#include "kvasir/chat/lexer.h"
#include "kvasir/chat/parser.h"
#include "kvasir/chat/template_tests.h"

namespace kvasir::chat {
namespace {

// Parentheses, brackets and blocks inside each other. Python's own parser stops at 200.
constexpr int kMaxNesting = 150;
// Levels of one expression: bounds the stack that evaluating and freeing it take.
constexpr int kMaxExprDepth = 300;

Expr Make(ExprKind kind, int line) {
  Expr expr;
  expr.kind = kind;
  expr.line = line;
  return expr;
}

void CountDepth(const ExprPtr& child, int* depth) {
  if (child != nullptr) *depth = std::max(*depth, 1 + child->depth);
}

}  // namespace

bool Parser::SkipName(const char* name) {
  if (!current().IsName(name)) return false;
  Skip();
  return true;
}

bool Parser::SkipOperator(const char* op) {
  if (!current().IsOperator(op)) return false;
  Skip();
  return true;
}

Error Parser::Fail(const std::string& message) const {
  return SyntaxError(current().line, message);
}

Error Parser::Unexpected(const std::string& wanted) const {
  std::string found = "'" + current().text + "'";
  switch (current().kind) {
    case TokenKind::kEnd:
      found = "the end of the template";
      break;
    case TokenKind::kBlockEnd:
      found = "'%}'";
      break;
    case TokenKind::kVariableEnd:
      found = "'}}'";
      break;
    default:
      break;
  }
  return Fail("expected " + wanted + ", found " + found);
}

Status Parser::Expect(TokenKind kind, const char* shown) {
  if (current().kind != kind) return Unexpected(shown);
  Skip();
  return Status();
}

Status Parser::ExpectOperator(const char* op) {
  if (!SkipOperator(op)) return Unexpected("'" + std::string(op) + "'");
  return Status();
}

Status Parser::ExpectName(const char* name) {
  if (!SkipName(name)) return Unexpected("'" + std::string(name) + "'");
  return Status();
}

Result<std::string> Parser::TakeName() {
  if (current().kind != TokenKind::kName) return Unexpected("a name");
  std::string name = current().text;
  Skip();
  return name;
}

Result<ExprPtr> Parser::Finish(Expr expr) const {
  for (const auto& operand : expr.operands) CountDepth(operand, &expr.depth);
  for (const auto& argument : expr.call.positional) CountDepth(argument, &expr.depth);
  for (const auto& argument : expr.call.named) CountDepth(argument.second, &expr.depth);
  CountDepth(expr.call.star, &expr.depth);
  CountDepth(expr.call.double_star, &expr.depth);
  if (expr.depth > kMaxExprDepth) {
    return SyntaxError(expr.line, "an expression has more than " + std::to_string(kMaxExprDepth) +
                                      " levels; split it with {% set %}");
  }
  return ExprPtr(std::make_unique<const Expr>(std::move(expr)));
}

void Parser::CheckKnown(const char* what, bool known, const std::string& name) {
  if (known || soft_depth_ > 0) return;
  unknown_names_.push_back(Fail("there is no " + std::string(what) + " named '" + name + "'"));
}

Result<ExprPtr> Parser::ParseExpression() {
  const Level level(&depth_);
  if (depth_ > kMaxNesting) {
    return Fail("more than " + std::to_string(kMaxNesting) + " levels are nested");
  }
  const int line = current().line;
  const size_t unknown_before = unknown_names_.size();
  KVASIR_TRY(ExprPtr value, ParseOr());
  while (SkipName("if")) {
    unknown_names_.erase(unknown_names_.begin() + static_cast<std::ptrdiff_t>(unknown_before),
                         unknown_names_.end());
    const Level soft(&soft_depth_);
    Expr expr = Make(ExprKind::kConditional, line);
    KVASIR_TRY(ExprPtr condition, ParseOr());
    ExprPtr otherwise;
    if (SkipName("else")) {
      KVASIR_TRY(otherwise, ParseExpression());
    }
    expr.operands.push_back(std::move(condition));
    expr.operands.push_back(std::move(value));
    expr.operands.push_back(std::move(otherwise));
    KVASIR_TRY(value, Finish(std::move(expr)));
  }
  return value;
}

Result<ExprPtr> Parser::LogicLevel(ParseFunction operand, const char* name, ExprKind kind) {
  const int line = current().line;
  KVASIR_TRY(ExprPtr left, (this->*operand)());
  while (SkipName(name)) {
    Expr expr = Make(kind, line);
    KVASIR_TRY(ExprPtr right, (this->*operand)());
    expr.operands.push_back(std::move(left));
    expr.operands.push_back(std::move(right));
    KVASIR_TRY(left, Finish(std::move(expr)));
  }
  return left;
}

Result<ExprPtr> Parser::ParseOr() { return LogicLevel(&Parser::ParseAnd, "or", ExprKind::kOr); }
Result<ExprPtr> Parser::ParseAnd() { return LogicLevel(&Parser::ParseNot, "and", ExprKind::kAnd); }

Result<ExprPtr> Parser::ParseNot() {
  if (!current().IsName("not")) return ParseCompare();
  const Level level(&depth_);
  if (depth_ > kMaxNesting) return Fail("too many 'not' in a row");
  Expr expr = Make(ExprKind::kNot, current().line);
  Skip();
  KVASIR_TRY(ExprPtr operand, ParseNot());
  expr.operands.push_back(std::move(operand));
  return Finish(std::move(expr));
}

Result<ExprPtr> Parser::ParseCompare() {
  Expr expr = Make(ExprKind::kCompare, current().line);
  KVASIR_TRY(ExprPtr first, ParseSum());
  expr.operands.push_back(std::move(first));
  for (;;) {
    static constexpr const char* kOperators[] = {"==", "!=", "<=", ">=", "<", ">"};
    std::string op;
    for (const char* candidate : kOperators) {
      if (current().IsOperator(candidate)) op = candidate;
    }
    if (current().IsName("in")) op = "in";
    if (current().IsName("not") && next().IsName("in")) {
      op = "notin";
      Skip();
    }
    if (op.empty()) break;
    Skip();
    KVASIR_TRY(ExprPtr operand, ParseSum());
    expr.operators.push_back(op);
    expr.operands.push_back(std::move(operand));
  }
  if (expr.operators.empty()) return std::move(expr.operands[0]);
  return Finish(std::move(expr));
}

Result<ExprPtr> Parser::BinaryLevel(ParseFunction operand, std::vector<const char*> operators) {
  KVASIR_TRY(ExprPtr left, (this->*operand)());
  for (;;) {
    const auto found = std::find_if(operators.begin(), operators.end(),
                                    [&](const char* op) { return current().IsOperator(op); });
    if (found == operators.end()) return left;
    Expr expr = Make(ExprKind::kArithmetic, current().line);
    expr.name = *found;
    Skip();
    KVASIR_TRY(ExprPtr right, (this->*operand)());
    expr.operands.push_back(std::move(left));
    expr.operands.push_back(std::move(right));
    KVASIR_TRY(left, Finish(std::move(expr)));
  }
}

Result<ExprPtr> Parser::ParseSum() { return BinaryLevel(&Parser::ParseConcat, {"+", "-"}); }

Result<ExprPtr> Parser::ParseConcat() {
  Expr expr = Make(ExprKind::kConcat, current().line);
  do {
    KVASIR_TRY(ExprPtr operand, ParseProduct());
    expr.operands.push_back(std::move(operand));
  } while (SkipOperator("~"));
  if (expr.operands.size() == 1) return std::move(expr.operands[0]);
  return Finish(std::move(expr));
}

Result<ExprPtr> Parser::ParseProduct() {
  return BinaryLevel(&Parser::ParsePower, {"*", "/", "//", "%"});
}

Result<ExprPtr> Parser::ParsePower() { return BinaryLevel(&Parser::ParseUnaryWithFilter, {"**"}); }

Result<ExprPtr> Parser::ParseUnary(bool with_filter) {
  const Level level(&depth_);
  if (depth_ > kMaxNesting) return Fail("too many signs or brackets in a row");
  const bool negates = current().IsOperator("-");
  ExprPtr node;
  if (negates || current().IsOperator("+")) {
    Expr expr = Make(negates ? ExprKind::kNegate : ExprKind::kPlus, current().line);
    Skip();
    KVASIR_TRY(ExprPtr operand, ParseUnary(false));
    expr.operands.push_back(std::move(operand));
    KVASIR_TRY(node, Finish(std::move(expr)));
  } else {
    KVASIR_TRY(node, ParsePrimary());
  }
  KVASIR_TRY(node, ParsePostfix(std::move(node)));
  if (!with_filter) return node;
  return ParseFilters(std::move(node));
}

Result<ExprPtr> Parser::ParsePrimary() {
  switch (current().kind) {
    case TokenKind::kName:
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return ParseNameOrLiteral();
    case TokenKind::kString:
      return ParseString();
    default:
      break;
  }
  if (SkipOperator("(")) {
    KVASIR_TRY(ExprPtr tuple, ParseTuple(&Parser::ParseExpression, TupleEnd::kParenthesis));
    KVASIR_TRY_OK(ExpectOperator(")"));
    return tuple;
  }
  if (current().IsOperator("[")) return ParseList();
  if (current().IsOperator("{")) return ParseDict();
  return Unexpected("an expression");
}

Result<ExprPtr> Parser::ParseNameOrLiteral() {
  const Token& token = current();
  Expr expr = Make(ExprKind::kConstant, token.line);
  const std::string& text = token.text;
  if (token.kind == TokenKind::kInteger) {
    expr.constant = Value::Int(token.integer);
  } else if (token.kind == TokenKind::kFloat) {
    expr.constant = Value::Float(token.number);
  } else if (text == "true" || text == "True") {
    expr.constant = Value::Bool(true);
  } else if (text == "false" || text == "False") {
    expr.constant = Value::Bool(false);
  } else if (text != "none" && text != "None") {
    expr.kind = ExprKind::kName;
    expr.name = text;
    for (MacroSpec* macro : open_macros_) {
      macro->uses_varargs = macro->uses_varargs || text == "varargs";
      macro->uses_kwargs = macro->uses_kwargs || text == "kwargs";
      macro->uses_caller = macro->uses_caller || text == "caller";
    }
  }
  Skip();
  return Finish(std::move(expr));
}

Result<ExprPtr> Parser::ParseString() {
  Expr expr = Make(ExprKind::kConstant, current().line);
  std::string text;
  while (current().kind == TokenKind::kString) {
    text += current().text;
    Skip();
  }
  expr.constant = Value::String(std::make_shared<const Text>(text, Origin::kTemplate));
  return Finish(std::move(expr));
}

Result<ExprPtr> Parser::ParseList() {
  Expr expr = Make(ExprKind::kList, current().line);
  Skip();
  while (!current().IsOperator("]")) {
    if (!expr.operands.empty()) KVASIR_TRY_OK(ExpectOperator(","));
    if (current().IsOperator("]")) break;
    KVASIR_TRY(ExprPtr item, ParseExpression());
    expr.operands.push_back(std::move(item));
  }
  Skip();
  return Finish(std::move(expr));
}

Result<ExprPtr> Parser::ParseDict() {
  Expr expr = Make(ExprKind::kDict, current().line);
  Skip();
  while (!current().IsOperator("}")) {
    if (!expr.operands.empty()) KVASIR_TRY_OK(ExpectOperator(","));
    if (current().IsOperator("}")) break;
    KVASIR_TRY(ExprPtr key, ParseExpression());
    KVASIR_TRY_OK(ExpectOperator(":"));
    KVASIR_TRY(ExprPtr value, ParseExpression());
    expr.operands.push_back(std::move(key));
    expr.operands.push_back(std::move(value));
  }
  Skip();
  return Finish(std::move(expr));
}

bool Parser::AtTupleEnd(TupleEnd end) const {
  if (current().kind == TokenKind::kVariableEnd || current().kind == TokenKind::kBlockEnd ||
      current().IsOperator(")")) {
    return true;
  }
  return end == TupleEnd::kFor && current().IsName("recursive");
}

Result<ExprPtr> Parser::ParseTuple(ParseFunction item, TupleEnd end) {
  Expr expr = Make(ExprKind::kTuple, current().line);
  bool is_tuple = false;
  for (;;) {
    if (!expr.operands.empty()) KVASIR_TRY_OK(ExpectOperator(","));
    if (AtTupleEnd(end)) break;
    KVASIR_TRY(ExprPtr operand, (this->*item)());
    expr.operands.push_back(std::move(operand));
    if (!current().IsOperator(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!expr.operands.empty()) return std::move(expr.operands[0]);
    if (end != TupleEnd::kParenthesis) return Unexpected("an expression");
  }
  return Finish(std::move(expr));
}

Result<ExprPtr> Parser::ParsePostfix(ExprPtr operand) {
  for (;;) {
    if (current().IsOperator(".")) {
      KVASIR_TRY(operand, ParseDot(std::move(operand)));
    } else if (current().IsOperator("[")) {
      KVASIR_TRY(operand, ParseSubscript(std::move(operand)));
    } else if (current().IsOperator("(")) {
      KVASIR_TRY(operand, ParseCall(std::move(operand)));
    } else {
      return operand;
    }
  }
}

Result<ExprPtr> Parser::ParseFilters(ExprPtr operand) {
  for (;;) {
    if (SkipOperator("|")) {
      KVASIR_TRY(operand, ParseFilter(std::move(operand)));
    } else if (current().IsName("is")) {
      KVASIR_TRY(operand, ParseTest(std::move(operand)));
    } else if (current().IsOperator("(")) {
      KVASIR_TRY(operand, ParseCall(std::move(operand)));
    } else {
      return operand;
    }
  }
}

Result<ExprPtr> Parser::ParseDot(ExprPtr operand) {
  const int line = current().line;
  Skip();
  Expr expr = Make(ExprKind::kGetAttribute, line);
  expr.operands.push_back(std::move(operand));
  if (current().kind == TokenKind::kName) {
    expr.name = current().text;
  } else if (current().kind == TokenKind::kInteger) {
    expr.kind = ExprKind::kGetItem;
    Expr index = Make(ExprKind::kConstant, line);
    index.constant = Value::Int(current().integer);
    expr.operands.push_back(std::make_unique<const Expr>(std::move(index)));
  } else {
    return Unexpected("a name or number after '.'");
  }
  Skip();
  return Finish(std::move(expr));
}

Result<ExprPtr> Parser::ParseSubscript(ExprPtr operand) {
  Expr expr = Make(ExprKind::kGetItem, current().line);
  Skip();
  expr.operands.push_back(std::move(operand));
  if (!current().IsOperator(":")) {
    KVASIR_TRY(ExprPtr index, ParseExpression());
    expr.operands.push_back(std::move(index));
  } else {
    expr.operands.emplace_back();
  }
  if (current().IsOperator(":")) {
    expr.kind = ExprKind::kSlice;
    while (SkipOperator(":")) {
      if (expr.operands.size() == 4) return Fail("a slice has three parts at most");
      ExprPtr bound;
      if (!current().IsOperator(":") && !current().IsOperator("]")) {
        KVASIR_TRY(bound, ParseExpression());
      }
      expr.operands.push_back(std::move(bound));
    }
    expr.operands.resize(4);
  }
  KVASIR_TRY_OK(ExpectOperator("]"));
  return Finish(std::move(expr));
}

Result<ExprPtr> Parser::ParseCall(ExprPtr operand) {
  Expr expr = Make(ExprKind::kCall, current().line);
  KVASIR_TRY(expr.call, ParseCallSpec());
  expr.operands.push_back(std::move(operand));
  return Finish(std::move(expr));
}

Status Parser::ParseCallArgument(CallSpec* call) {
  const bool after_star = call->star != nullptr || call->double_star != nullptr;
  if (SkipOperator("**")) {
    if (call->double_star != nullptr) return Fail("invalid syntax for function call expression");
    KVASIR_TRY(call->double_star, ParseExpression());
  } else if (SkipOperator("*")) {
    if (after_star) return Fail("invalid syntax for function call expression");
    KVASIR_TRY(call->star, ParseExpression());
  } else if (current().kind == TokenKind::kName && next().IsOperator("=")) {
    if (call->double_star != nullptr) return Fail("invalid syntax for function call expression");
    std::string name = current().text;
    Skip();
    Skip();
    KVASIR_TRY(ExprPtr value, ParseExpression());
    call->named.emplace_back(std::move(name), std::move(value));
  } else {
    if (after_star || !call->named.empty()) {
      return Fail("a positional argument follows a keyword argument");
    }
    KVASIR_TRY(ExprPtr value, ParseExpression());
    call->positional.push_back(std::move(value));
  }
  return Status();
}

Result<CallSpec> Parser::ParseCallSpec() {
  KVASIR_TRY_OK(ExpectOperator("("));
  CallSpec call;
  bool first = true;
  while (!current().IsOperator(")")) {
    if (!first) {
      KVASIR_TRY_OK(ExpectOperator(","));
      if (current().IsOperator(")")) break;
    }
    first = false;
    KVASIR_TRY_OK(ParseCallArgument(&call));
  }
  Skip();
  return call;
}

Result<ExprPtr> Parser::ParseFilter(ExprPtr operand) {
  Expr expr = Make(ExprKind::kFilter, current().line);
  KVASIR_TRY(expr.name, TakeName());
  CheckKnown("filter", FindFilter(expr.name) != nullptr, expr.name);
  if (current().IsOperator("(")) {
    KVASIR_TRY(expr.call, ParseCallSpec());
  }
  expr.operands.push_back(std::move(operand));
  return Finish(std::move(expr));
}

Result<ExprPtr> Parser::ParseTest(ExprPtr operand) {
  Expr expr = Make(ExprKind::kTest, current().line);
  Skip();
  const bool negated = SkipName("not");
  KVASIR_TRY(expr.name, TakeName());
  CheckKnown("test", FindTest(expr.name) != nullptr, expr.name);
  expr.operands.push_back(std::move(operand));
  const Token& token = current();
  const bool begins_argument = token.kind == TokenKind::kName || token.kind == TokenKind::kString ||
                               token.kind == TokenKind::kInteger ||
                               token.kind == TokenKind::kFloat || token.IsOperator("[") ||
                               token.IsOperator("{");
  if (token.IsOperator("(")) {
    KVASIR_TRY(expr.call, ParseCallSpec());
  } else if (begins_argument && !token.IsName("else") && !token.IsName("or") &&
             !token.IsName("and")) {
    if (token.IsName("is")) return Fail("tests cannot be chained with 'is'");
    KVASIR_TRY(ExprPtr argument, ParsePrimary());
    KVASIR_TRY(argument, ParsePostfix(std::move(argument)));
    expr.call.positional.push_back(std::move(argument));
  }
  KVASIR_TRY(ExprPtr test, Finish(std::move(expr)));
  if (!negated) return test;
  Expr inverse = Make(ExprKind::kNot, test->line);
  inverse.operands.push_back(std::move(test));
  return Finish(std::move(inverse));
}

}  // namespace kvasir::chat
