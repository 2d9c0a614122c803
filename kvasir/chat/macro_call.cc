// Binding the arguments of a macro call (jinja2/runtime.py, Macro.__call__) and running it.
// Deliberately lenient like the reference: an argument that is missing is Undefined.
#include <algorithm>
#include <utility>

#include "kvasir/chat/interpreter.h"

namespace kvasir::chat {
namespace {

Result<Value> DefaultOf(const MacroSpec& macro, size_t index, const Value& evaluated) {
  const size_t first_default = macro.parameters.size() - macro.defaults.size();
  if (index >= first_default) return evaluated;
  return Value::Undefined("parameter '" + macro.parameters[index] + "' was not provided");
}

// Puts what the signature does not name into varargs, kwargs and caller.
Status BindSurplus(Runtime& runtime, const MacroSpec& macro, const CallArguments& arguments,
                   std::vector<bool> used, Scope* scope) {
  const auto& names = macro.parameters;
  const bool has_caller_parameter = std::find(names.begin(), names.end(), "caller") != names.end();
  Dict kwargs;
  Value caller = Value::Undefined("No caller defined");
  for (size_t i = 0; i < arguments.named.size(); ++i) {
    const auto& [name, value] = arguments.named[i];
    if (used[i]) continue;
    if (name == "caller" && macro.uses_caller && !has_caller_parameter) {
      caller = value;
    } else if (macro.uses_kwargs) {
      kwargs.Set(runtime.String(name, Origin::kTemplate), value);
    } else {
      return TemplateError("macro '" + macro.name + "' takes no keyword argument '" + name + "'");
    }
  }
  if (macro.uses_caller && !has_caller_parameter) scope->Set("caller", caller);
  if (macro.uses_kwargs) scope->Set("kwargs", runtime.DictValue(std::move(kwargs)));
  const auto& positional = arguments.positional;
  if (macro.uses_varargs) {
    const size_t taken = std::min(names.size(), positional.size());
    scope->Set("varargs",
               runtime.Tuple(std::vector<Value>(
                   positional.begin() + static_cast<std::ptrdiff_t>(taken), positional.end())));
  } else if (positional.size() > names.size()) {
    return TemplateError("macro '" + macro.name + "' takes not more than " +
                         std::to_string(names.size()) + " argument(s)");
  }
  return Status();
}

}  // namespace

Result<Value> Interpreter::CallMacro(const MacroSpec& macro, const ScopePtr& closure,
                                     const CallArguments& arguments) {
  const Depth depth(this);
  KVASIR_TRY_OK(Enter(line_));
  // The object that holds the closure may go away while its macro runs.
  const ScopePtr parent = closure;
  const ScopePtr scope = std::make_shared<Scope>(parent);
  const auto& names = macro.parameters;
  const size_t first_default = names.size() - macro.defaults.size();
  std::vector<bool> used(arguments.named.size(), false);
  for (size_t i = 0; i < names.size(); ++i) {
    if (i < arguments.positional.size()) {
      scope->Set(names[i], arguments.positional[i]);
      continue;
    }
    const auto given =
        std::find_if(arguments.named.begin(), arguments.named.end(),
                     [&](const auto& argument) { return argument.first == names[i]; });
    if (given != arguments.named.end()) {
      used[static_cast<size_t>(given - arguments.named.begin())] = true;
      scope->Set(names[i], given->second);
      continue;
    }
    Value value;
    if (i >= first_default) {
      KVASIR_TRY(value, Eval(*macro.defaults[i - first_default], scope));
    }
    KVASIR_TRY(value, DefaultOf(macro, i, value));
    scope->Set(names[i], std::move(value));
  }
  KVASIR_TRY_OK(BindSurplus(*this, macro, arguments, std::move(used), scope.get()));
  Capture capture(this);
  KVASIR_TRY_OK(ExecBody(macro.body, scope).status());
  return capture.TakeValue();
}

}  // namespace kvasir::chat
