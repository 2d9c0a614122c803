// Normalizer: what happens to text before it is cut into words.
// Deliberately not here: added tokens, which are found before and after it.
#ifndef KVASIR_TOKENIZER_NORMALIZER_H_
#define KVASIR_TOKENIZER_NORMALIZER_H_

#include <memory>
#include <string_view>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/tokenizer/traced_text.h"

namespace kvasir {

// Immutable and thread-safe.
class Normalizer {
 public:
  virtual ~Normalizer() = default;

  // Reads the member "normalizer" of tokenizer.json; null gives one that changes nothing.
  // ERRORS: kCorrupt, kUnsupported, naming the field or type.
  static Result<std::unique_ptr<const Normalizer>> FromJson(const Json& json);

  virtual void Apply(TracedText* text) const = 0;
};

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_NORMALIZER_H_
