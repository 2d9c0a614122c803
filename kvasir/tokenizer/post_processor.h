// PostProcessor: the tokens put before and after an encoded text, such as BOS.
// Deliberately not pairs of texts, nor chat formats: templates write those themselves.
#ifndef KVASIR_TOKENIZER_POST_PROCESSOR_H_
#define KVASIR_TOKENIZER_POST_PROCESSOR_H_

#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/base/token.h"

namespace kvasir {

struct PostProcessor {
  std::vector<Token> prefix;
  std::vector<Token> suffix;

  // Reads the member "post_processor" of tokenizer.json; null adds nothing. Templates are read for
  // one text ("single"). ERRORS: kCorrupt, kUnsupported, naming the field; also for ids that are no
  // token below `id_end`.
  static Result<PostProcessor> FromJson(const Json& json, int64_t id_end);
};

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_POST_PROCESSOR_H_
