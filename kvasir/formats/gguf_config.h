// From a GGUF file's metadata to the ModelConfig that a config.json would give.
// Deliberately goes through ModelConfig::Parse, so that every limit and default is in one place.
#ifndef KVASIR_FORMATS_GGUF_CONFIG_H_
#define KVASIR_FORMATS_GGUF_CONFIG_H_

#include <string_view>

#include "kvasir/base/result.h"
#include "kvasir/formats/gguf.h"
#include "kvasir/formats/model_config.h"

namespace kvasir {

// What a file recommends: float numbers, and a whole one.
inline constexpr std::string_view kGgufTemperature = "general.sampling.temp";
inline constexpr std::string_view kGgufTopP = "general.sampling.top_p";
inline constexpr std::string_view kGgufMinP = "general.sampling.min_p";
inline constexpr std::string_view kGgufRepetition = "general.sampling.penalty_repeat";
inline constexpr std::string_view kGgufTopK = "general.sampling.top_k";

// Architectures llama, qwen2, qwen3, qwen3moe, gemma2, gemma3 and gemma4. ERRORS: kCorrupt,
// kUnsupported; the message names the file and the metadata key, or the field of config.json that
// the key became.
Result<ModelConfig> GgufModelConfig(const GgufFile& file);
// The generation_config.json of such a folder: tokens that are never chosen, and the sampling that
// the file recommends. {} without either. ERRORS: kCorrupt, as above.
Result<Json> GgufGenerationJson(const GgufFile& file);
// The config.json of a checkpoint with the same weights. ERRORS: as above; kUnsupported for what no
// config.json can say.
Result<Json> GgufConfigJson(const GgufFile& file);

}  // namespace kvasir

#endif  // KVASIR_FORMATS_GGUF_CONFIG_H_
