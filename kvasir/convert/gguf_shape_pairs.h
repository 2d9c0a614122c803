// What config.json says about a model's shape, as the metadata of a GGUF file.
// Deliberately without tensors: rope's divisors and experts are write_gguf.cc's business.
#ifndef KVASIR_CONVERT_GGUF_SHAPE_PAIRS_H_
#define KVASIR_CONVERT_GGUF_SHAPE_PAIRS_H_

#include "kvasir/base/result.h"
#include "kvasir/formats/gguf_writer.h"
#include "kvasir/formats/model_config.h"

namespace kvasir {

// ERRORS: kUnsupported for what has no key, naming the field.
Status AddGgufShape(const ModelConfig& config, GgufPairs* pairs);

}  // namespace kvasir

#endif  // KVASIR_CONVERT_GGUF_SHAPE_PAIRS_H_
