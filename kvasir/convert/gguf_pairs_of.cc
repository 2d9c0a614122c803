#include "kvasir/convert/gguf_pairs_of.h"

#include <algorithm>
#include <limits>
#include <optional>

#include "kvasir/convert/gguf_shape_pairs.h"
#include "kvasir/convert/gguf_tokenizer_pairs.h"
#include "kvasir/formats/gguf_config.h"

namespace kvasir {
namespace {

void AddSampling(const GenerationConfig& generation, GgufPairs* pairs) {
  const auto add = [&](std::string_view key, const std::optional<double>& value) {
    if (value) pairs->AddF32(key, static_cast<float>(*value));
  };
  const bool is_greedy = !generation.do_sample.value_or(true);
  add(kGgufTemperature, is_greedy ? 0.0 : generation.temperature);
  add(kGgufTopP, generation.top_p);
  add(kGgufMinP, generation.min_p);
  add(kGgufRepetition, generation.repetition_penalty);
  // More than any vocabulary has is all of it.
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  if (generation.top_k) {
    pairs->AddI32(kGgufTopK, static_cast<int32_t>(std::min(*generation.top_k, kMost)));
  }
}

}  // namespace

Result<GgufPairs> GgufPairsOf(const ModelSource& source, const ModelConfig& config) {
  GgufPairs pairs;
  const Status shape = AddGgufShape(config, &pairs);
  if (!shape.ok()) return WithContext(shape.error(), source.path() + "/config.json");
  AddSampling(config.generation, &pairs);
  const Status tokenizer = AddGgufTokenizer(source, config, &pairs);
  if (!tokenizer.ok()) return WithContext(tokenizer.error(), source.path() + "/tokenizer.json");
  return pairs;
}

}  // namespace kvasir
