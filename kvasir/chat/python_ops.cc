// Truth, equality, order, membership, length and iteration.
// Deliberately paying a step per element: values can share parts, so that walks grow exponentially.
#include "kvasir/chat/python_ops.h"

#include <algorithm>
#include <cmath>

#include "kvasir/chat/unicode.h"

namespace kvasir::chat {
namespace {

std::string TypeNameString(const Value& value) { return std::string(TypeName(value)); }

// -1, 0, 1, or 2 when not ordered (NaN). Exact also where an integer does not fit a double.
int CompareNumbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral()) {
    return a.as_integral() < b.as_integral() ? -1 : a.as_integral() > b.as_integral() ? 1 : 0;
  }
  const auto x = a.is_integral() ? static_cast<long double>(a.as_integral())
                                 : static_cast<long double>(a.as_double());
  const auto y = b.is_integral() ? static_cast<long double>(b.as_integral())
                                 : static_cast<long double>(b.as_double());
  if (std::isnan(x) || std::isnan(y)) return 2;
  return x < y ? -1 : x > y ? 1 : 0;
}

bool Holds(Order order, int comparison) {
  switch (order) {
    case Order::kLess:
      return comparison == -1;
    case Order::kLessOrEqual:
      return comparison == -1 || comparison == 0;
    case Order::kGreater:
      return comparison == 1;
    case Order::kGreaterOrEqual:
      return comparison == 1 || comparison == 0;
  }
  return false;
}

std::string_view Symbol(Order order) {
  switch (order) {
    case Order::kLess:
      return "<";
    case Order::kLessOrEqual:
      return "<=";
    case Order::kGreater:
      return ">";
    case Order::kGreaterOrEqual:
      return ">=";
  }
  return "?";
}

Result<bool> EqualSequences(Runtime& runtime, const Sequence& a, const Sequence& b) {
  if (&a == &b) return true;
  if (a.kind != b.kind || a.items.size() != b.items.size() || a.kind == SequenceKind::kIterator ||
      a.kind == SequenceKind::kValuesView) {
    return false;
  }
  for (size_t i = 0; i < a.items.size(); ++i) {
    KVASIR_TRY(const bool equal, Equal(runtime, a.items[i], b.items[i]));
    if (!equal) return false;
  }
  return true;
}

Result<bool> EqualDicts(Runtime& runtime, const Dict& a, const Dict& b) {
  if (&a == &b) return true;
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.Find(key);
    if (other == nullptr) return false;
    KVASIR_TRY(const bool equal, Equal(runtime, value, *other));
    if (!equal) return false;
  }
  return true;
}

}  // namespace

bool IsTrue(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::kUndefined:
    case Value::Kind::kNone:
      return false;
    case Value::Kind::kBool:
    case Value::Kind::kInt:
      return value.as_integral() != 0;
    case Value::Kind::kFloat:
      return value.as_double() != 0;
    case Value::Kind::kString:
      return !value.bytes().empty();
    case Value::Kind::kSequence:
      // A generator has no length, so Python takes it for true even if nothing comes out of it.
      return !value.sequence().has_length() || !value.sequence().items.empty();
    case Value::Kind::kDict:
      return value.dict().size() != 0;
    case Value::Kind::kObject:
      return true;
  }
  return false;
}

Result<bool> Equal(Runtime& runtime, const Value& a, const Value& b) {
  KVASIR_TRY_OK(runtime.Step());
  if (a.is_number() && b.is_number()) return CompareNumbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Value::Kind::kUndefined:
    case Value::Kind::kNone:
      return true;
    case Value::Kind::kString:
      KVASIR_TRY_OK(runtime.StepBytes(std::min(a.bytes().size(), b.bytes().size())));
      return a.bytes() == b.bytes();
    case Value::Kind::kSequence:
      return EqualSequences(runtime, a.sequence(), b.sequence());
    case Value::Kind::kDict:
      return EqualDicts(runtime, a.dict(), b.dict());
    default:
      return a.IsSame(b);
  }
}

