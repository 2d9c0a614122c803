// Filters on any value, and the look-up of all filters.
// Deliberately tables, not registration: what exists can be read in one place.
#include "kvasir/chat/filters.h"

#include <unordered_map>

#include "kvasir/chat/python_ops.h"

namespace kvasir::chat {
namespace {

using Bound = BoundArguments;

Result<Value> Default(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("default", arguments, {"default_value", "boolean"}, 0));
  const bool replaces = input.is_undefined() || (bound.TruthOr(1, false) && !IsTrue(input));
  if (!replaces) return input;
  return bound.Get(0) == nullptr ? runtime.String(Text()) : *bound.Get(0);
}

Result<Value> LengthFilter(Runtime&, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY_OK(Bound::Bind("length", arguments, {}, 0).status());
  KVASIR_TRY(const int64_t length, Length(input));
  return Value::Int(length);
}

Result<Value> StringFilter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY_OK(Bound::Bind("string", arguments, {}, 0).status());
  if (input.is_string()) return input;
  KVASIR_TRY(Text text, Str(runtime, input));
  return runtime.String(std::move(text));
}

Result<Value> Safe(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY_OK(Bound::Bind("safe", arguments, {}, 0).status());
  KVASIR_TRY(const Text text, Str(runtime, input));
  return runtime.String(text.AsMarkup());
}

Result<Value> Escape(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY_OK(Bound::Bind("escape", arguments, {}, 0).status());
  KVASIR_TRY(const Text text, Str(runtime, input));
  KVASIR_TRY_OK(runtime.CheckStringSize(text.size() * 5));
  return runtime.String(EscapeHtml(text));
}

Result<Value> ForceEscape(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY_OK(Bound::Bind("forceescape", arguments, {}, 0).status());
  KVASIR_TRY(const Text text, Str(runtime, input));
  KVASIR_TRY_OK(runtime.CheckStringSize(text.size() * 5));
  return runtime.String(EscapeHtml(text.AsPlain()));
}

Result<Value> Attribute(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("attr", arguments, {"name"}, 1));
  KVASIR_TRY(const Text name, bound.TextOr(0, Text()));
  KVASIR_TRY(auto found, FindAttribute(runtime, input, name.bytes()));
  if (found) return *std::move(found);
  return Value::Undefined("'" + std::string(TypeName(input)) + " object' has no attribute '" +
                          name.bytes() + "'");
}

FilterFunction FindGeneralFilter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFunction> kFilters = {
      {"attr", Attribute},
      {"count", LengthFilter},
      {"d", Default},
      {"default", Default},
      {"e", Escape},
      {"escape", Escape},
      {"forceescape", ForceEscape},
      {"length", LengthFilter},
      {"safe", Safe},
      {"string", StringFilter},
      {"tojson", ToJson},
  };
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? nullptr : found->second;
}

}  // namespace

FilterFunction FindFilter(std::string_view name) {
  for (const auto find : {FindGeneralFilter, FindTextFilter, FindSequenceFilter, FindSelectFilter,
                          FindNumberFilter}) {
    if (const FilterFunction filter = find(name); filter != nullptr) return filter;
  }
  return nullptr;
}

}  // namespace kvasir::chat
