// What llama.cpp makes of a GGUF file otherwise than Kvasir, for people: the format has keys and
// tensors that not every reader of an architecture looks at.
// Deliberately only of what this build writes: files of others are as they are.
#ifndef KVASIR_CONVERT_GGUF_READER_NOTES_H_
#define KVASIR_CONVERT_GGUF_READER_NOTES_H_

#include <string>
#include <vector>

#include "kvasir/formats/model_config.h"

namespace kvasir {

// One line each, without a newline; of published models there are none. Found by writing files of
// such models and reading them with llama.cpp (November 2026).
std::vector<std::string> GgufReaderNotes(const ModelConfig& config);

}  // namespace kvasir

#endif  // KVASIR_CONVERT_GGUF_READER_NOTES_H_
