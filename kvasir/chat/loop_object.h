// LoopObject: the variable `loop` inside a for statement, and the iteration itself.
// Deliberately lazy: as in the reference, the condition of `for x in y if condition` is asked item
// by item, so that it sees what the body has changed.
#ifndef KVASIR_CHAT_LOOP_OBJECT_H_
#define KVASIR_CHAT_LOOP_OBJECT_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvasir/chat/object.h"
#include "kvasir/chat/runtime.h"

namespace kvasir::chat {

class LoopObject : public Object, public std::enable_shared_from_this<LoopObject> {
 public:
  using Filter = std::function<Result<bool>(const Value&)>;
  using Recurse = std::function<Result<Value>(const Value& iterable)>;

  // `filter` may be empty: every item passes. `recurse` is empty for loops that are not recursive.
  LoopObject(std::vector<Value> items, Filter filter, Recurse recurse, int depth0)
      : items_(std::move(items)),
        filter_(std::move(filter)),
        recurse_(std::move(recurse)),
        depth0_(depth0) {}

  // Moves to the next item; false at the end.
  Result<bool> Advance();
  // REQUIRES: the last Advance() gave true.
  const Value& current() const { return current_; }

  std::string_view type_name() const override { return "LoopContext"; }
  bool callable() const override { return true; }
  Result<std::optional<Value>> GetAttribute(Runtime&, std::string_view name) override;
  Result<Value> Call(Runtime& runtime, const CallArguments& arguments) override;
  void Clear() override;

 private:
  Result<std::optional<Value>> Fetch();
  Result<const Value*> Peek();
  Result<int64_t> Length();
  Result<Value> Cycle(Runtime& runtime, const CallArguments& arguments);
  Result<Value> Changed(Runtime& runtime, const CallArguments& arguments);
  class Method;

  std::vector<Value> items_;
  size_t next_ = 0;          // the first item not yet asked for
  std::deque<Value> ahead_;  // items that passed but are not yet visited
  Filter filter_;
  Recurse recurse_;
  int depth0_;
  int64_t index0_ = -1;
  Value current_;
  Value previous_;
  std::optional<std::vector<Value>> last_changed_;
};

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_LOOP_OBJECT_H_
