// Object: everything a template can hold that has state or can be called: namespaces, macros,
// built-in functions, bound methods, loops.
// Deliberately narrow: attributes, a call, a printed form; operators on objects are errors.
#ifndef KVASIR_CHAT_OBJECT_H_
#define KVASIR_CHAT_OBJECT_H_

#include <optional>
#include <string>
#include <string_view>

#include "kvasir/base/result.h"
#include "kvasir/chat/arguments.h"
#include "kvasir/chat/value.h"

namespace kvasir::chat {

class Runtime;

class Object {
 public:
  virtual ~Object() = default;

  virtual std::string_view type_name() const = 0;
  virtual bool callable() const { return false; }
  // What Python's repr() shows; addresses are left out.
  virtual std::string Repr() const { return "<" + std::string(type_name()) + " object>"; }
  // nullopt: no such attribute.
  virtual Result<std::optional<Value>> GetAttribute(Runtime&, std::string_view) {
    return std::optional<Value>();
  }
  // REQUIRES: callable().
  virtual Result<Value> Call(Runtime&, const CallArguments&) {
    return Error{ErrorCode::kInvalidArgument,
                 "'" + std::string(type_name()) + "' object is not callable"};
  }
  // Levels of containers inside, for objects that nobody Clear()s.
  virtual int depth() const { return 0; }
  // Drops everything the object holds, so that objects that refer to each other can be freed.
  virtual void Clear() {}
};

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_OBJECT_H_
