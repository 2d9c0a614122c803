// Filters on numbers.
// Deliberately rounding like Python: ties go to the even digit.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <unordered_map>

#include "kvasir/chat/filters.h"
#include "kvasir/chat/python_ops.h"

namespace kvasir::chat {
namespace {

using Bound = BoundArguments;

Result<Value> Abs(Runtime&, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY_OK(Bound::Bind("abs", arguments, {}, 0).status());
  if (input.is_float()) return Value::Float(std::fabs(input.as_double()), input.origin());
  if (!input.is_integral()) {
    return TemplateError("bad operand type for abs(): '" + std::string(TypeName(input)) + "'");
  }
  if (input.as_integral() >= 0) return Value::Int(input.as_integral(), input.origin());
  return Negate(input);
}

// int(double); nothing of what is no number.
Result<std::optional<int64_t>> Truncate(double value) {
  if (std::isnan(value)) return std::optional<int64_t>();
  if (std::fabs(value) < 9.2e18) return std::optional<int64_t>(static_cast<int64_t>(value));
  return TemplateError("int: the number does not fit into 64 bits");
}

Result<Value> IntFilter(Runtime&, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("int", arguments, {"default", "base"}, 0));
  KVASIR_TRY(const int64_t base, bound.IntOr(1, 10));
  if (input.is_undefined()) return TemplateError(input.undefined_message());
  std::optional<int64_t> result;
  if (input.is_integral()) {
    result = input.as_integral();
  } else if (input.is_float()) {
    KVASIR_TRY(result, Truncate(input.as_double()));
  } else if (input.is_string()) {
    result = ParseInt(input.bytes(), static_cast<int>(std::clamp<int64_t>(base, -1, 100)));
    const auto number = result ? std::nullopt : ParseFloat(input.bytes());
    if (number) {
      KVASIR_TRY(result, Truncate(*number));
    }
  }
  if (result) return Value::Int(*result, input.origin());
  return bound.Get(0) == nullptr ? Value::Int(0) : *bound.Get(0);
}

Result<Value> FloatFilter(Runtime&, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("float", arguments, {"default"}, 0));
  if (input.is_undefined()) return TemplateError(input.undefined_message());
  if (input.is_number()) return Value::Float(input.as_double(), input.origin());
  const auto number = input.is_string() ? ParseFloat(input.bytes()) : std::nullopt;
  if (number) return Value::Float(*number, input.origin());
  return bound.Get(0) == nullptr ? Value::Float(0) : *bound.Get(0);
}

// round(value, digits) of a double: printf rounds the exact binary value, as Python does.
double RoundCommon(double value, int64_t digits) {
  if (!std::isfinite(value) || digits > 300) return value;
  if (digits < 0) {
    const double scale = std::pow(10.0, static_cast<double>(std::min<int64_t>(-digits, 400)));
    return std::isinf(scale) ? 0.0 : std::nearbyint(value / scale) * scale;
  }
  char buffer[800];
  std::snprintf(buffer, sizeof(buffer), "%.*f", static_cast<int>(digits), value);
  return std::strtod(buffer, nullptr);
}

Result<Value> Round(Runtime&, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("round", arguments, {"precision", "method"}, 0));
  KVASIR_TRY(const int64_t precision, bound.IntOr(0, 0));
  KVASIR_TRY(const Text method, bound.TextOr(1, Text("common", Origin::kTemplate)));
  if (!input.is_number()) {
    return TemplateError("type " + std::string(TypeName(input)) + " cannot be rounded");
  }
  const std::string& name = method.bytes();
  if (name == "common") {
    if (input.is_integral() && precision >= 0) {
      return Value::Int(input.as_integral(), input.origin());
    }
    const double rounded = RoundCommon(input.as_double(), precision);
    if (!input.is_integral()) return Value::Float(rounded, input.origin());
    KVASIR_TRY(const auto integer, Truncate(rounded));
    return Value::Int(integer.value_or(0), input.origin());
  }
  if (name != "ceil" && name != "floor") {
    return TemplateError("round: method must be common, ceil or floor");
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.as_double() * scale;
  if (!std::isfinite(scaled)) return TemplateError("round: the number is too large");
  return Value::Float((name == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale,
                      input.origin());
}

Result<Value> Sum(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("sum", arguments, {"attribute", "start"}, 0));
  Value total = bound.Get(1) == nullptr ? Value::Int(0) : *bound.Get(1);
  if (total.is_string()) return TemplateError("sum() can't sum strings [use ''.join(seq) instead]");
  KVASIR_TRY(const auto items, Iterate(runtime, input));
  for (const Value& item : items) {
    KVASIR_TRY(
        const Value part,
        GetPath(runtime, item, bound.GetSome(0) == nullptr ? Value() : *bound.Get(0), nullptr));
    KVASIR_TRY(total, Arithmetic(runtime, BinaryOperator::kAdd, total, part));
    KVASIR_TRY_OK(runtime.Step());
  }
  return total;
}

Result<Value> FileSize(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("filesizeformat", arguments, {"binary"}, 0));
  const bool binary = bound.TruthOr(0, false);
  std::optional<double> parsed;
  if (input.is_number()) parsed = input.as_double();
  if (input.is_string()) parsed = ParseFloat(input.bytes());
  if (!parsed) return TemplateError("filesizeformat wants a number");
  if (!std::isfinite(*parsed)) return TemplateError("filesizeformat wants a finite number");
  const double base = binary ? 1024 : 1000;
  char buffer[400];
  if (*parsed == 1) return runtime.String("1 Byte", input.origin());
  if (*parsed < base) {
    std::snprintf(buffer, sizeof(buffer), "%.0f Bytes", std::trunc(*parsed));
    return runtime.String(buffer, input.origin());
  }
  static constexpr const char* kPrefixes = "kMGTPEZY";
  double unit = base * base;
  int index = 0;
  while (index < 7 && *parsed >= unit) {
    unit *= base;
    ++index;
  }
  const char prefix = binary && index == 0 ? 'K' : kPrefixes[index];
  std::snprintf(buffer, sizeof(buffer), "%.1f %c%sB", base * *parsed / unit, prefix,
                binary ? "i" : "");
  return runtime.String(buffer, input.origin());
}

}  // namespace

FilterFunction FindNumberFilter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFunction> kFilters = {
      {"abs", Abs},           {"filesizeformat", FileSize},
      {"float", FloatFilter}, {"int", IntFilter},
      {"round", Round},       {"sum", Sum},
  };
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? nullptr : found->second;
}

}  // namespace kvasir::chat
