// The loop variable (jinja2/runtime.py, LoopContext).
// Deliberately forgetful: once its loop has ended, nothing is left in it.
#include "kvasir/chat/loop_object.h"

#include "kvasir/chat/python_ops.h"

namespace kvasir::chat {

// loop.cycle or loop.changed.
class LoopObject::Method : public Object {
 public:
  using Function = Result<Value> (LoopObject::*)(Runtime&, const CallArguments&);
  Method(std::weak_ptr<LoopObject> loop, Function function)
      : loop_(std::move(loop)), function_(function) {}
  std::string_view type_name() const override { return "method"; }
  bool callable() const override { return true; }
  Result<Value> Call(Runtime& runtime, const CallArguments& arguments) override {
    const std::shared_ptr<LoopObject> loop = loop_.lock();
    if (loop == nullptr) return TemplateError("the loop of this method has ended");
    return ((*loop).*function_)(runtime, arguments);
  }

 private:
  std::weak_ptr<LoopObject> loop_;
  Function function_;
};

Result<std::optional<Value>> LoopObject::Fetch() {
  while (next_ < items_.size()) {
    const Value item = items_[next_++];
    if (!filter_) return std::optional<Value>(item);
    KVASIR_TRY(const bool passes, filter_(item));
    if (passes) return std::optional<Value>(item);
  }
  return std::optional<Value>();
}

Result<const Value*> LoopObject::Peek() {
  if (ahead_.empty()) {
    KVASIR_TRY(auto item, Fetch());
    if (!item) return static_cast<const Value*>(nullptr);
    ahead_.push_back(*std::move(item));
  }
  return &ahead_.front();
}

Result<bool> LoopObject::Advance() {
  KVASIR_TRY(const Value* item, Peek());
  if (item == nullptr) return false;
  previous_ = std::move(current_);
  current_ = *item;
  ahead_.pop_front();
  ++index0_;
  return true;
}

Result<int64_t> LoopObject::Length() {
  for (;;) {
    KVASIR_TRY(auto item, Fetch());
    if (!item) break;
    ahead_.push_back(*std::move(item));
  }
  return index0_ + 1 + static_cast<int64_t>(ahead_.size());
}

Result<std::optional<Value>> LoopObject::GetAttribute(Runtime&, std::string_view name) {
  using Found = std::optional<Value>;
  if (name == "index0") return Found(Value::Int(index0_));
  if (name == "index") return Found(Value::Int(index0_ + 1));
  if (name == "first") return Found(Value::Bool(index0_ == 0));
  if (name == "depth0") return Found(Value::Int(depth0_));
  if (name == "depth") return Found(Value::Int(depth0_ + 1));
  if (name == "previtem") {
    if (index0_ <= 0) return Found(Value::Undefined("there is no previous item"));
    return Found(previous_);
  }
  if (name == "last" || name == "nextitem") {
    KVASIR_TRY(const Value* following, Peek());
    if (name == "last") return Found(Value::Bool(following == nullptr));
    return Found(following == nullptr ? Value::Undefined("there is no next item") : *following);
  }
  if (name == "length" || name == "revindex" || name == "revindex0") {
    KVASIR_TRY(const int64_t length, Length());
    if (name == "length") return Found(Value::Int(length));
    return Found(Value::Int(length - index0_ - (name == "revindex" ? 0 : 1)));
  }
  if (name == "cycle") {
    return Found(Value::Of(std::make_shared<Method>(weak_from_this(), &LoopObject::Cycle)));
  }
  if (name == "changed") {
    return Found(Value::Of(std::make_shared<Method>(weak_from_this(), &LoopObject::Changed)));
  }
  return Found();
}

Result<Value> LoopObject::Cycle(Runtime&, const CallArguments& arguments) {
  if (arguments.positional.empty()) return TemplateError("no items for cycling given");
  return arguments.positional[static_cast<size_t>(index0_) % arguments.positional.size()];
}

Result<Value> LoopObject::Changed(Runtime& runtime, const CallArguments& arguments) {
  const auto& now = arguments.positional;
  bool same = last_changed_ && last_changed_->size() == now.size();
  for (size_t i = 0; same && i < now.size(); ++i) {
    KVASIR_TRY(same, Equal(runtime, (*last_changed_)[i], now[i]));
  }
  last_changed_ = now;
  return Value::Bool(!same);
}

Result<Value> LoopObject::Call(Runtime&, const CallArguments& arguments) {
  if (!recurse_) {
    return TemplateError("the loop must have the 'recursive' marker to be called recursively");
  }
  KVASIR_TRY(const BoundArguments bound, BoundArguments::Bind("loop", arguments, {"iterable"}, 1));
  const Recurse recurse = recurse_;
  return recurse(*bound.Get(0));
}

void LoopObject::Clear() {
  items_.clear();
  ahead_.clear();
  next_ = 0;
  filter_ = nullptr;
  recurse_ = nullptr;
  current_ = Value();
  previous_ = Value();
  last_changed_.reset();
}

}  // namespace kvasir::chat
