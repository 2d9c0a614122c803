// Statements: output, assignment, branches, loops, macros.
// Deliberately recursive with a counted depth: the error comes before the stack ends.
#include "kvasir/chat/interpreter.h"

#include <utility>

#include "kvasir/chat/builtins.h"
#include "kvasir/chat/filters.h"
#include "kvasir/chat/loop_object.h"
#include "kvasir/chat/macro_object.h"
#include "kvasir/chat/namespace_object.h"
#include "kvasir/chat/python_ops.h"
#include "kvasir/chat/template_tests.h"

namespace kvasir::chat {
namespace {

// What one variable costs that is kept until the end: name, value and a hash node.
constexpr int64_t kVariableBytes = 128;

}  // namespace

Interpreter::Interpreter(const ChatTemplateLimits& limits)
    : Runtime(limits),
      globals_(std::make_shared<Scope>(nullptr)),
      root_(std::make_shared<Scope>(globals_)) {}

Interpreter::~Interpreter() {
  root_->Clear();
  globals_->Clear();
}

Result<Text> Interpreter::Run(const Body& body) {
  Text text;
  out_ = &text;
  const auto flow = ExecBody(body, root_);
  out_ = nullptr;
  if (!flow.ok()) {
    return Error{flow.error().code, std::to_string(line_) + ": " + flow.error().message};
  }
  return text;
}

Status Interpreter::Enter(int line) {
  line_ = line;
  if (depth_ > limits().max_depth) {
    return Error{ErrorCode::kResourceExhausted,
                 "more than " + std::to_string(limits().max_depth) +
                     " levels of macros and expressions; a macro may call itself without end"};
  }
  return Step();
}

Status Interpreter::Write(const Text& text) {
  KVASIR_TRY_OK(CheckStringSize(out_->size() + text.size()));
  Charge(static_cast<int64_t>(text.size()));
  out_->Append(text);
  return StepBytes(text.size());
}

Result<Interpreter::Flow> Interpreter::ExecBody(const Body& body, const ScopePtr& scope) {
  for (const auto& stmt : body) {
    KVASIR_TRY(const Flow flow, Exec(*stmt, scope));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::ExecScoped(const Body& body, const ScopePtr& parent) {
  return ExecBody(body, std::make_shared<Scope>(parent));
}

Result<Interpreter::Flow> Interpreter::Exec(const Stmt& stmt, const ScopePtr& scope) {
  const Depth depth(this);
  KVASIR_TRY_OK(Enter(stmt.line));
  Status status;
  switch (stmt.kind) {
    case StmtKind::kData:
      status = Write(stmt.value->constant.text());
      break;
    case StmtKind::kPrint: {
      KVASIR_TRY(const Value value, Eval(*stmt.value, scope));
      KVASIR_TRY(const Text text, Str(*this, value));
      status = Write(text);
      break;
    }
    case StmtKind::kSet: {
      KVASIR_TRY(const Value value, Eval(*stmt.value, scope));
      status = Assign(stmt.target, value, scope);
      break;
    }
    case StmtKind::kFor: {
      KVASIR_TRY(const Value iterable, Eval(*stmt.value, scope));
      status = ExecFor(stmt, scope, iterable, 0);
      break;
    }
    case StmtKind::kMacro:
      scope->Set(stmt.macro->name, MakeMacro(*stmt.macro, scope));
      break;
    case StmtKind::kIf:
      return ExecIf(stmt, scope);
    case StmtKind::kSetBlock:
      status = ExecSetBlock(stmt, scope);
      break;
    case StmtKind::kCallBlock:
      status = ExecCallBlock(stmt, scope);
      break;
    case StmtKind::kFilterBlock:
      status = ExecFilterBlock(stmt, scope);
      break;
    case StmtKind::kWith:
      status = ExecWith(stmt, scope);
      break;
    case StmtKind::kScope:
      return ExecScoped(stmt.body, scope);
    case StmtKind::kBlock:
      return ExecScoped(stmt.body, root_);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  if (!status.ok()) return status.error();
  return Flow::kNext;
}

Result<Interpreter::Flow> Interpreter::ExecIf(const Stmt& stmt, const ScopePtr& scope) {
  for (const auto& [condition, body] : stmt.branches) {
    KVASIR_TRY(const Value value, Eval(*condition, scope));
    if (IsTrue(value)) return ExecBody(body, scope);
  }
  return ExecBody(stmt.else_body, scope);
}

Status Interpreter::ExecFor(const Stmt& stmt, const ScopePtr& scope, const Value& iterable,
                            int loop_depth) {
  KVASIR_TRY(std::vector<Value> items, Iterate(*this, iterable));
  const auto held_bytes = static_cast<int64_t>(items.size() * sizeof(Value));
  Charge(held_bytes);
  LoopObject::Filter filter;
  if (stmt.condition != nullptr) {
    filter = [this, &stmt, scope](const Value& item) {
      return PassesLoopCondition(stmt, scope, item);
    };
  }
  LoopObject::Recurse recurse;
  if (stmt.is_recursive) {
    recurse = [this, &stmt, scope, loop_depth](const Value& inner) {
      return CallLoop(stmt, scope, inner, loop_depth + 1);
    };
  }
  const auto loop = std::make_shared<LoopObject>(std::move(items), std::move(filter),
                                                 std::move(recurse), loop_depth);
  const Status status = ExecIterations(stmt, scope, loop);
  loop->Clear();
  Release(held_bytes);
  if (!status.ok()) return status.error();
  return Status();
}

Status Interpreter::ExecIterations(const Stmt& stmt, const ScopePtr& scope,
                                   const std::shared_ptr<LoopObject>& loop) {
  bool visited = false;
  for (;;) {
    KVASIR_TRY(const bool more, loop->Advance());
    if (!more) break;
    KVASIR_TRY_OK(Step());
    const ScopePtr inner = std::make_shared<Scope>(scope);
    inner->Set("loop", Value::Of(std::shared_ptr<Object>(loop)));
    KVASIR_TRY_OK(Assign(stmt.target, loop->current(), inner));
    KVASIR_TRY(const Flow flow, ExecBody(stmt.body, inner));
    if (flow == Flow::kBreak) break;
    // As in the reference, an iteration that break or continue left early does not count for else.
    visited = visited || flow == Flow::kNext;
  }
  if (!visited) KVASIR_TRY_OK(ExecScoped(stmt.else_body, scope).status());
  return Status();
}

Result<bool> Interpreter::PassesLoopCondition(const Stmt& loop, const ScopePtr& scope,
                                              const Value& item) {
  const ScopePtr inner = std::make_shared<Scope>(scope);
  KVASIR_TRY_OK(Assign(loop.target, item, inner));
  KVASIR_TRY(const Value passes, Eval(*loop.condition, inner));
  return IsTrue(passes);
}

Result<Value> Interpreter::CallLoop(const Stmt& loop, const ScopePtr& scope, const Value& iterable,
                                    int loop_depth) {
  Capture capture(this);
  KVASIR_TRY_OK(ExecFor(loop, scope, iterable, loop_depth));
  return capture.TakeValue();
}

Result<Value> Interpreter::CaptureBody(const Body& body, const ScopePtr& parent) {
  Capture capture(this);
  KVASIR_TRY_OK(ExecScoped(body, parent).status());
  return capture.TakeValue();
}

Status Interpreter::ExecSetBlock(const Stmt& stmt, const ScopePtr& scope) {
  KVASIR_TRY(Value value, CaptureBody(stmt.body, scope));
  if (stmt.value != nullptr) {
    filter_block_input_ = std::move(value);
    KVASIR_TRY(value, Eval(*stmt.value, scope));
  }
  return Assign(stmt.target, value, scope);
}

Status Interpreter::ExecFilterBlock(const Stmt& stmt, const ScopePtr& scope) {
  KVASIR_TRY(filter_block_input_, CaptureBody(stmt.body, scope));
  KVASIR_TRY(const Value value, Eval(*stmt.value, scope));
  KVASIR_TRY(const Text text, Str(*this, value));
  return Write(text);
}

Status Interpreter::ExecCallBlock(const Stmt& stmt, const ScopePtr& scope) {
  const Value caller = MakeMacro(*stmt.macro, scope);
  KVASIR_TRY(const Value value, EvalCall(*stmt.value, scope, &caller));
  KVASIR_TRY(const Text text, Str(*this, value));
  return Write(text);
}

Status Interpreter::ExecWith(const Stmt& stmt, const ScopePtr& scope) {
  const ScopePtr inner = std::make_shared<Scope>(scope);
  for (size_t i = 0; i < stmt.targets.size(); ++i) {
    KVASIR_TRY(const Value value, Eval(*stmt.values[i], scope));
    KVASIR_TRY_OK(Assign(stmt.targets[i], value, inner));
  }
  return ExecBody(stmt.body, inner).status();
}

Value Interpreter::MakeMacro(const MacroSpec& macro, const ScopePtr& scope) {
  if (!scope->is_kept()) {
    scope->MarkKept();
    Charge(static_cast<int64_t>(scope->size()) * kVariableBytes);
  }
  return Adopt(std::make_shared<MacroObject>(this, &macro, scope));
}

Status Interpreter::Assign(const Target& target, const Value& value, const ScopePtr& scope) {
  if (target.kind == Target::Kind::kName) {
    const size_t size_before = scope->size();
    scope->Set(target.name, value);
    if (scope->is_kept() && scope->size() > size_before) Charge(kVariableBytes);
    return Step(static_cast<int64_t>(size_before / 8));
  }
  if (target.kind == Target::Kind::kAttribute) {
    int64_t visited = 0;
    const Value* holder = scope->Find(target.name, &visited);
    KVASIR_TRY_OK(Step(visited / 8));
    auto* space = holder != nullptr && holder->is_object()
                      ? dynamic_cast<NamespaceObject*>(&holder->object())
                      : nullptr;
    if (space == nullptr) {
      return TemplateError("cannot set '" + target.name + "." + target.attribute + "': '" +
                           target.name + "' is no namespace");
    }
    if (space->Set(target.attribute, value)) Charge(kVariableBytes);
    return Status();
  }
  KVASIR_TRY(const auto items, Iterate(*this, value));
  if (items.size() != target.items.size()) {
    return TemplateError("cannot unpack " + std::to_string(items.size()) + " value(s) into " +
                         std::to_string(target.items.size()) + " variables");
  }
  for (size_t i = 0; i < items.size(); ++i) {
    KVASIR_TRY_OK(Assign(target.items[i], items[i], scope));
  }
  return Status();
}

Result<Value> Interpreter::CallFilter(std::string_view name, const Value& input,
                                      const CallArguments& arguments) {
  const FilterFunction filter = FindFilter(name);
  if (filter == nullptr) {
    return TemplateError("there is no filter named '" + std::string(name) + "'");
  }
  KVASIR_TRY_OK(StepBytes(input.is_string() ? input.bytes().size() : 0));
  return filter(*this, input, arguments);
}

Result<bool> Interpreter::CallTest(std::string_view name, const Value& input,
                                   const CallArguments& arguments) {
  const TestFunction test = FindTest(name);
  if (test == nullptr) {
    return TemplateError("there is no test named '" + std::string(name) + "'");
  }
  KVASIR_TRY_OK(Step());
  return test(*this, input, arguments);
}

}  // namespace kvasir::chat
