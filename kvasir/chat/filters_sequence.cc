// Filters on lists and dicts: order, grouping, joining.
// Deliberately eager: what jinja2 makes a generator is a list here that is handed out once.
#include <algorithm>
#include <unordered_map>

#include "kvasir/chat/filters.h"
#include "kvasir/chat/merge_sort.h"
#include "kvasir/chat/methods.h"
#include "kvasir/chat/python_ops.h"
#include "kvasir/chat/unicode.h"

namespace kvasir::chat {
namespace {

using Bound = BoundArguments;

struct Keyed {
  Value key;
  Value item;
};

Result<std::vector<Keyed>> SortByKey(Runtime& runtime, std::vector<Keyed> items, bool reverse) {
  if (reverse) std::reverse(items.begin(), items.end());
  KVASIR_TRY(auto sorted, MergeSort(std::move(items), [&](const Keyed& a, const Keyed& b) {
               return Compare(runtime, Order::kLess, a.key, b.key);
             }));
  // Reversed twice, so that equal items keep their order, as Python's sorted(reverse=True) does.
  if (reverse) std::reverse(sorted.begin(), sorted.end());
  return sorted;
}

std::vector<Value> ItemsOf(std::vector<Keyed> keyed) {
  std::vector<Value> items;
  items.reserve(keyed.size());
  for (Keyed& entry : keyed) items.push_back(std::move(entry.item));
  return items;
}

Result<Value> DictSort(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound,
             Bound::Bind("dictsort", arguments, {"case_sensitive", "by", "reverse"}, 0));
  if (input.is_undefined()) return TemplateError(input.undefined_message());
  if (!input.is_dict()) {
    return TemplateError("dictsort wants a dict, not " + std::string(TypeName(input)));
  }
  KVASIR_TRY(const Text by, bound.TextOr(1, Text("key", Origin::kTemplate)));
  if (by.bytes() != "key" && by.bytes() != "value") {
    return TemplateError("dictsort can only sort by \"key\" or \"value\"");
  }
  std::vector<Keyed> items;
  for (const auto& [key, value] : input.dict().entries()) {
    Value compared = by.bytes() == "key" ? key : value;
    if (!bound.TruthOr(0, false)) {
      KVASIR_TRY(compared, IgnoreCase(runtime, compared));
    }
    items.push_back({std::move(compared), runtime.Tuple({key, value})});
  }
  KVASIR_TRY(auto sorted, SortByKey(runtime, std::move(items), bound.TruthOr(2, false)));
  return runtime.List(ItemsOf(std::move(sorted)));
}

// The values at the comma separated paths in `attribute`, as one list.
Result<Value> MultiKey(Runtime& runtime, const Value& item, const Value* attribute,
                       bool case_sensitive) {
  std::vector<Value> paths;
  if (attribute != nullptr && attribute->is_string()) {
    CallArguments comma;
    comma.positional.push_back(runtime.String(",", Origin::kTemplate));
    KVASIR_TRY(const Value split, FindStringMethod("split")(runtime, attribute->text(), comma));
    paths = split.sequence().items;
  } else {
    paths.push_back(attribute == nullptr ? Value::None() : *attribute);
  }
  std::vector<Value> keys;
  for (const Value& path : paths) {
    KVASIR_TRY(Value key, GetPath(runtime, item, path, nullptr));
    if (!case_sensitive) {
      KVASIR_TRY(key, IgnoreCase(runtime, key));
    }
    keys.push_back(std::move(key));
  }
  return runtime.List(std::move(keys));
}

Result<Value> Sort(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound,
             Bound::Bind("sort", arguments, {"reverse", "case_sensitive", "attribute"}, 0));
  KVASIR_TRY(const auto items, Iterate(runtime, input));
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    KVASIR_TRY(Value key, MultiKey(runtime, item, bound.GetSome(2), bound.TruthOr(1, false)));
    keyed.push_back({std::move(key), item});
  }
  KVASIR_TRY(auto sorted, SortByKey(runtime, std::move(keyed), bound.TruthOr(0, false)));
  return runtime.List(ItemsOf(std::move(sorted)));
}

Result<Value> KeyOf(Runtime& runtime, const Value& item, const Value* attribute,
                    bool case_sensitive, const Value* otherwise) {
  KVASIR_TRY(Value key,
             GetPath(runtime, item, attribute == nullptr ? Value::None() : *attribute, otherwise));
  return case_sensitive ? Result<Value>(std::move(key)) : IgnoreCase(runtime, key);
}

Result<Value> Unique(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound,
             Bound::Bind("unique", arguments, {"case_sensitive", "attribute"}, 0));
  KVASIR_TRY(const auto items, Iterate(runtime, input));
  Dict seen;
  std::vector<Value> unique;
  for (const Value& item : items) {
    KVASIR_TRY(const Value key,
               KeyOf(runtime, item, bound.GetSome(1), bound.TruthOr(0, false), nullptr));
    KVASIR_TRY_OK(runtime.Step());
    if (!Dict::IsHashable(key)) {
      return TemplateError("unique: unhashable type '" + std::string(TypeName(key)) + "'");
    }
    if (seen.Find(key) != nullptr) continue;
    seen.Set(key, Value::None());
    unique.push_back(item);
  }
  return runtime.Iterator(std::move(unique));
}

