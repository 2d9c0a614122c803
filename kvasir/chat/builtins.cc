// Global functions.
// Deliberately without a clock of their own: the time is handed in.
#include "kvasir/chat/builtins.h"

#include <functional>
#include <utility>

#include "kvasir/chat/namespace_object.h"
#include "kvasir/chat/python_ops.h"

namespace kvasir::chat {
namespace {

class Function : public Object {
 public:
  using Body = std::function<Result<Value>(Runtime&, const CallArguments&)>;
  Function(std::string name, Body body) : name_(std::move(name)), body_(std::move(body)) {}

  std::string_view type_name() const override { return "function"; }
  bool callable() const override { return true; }
  std::string Repr() const override { return "<function " + name_ + ">"; }
  Result<Value> Call(Runtime& runtime, const CallArguments& arguments) override {
    return body_(runtime, arguments);
  }

 private:
  std::string name_;
  Body body_;
};

class Cycler : public Object, public std::enable_shared_from_this<Cycler> {
 public:
  explicit Cycler(std::vector<Value> items) : items_(std::move(items)) {}

  std::string_view type_name() const override { return "Cycler"; }
  Result<std::optional<Value>> GetAttribute(Runtime&, std::string_view name) override {
    if (name == "current") return std::optional<Value>(items_.empty() ? Value() : items_[at_]);
    if (name != "next" && name != "reset") return std::optional<Value>();
    const bool advances = name == "next";
    return std::optional<Value>(Value::Of(std::make_shared<Function>(
        std::string(name),
        [cycler = weak_from_this(), advances](Runtime&, const CallArguments&) -> Result<Value> {
          const auto self = cycler.lock();
          if (self == nullptr || self->items_.empty()) return Value::None();
          if (!advances) {
            self->at_ = 0;
            return Value::None();
          }
          const Value item = self->items_[self->at_];
          self->at_ = (self->at_ + 1) % self->items_.size();
          return item;
        })));
  }
  void Clear() override { items_.clear(); }

 private:
  std::vector<Value> items_;
  size_t at_ = 0;
};

class Joiner : public Object {
 public:
  explicit Joiner(Value separator) : separator_(std::move(separator)) {}

  std::string_view type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  Result<Value> Call(Runtime& runtime, const CallArguments&) override {
    return std::exchange(used_, true) ? separator_ : runtime.String(Text());
  }
  void Clear() override { separator_ = Value(); }

