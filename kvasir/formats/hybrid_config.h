// Models most of whose layers have a state in place of keys and values: LFM2 (short convolutions)
// and Granite's (Mamba-2) with what is of their class. Qwen's delta nets are in layer_config.h.
// Deliberately only checked numbers: what a layer computes with them is the model layer's business.
#ifndef KVASIR_FORMATS_HYBRID_CONFIG_H_
#define KVASIR_FORMATS_HYBRID_CONFIG_H_

#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/formats/config_defaults.h"
#include "kvasir/formats/config_reader.h"
#include "kvasir/formats/model_config.h"

namespace kvasir {

// LFM2 before layer_types: all layers that "full_attn_idxs" does not list. ERRORS: as
// ModelConfig::Parse, as of all.
Result<std::vector<LayerKind>> ReadConvLayers(const ConfigReader& reader, const ModelConfig& model);
// These read on where `model` has its sizes and layer kinds.
Status ReadLfm2Layers(const ConfigReader& reader, const ConfigDefaults& defaults,
                      ModelConfig* model);
// Granite 4's hybrid class, which also has models of attention alone. Reads layer kinds.
Status ReadGraniteHybrid(const ConfigReader& reader, ModelConfig* model);
// The classes of Granite 3 that it grew from: attention and experts, with an MLP beside them or
// without.
Status ReadGraniteExperts(const ConfigReader& reader, const ConfigDefaults& defaults,
                          ModelConfig* model);

}  // namespace kvasir

#endif  // KVASIR_FORMATS_HYBRID_CONFIG_H_