template <Order kOrder>
Result<Value> Extreme(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound,
             Bound::Bind("min/max", arguments, {"case_sensitive", "attribute"}, 0));
  KVASIR_TRY(const auto items, Iterate(runtime, input));
  if (items.empty()) return Value::Undefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  Value best_key;
  for (size_t i = 0; i < items.size(); ++i) {
    KVASIR_TRY(Value key,
               KeyOf(runtime, items[i], bound.GetSome(1), bound.TruthOr(0, false), nullptr));
    bool better = i == 0;
    if (i != 0) {
      KVASIR_TRY(better, Compare(runtime, kOrder, key, best_key));
    }
    if (!better) continue;
    best = i;
    best_key = std::move(key);
  }
  return items[best];
}

Result<Value> GroupBy(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound,
             Bound::Bind("groupby", arguments, {"attribute", "default", "case_sensitive"}, 1));
  const bool case_sensitive = bound.TruthOr(2, false);
  KVASIR_TRY(const auto items, Iterate(runtime, input));
  std::vector<Keyed> keyed;
  for (const Value& item : items) {
    KVASIR_TRY(Value key, KeyOf(runtime, item, bound.Get(0), case_sensitive, bound.GetSome(1)));
    keyed.push_back({std::move(key), item});
  }
  KVASIR_TRY(const auto sorted, SortByKey(runtime, std::move(keyed), false));
  std::vector<Value> groups;
  for (size_t begin = 0; begin < sorted.size();) {
    std::vector<Value> members;
    size_t end = begin;
    for (; end < sorted.size(); ++end) {
      KVASIR_TRY(const bool same, Equal(runtime, sorted[begin].key, sorted[end].key));
      if (!same) break;
      members.push_back(sorted[end].item);
    }
    // The group is named as its first member spells the key.
    KVASIR_TRY(Value shown, KeyOf(runtime, members[0], bound.Get(0), true, bound.GetSome(1)));
    groups.push_back(runtime.Group(std::move(shown), runtime.List(std::move(members))));
    begin = std::max(end, begin + 1);  // NaN equals nothing, not even itself
  }
  return runtime.List(std::move(groups));
}

Result<Value> JoinFilter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("join", arguments, {"d", "attribute"}, 0));
  KVASIR_TRY(const Text separator,
             bound.Get(0) == nullptr ? Result<Text>(Text()) : Str(runtime, *bound.Get(0)));
  KVASIR_TRY(const auto items, Iterate(runtime, input));
  Text result;
  for (size_t i = 0; i < items.size(); ++i) {
    Value item = items[i];
    if (bound.GetSome(1) != nullptr) {
      KVASIR_TRY(item, GetPath(runtime, item, *bound.Get(1), nullptr));
    }
    KVASIR_TRY(const Text text, Str(runtime, item));
    if (i != 0) result.Append(separator);
    result.Append(text);
    KVASIR_TRY_OK(runtime.CheckStringSize(result.size()));
  }
  return runtime.String(std::move(result));
}

Result<Value> ListFilter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY_OK(Bound::Bind("list", arguments, {}, 0).status());
  KVASIR_TRY(auto items, Iterate(runtime, input));
  return runtime.List(std::move(items));
}

Result<Value> First(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY_OK(Bound::Bind("first", arguments, {}, 0).status());
  if (input.is_sequence()) {  // takes one item of an iterator, not all
    const Sequence& sequence = input.sequence();
    if (sequence.consumed >= sequence.items.size()) {
      return Value::Undefined("No first item, sequence was empty.");
    }
    const Value& item = sequence.items[sequence.consumed];
    if (sequence.kind == SequenceKind::kIterator) ++sequence.consumed;
    return item;
  }
  KVASIR_TRY(const auto items, Iterate(runtime, input));
  return items.empty() ? Value::Undefined("No first item, sequence was empty.") : items[0];
}

bool IsReversible(const Value& value) {
  return IsIterable(value) &&
         !(value.is_sequence() && value.sequence().kind == SequenceKind::kIterator);
}

Result<Value> Last(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY_OK(Bound::Bind("last", arguments, {}, 0).status());
  if (!IsReversible(input)) {
    return TemplateError("'" + std::string(TypeName(input)) + "' object is not reversible");
  }
  KVASIR_TRY(const auto items, Iterate(runtime, input));
  return items.empty() ? Value::Undefined("No last item, sequence was empty.") : items.back();
}

Result<Value> Reverse(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY_OK(Bound::Bind("reverse", arguments, {}, 0).status());
  if (input.is_string()) return Slice(runtime, input, {Value(), Value(), Value::Int(-1)});
  KVASIR_TRY(auto items, Iterate(runtime, input));
  std::reverse(items.begin(), items.end());
  // What Python cannot reverse in place comes back as a list.
  if (!IsReversible(input)) return runtime.List(std::move(items));
  return runtime.Iterator(std::move(items));
}

