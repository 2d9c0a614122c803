// + - * / // % ** on Values, with Python's rounding and types.
// Deliberately no big integers: past 64 bits is an error, not a wrong number.
#include <cmath>

#include "kvasir/chat/python_ops.h"

namespace kvasir::chat {
namespace {

std::string_view Symbol(BinaryOperator op) {
  switch (op) {
    case BinaryOperator::kAdd:
      return "+";
    case BinaryOperator::kSubtract:
      return "-";
    case BinaryOperator::kMultiply:
      return "*";
    case BinaryOperator::kDivide:
      return "/";
    case BinaryOperator::kFloorDivide:
      return "//";
    case BinaryOperator::kModulo:
      return "%";
    case BinaryOperator::kPower:
      return "**";
  }
  return "?";
}

Error TooLarge() { return TemplateError("an integer does not fit into 64 bits"); }
Error ByZero() { return TemplateError("division by zero"); }

Error Unsupported(BinaryOperator op, const Value& a, const Value& b) {
  const std::string left(TypeName(a));
  const std::string right(TypeName(b));
  if (op == BinaryOperator::kAdd && (a.is_string() || a.is_sequence())) {
    return TemplateError("can only concatenate " + left + " (not \"" + right + "\") to " + left);
  }
  return TemplateError("unsupported operand type(s) for " + std::string(Symbol(op)) + ": '" + left +
                       "' and '" + right + "'");
}

Result<int64_t> PowerOfIntegers(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return TooLarge();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return TooLarge();
  }
  return result;
}

Result<Value> Divide(double a, double b, Origin origin) {
  if (b == 0) return ByZero();
  return Value::Float(a / b, origin);
}

Result<Value> OfIntegers(BinaryOperator op, int64_t a, int64_t b, Origin origin) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case BinaryOperator::kAdd:
      overflow = __builtin_add_overflow(a, b, &result);
      break;
    case BinaryOperator::kSubtract:
      overflow = __builtin_sub_overflow(a, b, &result);
      break;
    case BinaryOperator::kMultiply:
      overflow = __builtin_mul_overflow(a, b, &result);
      break;
    case BinaryOperator::kDivide:
      return Divide(static_cast<double>(a), static_cast<double>(b), origin);
    case BinaryOperator::kFloorDivide:
    case BinaryOperator::kModulo: {
      if (b == 0) return ByZero();
      // INT64_MIN / -1 is the one quotient that overflows.
      if (b == -1) {
        if (op == BinaryOperator::kModulo) return Value::Int(0, origin);
        overflow = __builtin_sub_overflow(int64_t{0}, a, &result);
        break;
      }
      const int64_t remainder = a % b;
      const bool round_down = remainder != 0 && (remainder < 0) != (b < 0);
      if (op == BinaryOperator::kFloorDivide) {
        result = a / b - (round_down ? 1 : 0);
      } else {
        result = round_down ? remainder + b : remainder;
      }
      break;
    }
    case BinaryOperator::kPower: {
      if (b < 0) {
        if (a == 0) return ByZero();
        return Value::Float(std::pow(static_cast<double>(a), static_cast<double>(b)), origin);
      }
      KVASIR_TRY(result, PowerOfIntegers(a, b));
      break;
    }
  }
  if (overflow) return TooLarge();
  return Value::Int(result, origin);
}

Result<Value> OfDoubles(BinaryOperator op, double a, double b, Origin origin) {
  switch (op) {
    case BinaryOperator::kAdd:
      return Value::Float(a + b, origin);
    case BinaryOperator::kSubtract:
      return Value::Float(a - b, origin);
    case BinaryOperator::kMultiply:
      return Value::Float(a * b, origin);
    case BinaryOperator::kDivide:
      return Divide(a, b, origin);
    case BinaryOperator::kFloorDivide:
    case BinaryOperator::kModulo: {
      if (b == 0) return ByZero();
      double remainder = std::fmod(a, b);
      if (remainder != 0 && (remainder < 0) != (b < 0)) remainder += b;
      if (op == BinaryOperator::kModulo) return Value::Float(remainder, origin);
      return Value::Float(std::round((a - remainder) / b), origin);
    }
    case BinaryOperator::kPower: {
      if (a == 0 && b < 0) return ByZero();
      if (a < 0 && std::floor(b) != b) return TemplateError("complex numbers are not supported");
      return Value::Float(std::pow(a, b), origin);
    }
  }
  return ByZero();
}

