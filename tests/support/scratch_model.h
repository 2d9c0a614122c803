// Model folders for tests and benchmarks: somebody's config.json beside a tokenizer made up here.
// Deliberately no merges: texts are read byte by byte; prompts of token ids need no more.
#ifndef KVASIR_TESTS_SUPPORT_SCRATCH_MODEL_H_
#define KVASIR_TESTS_SUPPORT_SCRATCH_MODEL_H_

#include <cstdint>
#include <string>

#include "kvasir/base/result.h"

namespace kvasir {

// The contents of a tokenizer.json: all bytes, then as many made-up words as make `vocab_size`.
std::string BytesTokenizer(int64_t vocab_size = 256);

// Writes tokenizer.json, tokenizer_config.json and chat_template.jinja into a folder that exists;
// the template writes "<role>content\n" per message and "<assistant>" at the end. ERRORS: kIo.
Status WriteScratchTokenizer(const std::string& folder, int64_t vocab_size = 256);

}  // namespace kvasir

#endif  // KVASIR_TESTS_SUPPORT_SCRATCH_MODEL_H_
