#include "kvasir/engine/recommended_sampling.h"

#include <algorithm>
#include <limits>

namespace kvasir {

SamplingOptions RecommendedSampling(const GenerationConfig& recommended, double temperature) {
  SamplingOptions options;
  options.temperature =
      recommended.do_sample.value_or(true) ? recommended.temperature.value_or(temperature) : 0.0;
  options.top_k = recommended.top_k.value_or(0);
  // 0 is allowed in files and leaves the likeliest token.
  options.top_p = std::max(recommended.top_p.value_or(1.0), std::numeric_limits<double>::min());
  options.min_p = recommended.min_p.value_or(0.0);
  options.repetition_penalty = recommended.repetition_penalty.value_or(1.0);
  return options;
}

}  // namespace kvasir
