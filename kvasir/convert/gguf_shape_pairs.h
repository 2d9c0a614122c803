// What config.json says about a model's shape, as the metadata of a GGUF file.
// Deliberately without tensors: rope's divisors and experts are write_gguf.cc's business.
#ifndef KVASIR_CONVERT_GGUF_SHAPE_PAIRS_H_
#define KVASIR_CONVERT_GGUF_SHAPE_PAIRS_H_

#include <cstdint>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/formats/gguf_writer.h"
#include "kvasir/formats/model_config.h"

namespace kvasir {

// What a ModelConfig does not say.
struct GgufShapeExtras {
  // Of a head's rotated pairs, how many turn by each of a picture's coordinates; empty: not known.
  std::vector<int32_t> rope_sections;
  int draft_layers = 0;  // that follow the layers (MtpHead)
};

// ERRORS: kUnsupported for what has no key, naming the field.
Status AddGgufShape(const ModelConfig& config, const GgufShapeExtras& extras, GgufPairs* pairs);

}  // namespace kvasir

#endif  // KVASIR_CONVERT_GGUF_SHAPE_PAIRS_H_
