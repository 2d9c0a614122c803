// NamespaceObject: namespace(), the one container whose content a template may change.
// Deliberately not printable in full: it can hold itself.
#ifndef KVASIR_CHAT_NAMESPACE_OBJECT_H_
#define KVASIR_CHAT_NAMESPACE_OBJECT_H_

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvasir/chat/object.h"
#include "kvasir/chat/runtime.h"

namespace kvasir::chat {

class NamespaceObject : public Object {
 public:
  void Set(std::string_view name, Value value) {
    for (auto& [key, old] : attributes_) {
      if (key == name) {
        old = std::move(value);
        return;
      }
    }
    attributes_.emplace_back(name, std::move(value));
  }

  std::string_view type_name() const override { return "Namespace"; }
  std::string Repr() const override { return "<Namespace>"; }
  Result<std::optional<Value>> GetAttribute(Runtime&, std::string_view name) override {
    for (const auto& [key, value] : attributes_) {
      if (key == name) return std::optional<Value>(value);
    }
    return std::optional<Value>();
  }
  void Clear() override { attributes_.clear(); }

 private:
  std::vector<std::pair<std::string, Value>> attributes_;
};

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_NAMESPACE_OBJECT_H_
