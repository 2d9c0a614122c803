// Result<T> and Status: how everything the world can do to us is reported.
// Deliberately not here: programming errors. Those are KVASIR_CHECK (check.h).
#ifndef KVASIR_BASE_RESULT_H_
#define KVASIR_BASE_RESULT_H_

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {

// One value per way a caller can react. The CLI maps each to an exit code, the server to an HTTP
// status; both tables live with their users.
enum class ErrorCode {
  kInvalidArgument,     // the caller asked for something that cannot be: fix the call
  kNotFound,            // a file, tensor, key or route does not exist
  kCorrupt,             // a file or message exists and is malformed
  kUnsupported,         // well-formed, but this build cannot do it
  kResourceExhausted,   // a byte budget, queue or limit is full
  kFailedPrecondition,  // the object's state does not allow it (e.g. a trim past a window)
  kIo,                  // the operating system refused
  kCancelled,           // somebody asked us to stop
};

// "invalid argument", "not found", ...
std::string_view ErrorCodeName(ErrorCode code);

struct Error {
  ErrorCode code;
  // One sentence that names the file, tensor or field, and what to do about it.
  std::string message;
};

// Success or an Error. OK costs one null pointer.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::make_unique<Error>(std::move(error))) {}
  Status(ErrorCode code, std::string message)
      : error_(std::make_unique<Error>(Error{code, std::move(message)})) {}

  bool ok() const { return error_ == nullptr; }
  // REQUIRES: !ok().
  const Error& error() const {
    KVASIR_CHECK(error_ != nullptr);
    return *error_;
  }

 private:
  std::unique_ptr<Error> error_;
};

// A value or an Error.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}
  Result(Error error) : error_(std::make_unique<Error>(std::move(error))) {}
  // Lets `return status.error();` and TRY forward failures of other types.
  Result(ErrorCode code, std::string message)
      : error_(std::make_unique<Error>(Error{code, std::move(message)})) {}

  bool ok() const { return value_.has_value(); }
  // REQUIRES: ok().
  T& value() & {
    KVASIR_CHECK(ok());
    return *value_;
  }
  const T& value() const& {
    KVASIR_CHECK(ok());
    return *value_;
  }
  T&& value() && {
    KVASIR_CHECK(ok());
    return *std::move(value_);
  }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  const T& operator*() const& { return value(); }
  // REQUIRES: !ok().
  const Error& error() const {
    KVASIR_CHECK(error_ != nullptr);
    return *error_;
  }
  Status status() const { return ok() ? Status() : Status(*error_); }

 private:
  std::optional<T> value_;
  std::unique_ptr<Error> error_;
};

// The same error with "context: " before its message: callers add the file, then the tensor, ...
Error WithContext(const Error& error, std::string_view context);

#define KVASIR_CONCAT_INNER(a, b) a##b
#define KVASIR_CONCAT(a, b) KVASIR_CONCAT_INNER(a, b)

// KVASIR_TRY(auto x, Compute());  declares x, or returns Compute()'s error from this function.
#define KVASIR_TRY(declaration, expression) \
  KVASIR_TRY_IMPL(KVASIR_CONCAT(kvasir_try_, __LINE__), declaration, expression)
#define KVASIR_TRY_IMPL(temporary, declaration, expression) \
  auto temporary = (expression);                            \
  if (!temporary.ok()) return temporary.error();            \
  declaration = std::move(temporary).value()

// KVASIR_TRY_OK(DoIt());  returns DoIt()'s error from this function.
#define KVASIR_TRY_OK(expression)                          \
  do {                                                     \
    auto&& kvasir_status = (expression);                   \
    if (!kvasir_status.ok()) return kvasir_status.error(); \
  } while (false)

}  // namespace kvasir

#endif  // KVASIR_BASE_RESULT_H_
