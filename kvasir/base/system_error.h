// What the operating system refused, as an error of ours.
#ifndef KVASIR_BASE_SYSTEM_ERROR_H_
#define KVASIR_BASE_SYSTEM_ERROR_H_

#include <string>
#include <system_error>

#include "kvasir/base/result.h"

namespace kvasir {

// "PATH: cannot ACTION: what errno says"; kNotFound where nothing bears the name, else kIo.
Error SystemError(const std::string& path, const char* action);

// Fine where `error` is none; else "PATH: what it says", kIo.
Status SystemStatus(const std::string& path, const std::error_code& error);

}  // namespace kvasir

#endif  // KVASIR_BASE_SYSTEM_ERROR_H_