Result<Value> Items(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY_OK(Bound::Bind("items", arguments, {}, 0).status());
  if (input.is_undefined()) return runtime.Iterator({});
  if (!input.is_dict()) return TemplateError("Can only get item pairs from a mapping.");
  KVASIR_TRY(const Value view, FindValueMethod(input, "items")(runtime, input, {}));
  return runtime.Iterator(view.sequence().items);
}

Result<Value> Batch(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("batch", arguments, {"linecount", "fill_with"}, 1));
  KVASIR_TRY(const int64_t line_count, bound.IntOr(0, 1));
  KVASIR_TRY(const auto items, Iterate(runtime, input));
  std::vector<Value> batches;
  std::vector<Value> line;
  for (const Value& item : items) {
    if (static_cast<int64_t>(line.size()) == line_count) {
      batches.push_back(runtime.List(std::exchange(line, {})));
    }
    line.push_back(item);
  }
  if (!line.empty()) {
    if (const Value* fill = bound.GetSome(1)) {
      KVASIR_TRY_OK(runtime.CheckItemCount(static_cast<size_t>(std::max<int64_t>(0, line_count))));
      KVASIR_TRY_OK(runtime.Step(std::max<int64_t>(0, line_count) / 8));
      while (static_cast<int64_t>(line.size()) < line_count) line.push_back(*fill);
    }
    batches.push_back(runtime.List(std::move(line)));
  }
  return runtime.Iterator(std::move(batches));
}

Result<Value> SliceFilter(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("slice", arguments, {"slices", "fill_with"}, 1));
  KVASIR_TRY(const int64_t slices, bound.IntOr(0, 1));
  if (slices == 0) return TemplateError("slice: division by zero");
  if (slices > runtime.limits().max_range) return TemplateError("slice: too many slices");
  KVASIR_TRY(const auto items, Iterate(runtime, input));
  KVASIR_TRY_OK(runtime.Step(std::max<int64_t>(0, slices)));
  std::vector<Value> columns;
  size_t begin = 0;
  for (int64_t i = 0; i < slices; ++i) {
    const auto count = static_cast<size_t>(slices);
    const bool has_extra = static_cast<size_t>(i) < items.size() % count;
    const size_t end = begin + items.size() / count + (has_extra ? 1 : 0);
    std::vector<Value> column(items.begin() + static_cast<std::ptrdiff_t>(begin),
                              items.begin() + static_cast<std::ptrdiff_t>(end));
    if (bound.GetSome(1) != nullptr && !has_extra) column.push_back(*bound.Get(1));
    columns.push_back(runtime.List(std::move(column)));
    begin = end;
  }
  return runtime.Iterator(std::move(columns));
}

}  // namespace

Result<Value> GetPath(Runtime& runtime, const Value& item, const Value& path,
                      const Value* otherwise) {
  if (path.is_none()) return item;
  if (!path.is_string()) {
    KVASIR_TRY(Value found, GetItem(runtime, item, path));
    return found.is_undefined() && otherwise != nullptr ? *otherwise : found;
  }
  Value current = item;
  const std::string& bytes = path.bytes();
  for (size_t begin = 0; begin <= bytes.size();) {
    const size_t end = std::min(bytes.find('.', begin), bytes.size());
    const std::string part = bytes.substr(begin, end - begin);
    const bool is_index = !part.empty() && std::all_of(part.begin(), part.end(),
                                                       [](char c) { return c >= '0' && c <= '9'; });
    const auto index = is_index ? ParseInt(part, 10) : std::nullopt;
    const Value key = index ? Value::Int(*index) : runtime.String(part, Origin::kTemplate);
    KVASIR_TRY(current, GetItem(runtime, current, key));
    if (current.is_undefined() && otherwise != nullptr) current = *otherwise;
    begin = end + 1;
    KVASIR_TRY_OK(runtime.Step());
  }
  return current;
}

Result<Value> IgnoreCase(Runtime& runtime, const Value& value) {
  if (!value.is_string()) return value;
  KVASIR_TRY_OK(runtime.StepCharacters(value.bytes().size()));
  return runtime.String(ChangeCase(value.text(), LetterCase::kLower));
}

FilterFunction FindSequenceFilter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFunction> kFilters = {
      {"batch", Batch},
      {"dictsort", DictSort},
      {"first", First},
      {"groupby", GroupBy},
      {"items", Items},
      {"join", JoinFilter},
      {"last", Last},
      {"list", ListFilter},
      {"max", Extreme<Order::kGreater>},
      {"min", Extreme<Order::kLess>},
      {"reverse", Reverse},
      {"slice", SliceFilter},
      {"sort", Sort},
      {"unique", Unique},
  };
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? nullptr : found->second;
}

}  // namespace kvasir::chat
