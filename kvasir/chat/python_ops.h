// Python's operators on Values: truth, comparison, arithmetic, look-up, iteration and printing.
// Deliberately not methods and filters: those are tables of their own.
#ifndef KVASIR_CHAT_PYTHON_OPS_H_
#define KVASIR_CHAT_PYTHON_OPS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/chat/runtime.h"
#include "kvasir/chat/value.h"

namespace kvasir::chat {

// bool(value).
bool IsTrue(const Value& value);

// a == b. ERRORS: only a limit (shared parts can make a walk long).
Result<bool> Equal(Runtime& runtime, const Value& a, const Value& b);

enum class Order { kLess, kLessOrEqual, kGreater, kGreaterOrEqual };
// a < b and its kin. ERRORS: kInvalidArgument for types that Python does not order.
Result<bool> Compare(Runtime& runtime, Order order, const Value& a, const Value& b);

// item in container. ERRORS: kInvalidArgument if `container` is no container.
Result<bool> Contains(Runtime& runtime, const Value& container, const Value& item);

// len(value). ERRORS: kInvalidArgument for what has no length.
Result<int64_t> Length(const Value& value);
// What a for loop visits: items, keys of a dict, characters of a string. Uses up an iterator.
// ERRORS: kInvalidArgument "'int' object is not iterable".
Result<std::vector<Value>> Iterate(Runtime& runtime, const Value& value);
bool IsIterable(const Value& value);

// object[key] and object.name with jinja2's fallbacks: what is missing is Undefined, not an error.
// ERRORS: kInvalidArgument when `object` itself is undefined.
Result<Value> GetItem(Runtime& runtime, const Value& object, const Value& key);
Result<Value> GetAttribute(Runtime& runtime, const Value& object, std::string_view name);
// Only real attributes (methods), no items; nullopt when there is none.
Result<std::optional<Value>> FindAttribute(Runtime& runtime, const Value& object,
                                           std::string_view name);

// Bounds of object[start:stop:step]; None where left out.
struct SliceBounds {
  Value start, stop, step;
};
Result<Value> Slice(Runtime& runtime, const Value& object, const SliceBounds& bounds);

enum class BinaryOperator { kAdd, kSubtract, kMultiply, kDivide, kFloorDivide, kModulo, kPower };
// ERRORS: kInvalidArgument for operands that do not fit and for integers past 64 bits.
Result<Value> Arithmetic(Runtime& runtime, BinaryOperator op, const Value& a, const Value& b);
Result<Value> Negate(const Value& value);
Result<Value> Plus(const Value& value);

// value % arguments of a string (printf style). `arguments` is a tuple, a dict or one value.
Result<Text> FormatPercent(Runtime& runtime, const Text& format, const Value& arguments);
// format.format(*positional, **named).
Result<Text> FormatBraces(Runtime& runtime, const Text& format, const CallArguments& arguments);

// str(value): a string keeps its origins, a container's text is kInput.
// ERRORS: kResourceExhausted when too long.
Result<Text> Str(Runtime& runtime, const Value& value);
// repr(value).
Result<std::string> Repr(Runtime& runtime, const Value& value);
std::string ReprString(std::string_view text);
// The shortest text that reads back as the same double, as Python prints it.
std::string ReprDouble(double value);

// Parses as int(text, base) and float(text) do; nullopt where those raise ValueError.
std::optional<int64_t> ParseInt(std::string_view text, int base);
std::optional<double> ParseFloat(std::string_view text);

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_PYTHON_OPS_H_
