// Integers above 2^63 - 1: identifiers and limits of schemas, which templates only print.
// Deliberately without arithmetic: an operator is an error, never a wrong number.
#ifndef KVASIR_CHAT_LARGE_INTEGER_H_
#define KVASIR_CHAT_LARGE_INTEGER_H_

#include <cstdint>
#include <string>

#include "kvasir/chat/object.h"

namespace kvasir::chat {

class LargeInteger final : public Object {
 public:
  explicit LargeInteger(uint64_t value) : value_(value) {}

  std::string_view type_name() const override { return "int"; }
  std::string Repr() const override { return std::to_string(value_); }

 private:
  uint64_t value_;
};

// Null for every other value.
inline const LargeInteger* LargeIntegerOf(const Value& value) {
  return value.is_object() ? dynamic_cast<const LargeInteger*>(&value.object()) : nullptr;
}

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_LARGE_INTEGER_H_
