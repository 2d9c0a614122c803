// Binding of call arguments.
// Deliberately no positional-only parameters: no built-in that templates use needs them.
#include "kvasir/chat/arguments.h"

#include <algorithm>

#include "kvasir/chat/python_ops.h"

namespace kvasir::chat {

const Value* CallArguments::Find(std::string_view name) const {
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

Result<BoundArguments> BoundArguments::Bind(std::string_view callee, const CallArguments& arguments,
                                            std::vector<std::string_view> parameters,
                                            size_t required) {
  const auto fail = [&](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, std::string(callee) + "() " + what};
  };
  BoundArguments bound;
  bound.callee_ = callee;
  bound.parameters_ = std::move(parameters);
  const auto& names = bound.parameters_;
  bound.values_.assign(names.size(), nullptr);
  if (arguments.positional.size() > names.size()) {
    return fail("takes at most " + std::to_string(names.size()) + " argument(s), " +
                std::to_string(arguments.positional.size()) + " were given");
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    bound.values_[i] = &arguments.positional[i];
  }
  for (const auto& [name, value] : arguments.named) {
    const auto found = std::find(names.begin(), names.end(), name);
    if (found == names.end()) return fail("got an unexpected keyword argument '" + name + "'");
    const auto index = static_cast<size_t>(found - names.begin());
    if (bound.values_[index] != nullptr) return fail("got two values for argument '" + name + "'");
    bound.values_[index] = &value;
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound.values_[i] == nullptr) {
      return fail("misses its argument '" + std::string(names[i]) + "'");
    }
  }
  return bound;
}

const Value* BoundArguments::GetSome(size_t index) const {
  const Value* value = values_[index];
  return value == nullptr || value->is_none() ? nullptr : value;
}

bool BoundArguments::TruthOr(size_t index, bool otherwise) const {
  return values_[index] == nullptr ? otherwise : IsTrue(*values_[index]);
}

Result<int64_t> BoundArguments::IntOr(size_t index, int64_t otherwise) const {
  if (values_[index] == nullptr) return otherwise;
  if (!values_[index]->is_integral()) return TypeError(index, "an integer");
  return values_[index]->as_integral();
}

Result<Text> BoundArguments::TextOr(size_t index, const Text& otherwise) const {
  if (values_[index] == nullptr) return otherwise;
  if (!values_[index]->is_string()) return TypeError(index, "a string");
  return values_[index]->text();
}

Error BoundArguments::TypeError(size_t index, std::string_view wanted) const {
  return {ErrorCode::kInvalidArgument, callee_ + "() wants " + std::string(wanted) + " as '" +
                                           std::string(parameters_[index]) + "', not " +
                                           std::string(TypeName(*values_[index]))};
}

}  // namespace kvasir::chat
