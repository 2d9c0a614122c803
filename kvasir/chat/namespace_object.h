// NamespaceObject: namespace(), the one container whose content a template may change.
// Deliberately not printable in full: it can hold itself.
#ifndef KVASIR_CHAT_NAMESPACE_OBJECT_H_
#define KVASIR_CHAT_NAMESPACE_OBJECT_H_

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "kvasir/chat/object.h"
#include "kvasir/chat/runtime.h"

namespace kvasir::chat {

class NamespaceObject : public Object {
 public:
  // Whether the attribute is new.
  bool Set(const std::string& name, Value value) {
    return attributes_.insert_or_assign(name, std::move(value)).second;
  }

  std::string_view type_name() const override { return "Namespace"; }
  std::string Repr() const override { return "<Namespace>"; }
  Result<std::optional<Value>> GetAttribute(Runtime&, std::string_view name) override {
    const auto found = attributes_.find(std::string(name));
    if (found == attributes_.end()) return std::optional<Value>();
    return std::optional<Value>(found->second);
  }
  void Clear() override { attributes_.clear(); }

 private:
  std::unordered_map<std::string, Value> attributes_;
};

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_NAMESPACE_OBJECT_H_
