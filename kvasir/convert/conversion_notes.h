// What a copy of a model will lack, or have otherwise, than the model: for people, before it is
// made. Deliberately no errors: what cannot be converted at all is said by who converts.
#ifndef KVASIR_CONVERT_CONVERSION_NOTES_H_
#define KVASIR_CONVERT_CONVERSION_NOTES_H_

#include <string>
#include <vector>

#include "kvasir/convert/model_source.h"

namespace kvasir {

// Whether some weights of a GGUF file are quantized, which folders have no type for.
bool HasQuantizedTensors(const ModelSource& source);

struct ConversionTarget {
  bool is_gguf = false;    // else a folder
  bool is_stored = false;  // the types of weights stay
};

// One line each, without a newline.
std::vector<std::string> ConversionNotes(const ModelSource& source, const ConversionTarget& target);

}  // namespace kvasir

#endif  // KVASIR_CONVERT_CONVERSION_NOTES_H_
