// How a model's generation_config.json wants its tokens chosen, for requests that do not say.
#ifndef KVASIR_ENGINE_RECOMMENDED_SAMPLING_H_
#define KVASIR_ENGINE_RECOMMENDED_SAMPLING_H_

#include "kvasir/formats/generation_config.h"
#include "kvasir/sampling/sampling_options.h"

namespace kvasir {

// `temperature` is for models that recommend none; 0 where greedy choice is recommended. Always
// valid (SamplingOptions::Validate).
SamplingOptions RecommendedSampling(const GenerationConfig& recommended, double temperature);

}  // namespace kvasir

#endif  // KVASIR_ENGINE_RECOMMENDED_SAMPLING_H_
