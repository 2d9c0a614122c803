// Models most of whose layers have a state in place of keys and values: LFM2 (short convolutions)
// and Granite 4's hybrids (Mamba-2). Qwen's delta nets are in layer_config.h.
// Deliberately only checked numbers: what a layer computes with them is the model layer's business.
#ifndef KVASIR_FORMATS_HYBRID_CONFIG_H_
#define KVASIR_FORMATS_HYBRID_CONFIG_H_

#include "kvasir/base/result.h"
#include "kvasir/formats/config_defaults.h"
#include "kvasir/formats/config_reader.h"
#include "kvasir/formats/model_config.h"

namespace kvasir {

// These read on where `model` has its sizes and layer kinds. ERRORS: as ModelConfig::Parse.
Status ReadLfm2Layers(const ConfigReader& reader, const ConfigDefaults& defaults,
                      ModelConfig* model);
// Granite 4's hybrid class, which also has models of attention alone. Reads layer kinds.
Status ReadGraniteHybrid(const ConfigReader& reader, ModelConfig* model);

}  // namespace kvasir

#endif  // KVASIR_FORMATS_HYBRID_CONFIG_H_
