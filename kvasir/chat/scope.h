// Scope: the variables of one block, with the blocks around it.
// Deliberately looked up by name: templates have a handful of variables per scope.
#ifndef KVASIR_CHAT_SCOPE_H_
#define KVASIR_CHAT_SCOPE_H_

#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "kvasir/chat/value.h"

namespace kvasir::chat {

class Scope;
using ScopePtr = std::shared_ptr<Scope>;

class Scope {
 public:
  explicit Scope(ScopePtr parent) : parent_(std::move(parent)) {}

  // REQUIRES: the characters of `name` outlive the scope (they are the template's).
  void Set(std::string_view name, Value value) {
    for (auto& [key, old] : variables_) {
      if (key == name) {
        old = std::move(value);
        return;
      }
    }
    variables_.emplace_back(name, std::move(value));
  }

  // The value here or in the nearest scope around, or nullptr.
  const Value* Find(std::string_view name) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent_.get()) {
      for (const auto& [key, value] : scope->variables_) {
        if (key == name) return &value;
      }
    }
    return nullptr;
  }

  // Forgets all variables, so that macros that refer to the scope they live in can be freed.
  void Clear() { variables_.clear(); }

 private:
  std::vector<std::pair<std::string_view, Value>> variables_;
  ScopePtr parent_;
};

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_SCOPE_H_
