// What differs from layer to layer in a model's config: windows, experts, delta nets, heads of
// full-attention layers, keys and values shared with an earlier layer.
// Deliberately only checked numbers: what a layer computes with them is the model layer's business.
#ifndef KVASIR_FORMATS_LAYER_CONFIG_H_
#define KVASIR_FORMATS_LAYER_CONFIG_H_

#include <cstdint>
#include <string_view>

#include "kvasir/base/result.h"
#include "kvasir/formats/config_defaults.h"
#include "kvasir/formats/config_reader.h"
#include "kvasir/formats/model_config.h"

namespace kvasir {

// Which layers slide, and their window. ERRORS: as ModelConfig::Parse.
Status ReadLayerKinds(const ConfigReader& reader, const ConfigDefaults& defaults,
                      ModelConfig* model);
// Experts by the fields that a family has for them, and what its class fills in. ERRORS: as
// ModelConfig::Parse.
Result<ExpertsConfig> ReadExperts(const ConfigReader& reader, std::string_view count_field,
                                  int64_t count, std::string_view chosen_field, int64_t chosen,
                                  std::string_view size_field, int64_t size);
// These read on where `model` has its sizes and layer kinds. `per_layer_default`: the
// per_layer_embedding_size of a file that says none. ERRORS: as ModelConfig::Parse.
Status ReadQwenExperts(const ConfigReader& reader, ModelConfig* model);
Status ReadQwen35Layers(const ConfigReader& reader, const ConfigDefaults& defaults,
                        ModelConfig* model);
// SmolLM3: layers whose queries and keys do not turn.
Status ReadStillLayers(const ConfigReader& reader, ModelConfig* model);
Status ReadGptOssExperts(const ConfigReader& reader, ModelConfig* model);
Status ReadGemma4Layers(const ConfigReader& reader, int64_t per_layer_default, ModelConfig* model);

}  // namespace kvasir

#endif  // KVASIR_FORMATS_LAYER_CONFIG_H_
