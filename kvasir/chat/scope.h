// Scope: the variables of one block, with the blocks around it.
// Deliberately looked up by name: templates have a handful of variables per scope.
#ifndef KVASIR_CHAT_SCOPE_H_
#define KVASIR_CHAT_SCOPE_H_

#include <cstdint>
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

  // The number of variables of this scope alone.
  size_t size() const { return variables_.size(); }
  // A macro keeps this scope: it lives until the end of the rendering.
  void MarkKept() { is_kept_ = true; }
  bool is_kept() const { return is_kept_; }

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
  // *visited grows by the variables that were compared: what the look-up costs.
  const Value* Find(std::string_view name, int64_t* visited) const {
    for (const Scope* scope = this; scope != nullptr; scope = scope->parent_.get()) {
      *visited += static_cast<int64_t>(scope->variables_.size());
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
  bool is_kept_ = false;
};

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_SCOPE_H_