 private:
  Value separator_;
  bool used_ = false;
};

Result<Value> Range(Runtime& runtime, const CallArguments& arguments) {
  if (!arguments.named.empty()) return TemplateError("range() takes no keyword arguments");
  const auto& given = arguments.positional;
  if (given.empty() || given.size() > 3) return TemplateError("range() wants 1 to 3 arguments");
  for (const Value& bound : given) {
    if (bound.is_undefined()) return TemplateError(bound.undefined_message());
    if (!bound.is_integral()) {
      return TemplateError("'" + std::string(TypeName(bound)) +
                           "' object cannot be interpreted as an integer");
    }
  }
  const int64_t start = given.size() > 1 ? given[0].as_integral() : 0;
  const int64_t stop = given[given.size() > 1 ? 1 : 0].as_integral();
  const int64_t step = given.size() > 2 ? given[2].as_integral() : 1;
  if (step == 0) return TemplateError("range() arg 3 must not be zero");
  // In 128 bits nothing below overflows.
  const __int128 distance =
      step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
  const __int128 stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  const __int128 count = distance <= 0 ? 0 : (distance - 1) / stride + 1;
  const int64_t limit = runtime.limits().max_range;
  if (count > limit) {
    return Error{ErrorCode::kResourceExhausted,
                 "range() is limited to " + std::to_string(limit) + " items"};
  }
  KVASIR_TRY_OK(runtime.Step(static_cast<int64_t>(count) / 8));
  std::vector<Value> items;
  items.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) {
    items.push_back(Value::Int(start + i * step));
  }
  return runtime.Make(SequenceKind::kRange, std::move(items));
}

// dict(mapping or pairs, **named), into `set(key, value)`.
template <typename Set>
Status FillDict(Runtime& runtime, const CallArguments& arguments, const Set& set) {
  if (arguments.positional.size() > 1) return TemplateError("dict() takes one argument at most");
  for (const Value& source : arguments.positional) {
    if (source.is_dict()) {
      for (const auto& [key, value] : source.dict().entries()) set(key, value);
      continue;
    }
    KVASIR_TRY(const auto pairs, Iterate(runtime, source));
    for (const Value& pair : pairs) {
      KVASIR_TRY(const auto parts, Iterate(runtime, pair));
      if (parts.size() != 2 || !Dict::IsHashable(parts[0])) {
        return TemplateError("dict() wants pairs of a key and a value");
      }
      KVASIR_TRY_OK(runtime.Step());
      set(parts[0], parts[1]);
    }
  }
  for (const auto& [name, value] : arguments.named) {
    set(runtime.String(name, Origin::kTemplate), value);
  }
  return Status();
}

Result<Value> MakeDict(Runtime& runtime, const CallArguments& arguments) {
  Dict dict;
  KVASIR_TRY_OK(FillDict(runtime, arguments,
                         [&](const Value& key, const Value& value) { dict.Set(key, value); }));
  return runtime.DictValue(std::move(dict));
}

Result<Value> MakeNamespace(Runtime& runtime, const CallArguments& arguments) {
  const auto space = std::make_shared<NamespaceObject>();
  KVASIR_TRY_OK(FillDict(runtime, arguments, [&](const Value& key, const Value& value) {
    if (key.is_string() && space->Set(key.bytes(), value)) runtime.Charge(128);  // a hash node
  }));
  return runtime.Adopt(space);
}

Result<Value> MakeCycler(Runtime& runtime, const CallArguments& arguments) {
  if (arguments.positional.empty()) {
    return TemplateError("cycler() wants at least one item");
  }
  return runtime.Adopt(std::make_shared<Cycler>(arguments.positional));
}

Result<Value> MakeJoiner(Runtime& runtime, const CallArguments& arguments) {
  KVASIR_TRY(const BoundArguments bound, BoundArguments::Bind("joiner", arguments, {"sep"}, 0));
  Value separator =
      bound.Get(0) == nullptr ? runtime.String(", ", Origin::kTemplate) : *bound.Get(0);
  return runtime.Adopt(std::make_shared<Joiner>(std::move(separator)));
}

Result<Value> RaiseException(Runtime& runtime, const CallArguments& arguments) {
  KVASIR_TRY(const BoundArguments bound,
             BoundArguments::Bind("raise_exception", arguments, {"message"}, 1));
  KVASIR_TRY(const Text message, Str(runtime, *bound.Get(0)));
  return TemplateError("the template refuses this conversation: " + message.bytes());
}

Result<Value> StrftimeNow(Runtime& runtime, const CallArguments& arguments,
                          std::optional<int64_t> local_seconds) {
  KVASIR_TRY(const BoundArguments bound,
             BoundArguments::Bind("strftime_now", arguments, {"format"}, 1));
  KVASIR_TRY(const Text format, bound.TextOr(0, Text()));
  if (!local_seconds) {
    return Error{ErrorCode::kFailedPrecondition,
                 "the template asks for the time (strftime_now) and none was given; set "
                 "RenderOptions::local_seconds"};
  }
  KVASIR_TRY(const std::string text, FormatTime(format.bytes(), *local_seconds));
  return runtime.String(text, format.origin());
}

}  // namespace

void DefineBuiltins(Interpreter* interpreter, std::optional<int64_t> local_seconds) {
  const auto define = [&](const char* name, Function::Body body) {
    interpreter->Define(name, Value::Of(std::make_shared<Function>(name, std::move(body))));
  };
  define("range", Range);
  define("dict", MakeDict);
  define("namespace", MakeNamespace);
  define("cycler", MakeCycler);
  define("joiner", MakeJoiner);
  define("raise_exception", RaiseException);
  define("strftime_now", [local_seconds](Runtime& runtime, const CallArguments& arguments) {
    return StrftimeNow(runtime, arguments, local_seconds);
  });
}

}  // namespace kvasir::chat
