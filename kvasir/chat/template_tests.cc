// Tests.
// Deliberately including jinja2's surprises: an undefined value is iterable, a sequence and
// callable.
#include "kvasir/chat/template_tests.h"

#include <unordered_map>

#include "kvasir/chat/filters.h"
#include "kvasir/chat/methods.h"
#include "kvasir/chat/python_ops.h"

namespace kvasir::chat {
namespace {

using Bound = BoundArguments;
using Property = bool (*)(const Value&);

template <Property kProperty>
Result<bool> Has(Runtime&, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY_OK(Bound::Bind("test", arguments, {}, 0).status());
  return kProperty(input);
}

bool IsDefined(const Value& value) { return !value.is_undefined(); }
bool IsUndefined(const Value& value) { return value.is_undefined(); }
bool IsNone(const Value& value) { return value.is_none(); }
bool IsBoolean(const Value& value) { return value.is_bool(); }
bool IsTrueItself(const Value& value) { return value.is_bool() && value.as_bool(); }
bool IsFalseItself(const Value& value) { return value.is_bool() && !value.as_bool(); }
bool IsInteger(const Value& value) { return value.is_int(); }
bool IsFloat(const Value& value) { return value.is_float(); }
bool IsNumber(const Value& value) { return value.is_number(); }
bool IsString(const Value& value) { return value.is_string(); }
bool IsMapping(const Value& value) { return value.is_dict(); }
bool IsEscaped(const Value& value) { return value.is_string() && value.text().is_markup(); }
bool IsSequence(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is_dict() ||
         (value.is_sequence() && value.sequence().indexable());
}
bool IsCallable(const Value& value) {
  return value.is_undefined() || (value.is_object() && value.object().callable());
}

template <bool kUpper>
Result<bool> CaseTest(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Text text, Str(runtime, input));
  KVASIR_TRY_OK(runtime.StepCharacters(text.size()));
  KVASIR_TRY(const Value result,
             FindStringMethod(kUpper ? "isupper" : "islower")(runtime, text, arguments));
  return IsTrue(result);
}

Result<bool> IsRemainder(Runtime& runtime, const Value& input, const Value& divisor,
                         int64_t wanted) {
  KVASIR_TRY(const Value remainder, Arithmetic(runtime, BinaryOperator::kModulo, input, divisor));
  return Equal(runtime, remainder, Value::Int(wanted));
}

Result<bool> Odd(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY_OK(Bound::Bind("odd", arguments, {}, 0).status());
  return IsRemainder(runtime, input, Value::Int(2), 1);
}

Result<bool> Even(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY_OK(Bound::Bind("even", arguments, {}, 0).status());
  return IsRemainder(runtime, input, Value::Int(2), 0);
}

Result<bool> DivisibleBy(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("divisibleby", arguments, {"num"}, 1));
  return IsRemainder(runtime, input, *bound.Get(0), 0);
}

Result<bool> EqualTo(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("equalto", arguments, {"other"}, 1));
  return Equal(runtime, input, *bound.Get(0));
}

Result<bool> NotEqual(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const bool equal, EqualTo(runtime, input, arguments));
  return !equal;
}

template <Order kOrder>
Result<bool> Ordered(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("comparison", arguments, {"other"}, 1));
  return Compare(runtime, kOrder, input, *bound.Get(0));
}

Result<bool> In(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("in", arguments, {"seq"}, 1));
  return Contains(runtime, *bound.Get(0), input);
}

Result<bool> SameAs(Runtime&, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("sameas", arguments, {"other"}, 1));
  return input.IsSame(*bound.Get(0));
}

Result<bool> IsFilterName(Runtime&, const Value& input, const CallArguments&) {
  return input.is_string() && FindFilter(input.bytes()) != nullptr;
}

Result<bool> IsTestName(Runtime&, const Value& input, const CallArguments&) {
  return input.is_string() && FindTest(input.bytes()) != nullptr;
}

}  // namespace

TestFunction FindTest(std::string_view name) {
  static const std::unordered_map<std::string_view, TestFunction> kTests = {
      {"!=", NotEqual},
      {"<", Ordered<Order::kLess>},
      {"<=", Ordered<Order::kLessOrEqual>},
      {"==", EqualTo},
      {">", Ordered<Order::kGreater>},
      {">=", Ordered<Order::kGreaterOrEqual>},
      {"boolean", Has<IsBoolean>},
      {"callable", Has<IsCallable>},
      {"defined", Has<IsDefined>},
      {"divisibleby", DivisibleBy},
      {"eq", EqualTo},
      {"equalto", EqualTo},
      {"escaped", Has<IsEscaped>},
      {"even", Even},
      {"false", Has<IsFalseItself>},
      {"filter", IsFilterName},
      {"float", Has<IsFloat>},
      {"ge", Ordered<Order::kGreaterOrEqual>},
      {"greaterthan", Ordered<Order::kGreater>},
      {"gt", Ordered<Order::kGreater>},
      {"in", In},
      {"integer", Has<IsInteger>},
      {"iterable", Has<IsIterable>},
      {"le", Ordered<Order::kLessOrEqual>},
      {"lessthan", Ordered<Order::kLess>},
      {"lower", CaseTest<false>},
      {"lt", Ordered<Order::kLess>},
      {"mapping", Has<IsMapping>},
      {"ne", NotEqual},
      {"none", Has<IsNone>},
      {"number", Has<IsNumber>},
      {"odd", Odd},
      {"sameas", SameAs},
      {"sequence", Has<IsSequence>},
      {"string", Has<IsString>},
      {"test", IsTestName},
      {"true", Has<IsTrueItself>},
      {"undefined", Has<IsUndefined>},
      {"upper", CaseTest<true>},
  };
  const auto found = kTests.find(name);
  return found == kTests.end() ? nullptr : found->second;
}

}  // namespace kvasir::chat
