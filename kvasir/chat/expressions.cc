// Expressions.
// Deliberately no constant folding: a template runs a few thousand expressions, once.
#include <utility>

#include "kvasir/chat/interpreter.h"
#include "kvasir/chat/python_ops.h"

namespace kvasir::chat {
namespace {

BinaryOperator OperatorOf(const std::string& symbol) {
  if (symbol == "+") return BinaryOperator::kAdd;
  if (symbol == "-") return BinaryOperator::kSubtract;
  if (symbol == "*") return BinaryOperator::kMultiply;
  if (symbol == "/") return BinaryOperator::kDivide;
  if (symbol == "//") return BinaryOperator::kFloorDivide;
  return symbol == "%" ? BinaryOperator::kModulo : BinaryOperator::kPower;
}

}  // namespace

Result<Value> Interpreter::Eval(const Expr& expr, const ScopePtr& scope) {
  const Depth depth(this);
  KVASIR_TRY_OK(Enter(expr.line));
  switch (expr.kind) {
    case ExprKind::kConstant:
      return expr.constant;
    case ExprKind::kName:
      return EvalName(expr, scope);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return EvalItems(expr, scope);
    case ExprKind::kDict:
      return EvalDict(expr, scope);
    case ExprKind::kSlice:
      return EvalSlice(expr, scope);
    case ExprKind::kCall:
      return EvalCall(expr, scope, nullptr);
    case ExprKind::kFilter:
      return EvalFilter(expr, scope);
    case ExprKind::kTest:
      return EvalTest(expr, scope);
    case ExprKind::kAnd:
    case ExprKind::kOr:
      return EvalLogic(expr, scope);
    case ExprKind::kConditional:
      return EvalConditional(expr, scope);
    case ExprKind::kConcat:
      return EvalConcat(expr, scope);
    case ExprKind::kArithmetic:
      return EvalArithmetic(expr, scope);
    case ExprKind::kCompare:
      return EvalCompare(expr, scope);
    default:
      return EvalOperation(expr, scope);
  }
}

// Operators and look-ups that start with one operand.
Result<Value> Interpreter::EvalOperation(const Expr& expr, const ScopePtr& scope) {
  KVASIR_TRY(const Value operand, Eval(*expr.operands[0], scope));
  if (expr.kind == ExprKind::kGetItem) {
    KVASIR_TRY(const Value key, Eval(*expr.operands[1], scope));
    line_ = expr.line;
    return GetItem(*this, operand, key);
  }
  line_ = expr.line;
  if (expr.kind == ExprKind::kGetAttribute) {
    return chat::GetAttribute(*this, operand, expr.name);
  }
  if (expr.kind == ExprKind::kNot) return Value::Bool(!IsTrue(operand));
  return expr.kind == ExprKind::kNegate ? Negate(operand) : Plus(operand);
}

Result<Value> Interpreter::EvalName(const Expr& expr, const ScopePtr& scope) {
  int64_t visited = 0;
  const Value* value = scope->Find(expr.name, &visited);
  KVASIR_TRY_OK(Step(visited / 8));
  if (value != nullptr) return *value;
  return Value::Undefined("'" + expr.name + "' is undefined");
}

Result<Value> Interpreter::EvalItems(const Expr& expr, const ScopePtr& scope) {
  std::vector<Value> items;
  items.reserve(expr.operands.size());
  for (const auto& operand : expr.operands) {
    KVASIR_TRY(Value item, Eval(*operand, scope));
    items.push_back(std::move(item));
  }
  return expr.kind == ExprKind::kList ? List(std::move(items)) : Tuple(std::move(items));
}

Result<Value> Interpreter::EvalDict(const Expr& expr, const ScopePtr& scope) {
  Dict dict;
  for (size_t i = 0; i < expr.operands.size(); i += 2) {
    KVASIR_TRY(const Value key, Eval(*expr.operands[i], scope));
    KVASIR_TRY(Value value, Eval(*expr.operands[i + 1], scope));
    if (!Dict::IsHashable(key)) {
      return TemplateError("a " + std::string(TypeName(key)) + " cannot be the key of a dict");
    }
    KVASIR_TRY_OK(StepBytes(key.is_string() ? key.bytes().size() : 0));
    dict.Set(key, std::move(value));
  }
  return DictValue(std::move(dict));
}

Result<Value> Interpreter::EvalSlice(const Expr& expr, const ScopePtr& scope) {
  KVASIR_TRY(const Value operand, Eval(*expr.operands[0], scope));
  SliceBounds bounds;
  Value* parts[] = {&bounds.start, &bounds.stop, &bounds.step};
  for (size_t i = 0; i < 3; ++i) {
    if (expr.operands[i + 1] == nullptr) continue;
    KVASIR_TRY(*parts[i], Eval(*expr.operands[i + 1], scope));
  }
  line_ = expr.line;
  return Slice(*this, operand, bounds);
}

Result<Value> Interpreter::EvalCall(const Expr& expr, const ScopePtr& scope, const Value* caller) {
  KVASIR_TRY(const Value callee, Eval(*expr.operands[0], scope));
  KVASIR_TRY(CallArguments arguments, EvalArguments(expr.call, scope));
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  line_ = expr.line;
  if (callee.is_undefined()) return TemplateError(callee.undefined_message());
  if (!callee.is_object() || !callee.object().callable()) {
    return TemplateError("'" + std::string(TypeName(callee)) + "' object is not callable");
  }
  return callee.object().Call(*this, arguments);
}

Result<Value> Interpreter::EvalFilter(const Expr& expr, const ScopePtr& scope) {
  Value input;
  if (expr.operands[0] != nullptr) {
    KVASIR_TRY(input, Eval(*expr.operands[0], scope));
  } else {
    input = std::exchange(filter_block_input_, Value());
  }
  KVASIR_TRY(const CallArguments arguments, EvalArguments(expr.call, scope));
  line_ = expr.line;
  return CallFilter(expr.name, input, arguments);
}

Result<Value> Interpreter::EvalTest(const Expr& expr, const ScopePtr& scope) {
  KVASIR_TRY(const Value input, Eval(*expr.operands[0], scope));
  KVASIR_TRY(const CallArguments arguments, EvalArguments(expr.call, scope));
  line_ = expr.line;
  KVASIR_TRY(const bool result, CallTest(expr.name, input, arguments));
  return Value::Bool(result);
}

Result<Value> Interpreter::EvalLogic(const Expr& expr, const ScopePtr& scope) {
  KVASIR_TRY(Value left, Eval(*expr.operands[0], scope));
  if (IsTrue(left) == (expr.kind == ExprKind::kOr)) return left;
  return Eval(*expr.operands[1], scope);
}

Result<Value> Interpreter::EvalConditional(const Expr& expr, const ScopePtr& scope) {
  KVASIR_TRY(const Value condition, Eval(*expr.operands[0], scope));
  if (IsTrue(condition)) return Eval(*expr.operands[1], scope);
  if (expr.operands[2] != nullptr) return Eval(*expr.operands[2], scope);
  return Value::Undefined("the inline if-expression on line " + std::to_string(expr.line) +
                          " evaluated to false and no else section was defined.");
}

Result<Value> Interpreter::EvalConcat(const Expr& expr, const ScopePtr& scope) {
  Text result;
  for (const auto& operand : expr.operands) {
    KVASIR_TRY(const Value value, Eval(*operand, scope));
    KVASIR_TRY(const Text part, Str(*this, value));
    KVASIR_TRY_OK(CheckStringSize(result.size() + part.size()));
    result.Append(part);
  }
  KVASIR_TRY_OK(StepBytes(result.size()));
  return String(std::move(result));
}

Result<Value> Interpreter::EvalArithmetic(const Expr& expr, const ScopePtr& scope) {
  KVASIR_TRY(const Value left, Eval(*expr.operands[0], scope));
  KVASIR_TRY(const Value right, Eval(*expr.operands[1], scope));
  line_ = expr.line;
  KVASIR_TRY(Value result, Arithmetic(*this, OperatorOf(expr.name), left, right));
  KVASIR_TRY_OK(StepBytes(result.is_string() ? result.bytes().size() : 0));
  return result;
}

Result<bool> Interpreter::EvalComparison(const std::string& op, const Value& a, const Value& b) {
  if (op == "==") return Equal(*this, a, b);
  if (op == "!=") {
    KVASIR_TRY(const bool equal, Equal(*this, a, b));
    return !equal;
  }
  if (op == "in") return Contains(*this, b, a);
  if (op == "notin") {
    KVASIR_TRY(const bool contains, Contains(*this, b, a));
    return !contains;
  }
  if (op == "<") return Compare(*this, Order::kLess, a, b);
  if (op == "<=") return Compare(*this, Order::kLessOrEqual, a, b);
  if (op == ">") return Compare(*this, Order::kGreater, a, b);
  return Compare(*this, Order::kGreaterOrEqual, a, b);
}

// a < b < c: every neighbouring pair, and nothing after the first that fails.
Result<Value> Interpreter::EvalCompare(const Expr& expr, const ScopePtr& scope) {
  KVASIR_TRY(Value left, Eval(*expr.operands[0], scope));
  for (size_t i = 0; i < expr.operators.size(); ++i) {
    KVASIR_TRY(Value right, Eval(*expr.operands[i + 1], scope));
    line_ = expr.line;
    KVASIR_TRY(const bool holds, EvalComparison(expr.operators[i], left, right));
    if (!holds) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Result<CallArguments> Interpreter::EvalArguments(const CallSpec& call, const ScopePtr& scope) {
  CallArguments arguments;
  arguments.positional.reserve(call.positional.size());
  for (const auto& expr : call.positional) {
    KVASIR_TRY(Value value, Eval(*expr, scope));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, expr] : call.named) {
    KVASIR_TRY(Value value, Eval(*expr, scope));
    arguments.named.emplace_back(name, std::move(value));
  }
  if (call.star != nullptr || call.double_star != nullptr) {
    KVASIR_TRY_OK(EvalStarArguments(call, scope, &arguments));
  }
  return arguments;
}

Status Interpreter::EvalStarArguments(const CallSpec& call, const ScopePtr& scope,
                                      CallArguments* arguments) {
  if (call.star != nullptr) {
    KVASIR_TRY(const Value value, Eval(*call.star, scope));
    KVASIR_TRY(const auto items, Iterate(*this, value));
    arguments->positional.insert(arguments->positional.end(), items.begin(), items.end());
  }
  if (call.double_star != nullptr) {
    KVASIR_TRY(const Value value, Eval(*call.double_star, scope));
    if (!value.is_dict()) return TemplateError("the argument after ** must be a mapping");
    for (const auto& [key, item] : value.dict().entries()) {
      if (!key.is_string()) return TemplateError("keywords must be strings");
      arguments->named.emplace_back(key.bytes(), item);
    }
  }
  return Status();
}

}  // namespace kvasir::chat
