// Interpreter: runs one syntax tree once.
// Deliberately a plain tree walk: a prompt is made once per request, in well under a millisecond.
#ifndef KVASIR_CHAT_INTERPRETER_H_
#define KVASIR_CHAT_INTERPRETER_H_

#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/chat/ast.h"
#include "kvasir/chat/runtime.h"
#include "kvasir/chat/scope.h"

namespace kvasir::chat {

class LoopObject;

class Interpreter : public Runtime {
 public:
  explicit Interpreter(const ChatTemplateLimits& limits);
  ~Interpreter() override;

  // Defines a variable. REQUIRES: the characters of `name` outlive the interpreter.
  void Define(std::string_view name, Value value) { globals_->Set(name, std::move(value)); }

  // The text of the template. ERRORS: "line: message" of whatever went wrong. Call it once.
  Result<Text> Run(const Body& body);

  // For macros and loops, which call back.
  Result<Value> CallMacro(const MacroSpec& macro, const ScopePtr& closure,
                          const CallArguments& arguments);
  // What a recursive loop prints for `iterable`.
  Result<Value> CallLoop(const Stmt& loop, const ScopePtr& scope, const Value& iterable,
                         int loop_depth);
  // Whether the `if` of a for statement lets `item` pass.
  Result<bool> PassesLoopCondition(const Stmt& loop, const ScopePtr& scope, const Value& item);

  Result<Value> CallFilter(std::string_view name, const Value& input,
                           const CallArguments& arguments) override;
  Result<bool> CallTest(std::string_view name, const Value& input,
                        const CallArguments& arguments) override;

 private:
  enum class Flow { kNext, kBreak, kContinue };
  class Depth;
  class Capture;

  // ---- statements (interpreter.cc)
  Result<Flow> ExecBody(const Body& body, const ScopePtr& scope);
  Result<Flow> Exec(const Stmt& stmt, const ScopePtr& scope);
  Result<Flow> ExecIf(const Stmt& stmt, const ScopePtr& scope);
  Result<Flow> ExecScoped(const Body& body, const ScopePtr& parent);
  Status ExecFor(const Stmt& stmt, const ScopePtr& scope, const Value& iterable, int loop_depth);
  Status ExecIterations(const Stmt& stmt, const ScopePtr& scope,
                        const std::shared_ptr<LoopObject>& loop);
  Status ExecSetBlock(const Stmt& stmt, const ScopePtr& scope);
  Status ExecFilterBlock(const Stmt& stmt, const ScopePtr& scope);
  Status ExecCallBlock(const Stmt& stmt, const ScopePtr& scope);
  Status ExecWith(const Stmt& stmt, const ScopePtr& scope);
  Result<Value> CaptureBody(const Body& body, const ScopePtr& parent);
  Value MakeMacro(const MacroSpec& macro, const ScopePtr& scope);
  Status Assign(const Target& target, const Value& value, const ScopePtr& scope);
  Status Write(const Text& text);
  Status Enter(int line);

  // ---- expressions (expressions.cc)
  Result<Value> Eval(const Expr& expr, const ScopePtr& scope);
  Result<Value> EvalOperation(const Expr& expr, const ScopePtr& scope);
  Result<Value> EvalName(const Expr& expr, const ScopePtr& scope);
  Result<Value> EvalItems(const Expr& expr, const ScopePtr& scope);
  Result<Value> EvalDict(const Expr& expr, const ScopePtr& scope);
  Result<Value> EvalSlice(const Expr& expr, const ScopePtr& scope);
  Result<Value> EvalCall(const Expr& expr, const ScopePtr& scope, const Value* caller);
  Result<Value> EvalFilter(const Expr& expr, const ScopePtr& scope);
  Result<Value> EvalTest(const Expr& expr, const ScopePtr& scope);
  Result<Value> EvalLogic(const Expr& expr, const ScopePtr& scope);
  Result<Value> EvalConditional(const Expr& expr, const ScopePtr& scope);
  Result<Value> EvalConcat(const Expr& expr, const ScopePtr& scope);
  Result<Value> EvalArithmetic(const Expr& expr, const ScopePtr& scope);
  Result<Value> EvalCompare(const Expr& expr, const ScopePtr& scope);
  Result<bool> EvalComparison(const std::string& op, const Value& a, const Value& b);
  Result<CallArguments> EvalArguments(const CallSpec& call, const ScopePtr& scope);
  Status EvalStarArguments(const CallSpec& call, const ScopePtr& scope, CallArguments* arguments);

  ScopePtr globals_;
  ScopePtr root_;  // what the template sets outside of all blocks
  Text* out_ = nullptr;
  int line_ = 1;   // where we are, for messages
  int depth_ = 0;  // nested Eval and Exec
  // The body of a filter block, until the first filter takes it.
  Value filter_block_input_;
};

class Interpreter::Depth {
 public:
  explicit Depth(Interpreter* interpreter) : interpreter_(interpreter) { ++interpreter_->depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;
  ~Depth() { --interpreter_->depth_; }

 private:
  Interpreter* interpreter_;
};

// Collects output instead of printing it, until it goes out of scope.
class Interpreter::Capture {
 public:
  explicit Capture(Interpreter* interpreter)
      : interpreter_(interpreter), outer_(interpreter->out_) {
    interpreter_->out_ = &text_;
  }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  ~Capture() {
    interpreter_->out_ = outer_;
    interpreter_->Release(static_cast<int64_t>(text_.size()));
  }
  Value TakeValue() { return interpreter_->String(text_); }

 private:
  Interpreter* interpreter_;
  Text* outer_;
  Text text_;
};

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_INTERPRETER_H_
