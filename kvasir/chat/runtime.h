// Runtime: what one rendering shares with every filter and method: budgets, the making of values,
// and calls back into the interpreter.
// Deliberately not the interpreter: built-ins see neither syntax nor scopes.
#ifndef KVASIR_CHAT_RUNTIME_H_
#define KVASIR_CHAT_RUNTIME_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/chat/arguments.h"
#include "kvasir/chat/dict.h"
#include "kvasir/chat/limits.h"
#include "kvasir/chat/object.h"
#include "kvasir/chat/value.h"

namespace kvasir::chat {

// A template error without its place; the interpreter adds "name:line: ".
Error TemplateError(std::string message);

class Runtime {
 public:
  explicit Runtime(const ChatTemplateLimits& limits) : limits_(limits) {}
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  // REQUIRES: no value made here is alive, except in objects that were Adopt()ed.
  virtual ~Runtime();

  const ChatTemplateLimits& limits() const { return limits_; }

  // Pays for work. ERRORS: kResourceExhausted when the step, memory or nesting limit is passed.
  Status Step(int64_t count = 1);
  // Pays for work that is linear in `bytes`.
  Status StepBytes(size_t bytes) { return Step(1 + static_cast<int64_t>(bytes / 64)); }
  // For what looks each character up.
  Status StepCharacters(size_t bytes) { return Step(1 + static_cast<int64_t>(bytes / 4)); }
  // Pays for looking for a pattern in a text: a hostile pair costs up to text * pattern
  // comparisons.
  Status StepSearch(size_t text_bytes, size_t pattern_bytes) {
    const auto factor = static_cast<int64_t>(pattern_bytes < 256 ? 1 : pattern_bytes / 64);
    return Step(1 + static_cast<int64_t>(text_bytes / 64) * factor);
  }
  // ERRORS: kResourceExhausted when a string of this size must not be made. Ask before making one
  // that is larger than its inputs.
  Status CheckStringSize(size_t bytes) const;
  // Likewise a list.
  Status CheckItemCount(size_t count) const;

  // Makers pay for what they make and never fail: passing a limit is remembered and reported by the
  // next Step().
  Value String(Text text);
  Value String(std::string_view bytes, Origin origin) { return String(Text(bytes, origin)); }
  Value List(std::vector<Value> items) { return Make(SequenceKind::kList, std::move(items)); }
  Value Tuple(std::vector<Value> items) { return Make(SequenceKind::kTuple, std::move(items)); }
  Value Group(Value grouper, Value list);
  Value Iterator(std::vector<Value> items) {
    return Make(SequenceKind::kIterator, std::move(items));
  }
  Value Make(SequenceKind kind, std::vector<Value> items);
  Value DictValue(Dict dict);
  // Strings, numbers and bools inside get `origin`. ERRORS: kResourceExhausted when nested too
  // deep.
  Result<Value> FromJson(const Json& json, Origin origin);
  // Keeps an object that can refer to others alive until the end and clears it then.
  Value Adopt(std::shared_ptr<Object> object);

  // Accounts for memory outside of values (output being captured).
  void Charge(int64_t bytes);
  void Release(int64_t bytes) { live_bytes_ -= bytes; }

  virtual Result<Value> CallFilter(std::string_view name, const Value& input,
                                   const CallArguments& arguments) = 0;
  virtual Result<bool> CallTest(std::string_view name, const Value& input,
                                const CallArguments& arguments) = 0;

 private:
  Value Make(Sequence made);
  Result<Value> FromJsonAt(const Json& json, Origin origin, int depth);
  void CheckDepth(int depth);

  ChatTemplateLimits limits_;
  int64_t steps_ = 0;
  int64_t live_bytes_ = 0;
  bool over_memory_ = false;
  bool over_depth_ = false;
  std::vector<std::shared_ptr<Object>> adopted_;
};

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_RUNTIME_H_
