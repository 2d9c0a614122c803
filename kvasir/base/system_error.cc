#include "kvasir/base/system_error.h"

#include <cerrno>
#include <cstring>

namespace kvasir {

Error SystemError(const std::string& path, const char* action) {
  const int code = errno;
  return {code == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
          path + ": cannot " + action + ": " + std::strerror(code)};
}

Status SystemStatus(const std::string& path, const std::error_code& error) {
  return error ? Status(ErrorCode::kIo, path + ": " + error.message()) : Status();
}

}  // namespace kvasir
