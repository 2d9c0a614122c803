// Methods of lists, tuples, ranges, dicts and numbers, and the binding of any method to its object.
// Deliberately no methods of generators and views: they can only be iterated.
#include <cmath>
#include <string>
#include <utility>

#include "kvasir/chat/methods.h"
#include "kvasir/chat/python_ops.h"

namespace kvasir::chat {
namespace {

using Bound = BoundArguments;

Result<Value> ListCount(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("count", arguments, {"value"}, 1));
  int64_t count = 0;
  for (const Value& item : self.sequence().items) {
    KVASIR_TRY(const bool equal, Equal(runtime, item, *bound.Get(0)));
    count += equal ? 1 : 0;
  }
  return Value::Int(count);
}

Result<Value> ListIndex(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("index", arguments, {"value", "start", "stop"}, 1));
  const auto& items = self.sequence().items;
  const auto size = static_cast<int64_t>(items.size());
  KVASIR_TRY(int64_t start, bound.IntOr(1, 0));
  KVASIR_TRY(int64_t stop, bound.IntOr(2, size));
  if (start < 0) start = start < -size ? 0 : start + size;
  if (stop < 0) stop = stop < -size ? 0 : stop + size;
  for (int64_t i = start; i < std::min(stop, size); ++i) {
    KVASIR_TRY(const bool equal, Equal(runtime, items[static_cast<size_t>(i)], *bound.Get(0)));
    if (equal) return Value::Int(i);
  }
  KVASIR_TRY(const std::string shown, Repr(runtime, *bound.Get(0)));
  return TemplateError(shown + " is not in " + std::string(TypeName(self)));
}

Result<Value> CopyOf(Runtime&, const Value& self, const CallArguments& arguments) {
  KVASIR_TRY_OK(Bound::Bind("copy", arguments, {}, 0).status());
  return self;  // nothing can change either of the two
}

Result<Value> DictGet(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  KVASIR_TRY(const Bound bound, Bound::Bind("get", arguments, {"key", "default"}, 1));
  if (!Dict::IsHashable(*bound.Get(0)) && !bound.Get(0)->is_undefined()) {
    return TemplateError("unhashable type: '" + std::string(TypeName(*bound.Get(0))) + "'");
  }
  const Value& key = *bound.Get(0);
  KVASIR_TRY_OK(runtime.StepBytes(key.is_string() ? key.bytes().size() : 0));
  const Value* value = self.dict().Find(key);
  if (value != nullptr) return *value;
  return bound.Get(1) == nullptr ? Value::None() : *bound.Get(1);
}

template <SequenceKind kView>
Result<Value> DictView(Runtime& runtime, const Value& self, const CallArguments& arguments) {
  KVASIR_TRY_OK(Bound::Bind("dict view", arguments, {}, 0).status());
  std::vector<Value> items;
  items.reserve(self.dict().size());
  for (const auto& [key, value] : self.dict().entries()) {
    if (kView == SequenceKind::kItemsView) {
      items.push_back(runtime.Tuple({key, value}));
    } else {
      items.push_back(kView == SequenceKind::kKeysView ? key : value);
    }
  }
  KVASIR_TRY_OK(runtime.Step(static_cast<int64_t>(items.size())));
  return runtime.Make(kView, std::move(items));
}

Result<Value> FloatIsInteger(Runtime&, const Value& self, const CallArguments&) {
  return Value::Bool(std::floor(self.as_double()) == self.as_double());
}

Result<Value> IntBitLength(Runtime&, const Value& self, const CallArguments&) {
  const int64_t value = self.as_integral();
  uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  int64_t bits = 0;
  for (; magnitude != 0; magnitude >>= 1) ++bits;
  return Value::Int(bits);
}

class BoundMethod : public Object {
 public:
  BoundMethod(Value self, std::string_view name) : self_(std::move(self)), name_(name) {}

  std::string_view type_name() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  std::string Repr() const override {
    return "<built-in method " + name_ + " of " + std::string(TypeName(self_)) + " object>";
  }
  int depth() const override { return 1 + self_.depth(); }
  Result<Value> Call(Runtime& runtime, const CallArguments& arguments) override {
    if (self_.is_string()) {
      KVASIR_TRY_OK(runtime.StepBytes(self_.bytes().size()));
      return FindStringMethod(name_)(runtime, self_.text(), arguments);
    }
    return FindValueMethod(self_, name_)(runtime, self_, arguments);
  }

 private:
  Value self_;
  std::string name_;
};

}  // namespace

ValueMethod FindValueMethod(const Value& self, std::string_view name) {
  if (self.is_dict()) {
    if (name == "get") return DictGet;
    if (name == "items") return DictView<SequenceKind::kItemsView>;
    if (name == "keys") return DictView<SequenceKind::kKeysView>;
    if (name == "values") return DictView<SequenceKind::kValuesView>;
    if (name == "copy") return CopyOf;
  } else if (self.is_sequence() && self.sequence().indexable()) {
    if (name == "count") return ListCount;
    if (name == "index") return ListIndex;
    if (name == "copy" && self.sequence().kind == SequenceKind::kList) return CopyOf;
  } else if (self.is_float()) {
    if (name == "is_integer") return FloatIsInteger;
  } else if (self.is_integral()) {
    if (name == "bit_length") return IntBitLength;
  }
  return nullptr;
}

bool HasMethod(const Value& self, std::string_view name) {
  if (self.is_string()) return FindStringMethod(name) != nullptr;
  return FindValueMethod(self, name) != nullptr;
}

Value BindMethod(const Value& self, std::string_view name) {
  return Value::Of(std::make_shared<BoundMethod>(self, name));
}

}  // namespace kvasir::chat
