// Subscripts, attributes and slices.
// Deliberately no private attributes: the sandbox hides names that begin with an underscore.
#include <algorithm>
#include <array>

#include "kvasir/chat/methods.h"
#include "kvasir/chat/python_ops.h"
#include "kvasir/chat/unicode.h"

namespace kvasir::chat {
namespace {

// What jinja2's messages call an object.
std::string Describe(const Value& object) {
  return object.is_none() ? "None" : std::string(TypeName(object)) + " object";
}

// The position that Python's index `index` means among `size` items; nullopt outside.
std::optional<size_t> ResolveIndex(int64_t index, int64_t size) {
  if (index < 0) index += size;
  if (index < 0 || index >= size) return std::nullopt;
  return static_cast<size_t>(index);
}

std::optional<Value> FindItem(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is_dict()) {
    const Value* value = object.dict().Find(key);
    return value == nullptr ? std::nullopt : std::optional<Value>(*value);
  }
  if (!key.is_integral()) return std::nullopt;
  if (object.is_sequence() && object.sequence().indexable()) {
    const auto& items = object.sequence().items;
    const auto index = ResolveIndex(key.as_integral(), static_cast<int64_t>(items.size()));
    return index ? std::optional<Value>(items[*index]) : std::nullopt;
  }
  if (object.is_string()) {
    const Text& text = object.text();
    const auto index = ResolveIndex(key.as_integral(), CountCodePoints(text.bytes()));
    if (!index) return std::nullopt;
    const size_t begin = ByteOffsetOfCodePoint(text.bytes(), static_cast<int64_t>(*index));
    return runtime.String(text.Substr(begin, begin + DecodeUtf8(text.bytes(), begin).size_bytes));
  }
  return std::nullopt;
}

bool IsMutator(const Value& object, std::string_view name) {
  static constexpr std::array<std::string_view, 8> kOfList = {
      "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};
  static constexpr std::array<std::string_view, 5> kOfDict = {"clear", "pop", "popitem",
                                                              "setdefault", "update"};
  if (object.is_dict()) return std::find(kOfDict.begin(), kOfDict.end(), name) != kOfDict.end();
  return object.is_sequence() && object.sequence().kind == SequenceKind::kList &&
         std::find(kOfList.begin(), kOfList.end(), name) != kOfList.end();
}

struct ResolvedSlice {
  int64_t start, step, count;
};

Result<int64_t> SliceBound(const Value& bound, int64_t otherwise) {
  if (bound.is_none()) return otherwise;
  if (bound.is_integral()) return bound.as_integral();
  return TemplateError("slice indices must be integers or None, not " +
                       std::string(TypeName(bound)));
}

// Python's PySlice_AdjustIndices.
Result<ResolvedSlice> Resolve(const SliceBounds& bounds, int64_t size) {
  KVASIR_TRY(int64_t step, SliceBound(bounds.step, 1));
  if (step == 0) return TemplateError("slice step cannot be zero");
  step = std::clamp<int64_t>(step, -INT64_MAX / 2, INT64_MAX / 2);
  const auto clamp = [&](int64_t index) {
    if (index < 0) index = index < -size ? -1 : index + size;
    return step < 0 ? std::clamp<int64_t>(index, -1, size - 1)
                    : std::clamp<int64_t>(index, 0, size);
  };
  KVASIR_TRY(int64_t start, SliceBound(bounds.start, step < 0 ? size - 1 : 0));
  KVASIR_TRY(int64_t stop, SliceBound(bounds.stop, size));
  start = bounds.start.is_none() ? start : clamp(start);
  stop = bounds.stop.is_none() ? (step < 0 ? -1 : size) : clamp(stop);
  const int64_t distance = step < 0 ? start - stop : stop - start;
  const int64_t stride = step < 0 ? -step : step;
  return ResolvedSlice{start, step, distance <= 0 ? 0 : (distance - 1) / stride + 1};
}

Result<Value> SliceText(Runtime& runtime, const Text& text, const SliceBounds& bounds) {
  const std::vector<size_t> starts = CodePointStarts(text.bytes());
  KVASIR_TRY(const ResolvedSlice slice, Resolve(bounds, static_cast<int64_t>(starts.size()) - 1));
  const auto at = [&](int64_t index) { return starts[static_cast<size_t>(index)]; };
  if (slice.step == 1) {
    return runtime.String(text.Substr(at(slice.start), at(slice.start + slice.count)));
  }
  Text result;
  for (int64_t i = 0; i < slice.count; ++i) {
    const int64_t index = slice.start + i * slice.step;
    result.AppendRange(text, at(index), at(index + 1));
  }
  return runtime.String(text.is_markup() ? result.AsMarkup() : result);
}

}  // namespace

Result<std::optional<Value>> FindAttribute(Runtime& runtime, const Value& object,
                                           std::string_view name) {
  if (object.is_undefined()) return TemplateError(object.undefined_message());
  if (object.is_object()) return object.object().GetAttribute(runtime, name);
  if (IsMutator(object, name) || (name.starts_with("__") && name.ends_with("__"))) {
    return std::optional<Value>(Value::Undefined("access to attribute '" + std::string(name) +
                                                 "' of '" + std::string(TypeName(object)) +
                                                 "' object is unsafe."));
  }
  if (object.is_sequence() && object.sequence().is_group) {
    const std::vector<Value>& items = object.sequence().items;
    if (name == "grouper") return std::optional<Value>(items[0]);
    if (name == "list") return std::optional<Value>(items[1]);
  }
  if (!HasMethod(object, name)) return std::optional<Value>();
  return std::optional<Value>(BindMethod(object, name));
}

Result<Value> GetAttribute(Runtime& runtime, const Value& object, std::string_view name) {
  KVASIR_TRY(auto attribute, FindAttribute(runtime, object, name));
  if (attribute) return *std::move(attribute);
  if (object.is_dict()) {
    if (const Value* value = object.dict().Find(name)) return *value;
  }
  return Value::Undefined("'" + Describe(object) + "' has no attribute '" + std::string(name) +
                          "'");
}

Result<Value> GetItem(Runtime& runtime, const Value& object, const Value& key) {
  if (object.is_undefined()) return TemplateError(object.undefined_message());
  if (object.is_string()) KVASIR_TRY_OK(runtime.StepBytes(object.bytes().size()));
  if (key.is_string()) KVASIR_TRY_OK(runtime.StepBytes(key.bytes().size()));
  if (auto item = FindItem(runtime, object, key)) return *std::move(item);
  if (key.is_string()) {
    KVASIR_TRY(auto attribute, FindAttribute(runtime, object, key.bytes()));
    if (attribute) return *std::move(attribute);
    return Value::Undefined("'" + Describe(object) + "' has no attribute '" + key.bytes() + "'");
  }
  KVASIR_TRY(const std::string shown, Repr(runtime, key));
  return Value::Undefined(Describe(object) + " has no element " + shown);
}

Result<Value> Slice(Runtime& runtime, const Value& object, const SliceBounds& bounds) {
  if (object.is_undefined()) return TemplateError(object.undefined_message());
  if (object.is_string()) {
    KVASIR_TRY_OK(runtime.StepBytes(object.bytes().size() * 8));
    return SliceText(runtime, object.text(), bounds);
  }
  if (!object.is_sequence() || !object.sequence().indexable()) {
    return TemplateError("'" + std::string(TypeName(object)) + "' object cannot be sliced");
  }
  const Sequence& sequence = object.sequence();
  KVASIR_TRY(const ResolvedSlice slice,
             Resolve(bounds, static_cast<int64_t>(sequence.items.size())));
  KVASIR_TRY_OK(runtime.Step(slice.count / 8));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(slice.count));
  for (int64_t i = 0; i < slice.count; ++i) {
    items.push_back(sequence.items[static_cast<size_t>(slice.start + i * slice.step)]);
  }
  return runtime.Make(sequence.kind, std::move(items));
}

}  // namespace kvasir::chat
