// MacroObject: a macro, or the body of a call block, with the scope it was defined in.
// Deliberately no arguments logic: the interpreter binds them.
#ifndef KVASIR_CHAT_MACRO_OBJECT_H_
#define KVASIR_CHAT_MACRO_OBJECT_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "kvasir/chat/interpreter.h"

namespace kvasir::chat {

class MacroObject : public Object {
 public:
  // REQUIRES: both pointers outlive the object.
  MacroObject(Interpreter* interpreter, const MacroSpec* macro, ScopePtr closure)
      : interpreter_(interpreter), macro_(macro), closure_(std::move(closure)) {}

  std::string_view type_name() const override { return "Macro"; }
  bool callable() const override { return true; }
  std::string Repr() const override { return "<Macro '" + macro_->name + "'>"; }
  Result<std::optional<Value>> GetAttribute(Runtime& runtime, std::string_view name) override {
    if (name != "name") return std::optional<Value>();
    return std::optional<Value>(runtime.String(macro_->name, Origin::kTemplate));
  }
  Result<Value> Call(Runtime&, const CallArguments& arguments) override {
    return interpreter_->CallMacro(*macro_, closure_, arguments);
  }
  void Clear() override {
    // The scope may hold this very macro: empty it first, or both would wait for each other.
    if (closure_ != nullptr) closure_->Clear();
    closure_ = nullptr;
  }

 private:
  Interpreter* interpreter_;
  const MacroSpec* macro_;
  ScopePtr closure_;
};

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_MACRO_OBJECT_H_
