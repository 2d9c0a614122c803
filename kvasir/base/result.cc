#include "kvasir/base/result.h"

namespace kvasir {

std::string_view ErrorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return "invalid argument";
    case ErrorCode::kNotFound:
      return "not found";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kResourceExhausted:
      return "resource exhausted";
    case ErrorCode::kFailedPrecondition:
      return "failed precondition";
    case ErrorCode::kIo:
      return "input/output error";
    case ErrorCode::kCancelled:
      return "cancelled";
  }
  return "unknown error";
}

Error WithContext(const Error& error, std::string_view context) {
  return Error{error.code, std::string(context) + ": " + error.message};
}

}  // namespace kvasir