Result<Value> Repeat(Runtime& runtime, const Value& value, int64_t count) {
  if (count < 0) count = 0;
  // More than any limit allows; keeps the products below from overflowing.
  count = std::min<int64_t>(count, int64_t{1} << 40);
  if (value.is_string()) {
    const Text& text = value.text();
    if (text.empty()) return value;
    if (count > runtime.limits().max_output_bytes) count = runtime.limits().max_output_bytes + 1;
    KVASIR_TRY_OK(runtime.CheckStringSize(text.size() * static_cast<size_t>(count)));
    KVASIR_TRY_OK(runtime.Step(count));
    Text result = text.Substr(0, 0);
    for (int64_t i = 0; i < count; ++i) result.Append(text);
    return runtime.String(std::move(result));
  }
  const auto& items = value.sequence().items;
  if (items.empty()) return value;
  KVASIR_TRY_OK(runtime.CheckItemCount(static_cast<size_t>(count)));
  KVASIR_TRY_OK(runtime.CheckItemCount(items.size() * static_cast<size_t>(count)));
  KVASIR_TRY_OK(runtime.Step(count + static_cast<int64_t>(items.size()) * count / 8));
  std::vector<Value> result;
  result.reserve(items.size() * static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) result.insert(result.end(), items.begin(), items.end());
  return runtime.Make(value.sequence().kind, std::move(result));
}

bool IsListOrTuple(const Value& value) {
  return value.is_sequence() && value.sequence().kind <= SequenceKind::kTuple;
}

Result<Value> Concatenate(Runtime& runtime, const Value& a, const Value& b) {
  if (a.is_string()) {
    KVASIR_TRY_OK(runtime.CheckStringSize(a.text().size() + b.text().size()));
    // Python's Markup escapes whatever plain string it is added to.
    const bool markup = a.text().is_markup() || b.text().is_markup();
    Text result = markup ? EscapeHtml(a.text()) : a.text();
    result.Append(markup ? EscapeHtml(b.text()) : b.text());
    return runtime.String(std::move(result));
  }
  std::vector<Value> items = a.sequence().items;
  items.insert(items.end(), b.sequence().items.begin(), b.sequence().items.end());
  KVASIR_TRY_OK(runtime.Step(static_cast<int64_t>(items.size() / 8)));
  return runtime.Make(a.sequence().kind, std::move(items));
}

}  // namespace

Result<Value> Arithmetic(Runtime& runtime, BinaryOperator op, const Value& a, const Value& b) {
  if (op == BinaryOperator::kModulo && a.is_string()) {
    KVASIR_TRY(Text formatted, FormatPercent(runtime, a.text(), b));
    return runtime.String(std::move(formatted));
  }
  if (a.is_undefined()) return TemplateError(a.undefined_message());
  if (b.is_undefined()) return TemplateError(b.undefined_message());
  const Origin origin = Weaker(a.origin(), b.origin());
  if (a.is_integral() && b.is_integral()) {
    return OfIntegers(op, a.as_integral(), b.as_integral(), origin);
  }
  if (a.is_number() && b.is_number()) return OfDoubles(op, a.as_double(), b.as_double(), origin);
  if (op == BinaryOperator::kAdd) {
    const bool same_list =
        IsListOrTuple(a) && IsListOrTuple(b) && a.sequence().kind == b.sequence().kind;
    if ((a.is_string() && b.is_string()) || same_list) return Concatenate(runtime, a, b);
  }
  if (op == BinaryOperator::kMultiply) {
    if ((a.is_string() || IsListOrTuple(a)) && b.is_integral()) {
      return Repeat(runtime, a, b.as_integral());
    }
    if ((b.is_string() || IsListOrTuple(b)) && a.is_integral()) {
      return Repeat(runtime, b, a.as_integral());
    }
  }
  return Unsupported(op, a, b);
}

Result<Value> Negate(const Value& value) {
  if (value.is_undefined()) return TemplateError(value.undefined_message());
  if (value.is_float()) return Value::Float(-value.as_double(), value.origin());
  if (!value.is_integral()) {
    return TemplateError("bad operand type for unary -: '" + std::string(TypeName(value)) + "'");
  }
  int64_t result = 0;
  if (__builtin_sub_overflow(int64_t{0}, value.as_integral(), &result)) return TooLarge();
  return Value::Int(result, value.origin());
}

Result<Value> Plus(const Value& value) {
  if (value.is_undefined()) return TemplateError(value.undefined_message());
  if (value.is_float()) return value;
  if (value.is_integral()) return Value::Int(value.as_integral(), value.origin());
  return TemplateError("bad operand type for unary +: '" + std::string(TypeName(value)) + "'");
}

}  // namespace kvasir::chat
