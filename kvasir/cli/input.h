// What verbs read as text: files, pipes and standard input.
// Deliberately no line editing: that is chat.
#ifndef KVASIR_CLI_INPUT_H_
#define KVASIR_CLI_INPUT_H_

#include <cstddef>
#include <string>

#include "kvasir/base/file.h"
#include "kvasir/base/result.h"

namespace kvasir {

// The whole text of what `path` names, which may be a pipe; "-" is standard input.
// ERRORS: as ReadFile.
Result<std::string> ReadText(const std::string& path, size_t most_bytes = kMostFileBytes);

}  // namespace kvasir

#endif  // KVASIR_CLI_INPUT_H_
