// The filters of jinja2 (value | filter(arguments)) and transformers' tojson.
// Deliberately without random, pprint and urlize: no prompt can depend on them.
#ifndef KVASIR_CHAT_FILTERS_H_
#define KVASIR_CHAT_FILTERS_H_

#include <string_view>

#include "kvasir/base/result.h"
#include "kvasir/chat/runtime.h"

namespace kvasir::chat {

using FilterFunction = Result<Value> (*)(Runtime&, const Value& input, const CallArguments&);

// nullptr when there is no such filter.
FilterFunction FindFilter(std::string_view name);

// The parts of the table, one per file.
FilterFunction FindTextFilter(std::string_view name);
FilterFunction FindNumberFilter(std::string_view name);
FilterFunction FindSequenceFilter(std::string_view name);
FilterFunction FindSelectFilter(std::string_view name);

// json.dumps(value, ensure_ascii=False, indent, separators, sort_keys).
Result<Value> ToJson(Runtime& runtime, const Value& input, const CallArguments& arguments);

// The value at a path such as "function.name" or 0 inside of `item`; `otherwise` (may be null)
// replaces what is undefined.
Result<Value> GetPath(Runtime& runtime, const Value& item, const Value& path,
                      const Value* otherwise);
// Lower case if a string: what sorting and grouping compare by default.
Result<Value> IgnoreCase(Runtime& runtime, const Value& value);

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_FILTERS_H_