Result<bool> Compare(Runtime& runtime, Order order, const Value& a, const Value& b) {
  KVASIR_TRY_OK(runtime.Step());
  if (a.is_undefined()) return TemplateError(a.undefined_message());
  if (b.is_undefined()) return TemplateError(b.undefined_message());
  if (a.is_number() && b.is_number()) return Holds(order, CompareNumbers(a, b));
  if (a.is_string() && b.is_string()) {
    KVASIR_TRY_OK(runtime.StepBytes(std::min(a.bytes().size(), b.bytes().size())));
    // UTF-8 sorts by bytes as by code points.
    const int comparison = a.bytes().compare(b.bytes());
    return Holds(order, comparison < 0 ? -1 : comparison > 0 ? 1 : 0);
  }
  const bool both_sequences = a.is_sequence() && b.is_sequence() &&
                              a.sequence().kind == b.sequence().kind &&
                              a.sequence().kind <= SequenceKind::kTuple;
  if (!both_sequences) {
    return TemplateError("'" + std::string(Symbol(order)) +
                         "' not supported between instances of '" + TypeNameString(a) + "' and '" +
                         TypeNameString(b) + "'");
  }
  const auto& x = a.sequence().items;
  const auto& y = b.sequence().items;
  for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
    KVASIR_TRY(const bool equal, Equal(runtime, x[i], y[i]));
    if (!equal) return Compare(runtime, order, x[i], y[i]);
  }
  return Holds(order, x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0);
}

Result<bool> Contains(Runtime& runtime, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      return TemplateError("'in <string>' requires string as left operand, not " +
                           TypeNameString(item));
    }
    KVASIR_TRY_OK(runtime.StepSearch(container.bytes().size(), item.bytes().size()));
    return container.bytes().find(item.bytes()) != std::string::npos;
  }
  if (container.is_dict()) {
    if (!Dict::IsHashable(item) && (item.is_dict() || item.is_sequence())) {
      return TemplateError("unhashable type: '" + TypeNameString(item) + "'");
    }
    KVASIR_TRY_OK(runtime.StepBytes(item.is_string() ? item.bytes().size() : 0));
    return container.dict().Find(item) != nullptr;
  }
  if (!IsIterable(container)) {
    return TemplateError("argument of type '" + TypeNameString(container) + "' is not iterable");
  }
  if (!container.is_sequence()) return false;  // undefined
  const Sequence& sequence = container.sequence();
  for (size_t i = sequence.consumed; i < sequence.items.size(); ++i) {
    // An iterator is used up as far as the search went.
    if (sequence.kind == SequenceKind::kIterator) sequence.consumed = i + 1;
    KVASIR_TRY(const bool equal, Equal(runtime, sequence.items[i], item));
    if (equal) return true;
  }
  return false;
}

Result<int64_t> Length(const Value& value) {
  if (value.is_undefined()) return int64_t{0};
  if (value.is_string()) return CountCodePoints(value.bytes());
  if (value.is_dict()) return static_cast<int64_t>(value.dict().size());
  if (value.is_sequence() && value.sequence().has_length()) {
    return static_cast<int64_t>(value.sequence().items.size());
  }
  return TemplateError("object of type '" + TypeNameString(value) + "' has no len()");
}

bool IsIterable(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is_sequence() || value.is_dict();
}

Result<std::vector<Value>> Iterate(Runtime& runtime, const Value& value) {
  std::vector<Value> items;
  if (value.is_sequence()) {
    const Sequence& sequence = value.sequence();
    items.assign(sequence.items.begin() + static_cast<std::ptrdiff_t>(sequence.consumed),
                 sequence.items.end());
    if (sequence.kind == SequenceKind::kIterator) sequence.consumed = sequence.items.size();
  } else if (value.is_dict()) {
    for (const auto& entry : value.dict().entries()) items.push_back(entry.first);
  } else if (value.is_string()) {
    const Text& text = value.text();
    // Every character becomes a string of its own: pay before making them.
    KVASIR_TRY_OK(runtime.CheckItemCount(text.size()));
    for (size_t at = 0; at < text.size();) {
      const size_t next = at + DecodeUtf8(text.bytes(), at).size_bytes;
      items.push_back(runtime.String(text.Substr(at, next)));
      at = next;
      KVASIR_TRY_OK(runtime.Step());
    }
  } else if (!value.is_undefined()) {
    return TemplateError("'" + TypeNameString(value) + "' object is not iterable");
  }
  KVASIR_TRY_OK(runtime.Step(static_cast<int64_t>(items.size() / 8)));
  return items;
}

}  // namespace kvasir::chat
