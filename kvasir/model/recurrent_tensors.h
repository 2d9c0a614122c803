// Small tensors that kinds of recurrent layers have in common, in whatever shape a file has them.
// Deliberately functions: which names there are is each layer's own.
#ifndef KVASIR_MODEL_RECURRENT_TENSORS_H_
#define KVASIR_MODEL_RECURRENT_TENSORS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "kvasir/model/weight_source.h"

namespace kvasir {

// The weights of a depthwise convolution, [width, channels], the oldest input's first. ERRORS: as
// WeightSource.
Result<std::vector<float>> LoadTaps(WeightSource& source, const std::string& name, int64_t channels,
                                    int64_t width);
// `count` numbers, of a vector or of a matrix row by row. ERRORS: as WeightSource.
Result<std::vector<float>> LoadNumbers(WeightSource& source, const std::string& name,
                                       int64_t count);
// How fast each head's state fades, >= 0: of logarithms, `prefix` + "A_log", or as GGUF files have
// them, "A", negative. ERRORS: as WeightSource.
Result<std::vector<float>> LoadDecayRates(WeightSource& source, const std::string& prefix,
                                          int64_t heads);

}  // namespace kvasir

#endif  // KVASIR_MODEL_RECURRENT_TENSORS_H_
