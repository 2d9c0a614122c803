#include "kvasir/convert/gguf_pairs_of.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

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

// Four numbers, the last ones 0. They say nothing about text, but readers want them.
std::vector<int32_t> RopeSections(const Json& config) {
  const Json* level = config.Find("text_config");
  if (level == nullptr) level = &config;
  for (const char* const name : {"rope_parameters", "rope_scaling"}) {
    const Json* const rope = level->Find(name);
    const Json* const stored =
        rope != nullptr && rope->is_object() ? rope->Find("mrope_section") : nullptr;
    if (stored == nullptr || !stored->is_array()) continue;
    constexpr size_t kSections = 4;
    std::vector<int32_t> sections;
    for (const Json& number : stored->as_array()) {
      if (!number.is_int() || number.as_int() < 0 || number.as_int() > 1 << 16) return {};
      sections.push_back(static_cast<int32_t>(number.as_int()));
    }
    if (sections.size() > kSections) return {};
    sections.resize(kSections);
    return sections;
  }
  return {};
}

}  // namespace

Result<GgufPairs> GgufPairsOf(const ModelSource& source, const ModelConfig& config,
                              int draft_layers) {
  GgufPairs pairs;
  const GgufShapeExtras extras = {RopeSections(source.config()), draft_layers};
  const Status shape = AddGgufShape(config, extras, &pairs);
  if (!shape.ok()) return WithContext(shape.error(), source.path() + "/config.json");
  AddSampling(config.generation, &pairs);
  const Status tokenizer = AddGgufTokenizer(source, config, &pairs);
  if (!tokenizer.ok()) return WithContext(tokenizer.error(), source.path() + "/tokenizer.json");
  return pairs;
}

}  // namespace kvasir
