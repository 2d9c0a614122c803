// map, select, reject and their attribute forms.
// Deliberately asking for filters and tests by name at run time, as jinja2 does.
#include <unordered_map>

#include "kvasir/chat/filters.h"
#include "kvasir/chat/python_ops.h"

namespace kvasir::chat {
namespace {

Result<Value> MapAttribute(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  KVASIR_TRY(const BoundArguments bound,
             BoundArguments::Bind("map", arguments, {"attribute", "default"}, 1));
  KVASIR_TRY(const auto items, Iterate(runtime, input));
  std::vector<Value> mapped;
  for (const Value& item : items) {
    KVASIR_TRY(Value value, GetPath(runtime, item, *bound.Get(0), bound.GetSome(1)));
    mapped.push_back(std::move(value));
  }
  return runtime.Iterator(std::move(mapped));
}

Result<Value> Map(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  if (!IsTrue(input)) return runtime.Iterator({});
  if (arguments.positional.empty()) {
    if (arguments.Find("attribute") != nullptr) return MapAttribute(runtime, input, arguments);
    return TemplateError("map requires the name of a filter or attribute=...");
  }
  if (!arguments.positional[0].is_string()) return TemplateError("map: a filter name is a string");
  CallArguments rest = arguments;
  const std::string name = rest.positional[0].bytes();
  rest.positional.erase(rest.positional.begin());
  KVASIR_TRY(const auto items, Iterate(runtime, input));
  std::vector<Value> mapped;
  for (const Value& item : items) {
    KVASIR_TRY(Value value, runtime.CallFilter(name, item, rest));
    mapped.push_back(std::move(value));
  }
  return runtime.Iterator(std::move(mapped));
}

enum class Keep { kPassing, kFailing };
enum class Subject { kItem, kAttribute };

template <Keep kKeep, Subject kSubject>
Result<Value> Select(Runtime& runtime, const Value& input, const CallArguments& arguments) {
  if (!IsTrue(input)) return runtime.Iterator({});
  CallArguments rest = arguments;
  const auto take = [&] {
    Value value = rest.positional.front();
    rest.positional.erase(rest.positional.begin());
    return value;
  };
  Value attribute;
  if (kSubject == Subject::kAttribute) {
    if (rest.positional.empty()) return TemplateError("missing parameter for attribute name");
    attribute = take();
  }
  Value test;
  if (!rest.positional.empty()) test = take();
  if (!test.is_none() && !test.is_string()) return TemplateError("a test name is a string");
  KVASIR_TRY(const auto items, Iterate(runtime, input));
  std::vector<Value> kept;
  for (const Value& item : items) {
    KVASIR_TRY(const Value subject, GetPath(runtime, item, attribute, nullptr));
    bool passes = IsTrue(subject);
    if (test.is_string()) {
      KVASIR_TRY(passes, runtime.CallTest(test.bytes(), subject, rest));
    }
    KVASIR_TRY_OK(runtime.Step());
    if (passes == (kKeep == Keep::kPassing)) kept.push_back(item);
  }
  return runtime.Iterator(std::move(kept));
}

}  // namespace

FilterFunction FindSelectFilter(std::string_view name) {
  static const std::unordered_map<std::string_view, FilterFunction> kFilters = {
      {"map", Map},
      {"reject", Select<Keep::kFailing, Subject::kItem>},
      {"rejectattr", Select<Keep::kFailing, Subject::kAttribute>},
      {"select", Select<Keep::kPassing, Subject::kItem>},
      {"selectattr", Select<Keep::kPassing, Subject::kAttribute>},
  };
  const auto found = kFilters.find(name);
  return found == kFilters.end() ? nullptr : found->second;
}

}  // namespace kvasir::chat
