// The arguments of one call, and their binding to a signature as Python does it.
// Deliberately not a type system: each callee converts what it takes.
#ifndef KVASIR_CHAT_ARGUMENTS_H_
#define KVASIR_CHAT_ARGUMENTS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/chat/value.h"

namespace kvasir::chat {

struct CallArguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;

  // The named argument, or nullptr.
  const Value* Find(std::string_view name) const;
};

class BoundArguments {
 public:
  // Binds to `parameters`, of which the first `required` must be given.
  // ERRORS: kInvalidArgument for missing, surplus, unknown and doubled arguments; names `callee`.
  // REQUIRES: `arguments` outlives the result.
  static Result<BoundArguments> Bind(std::string_view callee, const CallArguments& arguments,
                                     std::vector<std::string_view> parameters, size_t required);

  // The argument, or nullptr when it was not given.
  const Value* Get(size_t index) const { return values_[index]; }
  // As Get, but None counts as not given.
  const Value* GetSome(size_t index) const;
  bool TruthOr(size_t index, bool otherwise) const;
  // ERRORS: kInvalidArgument when given and of another type.
  Result<int64_t> IntOr(size_t index, int64_t otherwise) const;
  Result<Text> TextOr(size_t index, const Text& otherwise) const;

 private:
  Error TypeError(size_t index, std::string_view wanted) const;

  std::string callee_;
  std::vector<std::string_view> parameters_;
  std::vector<const Value*> values_;
};

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_ARGUMENTS_H_
