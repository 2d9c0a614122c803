// The syntax tree of a template.
// Deliberately two plain tagged structs: the set of node kinds is closed, and only the interpreter
// and the parser look inside.
#ifndef KVASIR_CHAT_AST_H_
#define KVASIR_CHAT_AST_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/chat/value.h"

namespace kvasir::chat {

struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;

// name(positional..., *star, named=..., **double_star)
struct CallSpec {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr star;         // null when absent
  ExprPtr double_star;  // null when absent
};

enum class ExprKind {
  kConstant,      // constant
  kName,          // name
  kList,          // operands
  kTuple,         // operands
  kDict,          // operands: key, value, key, value, ...
  kGetAttribute,  // operands[0].name
  kGetItem,       // operands[0][operands[1]]
  kSlice,   // operands[0][operands[1] : operands[2] : operands[3]], the last three may be null
  kCall,    // operands[0](call)
  kFilter,  // operands[0] | name(call); operands[0] null: the body of a filter block
  kTest,    // operands[0] is name(call)
  kNot,     // not operands[0]
  kNegate,
  kPlus,
  kAnd,  // operands[0] and operands[1]
  kOr,
  kConditional,  // operands[1] if operands[0] else operands[2] (null: undefined)
  kConcat,       // operands joined by ~
  kArithmetic,   // operands[0] name operands[1], name one of + - * / // % **
  kCompare,      // operands[0] operators[0] operands[1] operators[1] operands[2] ...
};

struct Expr {
  ExprKind kind = ExprKind::kConstant;
  int line = 1;
  int depth = 1;  // levels of expressions below and including this one
  std::string name;
  Value constant;
  std::vector<ExprPtr> operands;
  std::vector<std::string> operators;  // == != < <= > >= in notin
  CallSpec call;
};

// What an assignment writes to.
struct Target {
  enum class Kind { kName, kAttribute, kTuple };
  Kind kind = Kind::kName;
  int line = 1;
  std::string name;
  std::string attribute;      // kAttribute: name.attribute = ...
  std::vector<Target> items;  // kTuple
};

struct Stmt;
using Body = std::vector<std::unique_ptr<const Stmt>>;

// The signature and body of a macro or call block.
struct MacroSpec {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // of the last parameters
  Body body;
  // Whether the body mentions these: only then may surplus arguments or a caller be passed.
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
};

enum class StmtKind {
  kData,         // value.constant: text
  kPrint,        // value
  kSet,          // target = value
  kSetBlock,     // target = body, filtered by value unless null
  kIf,           // branches, else_body
  kFor,          // for target in value if condition: body, else else_body
  kMacro,        // macro
  kCallBlock,    // value is the call, macro the caller
  kFilterBlock,  // body through value
  kWith,         // targets = values, body
  kScope,        // body in a scope of its own
  kBlock,        // body in the scope of the template
  kBreak,
  kContinue,
};

struct Stmt {
  StmtKind kind = StmtKind::kData;
  int line = 1;
  Target target;
  ExprPtr value;
  ExprPtr condition;
  bool is_recursive = false;  // kFor
  std::vector<std::pair<ExprPtr, Body>> branches;
  std::vector<Target> targets;
  std::vector<ExprPtr> values;
  std::unique_ptr<const MacroSpec> macro;
  Body body;
  Body else_body;
};

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_AST_H_
